"""A call of own loops alone, with all that follows from its shapes worked out before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from pullback.bind.dense import places
from pullback.bind.loops.own_call import LoopCall, Shape, convert_scalar, lay_out
from pullback.bind.math.call import Choice, IndexedCall
from pullback.define.line import Scalar
from pullback.define.math import absent, bounds
from pullback.define.math.bounds import Gather
from pullback.define.math.index import BATCH
from pullback.define.math.node import READ
from pullback.kernels.loops.operands import Operand


@dataclass(frozen=True, kw_only=True)
class LaidOut:
    """A tensor of the call that is laid out anew: that it lies as a kernel reads it.

    Attributes:
        place: among the tensors of the call.
        operand: how the kernel reads it.
    """

    place: int
    operand: Operand


@dataclass(frozen=True, kw_only=True)
class ReadyLoops:
    """The loops that compute some outputs.

    Attributes:
        call: their kernels.
        inputs: the places of the tensors that they read, among those of the call; the names of
            those that say in which order entries are added.
        outputs: of each output, its place in the line, and its shape if it is another one.
    """

    call: LoopCall
    inputs: tuple[int | str | LaidOut, ...]
    outputs: tuple[tuple[int, Shape | None], ...]


@dataclass(frozen=True, kw_only=True)
class PlacesCheck:
    """The whole numbers of one argument are places: from `least` to below `end` all are inside.

    Attributes:
        argument: which one.
    """

    argument: int
    least: int
    end: int

    def holds(self, given: Sequence[object]) -> bool:
        """Return whether all of them are inside; where not, a condition may leave them out."""
        low, high = torch.aminmax(cast("Tensor", given[self.argument]))
        return int(low) >= self.least and int(high) < self.end


@dataclass(frozen=True, kw_only=True)
class Ready:
    """One call whose inputs are contiguous.

    Attributes:
        checks: what has to hold of its indices.
        inputs: the tensors that are read: which argument, and with its batch as one dimension.
        scalars: which arguments, and what they are.
        loops: for all outputs that are wanted.
        whole: the kernels, if they read and write the very tensors of the call, all in order.
        count: how many outputs there are, wanted or not.
        device: of the tensors.
        names: of the arguments.
        sizes: of every index.
    """

    checks: tuple[PlacesCheck, ...]
    inputs: tuple[tuple[int, Shape | None], ...]
    scalars: tuple[tuple[int, Scalar], ...]
    loops: tuple[ReadyLoops, ...]
    whole: LoopCall | None
    count: int
    device: torch.device
    names: tuple[str, ...]
    sizes: dict[str, int]

    def name(self, given: Sequence[object]) -> dict[str, object]:
        """Return arguments by their names."""
        return dict(zip(self.names, given, strict=False))

    def run(self, given: Sequence[object]) -> list[Tensor | None] | None:
        """Return the outputs; None if the inputs do not lie as expected, or an index is outside."""
        if not all([check.holds(given) for check in self.checks]):
            return None
        tensors: list[Tensor] = []
        for place, shape in self.inputs:
            tensor = cast("Tensor", given[place])
            if not tensor.is_contiguous() or tensor.is_neg():
                return None
            tensors.append(tensor if shape is None else tensor.view(shape))
        scalars = tuple([convert_scalar(spec, given[place]) for place, spec in self.scalars])
        if self.whole:
            return [*self.call(self.whole, tensors, scalars, given)]
        results: list[Tensor | None] = [None] * self.count
        for loops in self.loops:
            own = loops.call.own
            order = own.sort(self.name(given), self.sizes) if own.sorters else {}
            inputs = [find_input(p, tensors, order) for p in loops.inputs]
            values = self.call(loops.call, inputs, scalars, given)
            for (place, shape), value in zip(loops.outputs, values, strict=True):
                results[place] = value if shape is None else value.view(shape)
        return results

    def call(
        self,
        loops: LoopCall,
        inputs: Sequence[Tensor],
        scalars: tuple[float, ...],
        given: Sequence[object],
    ) -> list[Tensor]:
        """Return what some loops write; stop if a place that is outside is selected."""

        def require_inside() -> None:
            loops.own.require_inside(self.name(given), self.sizes)

        return loops.run(inputs, scalars, self.device, require_inside)


def find_input(
    place: int | str | LaidOut, tensors: Sequence[Tensor], order: Mapping[str, Tensor]
) -> Tensor:
    """Return what some loops read."""
    if isinstance(place, LaidOut):
        return lay_out(tensors[place.place], place.operand)
    return order[place] if isinstance(place, str) else tensors[place]


class Unfit(Exception):  # noqa: N818  (such a call is computed the long way)
    """What is not worked out before."""


def make_ready(call: IndexedCall, choices: Sequence[Choice]) -> Ready | None:
    """Return what is ready for all calls like one; None if it needs more than its loops."""
    covered = {k for choice in choices if choice.own and choice.takes_own for k in choice.outputs}
    if not set(call.places) <= covered:
        return None
    try:
        return _Maker(call).make(choices)
    except Unfit:
        return None


class _Maker:
    def __init__(self, call: IndexedCall) -> None:
        self.call = call
        self.line = call.indexed.line
        self.places = {p.name: place for place, p in enumerate(self.line.parameters)}
        self.inputs: dict[str, Shape | None] = {}

    def make(self, choices: Sequence[Choice]) -> Ready:
        """Return it."""
        loops = tuple(self.prepare(choice) for choice in choices if choice.own)
        return Ready(
            checks=self.find_checks(
                k
                for loop in loops
                if not loop.call.own.notes_outside
                for k in loop.call.own.outputs
            ),
            inputs=tuple((self.places[name], shape) for name, shape in self.inputs.items()),
            scalars=tuple((self.places[s.name], s) for s in self.line.scalars),
            loops=loops,
            whole=loops[0].call if self.is_whole(loops) else None,
            count=len(self.line.outputs),
            device=self.call.outputs.device,
            names=tuple(self.places),
            sizes=self.call.sizes,
        )

    def is_whole(self, loops: Sequence[ReadyLoops]) -> bool:
        """Return whether the first loops read and write the very tensors of the call."""
        first = loops[0]
        places = tuple(range(len(self.inputs)))
        outputs = tuple((k, None) for k in range(len(self.line.outputs)))
        return (first.inputs, first.outputs) == (places, outputs)

    def find_checks(self, outputs: Iterable[int]) -> tuple[PlacesCheck, ...]:
        """Return what has to hold of the indices of some outputs, each checked by one pass."""
        missing = self.call.named.keys() - self.call.present
        nodes = absent.drop_absent([self.call.indexed.nodes[k] for k in outputs], set(missing))
        found: dict[str, tuple[int, int]] = {}
        for gather in (gather for node in nodes for gather in bounds.find_gathers(node)):
            if places.is_certain(self.call.indexed, gather):
                continue
            name, least, end = self.find_range(gather)
            known = found.get(name, (least, end))
            found[name] = max(least, known[0]), min(end, known[1])
        return tuple(
            PlacesCheck(argument=self.places[name], least=least, end=end)
            for name, (least, end) in found.items()
        )

    def find_range(self, gather: Gather) -> tuple[str, int, int]:
        """Return which argument gives a place, and from where to where it may be."""
        place = gather.place
        if len(place.terms) != 1 or place.nodes[0].op != READ or place.terms[0][1] != 1:
            raise Unfit
        spec = next(t for t in self.line.tensors if t.name == gather.read.name)
        end = self.call.sizes[spec.labels[gather.dimension].rstrip("'")]
        return place.nodes[0].name, -place.constant, end - place.constant

    def prepare(self, choice: Choice) -> ReadyLoops:
        """Return the loops of a choice."""
        assert choice.own
        taken = self.call.taken_by(choice.own)
        call = choice.own.prepared(taken.sizes)
        for operand in call.inputs:
            if operand.name in self.places:
                self.read(operand, taken)
        written = [
            w
            for kernel in call.kernels
            if not kernel.is_inner
            for w in kernel.written[len(kernel.totals) :]
        ]
        return ReadyLoops(
            call=call,
            inputs=tuple(map(self.find, call.inputs)),
            outputs=tuple(
                (place, self.reshape(place, *each))
                for place, each in zip(choice.own.outputs, written, strict=True)
            ),
        )

    def reshape(self, output: int, shape: Shape, dtype: torch.dtype) -> Shape | None:
        """Return the shape of an output if it is not what a kernel writes."""
        if self.call.outputs.dtypes[output] != dtype:
            raise Unfit
        wanted = tuple(self.call.outputs.shapes[output])
        return None if wanted == shape else wanted

    def find(self, operand: Operand) -> int | str | LaidOut:
        """Return where the loops find what they read."""
        if operand.name not in self.inputs:
            return operand.name
        place = list(self.inputs).index(operand.name)
        shape = self.inputs[operand.name]
        if shape is None:
            shape = cast("Tensor", self.call.named[operand.name]).shape
        unit = operand.unit
        lies = unit is None or all(size == 1 for size in shape[unit + 1 :]) or shape[unit] == 1
        lies = lies and operand.aligned == 1 and not operand.is_spread
        return place if lies else LaidOut(place=place, operand=operand)

    def read(self, operand: Operand, taken: IndexedCall) -> None:
        """Note an input of a call as loops take it; stop at one that is more than laid out anew."""
        given, value = (each.named[operand.name] for each in (self.call, taken))
        assert isinstance(given, Tensor)
        assert isinstance(value, Tensor)
        every = taken.indexed.line.tensors
        spec = next(tensor for tensor in every if tensor.name == operand.name)
        own, shape = spec.labels, tuple(value.shape)
        if BATCH in own:
            place, after = own.index(BATCH), len(own) - own.index(BATCH) - 1
            batch = shape[place : len(shape) - after]
            if batch != tuple(self.call.outputs.sizes.batch):
                raise Unfit
            shape = (*shape[:place], self.call.sizes[BATCH], *shape[len(shape) - after :])
        if 0 in shape or value.dtype != getattr(torch, operand.dtype):
            raise Unfit
        self.inputs[operand.name] = None if shape == tuple(given.shape) else shape
