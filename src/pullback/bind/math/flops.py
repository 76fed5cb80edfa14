"""`FlopCounterMode` counts operators in index notation and their derivatives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.define import shape
from pullback.define.math import cost, extents
from pullback.define.math.cost import Cost
from pullback.define.operator import Definition
from pullback.define.shape import Shape
from pullback.imported import when_imported

MODULE = "torch.utils.flop_counter"


def register(definition: Definition, overload: torch._ops.OpOverload) -> None:
    """Let PyTorch's counter know an operator, as soon as there is a counter."""
    packet: Any = overload._overloadpacket

    def act() -> None:
        counter: Any = sys.modules[MODULE]
        # The counter refuses a second registration, after that of an earlier definition.
        counter.flop_registry.pop(packet, None)
        counter.register_flop_formula(packet)(count(definition))

    when_imported(MODULE, definition.line.qualname, act)


def count(definition: Definition) -> Callable[..., int]:
    """Return the function of the inputs' shapes that PyTorch's counter calls."""

    def formula(
        *shapes: object,
        output_mask: list[bool] | None = None,
        out_shape: object = None,
        **keywords: object,
    ) -> int:
        return cost_of(definition, kernel.fill_defaults(definition, shapes, output_mask)).flops

    return formula


def cost_of(definition: Definition, given: Sequence[object], itemsize: int = 4) -> Cost:
    """Return what a call costs.

    Args:
        definition: the operator.
        given: its arguments in order, with the shapes of tensors, and the mask if it has one.
        itemsize: of real numbers, in bytes.
    """
    assert definition.formula
    named = dict(zip((p.name for p in definition.line.parameters), given, strict=False))
    shapes = {t.name: cast("Shape | None", named[t.name]) for t in definition.line.tensors}
    solved = extents.with_counts(definition.formula, shape.solve(definition.line, shapes), named)
    sizes = extents.sizes_of_call(definition.formula, solved)
    known = {name: int(size) for name, size in sizes.items()}
    wanted = kernel.mask_of(definition, given)
    absent = {name for name, value in shapes.items() if value is None}
    return cost.cost(definition.formula, known, wanted, itemsize, absent=absent)


def cost_of_call(definition: Definition, args: tuple[object, ...]) -> Cost:
    """Return what a call costs, as `Operator.cost` says."""
    given = kernel.fill_defaults(definition, args, None)
    reals = [t.dtype.itemsize for t in given if isinstance(t, Tensor) and t.is_floating_point()]
    shapes = [tuple(t.shape) if isinstance(t, Tensor) else t for t in given]
    return cost_of(definition, shapes, max(reals, default=4))
