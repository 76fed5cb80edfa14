"""A Function called in plain eager mode: PyTorch records its own node, as with `apply`.

Nothing stands between but the checks of the line, and one repair: PyTorch forgets how an
intermediate that forward saved depends on the inputs, so a second derivative would silently lack
that part. Here the intermediates are outputs of the node as well, and what reaches them raises.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.bind import autocast, kernel
from pullback.bind.cut import Cuts
from pullback.bind.functions.adopted import Adopted, NotDeclared
from pullback.bind.functions.again import Again, scalars_of
from pullback.bind.functions.batched import is_batched, run_batched
from pullback.bind.functions.context import (
    Context,
    address,
    exchange,
    put_together,
    take_apart,
)
from pullback.bind.levels import is_smooth
from pullback.define.derivative import NoDerivative


class AliasNotice(UserWarning):
    """An output shared the memory of an input and was copied."""


def recorder(adopted: Adopted) -> Callable[..., tuple[Tensor, ...] | Tensor]:
    """Return what calls a Function on the line's arguments and records its node."""
    count, lists, pull = len(adopted.line.outputs), adopted.lists, adopted.pull
    cuts = Cuts(adopted.backward_of)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *flat: Any) -> Any:  # noqa: ANN401
            lengths: tuple[int, ...] = ()
            if lists:
                flat, lengths = regroup(adopted, ctx, flat)
            outputs = run_forward(adopted, ctx, flat)
            outputs = check_memory(adopted, ctx.dirty_tensors, flat, outputs)
            if has_to_part(ctx, flat, outputs):
                return part(adopted, ctx, flat, outputs, lengths)
            return outputs if count > 1 else outputs[0]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
            more = None
            if ctx._parted is not None:
                ctx, grads, more = ctx._parted.join(adopted, ctx, grads)
            if lists or pull is None or autocast.is_enabled() or is_batched(grads):
                gradients = run_batched(lambda *g: run_backward(adopted, ctx, g), grads)
            elif torch.is_grad_enabled():
                gradients = differentiable(cuts, pull, ctx, grads)
            elif more is None:
                return pull(ctx, *grads)
            else:
                gradients = run_backward(adopted, ctx, grads)
            if more is not None:
                gradients = added(gradients, more)
            return (*gradients, None) if lists else tuple(gradients)

    entitle(Recorded, adopted)
    prepare_context(Recorded)
    # The one in C++: in Python it also looks whether functorch is active, which is known here.
    apply: Any = super(torch.autograd.Function, Recorded).apply  # pyright: ignore

    def call(*arguments: object) -> Any:  # noqa: ANN401
        if lists:
            flat, lengths = adopted.flat(arguments)
            arguments = (*flat, lengths)
        outputs = apply(*arguments)
        if type(outputs) is not tuple or len(outputs) == count:
            return outputs
        # The rest are intermediates.
        return outputs[:count] if count > 1 else outputs[0]

    return call


def entitle(node: Any, adopted: Adopted, more: str = "") -> None:  # noqa: ANN401
    """Give a node the name that it has in PyTorch's own graph, and that of its operator."""
    node.__name__ = node.__qualname__ = adopted.function.__name__ + more
    backward = node._backward_cls
    backward.__name__ = backward.__qualname__ = f"{node.__name__}Backward"
    backward.pullback_operator = adopted.line.qualname


def differentiable(cuts: Cuts, pull: Any, ctx: Any, grads: Sequence[Any]) -> list[Any]:  # noqa: ANN401
    """Run backward in `create_graph` mode; what cannot be differentiated raises when it is."""

    def run(given: Sequence[Any]) -> Any:  # noqa: ANN401
        return pull(ctx, *given)

    around = ctx.saved_tensors
    try:
        return cuts.guarded(run, grads, around)
    except RuntimeError:
        # What forward saved is connected to the inputs here, also where its author detached it
        # for NumPy: then that is what backward gets.
        if not isinstance(ctx, Context):
            raise
        ctx.saved_tensors = tuple(t if t is None else t.detach() for t in around)
        return cuts.guarded(run, grads, around)


def prepare_context(node: Any) -> None:  # noqa: ANN401
    """Let `ctx` of a node say what PyTorch's does not: whether gradients are materialized."""

    def set_materialize_grads(ctx: Any, value: bool) -> None:  # noqa: ANN401
        ctx.materialize_grads = value
        ctx._materialize = value

    node._backward_cls._parted = None
    node._backward_cls._materialize = True
    node._backward_cls.set_materialize_grads = set_materialize_grads


