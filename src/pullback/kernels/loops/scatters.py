"""Finds the sums that scatter, and writes them as sums over segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pullback.define.math import build, reduce
from pullback.define.math import node as graph
from pullback.define.math.index import Affine, at
from pullback.define.math.lower import product_of, scatter_of
from pullback.define.math.node import ARGMAX, PLACED, REDUCTIONS, SUM, Node, in_order, place_of
from pullback.define.math.ranges import Ranges
from pullback.define.math.term import select
from pullback.kernels.loops.nest import Output
from pullback.kernels.loops.segments import Segments

# What the names of the tensors begin with that hold the places of maxima.
PLACE = "~place:"


@dataclass
class SegmentedOutputs:
    """Outputs whose sums run over segments and no longer scatter.

    Attributes:
        outputs: what is to be computed.
        ranges: of the indices; those of entries are added.
        real: the dtype that real numbers are computed in.
        segments: that they run over.
        places: the places of maxima that decide where values go; they are computed first.
    """

    outputs: list[Output]
    ranges: Ranges
    real: str
    segments: list[Segments] = field(default_factory=list[Segments])
    places: dict[Node, Output] = field(default_factory=dict[Node, Output])

    @property
    def label(self) -> str:
        """The label of the segments that come next: outputs may have schedules of their own."""
        return f"{self.outputs[0].name}:{len(self.segments)}"

    def replace_sums(self) -> None:
        """Replace the outermost sums that scatter; what several outputs have is one sum."""
        known: dict[tuple[Node, tuple[str, ...]], Node | None] = {}
        for k, output in enumerate(self.outputs):
            others: dict[Node, Node] = {}
            for node in in_order([output.node], outside_reductions):
                own = node, tuple(i for i in output.indices if i in node.free)
                if node.op == SUM and own not in known:
                    known[own] = self.segmented(node, output.indices)
                if found := known.get(own):
                    others[node] = found
            self.outputs[k] = replace(output, node=replace_nodes(output.node, others))

    def segmented(self, node: Node, indices: Sequence[str]) -> Node | None:
        """Return a sum over a segment; None if the sum is no scatter to rows."""
        product = product_of(node)
        scatter = scatter_of(product, {i: self.ranges.size(i) for i in indices if i in node.free})
        if scatter is None or len(scatter.places) != 1 or node.type != "real":
            return None
        row, place = scatter.places[0]
        if not place.nodes:
            return None  # the order of a diagonal's values would be a matrix
        opened = {old: f"~{self.label}:{k}" for k, (old, _) in enumerate(scatter.bound)}
        bound = {opened[old]: extent for old, extent in scatter.bound}
        self.ranges.sizes |= bound
        others = {old: at(new) for old, new in opened.items()}
        target = reduce.substitute(graph.index(place), others, self.ranges)
        value = reduce.substitute(scatter.at_row, others, self.ranges)
        target, value = self.decide_maxima(target, value, indices, bound)
        for index in [i for i in bound if i not in target.free]:
            value = reduce.sum_over(index, value, self.ranges)
        segments = Segments(
            label=self.label,
            row=row,
            place=place_of(target),
            batch=tuple(i for i in indices if i in target.free),
            bound=tuple((i, extent) for i, extent in bound.items() if i in target.free),
        )
        self.segments.append(segments)
        total = self.summed(segments, value)
        if product.factor != 1:
            total = build.apply("mul", graph.number(product.factor), total)
        return total

    def decide_maxima(
        self, target: Node, value: Node, indices: Sequence[str], bound: dict[str, Affine]
    ) -> tuple[Node, Node]:
        """Return where and what is added if each place that a maximum may have is an entry."""
        maxima = [
            part
            for part in in_order([target], outside_reductions)
            if part.op == ARGMAX and part.free & {*indices}
        ]
        for maximum in maxima:
            index = f"~{self.label}:{len(bound)}"
            bound[index] = self.ranges.sizes[index] = maximum.size
            others = {maximum: graph.index(at(index))}
            # The output's own indices last: along them it is read.
            free = tuple(i for i in (*bound, *indices) if i in maximum.free)
            made = Output(
                name=f"{PLACE}{self.label}:{index}",
                indices=free,
                node=build.to_real(maximum),
                dtype=self.real,
            )
            known = self.places.setdefault(maximum, made)
            place = graph.read(known.name, map(at, known.indices))
            target, value = (replace_nodes(part, others) for part in (target, value))
            here = build.to_real(graph.index(at(index)))
            value = select([build.apply("eq", place, here)], value)
        return target, value

    def summed(self, segments: Segments, value: Node) -> Node:
        """Return the sum of a value over the entries of a row, each read where it is sorted to."""
        entry = f"~entry:{segments.label}"
        self.ranges.sizes[entry] = segments.size
        others = {i: place_of(segments.index_of(i, entry)) for i, _ in segments.bound}
        body = reduce.substitute(value, others, self.ranges)
        reals = {
            build.to_real(segments.index_of(i, entry)): segments.value_of(i, entry)
            for i, _ in segments.bound
        }
        body = replace_nodes(body, reals)
        begin, end, here = segments.end("begin"), segments.end("end"), graph.index(at(entry))
        inside = build.apply(
            "logical_and", build.apply("le", begin, here), build.apply("lt", here, end)
        )
        selected = graph.make("where", (inside, body, graph.number(0.0)), None, "real", frozenset())
        return graph.close(SUM, entry, segments.size, selected)


def outside_reductions(node: Node) -> tuple[Node, ...]:
    """Return the operands of a node that is no reduction."""
    return () if node.op in REDUCTIONS else node.args


def replace_nodes(root: Node, others: Mapping[Node, Node]) -> Node:
    """Return an expression with others in place of some nodes that are outside of reductions."""
    made: dict[Node, Node] = dict(others)
    places: dict[str | Node, Affine] = {
        old: place_of(new) for old, new in others.items() if old.type == "int"
    }
    for node in in_order([root], lambda n: () if n in others else outside_reductions(n)):
        args = tuple(made.get(arg, arg) for arg in node.args)
        if node in made or all(a is b for a, b in zip(args, node.args, strict=True)):
            made.setdefault(node, node)
        elif node.op in PLACED:
            made[node] = graph.remake(node, (), lambda place: place.replaced(places))
        else:
            made[node] = build.rebuild(node, args)
        if node.type == "int":
            places[node] = place_of(made[node])
    return made[root]
