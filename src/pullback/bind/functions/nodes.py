"""The autograd nodes of a Function's hidden operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pullback.bind.functions.eager import entitle, require_derivative
from pullback.bind.functions.recompute import Again, scalars_of
from pullback.bind.functions.residuals import ForwardPass, Pull
from pullback.bind.functions.saved import add_gradients
from pullback.bind.levels import differentiate, direct, lower, view_afresh

if TYPE_CHECKING:
    from pullback.bind.functions.transforms import Nested


@dataclass
class Recording:
    """What a node needs to know about the call that it records, besides tensors."""

    arguments: Sequence[Any]  # of the line, until forward has run
    needs: Sequence[bool]
    hold: bool
    lengths: tuple[int, ...]
    kept: int = 0
    scalars: Sequence[Any] = ()
    # Descriptions of the inputs and outputs that are not saved.
    absent: Sequence[tuple[Any, torch.dtype, torch.device] | None] = ()


def forward_node(nested: Nested) -> Any:  # noqa: ANN401
    """Return the node of the forward operator."""
    adopted, count = nested.adopted, nested.count
    forward, backward = nested.hidden.operators

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, recording: Recording, *flat: Any) -> Any:  # noqa: ANN401
            own = ctx.needs_input_grad[1:]
            needs = [a or b for a, b in zip(own, recording.needs, strict=True)]
            nested.hidden.fakes.traced.uses = None
            with lower():
                passed = ForwardPass.returned(forward(*recording.arguments, needs, recording.hold))
            states = passed.states()
            ctx.mark_non_differentiable(
                *(passed.outputs[k] for k in (states[0].non_differentiable if states else ()))
            )
            recording.kept, recording.arguments = len(passed.kept), ()
            recording.scalars = scalars_of(flat, saved=[True] * len(flat))
            ctx.recording = recording
            tensors = [*nested.inputs(flat, passed), *passed.outputs]
            uses = None if states or adopted.line.changed else nested.hidden.fakes.traced.uses
            saved = tensors if uses is None else select_used(tensors, len(flat), uses)
            recording.absent = [
                (t.shape, t.dtype, t.device) if t is not None and s is None else None
                for t, s in zip(tensors, saved, strict=True)
            ]
            ctx.save_for_backward(*saved, *passed.flat()[count:])
            ctx.set_materialize_grads(False)
            return tuple(passed.flat())

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
            require_derivative(adopted)
            recording: Recording = ctx.recording
            # Read once: a checkpoint unpacks no tensor twice.
            pairs: Any = zip_longest(ctx.saved_tensors, recording.absent)
            saved = [t if absent is None else make_stand_in(*absent) for t, absent in pairs]
            inputs = saved[: len(recording.scalars)]
            passed = ForwardPass.of(saved[len(recording.scalars) :], count, recording.kept)
            needs = ctx.needs_input_grad[1:]
            pull = Pull(
                grads=grads[:count],
                inputs=inputs,
                outputs=passed.outputs,
                kept=passed.kept,
                needs=needs,
                lengths=recording.lengths,
                absent=[absent is not None for absent in recording.absent],
            )
            found = iter(backward(*pull.arguments(passed.number, passed.owners)))
            gradients = [next(found) if need else None for need in needs]
            extra = grads[count : count + recording.kept]
            if any(grad is not None for grad in extra):
                state = nested.one_state(passed, "a second derivative")
                again = Again(adopted, state, recording.scalars, recording.lengths)
                gradients = add_gradients(gradients, again.gradients(inputs, passed.kept, extra))
            return (None, *gradients)

    entitle(Node, adopted)
    return direct(Node)


def select_used(
    tensors: Sequence[Tensor | None], inputs: int, uses: set[tuple[str, int]]
) -> list[Tensor | None]:
    """Return a call's inputs and outputs, with None for those that its backward does not use."""
    return [
        t if (("argument", i) if i < inputs else ("output", i - inputs)) in uses else None
        for i, t in enumerate(tensors)
    ]


def make_stand_in(shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:  # noqa: ANN401
    """Return a tensor of this shape that takes no memory, without values."""
    return torch.empty((), dtype=dtype, device=device).expand(shape)


def backward_node(nested: Nested) -> Any:  # noqa: ANN401
    """Return the node of the backward operator."""
    adopted, operator = nested.adopted, nested.hidden.operators[1]

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, pull: Pull, *flat: Any) -> Any:  # noqa: ANN401
            count = len(pull.flat())
            ctx.pull = pull.exchanged([None] * count)  # its tensors are saved by PyTorch
            ctx.save_for_backward(*flat)
            ctx.set_materialize_grads(False)
            number, *owners = flat[count:]
            with lower():
                return tuple(operator(*pull.arguments(number, owners)))

        @staticmethod
        def backward(ctx: Any, *second: Any) -> Any:  # noqa: ANN401
            count = len(ctx.pull.flat())
            saved = ctx.saved_tensors
            number, *owners = saved[count:]
            passed = ctx.pull.passed(number, owners)
            flat, found = differentiate_backward(nested, passed, ctx.pull, saved, second)
            each = iter(found)
            gradients = [next(each) if t is not None and t.requires_grad else None for t in flat]
            return (None, *gradients, None, *[None] * len(owners))

    entitle(Node, adopted, "Backward")
    return direct(Node)


def differentiate_backward(
    nested: Nested,
    passed: ForwardPass,
    pull: Pull,
    saved: Sequence[Tensor | None],
    second: Sequence[Tensor | None],
) -> tuple[list[Tensor | None], Sequence[Tensor | None]]:
    """Run backward again and differentiate it.

    Returns:
        The tensors that it was run on, and the gradients of those that require one.
    """
    state = nested.one_state(passed, "a second derivative")
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        # Fresh views: the derivative stops at an output, and PyTorch continues from there.
        flat = [view_afresh(t) for t in saved[: len(pull.flat())]]
        pulled = nested.differentiably(state, passed, pull.exchanged(flat))
        pairs = [(p, s) for p, s in zip(pulled, second, strict=True) if s is not None]
        wanted = [t for t in flat if t is not None and t.requires_grad]
        found = differentiate(pairs, wanted, differentiable=differentiable)
    return flat, found
