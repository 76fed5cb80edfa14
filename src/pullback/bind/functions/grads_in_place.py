"""Copies of the gradients for a backward that writes into them.

PyTorch may pass one gradient to several nodes, and an expanded one is a single number in memory. A
backward that never writes gets them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pullback.bind.example.trial import identical
from pullback.bind.levels import is_hold, is_legacy, unwrap
from pullback.diagnostic import Rule

WritesGradient = Rule("PB380", "writes-gradient")

PLAIN = (Tensor, torch.nn.Parameter)


def protect_grads(backward: Callable[..., Any], of: str) -> Callable[..., Any]:
    """Return a backward that leaves the gradients that arrive as they are.

    Whether it has to copy them is found out at the first call, on copies.

    Args:
        backward: an author's.
        of: its name in messages.
    """
    writes: bool | None = None

    def pull(ctx: Any, *grads: Tensor | None) -> Any:  # noqa: ANN401
        nonlocal writes
        if writes is False:
            before = [g._version for g in grads if g is not None]
            returned = backward(ctx, *grads)
            if before != [g._version for g in grads if g is not None]:
                writes = True
                raise WritesGradient.error(
                    f"{of} wrote into the gradient that arrives, which others may read too; at its "
                    "first call it did not",
                    help="clone it in backward; in this process it gets a copy from now on",
                )
            return returned
        own = [None if g is None else g.clone() for g in grads]
        counts = [g._version for g in own if g is not None]
        returned = backward(ctx, *own)
        if writes is None and counts != [g._version for g in own if g is not None]:
            writes = True
        if writes is None and not is_hold() and all(map(is_plain, grads)):
            writes = not all(map(is_same, own, grads))
        return returned

    return pull


def is_plain(grad: Tensor | None) -> bool:
    """Return whether the values of a gradient can be read."""
    if grad is None:
        return True
    batched = is_legacy(grad) or unwrap(grad) is not grad
    return type(grad) in PLAIN and not batched and grad.layout == torch.strided


def is_same(own: Tensor | None, grad: Tensor | None) -> bool:
    """Return whether a copy still has the values of the original."""
    return own is None or grad is None or identical(own.detach(), grad.detach())