def regroup(
    adopted: Adopted,
    ctx: Any,  # noqa: ANN401
    flat: tuple[Any, ...],
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Take the lengths of the lists off the flat arguments; give forward its `needs_input_grad`."""
    *rest, lengths = flat
    ctx.needs_input_grad = adopted.as_forward(ctx.needs_input_grad[:-1], lengths)
    ctx._lengths = lengths
    return tuple(rest), lengths


def require_derivative(adopted: Adopted) -> None:
    """Stop if a Function has no backward."""
    if adopted.pull is None:
        raise NoDerivative.error(
            f"{adopted.line.qualname}: {adopted.function.__name__} has no backward, "
            "and a derivative is asked for",
            help="write its backward, or call it on detached tensors",
        )


def run_forward(adopted: Adopted, ctx: Any, flat: Sequence[Any]) -> tuple[Tensor, ...]:  # noqa: ANN401
    """Run forward on flat arguments, each tensor in the dtype that it has.

    PyTorch's autocast is kept out: what casts is the operator's own policy, so that the outputs
    have the dtypes that the line says.
    """
    given = adopted.as_forward(flat, vars(ctx).pop("_lengths")) if adopted.lists else flat
    if autocast.is_enabled():
        with autocast.excluded():
            return adopted.forward(ctx, given)
    return adopted.forward(ctx, given)


def run_backward(adopted: Adopted, ctx: Any, grads: Sequence[Tensor | None]) -> list[Any]:  # noqa: ANN401
    """Run backward; return a gradient for each flat argument."""
    require_derivative(adopted)
    if autocast.is_enabled():
        with autocast.excluded():
            return adopted.backward(ctx, grads)
    return adopted.backward(ctx, grads)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in a value of `ctx`, in tuples, lists and dicts too."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        found: list[Tensor] = []
        exchange(value, Tensor, found.append)
        yield from found


def has_to_part(ctx: Any, flat: Sequence[object], outputs: Sequence[Tensor]) -> bool:  # noqa: ANN401
    """Return whether `ctx` keeps tensors that PyTorch does not know as its own.

    These are intermediates, whose derivative would be left out of a second one; and tensors on
    attributes, of which a later change in place would go unnoticed.
    """
    for tensor in ctx.to_save or ():
        if tensor is not None and is_intermediate(tensor, flat, outputs):
            return True
    attributes = vars(ctx)
    return bool(attributes) and any(
        is_smooth(tensor) for value in attributes.values() for tensor in tensors_in(value)
    )


def is_intermediate(tensor: Tensor, flat: Sequence[object], outputs: Sequence[Tensor]) -> bool:
    """Return whether a tensor is floating, no input and no output."""
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
        inputs, kept = saved[:first], saved[last:]
        needs = ctx.needs_input_grad
        joined = put_together(self.again.state, inputs, saved[first:last], kept, needs)
        own, extra = grads[: len(self.templates)], grads[len(self.templates) :]
        more = None
        if any(grad is not None for grad in extra):
            more = self.again.gradients(inputs, kept, extra)
        return joined, self.materialized(own), more

    def materialized(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients, with zeros for those that did not arrive if forward wants it."""
        return [
            torch.zeros(shape, dtype=dtype, device=device)
            if grad is None and self.again.state.materialize_grads
            else grad
            for grad, (shape, dtype, device) in zip(grads, self.templates, strict=True)
        ]


def added(gradients: Sequence[Any], more: Sequence[Tensor | None]) -> list[Any]:
    """Return the sums of two lists of gradients, None standing for zero."""
    rest = [None] * (len(gradients) - len(more))
    return [
        b if a is None else a if b is None else a + b
        for a, b in zip(gradients, [*more, *rest], strict=True)
    ]


def part(
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


def check_memory(
    adopted: Adopted,
    dirty: Sequence[Tensor] | None,
    flat: Sequence[Any],
    outputs: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """Return the outputs, each with memory of its own unless the line declares otherwise.

    Args:
        adopted: the Function.
        dirty: what forward marked as changed in place.
        flat: its arguments, with PyTorch's autograd below them.
        outputs: what it returned.
    """
    line = adopted.line
    if dirty or line.changed:
        require_declared(adopted, dirty or (), outputs)
    for output in outputs:
        if output._is_view() or starts_as(output, flat):
            break
    else:
        return outputs
    taken = {address(a) for a in flat if isinstance(a, Tensor) and a.numel()}
    return tuple(
        copied(adopted, output.name, value)
        if address(value) in taken and output.name not in line.changed
        else value
        for output, value in zip(line.outputs, outputs, strict=True)
    )


def starts_as(output: Tensor, flat: Sequence[Any]) -> bool:
    """Return whether an output's memory starts where an input's does."""
    start = output.data_ptr()
    for value in flat:  # noqa: SIM110  (as in `is_batched`)
        if isinstance(value, Tensor) and value.data_ptr() == start:
            return True
    return False


def copied(adopted: Adopted, name: str, output: Tensor) -> Tensor:
    """Return a copy of an output that shares memory with an input, and say so."""
    warnings.warn(
        f"{adopted.line.qualname}: '{name}' shares memory with an input of forward of "
        f"{adopted.function.__name__}, and is copied; return a clone(), or declare it as changed "
        "in place with mark_dirty and in the line",
        AliasNotice,
        stacklevel=6,
    )
    return output.clone()


def require_declared(
    adopted: Adopted, dirty: Sequence[Tensor], outputs: tuple[Tensor, ...]
) -> None:
    """Stop unless the inputs that forward marks dirty are those that the line says."""
    line = adopted.line
    pairs = zip(line.outputs, outputs, strict=True)
    returned = tuple(o.name for o, value in pairs if any(value is tensor for tensor in dirty))
    if returned == line.changed and len(dirty) == len(returned):
        return
    if not dirty:
        raise NotDeclared.error(
            f"{line.qualname}: by the line '{line.changed[0]}' is changed in place, and forward of "
            f"{adopted.function.__name__} does not mark it dirty",
            help=f"in forward: ctx.mark_dirty({line.changed[0]}), and return it; or give the "
            "output of the line another name",
        )
    raise NotDeclared.error(
        f"{line.qualname}: forward of {adopted.function.__name__} marks {len(dirty)} of its inputs "
        f"as changed in place, and by the line {', '.join(line.changed) or 'none'} is",
        help="an output that is its input changed in place stands in the line as its input does: "
        "demo::scale_(x[n], k: float) -> x[n]",
    )


def require_unchanged(adopted: Adopted, before: list[int], flat: Sequence[Any]) -> None:
    """Stop if forward changed an input in place without a word."""
    if kernel.versions(flat) != before and not adopted.line.changed:
        raise NotDeclared.error(
            f"{adopted.line.qualname}: forward of {adopted.function.__name__} changed an input in "
            "place and did not say so",
            help="clone it first; or call ctx.mark_dirty, and name the output in the line as the "
            "input: demo::scale_(x[n], k: float) -> x[n]",
        )
