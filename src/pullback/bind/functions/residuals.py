"""What a Function's forward leaves for its backward, in the form that their operators pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from pullback.bind.functions.context import State, find
from pullback.bind.levels import unwrap
from pullback.diagnostic import Rule

ContextGone = Rule("PB377", "context-gone")


@dataclass(frozen=True, kw_only=True)
class ForwardPass:
    """What forward leaves for backward, in the form that the hidden operators pass on."""

    outputs: list[Tensor]
    kept: list[Tensor]
    number: Tensor
    owners: list[Tensor]

    def flat(self) -> list[Tensor]:
        """Return its tensors one by one."""
        return [*self.outputs, *self.kept, self.number, *self.owners]

    @staticmethod
    def returned(by_forward: Sequence[Any]) -> ForwardPass:
        """Return a pass from the forward operator's results."""
        *outputs, kept, number, owners = by_forward
        return ForwardPass(outputs=outputs, kept=kept, number=number, owners=owners)

    @staticmethod
    def of(flat: Sequence[Any], outputs: int, kept: int) -> ForwardPass:
        """Return a pass from its flat tensors."""
        end = outputs + kept
        return ForwardPass(
            outputs=list(flat[:outputs]),
            kept=list(flat[outputs:end]),
            number=flat[end],
            owners=list(flat[end + 1 :]),
        )

    def states(self) -> list[State] | None:
        """Return the states of its calls, one for each element of a batch; None while traced."""
        number = unwrap(self.number)
        if type(number) is not Tensor:
            return None
        return [state_of(value) for value in number.flatten().tolist()]


@dataclass(frozen=True, kw_only=True)
class Pull:
    """The arguments of backward: gradients, and the tensors of the forward call.

    `needs` says for each flat argument whether its gradient is needed, `lengths` how long the lists
    among the arguments are. `absent` says for each input, and then each output, whether it was not
    kept: a tensor of the same shape, without values, stands in for it.
    """

    grads: Sequence[Tensor | None]
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    kept: Sequence[Tensor]
    needs: Sequence[bool]
    lengths: Sequence[int]
    absent: Sequence[bool]

    @staticmethod
    def given(arguments: Sequence[Any]) -> tuple[Pull, Tensor, list[Tensor]]:
        """Read the backward operator's arguments; return the state's number and owners too."""
        grads, inputs, outputs, kept, number, owners, needs, lengths, absent = arguments
        pull = Pull(
            grads=grads,
            inputs=inputs,
            outputs=outputs,
            kept=kept,
            needs=needs,
            lengths=lengths,
            absent=absent,
        )
        return pull, number, owners

    def arguments(self, number: Tensor, owners: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return the arguments of the backward operator."""
        tensors = (self.grads, self.inputs, self.outputs, self.kept)
        rest = (list(self.needs), list(self.lengths), list(self.absent))
        return (*map(list, tensors), number, list(owners), *rest)

    def flat(self) -> list[Tensor | None]:
        """Return its tensors one by one."""
        return [*self.grads, *self.inputs, *self.outputs, *self.kept]

    def exchanged(self, flat: Sequence[Any]) -> Pull:
        """Return the arguments with other tensors."""
        rest, parts = list(flat), []
        for part in (self.grads, self.inputs, self.outputs, self.kept):
            parts.append(rest[: len(part)])
            rest = rest[len(part) :]
        grads, inputs, outputs, kept = parts
        return replace(self, grads=grads, inputs=inputs, outputs=outputs, kept=kept)

    def passed(self, number: Tensor, owners: Sequence[Tensor]) -> ForwardPass:
        """Return what forward left for it."""
        return ForwardPass(
            outputs=list(self.outputs), kept=list(self.kept), number=number, owners=list(owners)
        )

    def require(self, state: State) -> None:
        """Stop if what forward left refers to something that was not kept."""
        count = len(self.inputs)
        for of, index in state.uses():
            place = {"argument": index, "output": count + index}.get(of)
            if place is not None and self.absent[place]:
                raise ContextGone.error(
                    f"forward saved its {of} {index}, which it did not when it was traced",
                    help="let what forward saves depend on its arguments' shapes and dtypes alone; "
                    "after an edit of forward, PyTorch's cache of compiled code is out of date: "
                    "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1",
                )


def state_of(number: int) -> State:
    """Return what forward left on `ctx`, or stop if it is gone."""
    state = find(number)
    if state is None:
        raise ContextGone.error(
            "backward runs after the ctx of its forward was freed",
            help="a saved-tensor hook copied 'owners' of a traced Function; leave int64 tensors "
            "in such a hook as they are",
        )
    return state
