"""Many cases in one test, which names all that do not hold."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def for_each(name: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Give a test each value of an argument, as `parametrize` does, but as one test.

    For what takes no time: a thousand tests of a millisecond are seconds of bookkeeping, and names
    that nobody reads.
    """

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def whole(**given: Any) -> None:
            wrong: list[str] = []
            for value in values:
                try:
                    test(**given, **{name: value})
                except AssertionError as error:
                    wrong.append(f"{name} {value}: {error}")
            assert not wrong, "\n".join(wrong)

        # What pytest asks for the fixtures.
        signature = inspect.signature(test)
        rest = [p for key, p in signature.parameters.items() if key != name]
        whole.__signature__ = signature.replace(parameters=rest)  # pyright: ignore
        return whole

    return decorate
