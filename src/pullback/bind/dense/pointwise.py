"""Functions of the table, element by element, into unused memory where there is some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pullback.bind.dense import slices
from pullback.bind.dense.elements import torch_function
from pullback.bind.dense.value import Axis, Value, align, join_axes
from pullback.define.math.functions import TABLE
from pullback.define.math.node import Node

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env

# Python's own division stops at zero, where that of tensors gives infinity or NaN.
DIVIDING = ("div", "powi", "pow", "remainder", "fmod", "floor_divide")
# Operations that PyTorch computes into given memory; those below in either order of operands.
INTO = ("add", "mul", "sub", "div", "neg", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid")
SWAPPED = ("add", "mul")


def compute_function(
    dense: Dense, node: Node, args: Sequence[Value], free: Sequence[bool], env: Env
) -> Value:
    """Return a function of some values.

    Args:
        dense: the call.
        node: the function.
        args: its operands.
        free: which of them nothing else uses.
        env: how far the indices run.
    """
    simple = _fold_constant(node, args)
    if simple is not None:
        return simple
    axes = join_axes(args, dense.space.axes(env))
    slices.require_small(dense, axes, env)
    operands = [align(arg, axes) for arg in args]
    if any(free):
        data = _compute_into(dense, node, args, operands, free, axes)
        if data is not None:
            return Value(data, axes)
    data = _compute_fresh(dense, node, operands)
    own = not any(data is x for x in operands)
    return Value(data, axes if isinstance(data, Tensor) else (), own)


def _fold_constant(node: Node, args: Sequence[Value]) -> Value | None:
    """Return the value of a selection, or of a condition, that is the same everywhere."""
    if node.op == "where" and isinstance(args[0].data, bool):
        return (args[1] if args[0].data else args[2])._replace(own=False)
    if node.op == "logical_and":
        for one, other in (args, args[::-1]):
            if isinstance(one.data, bool):
                return other._replace(own=False) if one.data else one
    return None


def _compute_fresh(dense: Dense, node: Node, operands: list[Any]) -> Any:  # noqa: ANN401
    if node.op == "where" and any(isinstance(x, Tensor) for x in operands[1:]):
        return torch.where(dense.numbers.tensor(operands[0]), *operands[1:])
    if node.op in DIVIDING and not any(isinstance(x, Tensor) for x in operands):
        operands[0] = dense.numbers.tensor(operands[0])
    return dense.numbers.compute_one(node, operands)


def _compute_into(  # noqa: PLR0913, PLR0917  (all that is known of an operation)
    dense: Dense,
    node: Node,
    args: Sequence[Value],
    operands: Sequence[Any],
    free: Sequence[bool],
    axes: Sequence[Axis],
) -> Tensor | None:
    """Return the value in the memory of an unused operand of its shape; None if there is none."""
    if node.op not in INTO or any(
        isinstance(x, Tensor) and x.dtype != dense.call.compute for x in operands
    ):
        return None
    for operand, arg, unused in zip(operands, args, free, strict=True):
        if unused and arg.own and len(arg.axes) == len(axes) and isinstance(operand, Tensor):
            if not isinstance(operands[0], Tensor):
                if node.op not in SWAPPED:
                    return None
                operands = operands[::-1]
            return torch_function(TABLE[node.op].torch)(*operands, out=operand)
    return None
