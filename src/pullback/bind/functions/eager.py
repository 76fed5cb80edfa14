"""A Function called in plain eager mode: PyTorch records its own node, as with `apply`.

The only additions are the checks of the line, and one repair: PyTorch forgets how an intermediate
that forward saved depends on the inputs, so a second derivative would silently lack that part. Here
the intermediates are outputs of the node as well (`saved.py`), and the gradients that reach them
are propagated (`recompute.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.bind import autocast
from pullback.bind.disconnected import Cuts, as_list
from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.batched import is_batched, run_batched
from pullback.bind.functions.context import Context
from pullback.bind.functions.memory import check_memory
from pullback.bind.functions.saved import add_gradients, has_to_part, save_parts, tensors_in
from pullback.bind.functions.trial import BackwardTrial
from pullback.bind.memo import Memo
from pullback.define.derivative import NoDerivative


def make_recorder(adopted: Adopted) -> Callable[..., tuple[Tensor, ...] | Tensor]:
    """Return a function that calls a Function on the line's arguments and records its node."""
    count, lists, pull = len(adopted.line.outputs), adopted.lists, adopted.pull
    cuts, tried = Cuts(adopted.backward_of), BackwardTrial(adopted)
    known: Memo[object, bool] = Memo()  # of batches

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *flat: Any) -> Any:  # noqa: ANN401
            lengths: tuple[int, ...] = ()
            if lists:
                flat, lengths = regroup(adopted, ctx, flat)
            outputs = run_forward(adopted, ctx, flat)
            outputs = check_memory(adopted, ctx.dirty_tensors, flat, outputs)
            if has_to_part(ctx, flat, outputs):
                return save_parts(adopted, ctx, flat, outputs, lengths)
            return outputs if count > 1 else outputs[0]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
            more = None
            if ctx._parted is not None:
                ctx, grads, more = ctx._parted.join(adopted, ctx, grads)
            if lists or pull is None or autocast.is_enabled() or is_batched(grads):
                gradients = run_batched(lambda *g: run_backward(adopted, ctx, g), grads, known)
            elif torch.is_grad_enabled():
                gradients = run_create_graph(tried, cuts, ctx, grads)
            elif more is None:
                return pull(ctx, *grads)
            else:
                gradients = run_backward(adopted, ctx, grads)
            if more is not None:
                gradients = add_gradients(gradients, more)
            return (*gradients, None) if lists else tuple(gradients)

    entitle(Recorded, adopted)
    prepare_context(Recorded)
    # The C++ `apply`: Python's also tests whether functorch is active, which we know already.
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


def run_create_graph(tried: BackwardTrial, cuts: Cuts, ctx: Any, grads: Sequence[Any]) -> list[Any]:  # noqa: ANN401
    """Run backward in `create_graph` mode; differentiating a cut-off gradient will raise."""
    pull = tried.adopted.pull
    if not isinstance(ctx, Context):
        return cuts.guarded(lambda given: pull(ctx, *given), grads, ctx.saved_tensors)
    # Here saved tensors are connected to the inputs, even if the author detached them: for NumPy,
    # or to compute a gradient with them. In these cases backward gets what PyTorch gives it.
    plain = ctx.plain
    if plain is None or tried.is_watchable(ctx, plain, grads):
        return cuts.guarded(lambda given: pull(ctx, *given), grads, ctx.saved_tensors)
    results = as_list(pull(plain, *grads))
    return cuts.cut(results, [*grads, *ctx.saved_tensors, *tensors_in(vars(ctx))])


def prepare_context(node: Any) -> None:  # noqa: ANN401
    """Let `ctx` of a node tell what PyTorch's does not: whether gradients are materialized."""

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
    """Run forward on flat arguments, each tensor in its own dtype.

    PyTorch's autocast is switched off: the operator's own policy casts, so that the outputs have
    the dtypes that the line says.
    """
    given = adopted.as_forward(flat, vars(ctx).pop("_lengths")) if adopted.lists else flat
    if autocast.is_enabled():
        with autocast.disable_autocast():
            return adopted.forward(ctx, given)
    return adopted.forward(ctx, given)


def run_backward(adopted: Adopted, ctx: Any, grads: Sequence[Tensor | None]) -> list[Any]:  # noqa: ANN401
    """Run backward; return a gradient for each flat argument."""
    require_derivative(adopted)
    if autocast.is_enabled():
        with autocast.disable_autocast():
            return adopted.backward(ctx, grads)
    return adopted.backward(ctx, grads)
