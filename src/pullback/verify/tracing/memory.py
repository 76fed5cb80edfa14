"""Which tensors share memory, which have changed, and which an object holds."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

DEPTH = 5
# At most so many objects are searched: a closure may hold a whole program.
MOST = 2000


def is_same_memory(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors are the same elements of the same memory."""
    try:
        return bool(a.numel()) and a.data_ptr() == b.data_ptr() and a.shape == b.shape
    except RuntimeError:  # no memory: a fake or functional tensor
        return False


def storage_of(tensor: Tensor) -> int | None:
    """Return the address of a tensor's memory; None if it has none."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # sparse, fake
        return None


def shares(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors are in the same memory, for example as views of each other."""
    storage = storage_of(a)
    return storage is not None and storage == storage_of(b)


def count_changed(before: Tensor, after: Tensor) -> int:
    """Return how many elements differ; a NaN is equal to a NaN."""
    after = after.detach()
    if before.shape != after.shape or before.layout != after.layout:
        return max(before.numel(), after.numel())
    if before.layout != torch.strided:
        before, after = before.to_dense(), after.to_dense()
    different = (before != after) & ~(before.isnan() & after.isnan())
    return int(different.sum())


def tensors_held(value: object, path: str, depth: int = DEPTH) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that an object holds, each with the Python expression for it.

    In lists, dicts, attributes, modules, closures and partial functions; a NumPy array is a tensor
    of the same memory.
    """
    yield from iter_held(value, path, depth, set())


def iter_held(value: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Tensor]]:  # noqa: ANN401
    """Yield the tensors of an object that was not yet seen."""
    if isinstance(value, Tensor):
        yield path, value
        return
    if isinstance(value, np.ndarray):
        if value.flags.writeable and value.dtype.kind in "fciub":
            yield path, torch.from_numpy(value)
        return
    if depth == 0 or id(value) in seen or len(seen) > MOST:
        return
    seen.add(id(value))
    for step, inner in parts_of(value):
        yield from iter_held(inner, path + step, depth - 1, seen)


def parts_of(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    """Yield the parts of an object, each with the Python expression for it."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", inner) for key, inner in list(value.items())[:100])
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", inner) for index, inner in enumerate(list(value)[:100]))
    elif isinstance(value, nn.Module):
        yield from ((f".{name}", tensor) for name, tensor in value.named_parameters())
        yield from ((f".{name}", tensor) for name, tensor in value.named_buffers())
        own = {k: v for k, v in vars(value).items() if not k.startswith("_")}
        yield from ((f".{name}", inner) for name, inner in own.items())
    elif isinstance(value, functools.partial):
        yield from ((f".args[{index}]", inner) for index, inner in enumerate(value.args))
        yield from ((f".keywords[{key!r}]", inner) for key, inner in value.keywords.items())
    elif isinstance(value, types.FunctionType):
        yield from closure_of(value)
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif not isinstance(value, type | types.ModuleType) and has_attributes(value):
        yield from ((f".{name}", inner) for name, inner in list(vars(value).items())[:100])
    for name in getattr(type(value), "__slots__", ()) if not isinstance(value, type) else ():
        if isinstance(name, str) and hasattr(value, name):
            yield f".{name}", getattr(value, name)


def has_attributes(value: object) -> bool:
    """Tell whether one of the author's objects has attributes to search."""
    return hasattr(value, "__dict__") and not type(value).__module__.startswith("torch.")


def closure_of(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the values in a function's closure and defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield f" closure {name}", cell.cell_contents
        except ValueError:  # empty yet
            continue
    for index, default in enumerate(function.__defaults__ or ()):
        yield f" default {index}", default
