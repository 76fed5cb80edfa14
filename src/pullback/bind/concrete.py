"""Ordinary tensors that stand in for those of a transform or a tracer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]

from pullback.bind.levels import is_legacy, is_smooth


def make_stand_in(value: Any) -> Any:  # noqa: ANN401
    """Return a tensor of random numbers, or of zeros if it may be an index; others as they are."""
    if not isinstance(value, Tensor):
        return value
    make = torch.rand if is_smooth(value) else torch.zeros
    return make([int(size_hint(n)) for n in value.shape], dtype=value.dtype, device=value.device)


def size_hint(size: Any) -> Any:  # noqa: ANN401
    """Return the hint of a symbolic size, None if it has none; other values as they are."""
    return size.node.hint if isinstance(size, torch.SymInt | torch.SymFloat) else size


def unwrap_values(tensor: Tensor | None) -> Tensor | None:
    """Return the values of a tensor inside transforms; for a batch, its first element.

    A traced tensor has no values, and gets a stand-in. Call this outside of all levels.
    """
    while tensor is not None and _functorch.is_functorch_wrapped_tensor(tensor):
        inner, dim = _functorch.get_unwrapped(tensor), _functorch.maybe_get_bdim(tensor)
        if dim >= 0:
            inner = inner.select(dim, 0) if inner.shape[dim] else make_stand_in(tensor)
        tensor = inner
    if tensor is None:
        return None
    has_values = type(tensor) in (Tensor, torch.nn.Parameter) and not is_legacy(tensor)
    return tensor.detach() if has_values else make_stand_in(tensor)


def metadata_of(tensor: Tensor | None) -> object:
    """Return all that code may branch on in a tensor, except its values."""
    if tensor is None:
        return None
    return (*map(size_hint, tensor.shape), tensor.dtype, tensor.device, tensor.layout)
