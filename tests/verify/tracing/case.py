"""A target that is checked, with what the checker has to say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pullback.verify.probes import every_probe
from tests.verify.case import Made

# Only what looks at the trace: the others have tests of their own.
FAMILY = [p.code for p in every_probe() if p.code < "PB530" or "PB650" <= p.code < "PB660"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One target: the code that it has to get, None for no fault, and words of the message."""

    make: Callable[[], Made]
    code: str | None
    says: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As a test's name."""
        return f"{self.code or 'right'}-{self.make.__name__}"


FAULTS: list[Case] = []
RIGHT: list[Case] = []


def fault(code: str, *says: str) -> Callable[[Callable[[], Made]], None]:
    """Add a target with a fault."""

    def add(make: Callable[[], Made]) -> None:
        FAULTS.append(Case(make=make, code=code, says=says))

    return add


def right(make: Callable[[], Made]) -> None:
    """Add a target without a fault."""
    RIGHT.append(Case(make=make, code=None))
