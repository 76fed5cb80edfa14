"""What has to hold of the sizes of a call, as C++ data; in Python `define.math.required` checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pullback.define.math import bounds, required, show
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, size, split_remainders
from pullback.define.math.node import READ
from pullback.define.math.ranges import Ranges
from pullback.define.math.required import Check
from pullback.define.math.subscripts import is_data
from pullback.deploy.cmake.arrays import Arrays
from pullback.deploy.cmake.definitions import format_fields, quote


class SizeChecks:
    """Writes the checks of one formula."""

    def __init__(self, formula: Formula, arrays: Arrays) -> None:
        self.formula, self.arrays = formula, arrays
        self.states = tuple(formula.states.values())
        self.reads: list[str] = []
        self.maxima: list[str] = []
        # Behind the outputs come the states.
        for output, root in enumerate((*formula.nodes, *(s.node for s in self.states))):
            for check in required.find_unguarded(root):
                if check.node.op != READ:
                    self.maxima.append(self.maximum(output, check))
                else:
                    self.reads += self.read(output, check)
            for check in required.find_guarded(root, formula.ranges):
                self.reads += self.read(output, check)

    def maximum(self, output: int, check: Check) -> str:
        """Return a `MaximumCheck`."""
        line = self.formula.line
        finding = bounds.empty(line, check.node).finding
        return format_fields(
            output=str(output),
            around=self.arrays.extents(extent for _, extent in check.around),
            size=self.arrays.extent(check.node.size),
            message=quote(finding.message.removeprefix(f"{line.qualname}: ")),
            help=quote(finding.help or ""),
        )

    def read(self, output: int, check: Check) -> Iterator[str]:
        """Yield the `ReadCheck` of each index of a read that is not inside for every size."""
        formula, node, arrays = self.formula, check.node, self.arrays
        ranges = self.ranges_of(output) | dict(check.around)
        for place, (label, extent) in zip(node.places, self.dims_of(node.name), strict=True):
            # Where an index has a value, it is less than how far it runs.
            is_whole = place.index is not None and ranges[place.index] == extent
            if label == BATCH or is_data(place) or is_whole:
                continue
            left: tuple[list[Affine], list[Affine]] = ([], [])
            if check.facts:
                if not required.is_inside_for_facts(formula, check, place, extent):
                    continue  # the data says that it is inside
                left = required.list_left(check, place, extent)
            facts, before, behind = (
                arrays.table("Span", [self.span(each, ranges) for each in spans])
                for spans in ([f for f in check.facts if isinstance(f, Affine)], *left)
            )
            yield format_fields(
                output=str(output),
                around=arrays.extents(extent for _, extent in check.around),
                place=self.span(place, ranges),
                size=arrays.extent(extent),
                read=quote(show.format_inside(node)),
                tensor=quote(node.name),
                dimension="nullptr" if label.isdecimal() else quote(label),
                facts=facts,
                before=before,
                behind=behind,
            )

    def ranges_of(self, output: int) -> dict[str, Affine]:
        """Return how far the indices of an output, or of a state, run."""
        outputs = self.formula.line.outputs
        if output < len(outputs):
            return {label: self.formula.ranges.size(label) for label in outputs[output].labels}
        state = self.states[output - len(outputs)]
        return dict(zip(state.indices, state.extents, strict=True))

    def dims_of(self, name: str) -> list[tuple[str, Affine]]:
        """Return the dimensions of a tensor or a state, and how large they are."""
        if state := self.formula.states.get(name):
            return list(zip(state.indices, state.extents, strict=True))
        [tensor] = [tensor for tensor in self.formula.line.tensors if tensor.name == name]
        return [(label, size(label)) for label in tensor.labels]

    def span(self, place: Affine, ranges: Mapping[str, Affine]) -> str:
        """Return a place as a `Span`."""
        place, remainders = split_remainders(place)
        base = Affine(place.constant)
        moves = [f"{{{self.arrays.extent(Affine(own.divisor))}, {own.many}}}" for own in remainders]
        for term, factor in place.terms:
            ends = Ranges(ranges).bounds(Affine(0, ((term, 1),)))
            assert ends is not None, place
            first, last = ends
            base += first * factor
            if first != last:
                moves.append(f"{{{self.arrays.extent(last - first + 1)}, {factor}}}")
        return f"{{{self.arrays.extent(base)}, {self.arrays.table('Span::Move', moves)}}}"
