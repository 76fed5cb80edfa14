"""A call under a checkpoint: what forward saves is dropped and recomputed for backward.

This does what `torch.utils.checkpoint(use_reentrant=False)` does, whose first call imports the
compiler.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from pullback.verify.call import Call, Run
from pullback.verify.composition.composed import run_by


class OtherTensorsError(RuntimeError):
    """Forward saves other tensors when it runs again."""


def run_recomputing(call: Call) -> Run:
    """Return a run whose saved tensors are recomputed when backward first needs them.

    That may be in forward, which may contain a backward of its own.

    Raises:
        OtherTensorsError: in backward, if they differ from the first ones.
    """
    shapes: list[tuple[object, ...]] = []
    again: list[Tensor] = []
    inputs: list[Tensor] = []

    def forget(tensor: Tensor) -> int:
        shapes.append(metadata_of(tensor))
        return len(shapes) - 1

    def remake(index: int) -> Tensor:
        if not again:
            with torch.enable_grad(), saved_tensors_hooks(remember, wrong):
                call.on([leaf.detach().requires_grad_(leaf.requires_grad) for leaf in inputs])
            compare(shapes, again)
        return again[index]

    def remember(tensor: Tensor) -> Tensor:
        again.append(tensor.detach())
        return tensor

    def wrong(tensor: Tensor) -> Tensor:
        return tensor

    def first(given: Sequence[Tensor]) -> object:
        inputs.extend(given)
        return call.on(given)

    with saved_tensors_hooks(forget, remake):
        return run_by(call, first)


def metadata_of(tensor: Tensor) -> tuple[object, ...]:
    """Return the properties that have to be equal when a tensor is saved again."""
    return tuple(tensor.shape), tensor.dtype, tensor.device


def compare(first: list[tuple[object, ...]], again: list[Tensor]) -> None:
    """Stop if the tensors that were saved again differ."""
    if len(again) < len(first):
        raise OtherTensorsError(
            f"forward saved {len(first)} tensors, and {len(again)} when run again"
        )
    for index, (own, tensor) in enumerate(zip(first, again, strict=False)):
        if own != metadata_of(tensor):
            raise OtherTensorsError(
                f"saved tensor {index} was {own}, and {metadata_of(tensor)} when run again"
            )
