"""The answer of a call: its outputs and gradients, each time from a new forward.

A second backward through one graph, state that forward leaves behind and memory that is written to
are the subjects of other probes; so two answers share nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pullback.verify.agreement import find_first_differing, rounding
from pullback.verify.call import Call, Prepare, can_require_grad
from pullback.verify.probe import NotApplicable
from pullback.verify.remembered import remembered
from pullback.verify.source import SourcePlace, Text
from pullback.verify.tracing.difference import densify

Grads = Sequence[Tensor | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """The outputs of a forward, the gradients that were sent back, and the resulting gradients.

    Attributes:
        outputs: detached.
        grads: one for each output; None where nothing was sent.
        gradients: of the leaves; None where none was asked for, or none arrived.
        leaves: the tensors to which the gradients belong.
    """

    outputs: tuple[Tensor, ...]
    grads: tuple[Tensor | None, ...]
    gradients: tuple[Tensor | None, ...]
    leaves: tuple[Tensor, ...]

    @cached_property
    def floors(self) -> tuple[float, ...]:
        """The size below which a gradient may be only rounding, for each leaf."""
        return tuple(floor_of(leaf, self.outputs, self.grads) for leaf in self.leaves)


def compute_answer(
    call: Call,
    grads: Grads | Callable[[Sequence[Tensor]], Grads] | None = None,
    *,
    prepare: Prepare | Sequence[Prepare] = torch.clone,
    wanted: Sequence[bool] | None = None,
    seed: int | None = None,
) -> Answer:
    """Run a forward and a backward.

    Args:
        call: what is called.
        grads: what is sent back; by default Gaussian gradients of both signs.
        prepare: makes the target's input from a leaf, as in `Call.forward`.
        wanted: which leaves require a gradient.
        seed: of the random state of the backward.
    """
    run = call.forward(prepare=prepare, wanted=wanted)
    sent = run.random_grads() if grads is None else grads
    sent = tuple(sent(run.outputs) if callable(sent) else sent)
    gradients = run.backward(sent, retain=False, seed=seed)
    return Answer(
        outputs=tuple(output.detach() for output in run.outputs),
        grads=sent,
        gradients=tuple(None if g is None else g.detach() for g in gradients),
        leaves=tuple(leaf.detach() for leaf in run.leaves),
    )


# The terms of a gradient may be this many times larger than outputs over inputs.
GROWTH = 32.0


def floor_of(leaf: Tensor, outputs: Sequence[Tensor], grads: Grads) -> float:
    """Return the size below which the gradient of a leaf may be only rounding.

    A gradient has the unit of grad × output / input; if its terms cancel, that much of their
    rounding is left.
    """
    size = max_finite(leaf)
    if size == 0.0 or not can_require_grad(leaf):
        return 0.0
    sent = sum(
        max_finite(grad) * max_finite(output) * rounding(output.dtype)
        for grad, output in zip(grads, outputs, strict=True)
        if grad is not None
    )
    return GROWTH * sent / size


def max_finite(tensor: Tensor | None) -> float:
    """Return the size of the largest finite element."""
    if tensor is None or not tensor.numel():
        return 0.0
    return float(densify(tensor).abs().nan_to_num(0.0, 0.0, 0.0).max())


@remembered
def steady_answer(call: Call) -> Answer:
    """Return the ordinary answer.

    Raises:
        NotApplicable: there is no gradient; or a second call gives another answer, so nothing can
            be learned from a difference.
    """
    first = compute_answer(call)
    if not any(grad is not None for grad in first.grads):
        raise NotApplicable("no output is differentiable")
    if all(gradient is None for gradient in first.gradients):
        raise NotApplicable("no gradient arrives at any input")
    again = compute_answer(call, first.grads, seed=call.seed + 4711)
    if not is_alike(first, again):
        raise NotApplicable("two equal calls have different gradients")
    return first


def is_alike(a: Answer, b: Answer) -> bool:
    """Tell whether two answers are the same except for rounding."""
    shapes = [[t.shape for t in own.outputs] for own in (a, b)]
    return (
        shapes[0] == shapes[1]
        and find_first_differing(a.outputs, b.outputs) is None
        and gradients_differ(a, b) is None
    )


def gradients_differ(found: Answer, wanted: Answer) -> tuple[int, Tensor] | None:
    """Return the first leaf whose gradients differ by more than rounding, and where."""
    if find_first_differing(found.gradients, wanted.gradients) is None:
        return None
    floors = [max(pair) for pair in zip(found.floors, wanted.floors, strict=True)]
    return find_first_differing(found.gradients, wanted.gradients, floors)


def scale_grads(grads: Grads, factor: float) -> Grads:
    """Return gradients times a number."""
    return [None if grad is None else grad * factor for grad in grads]


def grad_name(call: Call, output: int) -> str:
    """Return the author's name for the gradient of an output: a parameter of backward."""
    backward = call.target.parts.get("backward")
    code = getattr(Text(backward).function, "__code__", None) if backward else None
    if code is None:
        return "grad_output"
    names = code.co_varnames[: code.co_argcount][1:]
    return names[output] if output < len(names) else f"gradient {output}"


def backward_place(call: Call, *calls: str) -> SourcePlace | None:
    """Return the line of backward that calls one of these; otherwise where backward begins."""
    backward = call.target.parts.get("backward")
    if backward is None:
        return None
    text = Text(backward)
    own = text.calls(*calls) if calls else None
    # Its `def`, not the decorator above it.
    return own or text.find(lambda node: isinstance(node, ast.FunctionDef)) or text.place
