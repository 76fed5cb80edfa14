"""Warms up the compiler: importing this module compiles a trivial Function.

PyTorch's first compilation imports and sets up things for more than a second. Probes that compile
name this module in `imports`, so that it is done once, before the process is forked.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from torch import Tensor

# If we passed the backend's name, PyTorch would import all the other backends too.
from torch._dynamo.backends.debugging import aot_eager

__all__ = ["compile_traced"]


def compile_traced(function: Any) -> Any:  # noqa: ANN401  (a function like the one that is given)
    """Return a function compiled by a backend that runs traced graphs as they are."""
    torch._dynamo.reset()
    return torch.compile(function, backend=aot_eager)


class Trivial(torch.autograd.Function):
    """The Function that is compiled to warm up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # noqa: ANN401
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0]


def warm_up() -> None:
    """Compile once, forward and backward."""
    # A program may have replaced `Function.apply` by something that cannot be traced.
    with warnings.catch_warnings(), torch.enable_grad(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        compile_traced(Trivial.apply)(torch.ones(2, requires_grad=True)).sum().backward()


warm_up()
