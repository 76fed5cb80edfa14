"""A `ctx` with tensors that PyTorch does not know: they are saved by their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.context import Context, exchange, put_together, take_apart
from pullback.bind.functions.recompute import Again, scalars_of
from pullback.bind.levels import is_smooth


def has_to_part(ctx: Any, flat: Sequence[object], outputs: Sequence[Tensor]) -> bool:  # noqa: ANN401
    """Return whether `ctx` keeps tensors that PyTorch does not know.

    These are intermediates, whose part a second derivative would lack; and tensors on attributes,
    where a later change in place would go unnoticed.
    """
    for tensor in ctx.to_save or ():
        if tensor is not None and is_intermediate(tensor, flat, outputs):
            return True
    attributes = vars(ctx)
    return bool(attributes) and any(
        is_smooth(tensor) for value in attributes.values() for tensor in tensors_in(value)
    )


def is_intermediate(tensor: Tensor, flat: Sequence[object], outputs: Sequence[Tensor]) -> bool:
    """Return whether a floating tensor is neither input nor output."""
    for value in flat:
        if value is tensor:
            return False
    for value in outputs:
        if value is tensor:
            return False
    return is_smooth(tensor)


class Parted:
    """What forward left on `ctx`, with its tensors saved as inputs, outputs or intermediates."""

    def __init__(self, again: Again, outputs: Sequence[Tensor]) -> None:
        self.again = again
        self.templates = [(o.shape, o.dtype, o.device) for o in outputs]

    def join(
        self,
        adopted: Adopted,
        ctx: Any,  # noqa: ANN401
        grads: Sequence[Tensor | None],
    ) -> tuple[Context, list[Tensor | None], list[Tensor | None] | None]:
        """Return `ctx` as forward left it, and the gradients of the line's outputs.

        Third, what the gradients of intermediates add to those of the inputs, if there are any.
        """
        saved = ctx.saved_tensors
        first, last = len(self.again.scalars), len(self.again.scalars) + len(self.templates)
        inputs, outputs, kept = saved[:first], saved[first:last], saved[last:]
        state, needs = self.again.state, ctx.needs_input_grad
        with torch.no_grad():  # PyTorch does not watch tensors that are neither input nor output
            apart = [tensor.detach() for tensor in kept]
            joined = put_together(state, inputs, outputs, apart, needs)
        if torch.is_grad_enabled():
            plain, joined = joined, put_together(state, inputs, outputs, kept, needs)
            joined.plain = plain
        own, extra = grads[: len(self.templates)], grads[len(self.templates) :]
        more = None
        if any(grad is not None for grad in extra):
            more = self.again.gradients(inputs, kept, extra)
        return joined, self.materialized(own), more

    def materialized(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients, with zeros for missing ones if forward wants that."""
        return [
            torch.zeros(shape, dtype=dtype, device=device)
            if grad is None and self.again.state.materialize_grads
            else grad
            for grad, (shape, dtype, device) in zip(grads, self.templates, strict=True)
        ]


def add_gradients(gradients: Sequence[Any], more: Sequence[Tensor | None]) -> list[Any]:
    """Return the sums of two lists of gradients, None standing for zero."""
    rest = [None] * (len(gradients) - len(more))
    return [
        b if a is None else a if b is None else a + b
        for a, b in zip(gradients, [*more, *rest], strict=True)
    ]


def save_parts(
    adopted: Adopted,
    ctx: Any,  # noqa: ANN401
    flat: Sequence[Any],
    outputs: tuple[Tensor, ...],
    lengths: tuple[int, ...],
) -> Any:  # noqa: ANN401
    """Save the tensors of `ctx` by their places; return the intermediates with the outputs."""
    own = Context(ctx.needs_input_grad)
    own.to_save, own.saved_for_forward = ctx.to_save or (), ctx.saved_for_forward or ()
    own.non_differentiable = ctx.non_differentiable or ()
    own.materialize_grads = ctx._materialize
    vars(ctx).pop("_materialize", None)
    vars(own).update(vars(ctx))
    state, kept = take_apart(own, flat, outputs, hold=False)
    vars(ctx).clear()
    used = state.uses()
    has = [("argument", i) in used for i in range(len(flat))]
    ctx._parted = Parted(Again(adopted, state, scalars_of(flat, saved=has), lengths), outputs)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(
        *(value if kept_too else None for value, kept_too in zip(flat, has, strict=True)),
        *(value if ("output", i) in used else None for i, value in enumerate(outputs)),
        *kept,
    )
    return (*outputs, *kept) if len(outputs) + len(kept) > 1 else outputs[0]


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in a value of `ctx`, in tuples, lists and dicts too."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        found: list[Tensor] = []
        exchange(value, Tensor, found.append)
        yield from found
