"""Does an author's code compute gradients itself? Such code has to run as it does above autograd.

That costs a small call a quarter of its time, so the code and all that it may call is searched
first. If that is too much to read, the answer is yes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

# A kernel runs under no_grad, so code that records a gradient has to use one of these names.
WORDS = {"enable_grad", "set_grad_enabled", "autograd", "func", "functorch"}
HOMES = ("torch.autograd", "torch.func", "torch._functorch", "functorch")
# Libraries whose own code need not be read.
KNOWN = {"torch", "numpy", "scipy", "math", "builtins", "pullback", "numba", "triton", "functools"}
CONTAINERS = (list, tuple, set, frozenset)
MOST = 1000  # pieces of code that are read


def computes_gradients(function: Callable[..., object]) -> bool:
    """Return whether a function may record a gradient for its own use."""
    todo: list[Any] = [function]
    seen: dict[int, object] = {}
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        home = home_of(one)
        if home.startswith(HOMES) or len(seen) > MOST:
            return True
        if isinstance(one, (*CONTAINERS, Mapping, functools.partial)):
            todo += parts_of(one)
        elif home.partition(".")[0] in KNOWN:
            continue
        elif isinstance(one, FunctionType):
            if WORDS & names_in(one.__code__):
                return True
            todo += iter_reachable(one)
        else:
            todo += parts_of(one)
    return False


def home_of(value: object) -> str:
    """Return the module that a value, or the class of an object, comes from."""
    home = getattr(value, "__module__", None) or type(value).__module__
    return home if isinstance(home, str) else ""


def names_in(code: CodeType) -> set[str]:
    """Return the globals and attributes that a code object, and those nested in it, use."""
    inner = (names_in(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def iter_reachable(function: FunctionType) -> Iterator[object]:
    """Yield what a function may call, judging by the names that it uses."""
    names = names_in(function.__code__)
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
    for value in values:
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in KNOWN:
                yield from (getattr(value, name) for name in names if hasattr(value, name))
        else:
            yield value


def parts_of(value: Any) -> Iterator[object]:  # noqa: ANN401
    """Yield what may run when an object, or one of its methods, is called."""
    if isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, CONTAINERS):
        yield from value
    elif isinstance(value, type):
        yield from value.__bases__
        for member in vars(value).values():
            yield getattr(member, "__func__", getattr(member, "fget", member))
    elif not isinstance(value, ModuleType):
        yield type(value)
        yield from getattr(value, "__dict__", {}).values()
