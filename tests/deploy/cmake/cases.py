"""Calls of the author's operators: made alike in Python's process and in that of the library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def cases() -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Return calls by what is special about them: an operator and its arguments."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    half, single = torch.bfloat16, torch.float32
    return {
        "broadcast": ("multiply", (random(3, 1, 5), random(4, 5))),
        "single": ("multiply", (random(6, dtype=single), random(6, dtype=single))),
        "strided": ("multiply", (random(5, 4).t(), random(4, 5))),
        "defaults": ("affine", (random(5), random(5))),
        "without bias": ("affine", (random(5), None)),
        "scalars": ("affine", (random(2, 3), random(3), 0.5, True, "up")),
        "size from a scalar": ("repeat", (random(3, 2), 3)),
        "a formula": ("bias", (random(4, 3), random(3))),
        "a formula in bfloat16": ("bias", (random(4, 3, dtype=half), random(3, dtype=half), 0.5)),
        "a formula of strided inputs": ("bias", (random(3, 40, 2).permute(2, 1, 0), random(3))),
        "a large formula": ("bias", (random(300, 300, dtype=single), random(300, dtype=single))),
        "two outputs": ("plane", (random(7), random(7))),
        "empty": ("bias", (random(0, 3), random(3))),
    }


def outcome(operators: Any, name: str, arguments: tuple[Any, ...]) -> list[Tensor | None]:
    """Return what a call gives: its outputs, then the gradients of its inputs."""
    leaves = [a.clone().requires_grad_() if isinstance(a, Tensor) else a for a in arguments]
    outputs = getattr(operators, name)(*leaves)
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    grads: list[Tensor | None] = [None] * len(tensors)
    if name != "repeat":
        loss = torch.stack([(k + 1) * o.cos().sum() for k, o in enumerate(outputs)]).sum()
        grads = list(torch.autograd.grad(loss, tensors, allow_unused=True))
    return [o.detach() for o in outputs] + grads
