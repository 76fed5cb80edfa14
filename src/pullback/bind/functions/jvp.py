"""Forward mode of a Function: by its own jvp, or by two reverse passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.context import State, put_together
from pullback.bind.functions.eager import require_derivative
from pullback.bind.functions.residuals import ForwardPass, Pull
from pullback.bind.functions.trial import kind_of
from pullback.bind.levels import copy_requiring_grad, differentiate, is_smooth, materialize_tangent
from pullback.define.derivative import NoForwardMode

if TYPE_CHECKING:
    from pullback.bind.functions.transforms import Nested

Tangents = Sequence[Tensor | None]


def attach_tangents(
    nested: Nested, state: State, passed: ForwardPass, tangents: Tangents, pull: Pull
) -> ForwardPass:
    """Return the outputs of a call with their tangents.

    Args:
        nested: the Function's autograd kernels.
        state: what forward left on `ctx`.
        passed: what forward returned for inputs without tangents.
        tangents: of the flat arguments.
        pull: the tensors of the call.
    """
    pull = replace(pull, needs=[tangent is not None for tangent in tangents])
    if nested.adopted.push is not None:
        pushed = jvp_by_function(nested.adopted, state, tangents, pull)
    else:
        pushed = jvp_by_double_backward(nested, state, passed, tangents, pull)
    outputs = [
        output
        if tangent is None or index in state.non_differentiable
        else forward_ad.make_dual(output, tangent)
        for index, (output, tangent) in enumerate(zip(passed.outputs, pushed, strict=True))
    ]
    return replace(passed, outputs=outputs)


def jvp_by_function(adopted: Adopted, state: State, tangents: Tangents, pull: Pull) -> Tangents:
    """Return the tangents that the Function's own jvp gives."""
    needs = adopted.as_forward(pull.needs, pull.lengths)
    ctx = put_together(state, pull.inputs, pull.outputs, pull.kept, needs)
    ctx.saved_tensors = ctx.saved_for_forward
    filled = [materialize_tangent(t, value) for t, value in zip(tangents, pull.inputs, strict=True)]
    returned = adopted.push(ctx, *adopted.as_forward(filled, pull.lengths))
    return returned if isinstance(returned, tuple) else [returned]


def jvp_by_double_backward(
    nested: Nested, state: State, passed: ForwardPass, tangents: Tangents, pull: Pull
) -> Tangents:
    """Return J v as the derivative of uᵀJ by u, transposed.

    Source: J. Townsend, "A new trick for calculating Jacobian vector products" (2017).
    """
    require_derivative(nested.adopted)
    outputs = [
        output if is_smooth(output) and k not in state.non_differentiable else None
        for k, output in enumerate(pull.outputs)
    ]

    def run(grads: Tangents) -> Sequence[Tensor]:
        return nested.opaquely(passed, replace(pull, grads=grads))

    nested.tried.require_linear(kind_of(state, pull), run, outputs)
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        # Ones and not zeros, though J is linear in them: zeros would hide a cut-off gradient.
        seeds = [
            None if output is None else copy_requiring_grad(torch.ones_like(output))
            for output in outputs
        ]
        pulled = nested.differentiably(state, passed, replace(pull, grads=seeds), NoForwardMode)
        wanted = [tangent for tangent in tangents if tangent is not None]
        inputs = [each for each in seeds if each is not None]
        pairs = list(zip(pulled, wanted, strict=True))
        found = differentiate(pairs, inputs, differentiable=differentiable)
    each_found = iter(found)
    return [None if each is None else next(each_found) for each in seeds]
