"""Backward on batched gradients: `is_grads_batched`, or `vmap` over `torch.autograd.grad`.

They reach the Function's own node, below which there is no operator with a batching rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import _VF, Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter
from torch._functorch.vmap import unwrap_batched, wrap_batched

from pullback.bind.batching import looped, stacked

transforms_active = torch._C._are_functorch_transforms_active
# What `torch.autograd.grad(is_grads_batched=True)` makes, in an older way than `torch.vmap`.
is_legacy = _functorch.is_legacy_batchedtensor

Backward = Callable[..., list[Any]]


def is_batched(grads: Sequence[Tensor | None]) -> bool:
    """Return whether gradients may be batched."""
    if transforms_active():
        return True
    for grad in grads:  # noqa: SIM110  (a generator costs as much as the rest; asked in every backward)
        if grad is not None and is_legacy(grad):
            return True
    return False


def run_batched(backward: Backward, grads: Sequence[Tensor | None]) -> list[Any]:
    """Run backward: at once, or where PyTorch cannot, as with NumPy, for each element."""
    each = each_of(grads)
    if each is None:
        return backward(*grads)
    try:
        return backward(*grads)
    except RuntimeError:
        return each(backward, grads)


def each_of(grads: Sequence[Tensor | None]) -> Callable[..., list[Any]] | None:
    """Return how backward is run for each element, None if nothing is batched."""
    if any(grad is not None and is_legacy(grad) for grad in grads):
        return each_legacy
    if transforms_active():
        return (
            each if isinstance(retrieve_current_functorch_interpreter(), VmapInterpreter) else None
        )
    return None


def each(backward: Backward, grads: Sequence[Tensor | None]) -> list[Any]:
    """Run backward for each element of gradients that `torch.vmap` batched."""
    top = retrieve_current_functorch_interpreter()
    assert isinstance(top, VmapInterpreter)
    level, size = top.level(), top.batch_size()
    plain, dims = unwrap_batched(tuple(grads), level)
    with top.lower():
        rows = looped(lambda *g: run_batched(backward, g), size, dims, plain)
        columns = stacked(rows, size)
    return list(wrap_batched(tuple(columns), tuple(c if c is None else 0 for c in columns), level))


def each_legacy(backward: Backward, grads: Sequence[Tensor | None]) -> list[Any]:
    """Run backward for each element of gradients that `is_grads_batched` batched."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    dims = [0 if grad is not None and is_legacy(grad) else None for grad in grads]
    plain: list[Any] = [
        grad if dim is None else _VF._remove_batch_dim(grad, level, 0, 0)  # pyright: ignore[reportArgumentType]
        for grad, dim in zip(grads, dims, strict=True)
    ]
    size = next(grad.shape[0] for grad, dim in zip(plain, dims, strict=True) if dim is not None)
    rows = looped(lambda *g: run_batched(backward, g), size, dims, plain)
    return [
        None if column is None else _VF._add_batch_dim(column, 0, level)
        for column in stacked(rows, size)
    ]
