"""Operators of every kind, and how the tests export a function of tensors that calls them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import Tensor, nn

import pullback as pb
from pullback.bind.functions.context import Context
from pullback.define.operator import Definition
from pullback.deploy.onnx import translation
from pullback.deploy.onnx.call import OnnxCall

# The same in float32 and float64, for optional and required tensors, scalars of every type.
swish = pb.operator(
    "pbonnx::swish(x[..., n], b[n]?, beta: float = 1.5) -> y[..., n] = x*sigmoid(beta*x) + b"
)


def halves(x: Tensor, k: int = 2, *, up: bool = True) -> tuple[Tensor, Tensor]:
    middle = x.shape[-1] // 2
    return x[..., :middle] * k, x[..., middle:] + (1 if up else -1)


split = pb.operator(
    "pbonnx::split(x[..., n], k: int = 2, up: bool = True) -> (a[..., n // 2], b[..., n - n // 2])",
    python=lambda x, k, up: tuple(part.clone() for part in halves(x, k, up=up)),
    reference=lambda x, k, up: halves(x, k, up=up),
)
picked = pb.operator(
    "pbonnx::picked(x[n, d], index[m]: int64, keep[m]: bool) -> (y[m, d], of[m]: int64)",
    python=lambda x, i, keep: (x[i] * keep[:, None], torch.where(keep, i, -1)),
)


class Linear(torch.autograd.Function):
    """x Wᵀ + b, in the style of tutorials."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        output = x.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x, grad.sum(0)


linear = pb.operator("pbonnx::linear(x[n, i], weight[o, i], bias[o]?) -> y[n, o]", function=Linear)


class Calling(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def call_of(function: type[Any], *args: Any) -> OnnxCall:
    """Return a call of a Function as the exporter sees it."""
    outputs = function.forward(Context(), *args)
    line = translation.line_of(function, args, [outputs])
    given = {
        p.name: translation.value_of(value) for p, value in zip(line.parameters, args, strict=True)
    }
    definition = Definition(line=line, function=function)
    return OnnxCall(
        definition=definition, given=given, opset=18, outputs=[translation.value_of(outputs)]
    )


def export(
    function: Callable[..., Any], *args: Any, path: Path, dynamic: bool = False, **options: Any
) -> ir.Model:
    """Export a function of tensors; the first dimension of each may vary."""
    if dynamic:
        sizes = tuple({0: "batch"} if isinstance(a, Tensor) else None for a in args)
        options["dynamic_shapes"] = (sizes,)
    names = [f"in{k}" for k in range(len(args))]
    module = Calling(function).eval()
    program = pb.export_onnx(module, args, path, input_names=names, **options)
    onnx.checker.check_model(path, full_check=True)
    return program.model


def inputs(*args: Tensor) -> dict[str, Tensor]:
    """Return arguments by the names that `export` gives them."""
    return {f"in{k}": value for k, value in enumerate(args)}


def own_nodes(model: ir.Model) -> list[ir.Node]:
    """Return the nodes that are none of ONNX's."""
    return [node for node in ir.traversal.RecursiveGraphIterator(model.graph) if node.domain]


def called(model: ir.Model) -> list[str]:
    """Return what those nodes are called."""
    return [f"{node.domain}::{node.op_type}" for node in own_nodes(model)]
