"""A Function inside `torch.func`, forward mode and tracers: the autograd of its operators.

The node of the forward operator calls the backward operator. For a second derivative, the node of
the backward operator runs the author's backward again and lets PyTorch differentiate it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.bind.disconnected import CutDerivative, Cuts
from pullback.bind.functions import jvp
from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.context import State
from pullback.bind.functions.nodes import Recording, backward_node, forward_node
from pullback.bind.functions.opaque import Hidden
from pullback.bind.functions.recompute import Again, intermediate_derivative, scalars_of
from pullback.bind.functions.residuals import ForwardPass, Pull
from pullback.bind.functions.trial import BackwardTrial, kind_of
from pullback.bind.levels import (
    BELOW,
    has_tangent,
    is_hold,
    is_smooth,
    is_tracked,
    take_primal,
    tangents_of,
)
from pullback.define.derivative import NoForwardMode
from pullback.diagnostic import PullbackError, Rule

WhileTraced = Rule("PB379", "while-traced")


class Nested:
    """The autograd kernels of an adopted Function where plain eager mode is not enough."""

    def __init__(self, hidden: Hidden) -> None:
        self.hidden = hidden
        self.adopted = hidden.adopted
        self.count = len(hidden.adopted.line.outputs)
        self.cuts = Cuts(hidden.adopted.backward_of)
        self.tried = BackwardTrial(hidden.adopted)
        self.forward_node = forward_node(self)
        self.backward_node = backward_node(self)

    def call(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run the operator itself; results are copied into inputs that are changed in place."""
        line = self.adopted.line
        flat, _ = self.adopted.flat(arguments)
        passed = self.passed(arguments, [False] * len(flat), is_hold(), only_outputs=True)
        named = dict(zip((p.name for p in line.parameters), arguments, strict=True))
        pairs = zip(line.outputs, passed.outputs, strict=True)
        return kernel.unwrap_single(
            [named[o.name].copy_(value) if o.name in named else value for o, value in pairs]
        )

    def forward(self, _keys: object, *given: Any) -> Any:  # noqa: ANN401
        """Run the forward operator: its autograd kernel."""
        *arguments, needs, hold = given
        passed = self.passed(arguments, needs, hold, only_outputs=False)
        return (*passed.outputs, passed.kept, passed.number, passed.owners)

    def passed(
        self, arguments: Sequence[Any], needs: Sequence[bool], hold: bool, *, only_outputs: bool
    ) -> ForwardPass:
        """Run forward, with a node and with tangents if they are asked for."""
        duals, lengths = self.adopted.flat(arguments)
        tangents = tangents_of(duals)
        pushed = any(t is not None for t in tangents)
        arguments = [take_primal(a) for a in arguments] if pushed else arguments
        flat = self.adopted.flat(arguments)[0] if pushed else duals
        # Forward mode may need what backward uses.
        needs = [need or t is not None for need, t in zip(needs, tangents, strict=True)]
        recording = Recording(arguments, needs, hold, lengths)
        if is_tracked(flat):
            result = self.forward_node(recording, *flat)
            passed = ForwardPass.of(result, self.count, recording.kept)
        else:
            with BELOW():
                passed = ForwardPass.returned(
                    self.hidden.operators[0](*arguments, list(needs), hold)
                )
        if not pushed:
            return passed
        state = self.one_state(passed, "forward mode")
        pull = self.pull_of(flat, passed, lengths)
        outputs = jvp.attach_tangents(self, state, passed, tangents, pull)
        if only_outputs or not any(map(is_smooth, passed.kept)):
            return outputs
        scalars = scalars_of(flat, saved=[True] * len(flat))
        again = Again(self.adopted, state, scalars, lengths)
        tensors = [d if isinstance(d, Tensor) else None for d in duals]
        return replace(outputs, kept=again.with_tangents(tensors, passed.kept))

    def pull_of(self, flat: Sequence[Any], passed: ForwardPass, lengths: tuple[int, ...]) -> Pull:
        """Return the arguments of a call's backward, except the gradients."""
        inputs = [value if isinstance(value, Tensor) else None for value in flat]
        return Pull(
            grads=[None] * self.count,
            inputs=inputs,
            outputs=passed.outputs,
            kept=passed.kept,
            needs=[False] * len(inputs),
            lengths=lengths,
            absent=[False] * (len(inputs) + self.count),
        )

    def inputs(self, flat: Sequence[Any], passed: ForwardPass) -> list[Tensor | None]:
        """Return the inputs to save; for one that is changed in place, the output."""
        line = self.adopted.line
        if not line.changed:
            return [value if isinstance(value, Tensor) else None for value in flat]
        new = {o.name: value for o, value in zip(line.outputs, passed.outputs, strict=True)}
        names = [p.name for p in line.parameters]
        pairs = zip(names, flat, strict=True)
        return [new.get(n, v) if isinstance(v, Tensor) else None for n, v in pairs]

    def opaquely(self, passed: ForwardPass, pull: Pull) -> list[Tensor]:
        """Run backward as it is, and record nothing."""
        flat = [None if tensor is None else tensor.detach() for tensor in pull.flat()]
        arguments = pull.exchanged(flat).arguments(passed.number, passed.owners)
        return self.hidden.operators[1](*arguments)

    def differentiably(
        self, state: State, passed: ForwardPass, pull: Pull, rule: Rule = CutDerivative
    ) -> list[Tensor]:
        """Run backward so that PyTorch can differentiate it; errors are of `rule`."""
        if any(is_smooth(tensor) for tensor in state.held):
            raise intermediate_derivative(self.adopted, "it was out of sight of the call")
        watched = functools.partial(self.watched, state, pull, rule)
        plain = functools.partial(self.opaquely, passed, pull)
        self.tried.require_same(kind_of(state, pull), watched, plain, rule)
        return watched()

    def watched(self, state: State, pull: Pull, rule: Rule) -> list[Tensor]:
        """Run backward on tensors that autograd watches."""
        try:
            pulled = self.hidden.pull(state, pull)
        except PullbackError:
            raise
        except Exception as error:  # whatever the author's code raises for such tensors
            raise rule.error(
                f"{self.adopted.line.qualname}: backward of {self.adopted.function.__name__} "
                f"cannot be differentiated: {error}",
                help="write it in PyTorch; for forward mode, give the Function a jvp",
            ) from error
        self.cuts.require_none(pulled, pull.grads, rule)
        return pulled

    def one_state(self, passed: ForwardPass, what: str) -> State:
        """Return the state of a call, which has to be the same for every element of a batch."""
        states = passed.states()
        if states is None:
            raise while_traced(self.adopted, what)
        try:
            same = all(state == states[0] for state in states[1:])
        except (RuntimeError, ValueError):  # what is on ctx cannot be compared
            same = False
        if not same:
            raise CutDerivative.error(
                f"{self.adopted.line.qualname}: under vmap, {what} needs the same values on the "
                f"ctx of {self.adopted.function.__name__} for every element",
                help="save what differs as a tensor",
            )
        return states[0]

    def backward(self, _keys: object, *given: Any) -> list[Tensor]:  # noqa: ANN401
        """Run the backward operator: its autograd kernel."""
        pull, number, owners = Pull.given(given)
        flat = pull.flat()
        if has_tangent(flat):
            passed = pull.passed(number, owners)
            state = self.one_state(passed, "forward mode")
            return self.differentiably(state, passed, pull, NoForwardMode)
        if is_tracked(flat):
            return list(self.backward_node(pull, *flat, number, *owners))
        with BELOW():
            return self.hidden.operators[1](*given)


def while_traced(adopted: Adopted, what: str) -> PullbackError:
    """Return the error for a derivative that a traced program cannot have."""
    return WhileTraced.error(
        f"{adopted.line.qualname}: {what} is asked for inside torch.compile or another tracer, "
        f"which cannot look into {adopted.function.__name__}",
        help="call this part outside of it: torch.compiler.disable(function)",
    )


def register(hidden: Hidden, library: torch.library.Library) -> Nested:
    """Register the autograd kernels of the hidden operators."""
    nested = Nested(hidden)
    for name, run in zip(hidden.names, (nested.forward, nested.backward), strict=True):
        library.impl(name, run, "Autograd", with_keyset=True)
    return nested
