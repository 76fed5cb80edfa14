"""What every example here does: compare an operator with its reference, and print a loss."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def compare(
    own: Callable[..., Any], theirs: Callable[..., Any], tensors: dict[str, Tensor]
) -> float:
    """Print how far values and gradients are apart, relative to the greatest; return the worst.

    Args:
        own: the operator.
        theirs: its reference.
        tensors: what both take, in float64; the names of integer tensors have no gradient.
    """
    found = [_results(way, list(tensors.values())) for way in (own, theirs)]
    names = ["value", *(f"gradient of {n}" for n, t in tensors.items() if t.is_floating_point())]
    worst = 0.0
    for name, ours, wanted in zip(names, *found, strict=True):
        apart = ((ours - wanted).abs().max() / wanted.abs().max().clamp(min=1e-300)).item()
        worst = max(worst, apart)
        print(f"  {name:28}{apart:10.1e} apart")
    return worst


def _results(way: Callable[..., Any], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the value, and the gradients of a sum in which each element has its own weight."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    value = way(*leaves)
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [value.detach(), *torch.autograd.grad((weights * value).sum(), wanted)]


def minimise(
    loss: Callable[[], Tensor], parameters: Sequence[Tensor], *, steps: int, lr: float
) -> dict[str, float]:
    """Train by Adam; print the loss now and then, and return the first and the last one."""
    optimizer = torch.optim.Adam(parameters, lr=lr)
    losses: list[float] = []
    for step in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
        if step % max(steps // 4, 1) == 0 or step == steps - 1:
            print(f"  step {step:4d}   loss {losses[-1]:10.3e}")
    return {"first": losses[0], "last": losses[-1]}
