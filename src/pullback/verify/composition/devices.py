"""A Function on a device that this machine need not have: forward and backward on fake tensors.

Autograd on a fake CUDA tensor crashes a PyTorch that was built without CUDA, so the author's
functions are called by themselves, with a stand-in for ctx.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree

from pullback.verify.call import Call, tensors_in
from pullback.verify.target import Part

# The second GPU: "cuda" and "cuda:0" are other devices too.
ELSEWHERE = torch.device("cuda", 1)
# Where a fake GPU is too much for a PyTorch without CUDA.
NOWHERE = torch.device("meta")


class StandIn:
    """The parts of ctx that a Function's own code can use."""

    def __init__(self, needs_input_grad: Any) -> None:  # noqa: ANN401
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:  # noqa: ANN401
        """Keep tensors."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:  # noqa: ANN401
        """Do nothing: there is no forward mode here."""

    def mark_dirty(self, *tensors: Any) -> None:  # noqa: ANN401
        """Do nothing: there is no graph."""

    def mark_non_differentiable(self, *tensors: Any) -> None:  # noqa: ANN401
        """Do nothing: all gradients arrive."""

    def set_materialize_grads(self, value: bool) -> None:
        """Do nothing: all gradients arrive."""


def run_elsewhere(call: Call, device: torch.device = ELSEWHERE) -> tuple[tuple[Any, ...], Any]:
    """Run forward and backward on tensors of another device, which are fake or have no memory.

    Returns:
        The arguments there, and what backward gave.
    """
    mode: Any = nullcontext() if device.type == "meta" else FakeTensorMode()
    with torch.no_grad(), mode:
        given = [
            torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=device)
            for v in (leaf.value for leaf in call.leaves)
        ]
        arguments, keywords, _ = call.filled(given)
        ctx, outputs = forward(call, call.target.parts, arguments, dict(keywords))
        grads = [torch.empty_like(output) for output in outputs]
        return arguments, call.target.parts["backward"](ctx, *grads)


def forward(
    call: Call, parts: Mapping[Part, Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[StandIn, tuple[Tensor, ...]]:
    """Run forward, and setup_context where there is one."""
    wanted = iter(call.leaves)
    needs = _pytree.tree_map(
        lambda leaf: isinstance(leaf, Tensor) and next(wanted).wanted, list(arguments)
    )
    ctx = StandIn(tuple(needs))
    if call.target.kind == "library":
        returned = call.target.call(*arguments, **keywords)
    elif "setup" in parts:
        returned = parts["forward"](*arguments, **keywords)
    else:
        returned = parts["forward"](ctx, *arguments, **keywords)
    if "setup" in parts:
        parts["setup"](ctx, arguments, returned)
    return ctx, tensors_in(returned)
