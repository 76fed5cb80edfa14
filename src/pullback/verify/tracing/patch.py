"""Temporary replacements of the author's functions."""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from torch.autograd import Function

# Calls a Function with these arguments and keywords.
Apply = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
# What `Function.apply` currently does, the innermost last.
watching: list[Apply] = []


@functools.cache
def pytorch_apply() -> Any:  # noqa: ANN401
    """Return the function that PyTorch defines as `Function.apply`.

    A program may have replaced it by another one, which calls it.
    """
    own = getattr(Function.__dict__["apply"], "__func__", None)
    alive = [own, *(f for f in gc.get_objects() if type(f) is types.FunctionType)]
    return next((f for f in alive if is_pytorchs(f)), None)


def is_pytorchs(function: Any) -> bool:  # noqa: ANN401
    """Tell whether a function is what PyTorch defines as `Function.apply`."""
    code = getattr(function, "__code__", None)
    names = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    defined = names == ("torch.autograd.function", "Function.apply")
    return defined and code is not None and code.co_freevars == ("__class__",)


def make_apply() -> Callable[..., Any]:
    """Return a replacement for `Function.apply`, with the same free variable."""
    __class__ = Function

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        # It runs with the globals of PyTorch's module.
        from pullback.verify.tracing.patch import watching  # noqa: PLC0415

        _ = __class__
        return watching[-1](cls, args, kwargs)

    return apply


@contextmanager
def apply_watched(
    watch: Callable[[Apply, Any, tuple[Any, ...], dict[str, Any]], Any],
) -> Generator[None]:
    """Call `watch` for each call of a Function; its first argument makes the call.

    Also if an author wrote `square = Square.apply` long before: that refers to the function, so its
    code is replaced, and not the attribute.
    """
    own = pytorch_apply()
    code = own.__code__
    real = types.FunctionType(code, own.__globals__, "apply", None, own.__closure__)

    def call(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        return real(cls, *args, **kwargs)

    before = watching[-1] if watching else call
    watching.append(functools.partial(watch, before))
    if len(watching) == 1:
        own.__code__ = make_apply().__code__
    try:
        yield
    finally:
        watching.pop()
        if not watching:
            own.__code__ = code


@contextmanager
def forward_noted(function: Any, note: Callable[[Any], None]) -> Generator[None]:  # noqa: ANN401
    """Call `note` with what an autograd.Function's forward itself returns.

    PyTorch turns an input that forward returns into a view. Its own Functions are left out.
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
