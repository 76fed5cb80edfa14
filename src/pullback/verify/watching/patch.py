"""Functions of the author's, replaced for a while."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from torch.autograd import Function

# Calls a Function with these arguments and keywords.
Apply = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
APPLY: Any = Function.__dict__["apply"].__func__
# What `Function.apply` does now, the innermost last.
watching: list[Apply] = []


def made() -> Callable[..., Any]:
    """Return a function in the place of `Function.apply`: it has the same free variable."""
    __class__ = Function

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        # It runs with the globals of PyTorch's module.
        from pullback.verify.watching.patch import watching  # noqa: PLC0415

        _ = __class__
        return watching[-1](cls, args, kwargs)

    return apply


@contextmanager
def apply_watched(
    watch: Callable[[Apply, Any, tuple[Any, ...], dict[str, Any]], Any],
) -> Generator[None]:
    """Call `watch` for each call of a Function; its first argument makes the call.

    Also where an author wrote `square = Square.apply` long before: that holds on to the function,
    so its code is exchanged, and not the attribute.
    """
    code = APPLY.__code__
    real = types.FunctionType(code, APPLY.__globals__, "apply", None, APPLY.__closure__)

    def call(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        return real(cls, *args, **kwargs)

    before = watching[-1] if watching else call
    watching.append(functools.partial(watch, before))
    if len(watching) == 1:
        APPLY.__code__ = made().__code__
    try:
        yield
    finally:
        watching.pop()
        if not watching:
            APPLY.__code__ = code


@contextmanager
def forward_noted(function: Any, note: Callable[[Any], None]) -> Generator[None]:  # noqa: ANN401
    """Tell `note` what an autograd.Function's forward itself returns.

    PyTorch makes a view of an input that forward returns as it is. Its own Functions are left out.
    """
    if function.__module__.startswith("torch."):
        yield
        return
    inherited = "forward" not in function.__dict__
    kept, real = function.__dict__.get("forward"), function.forward

    @functools.wraps(real)
    def forward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        returned = real(*args, **kwargs)
        note(returned)
        return returned

    function.forward = staticmethod(forward)
    try:
        yield
    finally:
        if inherited:
            del function.forward
        else:
            function.forward = kept
