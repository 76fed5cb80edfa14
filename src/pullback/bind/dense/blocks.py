"""A formula in passes over blocks of rows and columns, on every device.

What would be a matrix of all rows and columns is computed a block at a time, from parts of the
tensors: products of matrices where there are contractions, and nothing larger is ever held. On a
CPU with a compiler generated loops compute what is between the products (`bind/loops/passes.py`).
Else the formula of a block is evaluated like any other, by PyTorch's operations, which are recorded
once and replayed.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from pullback.bind.dense import contraction, evaluate
from pullback.bind.dense.looped_pass import LoopedPass
from pullback.bind.dense.parts import (
    Part,
    Parts,
    Sides,
    bounds_within,
    choose_sides,
    cut,
    dimension,
    find_truths,
    is_irregular,
    list_blocks,
    narrow,
    reach,
    rows_first,
)
from pullback.bind.dense.space import Space, SpaceCall
from pullback.bind.loops import block_loops
from pullback.bind.loops.backends import has_gpu_loops
from pullback.bind.loops.pass_tensors import NOTHING, Held, LaidOut
from pullback.define.math.block import Block, Labels, Operand
from pullback.define.math.blocks import Sweep, Truths
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine
from pullback.define.math.node import MAX, READ, SCALAR, Node, in_order
from pullback.define.math.passes import Statistic
from pullback.define.math.passing import Passing

# A block has so many elements, all batches together, and no fewer rows or columns than LEAST. On a
# CPU it lies in the cache; on a GPU few large operations are faster than many small ones: as large
# as one value may be (`slices.MOST_BYTES_ELSEWHERE`), else loops would not have it.
ELEMENTS = {"cpu": 2**17}
ELEMENTS_ELSEWHERE = 2**27
LEAST = 64


def size_block(
    sweep: Sweep, extent: Callable[[Affine], int], device: torch.device, sizes: Mapping[str, int]
) -> Sides:
    """Return how many rows and columns a block has.

    Args:
        sweep: the pass.
        extent: returns a size as a number.
        device: of the tensors.
        sizes: of the line's names.
    """
    if has_loops(sweep, device):
        extents = [extent(sweep.whole.ranges[index]) for index in (sweep.rows, sweep.columns)]
        return choose_sides(sweep, (extents[0], extents[1]), tuple(sizes.items()))
    batches = sweep.batches_in_memory if has_gpu_loops(device) else sweep.batches
    many = math.prod(map(extent, batches.values()))
    elements = ELEMENTS.get(device.type, ELEMENTS_ELSEWHERE) // max(many, 1)
    rows = max(LEAST, 2 ** (max(elements // 2, 1).bit_length() // 2))
    rows = min(rows, extent(sweep.whole.ranges[sweep.rows]))
    columns = extent(sweep.whole.ranges[sweep.columns])
    return rows, min(max(LEAST, elements // rows), columns)


def has_loops(sweep: Sweep, device: torch.device) -> bool:
    """Return whether generated loops compute what is between the products of a pass."""
    return not sweep.settled and block_loops.can_compile(device) and sweep.has_loops


class Blocks:
    """One call.

    Attributes:
        values: arguments, statistics and vectors, by name.
        finite: which of them were seen to be finite everywhere.
        is_half: whether generated loops multiply matrices in bfloat16.
        laid: how tensors have been laid out for generated loops.
        empty: statistics of nothing.
    """

    def __init__(self, passing: Passing, call: SpaceCall, *, is_half: bool = False) -> None:
        self.passing = passing
        self.call = call
        self.is_half = is_half
        self.laid = LaidOut()
        self.empty: set[str] = set()
        self.space = Space(call)
        self.dtypes = {"real": call.compute, "int": torch.int64, "bool": torch.bool}
        self.values: dict[str, object] = dict(call.arguments)
        numbers = {name: value for name, value in self.values.items() if type(value) is int}
        # What conditions may depend on.
        self.sizes: dict[str, int] = {**call.sizes, **numbers}
        self.finite: dict[str, bool] = {}
        names = {spec.name for spec in call.line.tensors}
        self.scalars = {n: v for n, v in call.arguments.items() if n not in names}

    def outputs(self, wanted: Sequence[bool], dtypes: Sequence[torch.dtype]) -> list[Tensor | None]:
        """Return the outputs."""
        self.run()
        found = [
            self.whole(element, labels) if asked else None
            for element, labels, asked in zip(
                self.passing.passes.elements, self.passing.passes.labels, wanted, strict=True
            )
        ]
        left = [asked and value is None for asked, value in zip(wanted, found, strict=True)]
        rest = self.passing.rest
        given = {spec.name: self.values.get(spec.name) for spec in rest.line.tensors}
        others = found
        if any(left):
            spare = self.spare(found)
            others = self.evaluate(rest, given, self.call.sizes, dtypes, left, spare)
        return [
            other if value is None else value.to(dtype).contiguous()
            for value, other, dtype in zip(found, others, dtypes, strict=True)
        ]

    def spare(self, outputs: Sequence[Tensor | None]) -> frozenset[str]:
        """Return the statistics that are none of some outputs, and that all others read once."""
        taken = {id(output) for output in outputs}
        once = find_read_once(self.passing.rest.nodes)
        names = (own.name for own in self.passing.statistics if own.name in once)
        return frozenset(name for name in names if id(self.values[name]) not in taken)

    def run(self) -> None:
        """Compute the statistics, pass by pass."""
        for sweep in (sweep for sweeps in self.passing.sweeps for sweep in sweeps):
            # What this needs for a moment is given back before there are statistics.
            self.prepare(sweep)
            self.begin(sweep)
            self.sweep(sweep)
            for again in sweep.again:
                self.settle(again)

    def begin(self, sweep: Sweep) -> None:
        """Let the statistics of a pass be those of nothing."""
        for own in sweep.statistics:
            self.values[own.name] = self.neutral(own)
        self.empty = {own.name for own in sweep.statistics}

    def whole(self, element: Node, labels: tuple[str, ...]) -> Tensor | None:
        """Return the statistic that an output is as it is; None if it is none."""
        if element.op != READ or element.name in self.call.arguments:
            return None
        as_they_are = tuple(place.index for place in element.places) == labels
        return self.tensor(element.name) if as_they_are else None

    def evaluate(  # noqa: PLR0913, PLR0917  (all of a call)
        self,
        formula: Formula,
        given: Mapping[str, object],
        sizes: Mapping[str, object],
        dtypes: Sequence[torch.dtype],
        wanted: Sequence[bool] = (),
        spare: frozenset[str] = frozenset(),
    ) -> list[Tensor | None]:
        """Return the outputs of a formula in which all places are inside."""
        return evaluate.evaluate(
            formula,
            {**given, **self.scalars},
            sizes,  # pyright: ignore
            wanted or [True] * len(dtypes),
            dtypes,
            self.call.device,
            reuse=True,
            is_inside=True,
            spare=spare,
            ways=self.call.ways,
        )

    def tensor(self, name: str) -> Tensor:
        """Return an argument, a statistic or a vector."""
        value = self.values[name]
        assert isinstance(value, Tensor)
        return value

    def extent(self, index: str) -> int:
        """Return how far an index runs."""
        return self.number(self.passing.passes.ranges[index])

    def number(self, size: Affine) -> int:
        """Return a size as a number."""
        return int(self.space.extent(size))

    def neutral(self, own: Statistic) -> Tensor:
        """Return a statistic of nothing."""
        shape: list[int] = []
        for label in own.labels:
            shape += [int(n) for n in self.space.batch] if label == BATCH else [self.extent(label)]
        least = -math.inf if own.type == "real" else torch.iinfo(torch.int64).min
        value = least if own.op == MAX else 0
        return torch.full(shape, value, dtype=self.dtypes[own.type], device=self.call.device)

    def sides(self, sweep: Sweep) -> Sides:
        """Return how many rows and columns a block has."""
        return size_block(sweep, self.number, self.call.device, self.sizes)

    # --- one pass

    def cut(self, sweep: Sweep) -> tuple[list[Part], list[Part]]:
        """Return the parts of the rows and of the columns."""
        rows, columns = self.sides(sweep)
        return cut(self.extent(sweep.rows), rows), cut(self.extent(sweep.columns), columns)

    def sweep(self, sweep: Sweep, only: Sequence[Part] | None = None) -> None:
        """Bring statistics up to date by all blocks of a pass, or by those of some rows."""
        found = self.blocks(sweep, only)
        if has_loops(sweep, self.call.device) and self.run_loops(sweep, found):
            return
        self.empty.clear()
        for parts, block in found:
            if block is not None:
                self.update(sweep, block, parts)

    def blocks(
        self, sweep: Sweep, only: Sequence[Part] | None = None
    ) -> list[tuple[Parts, Block | None]]:
        """Return all blocks of a pass, or those of some rows, with what is computed of each."""
        rows, columns = self.cut(sweep)
        rows = rows if only is None else only
        truths = self.truths(sweep, rows, columns)
        kinds = {each: sweep.block(each, self.is_finite) for each in set(truths)}
        every = list_blocks(sweep, rows, columns)
        return [(parts, kinds[each]) for parts, each in zip(every, truths, strict=True)]

    def truths(
        self, sweep: Sweep, rows: Sequence[Part], columns: Sequence[Part]
    ) -> Sequence[Truths]:
        """Return which conditions hold on each of some blocks, row by row."""
        if not sweep.data:
            return find_truths(sweep, (*rows,), (*columns,), (*self.sizes.items(),))
        data = self.bounds_of_data(sweep, {sweep.rows: rows, sweep.columns: columns})
        every = list_blocks(sweep, rows, columns)
        return [sweep.truths(bounds_within(parts, self.sizes, data)) for parts in every]

    def prepare(self, sweep: Sweep) -> None:
        """Compute the vectors of a pass."""
        formula = sweep.before
        given = {spec.name: self.values[spec.name] for spec in formula.line.tensors}
        dtypes = [self.dtypes[node.type] for node in sweep.vectors]
        values = self.evaluate(formula, given, self.call.sizes, dtypes)
        self.values |= dict(zip(sweep.vectors.values(), values, strict=True))
        self.finite.clear()  # the vectors of another pass have the same names

    def update(self, sweep: Sweep, block: Block, parts: Parts) -> None:
        """Bring statistics up to date by one block."""
        given = {each.name: self.part(sweep.tensors, each, parts) for each in block.operands}
        sizes = {**self.call.sizes, **{index: part.length for index, part in parts.items()}}
        dtypes = [self.dtypes[own.type] for own, _ in block.updates]
        results = self.evaluate(block.formula, given, sizes, dtypes)
        for (own, how), result in zip(block.updates, results, strict=True):
            assert result is not None
            state = self.tensor(own.name)
            for k, label in enumerate(own.labels):
                if label in parts:
                    part = parts[label]
                    state = state.narrow(dimension(own.labels, k), part.start, part.length)
            _ = state.add_(result) if how == "add" else state.copy_(result)

    def run_loops(
        self,
        sweep: Sweep,
        found: Sequence[tuple[Parts, Block | None]],
        held: Held = NOTHING,
    ) -> bool:
        """Run blocks of a pass by products and loops; return False if that cannot be."""
        return LoopedPass(self, sweep).run(found, held)

    # --- by PyTorch's operations

    def part(self, tensors: Labels, operand: Operand, parts: Parts) -> Tensor:
        """Return the part of a tensor that a block reads."""
        value = self.tensor(operand.tensor)
        labels = tensors[operand.tensor]
        for k, window in enumerate(operand.windows):
            if window is not None:
                dim = dimension(labels, k) % value.dim()
                value = narrow(value, dim, *reach(window, parts, self.call.sizes))
        return value

    # --- what is certain on a block

    def bounds_of_data(
        self, sweep: Sweep, cuts: Mapping[str, Sequence[Part]]
    ) -> dict[Node, dict[Part, tuple[int, int]]]:
        """Return the least and the greatest of whole numbers that data gives, for every part."""
        found: dict[Node, dict[Part, tuple[int, int]]] = {}
        for node in sweep.data:
            name = sweep.vectors[node]
            [index] = node.free & sweep.pair
            values = rows_first(self.tensor(name), sweep.tensors[name], index)
            pieces = [values.narrow(0, part.start, part.length) for part in cuts[index]]
            ends = torch.stack([torch.stack(torch.aminmax(piece)) for piece in pieces]).tolist()
            found[node] = {p: (e[0], e[1]) for p, e in zip(cuts[index], ends, strict=True)}
        return found

    def is_finite(self, node: Node) -> bool:
        """Return whether a value of only rows, or only columns, is finite everywhere."""
        if node.op == SCALAR:
            return math.isfinite(float(str(self.values[node.name])))
        if node.op != READ:
            return False
        if node.name not in self.finite:
            self.finite[node.name] = contraction.is_finite(self.tensor(node.name))
        return self.finite[node.name]

    # --- what is not finite

    def settle(self, again: Sweep) -> None:
        """Compute again, from final statistics, what had others that are not finite.

        Until something is seen, a maximum is -inf, for which 0 stands. Where it ends so, or with an
        infinity or NaN, the line may give something else than what was summed up on the way.
        """
        irregular = self.irregular(again)
        if not bool(irregular.any()):
            return
        rows, _ = self.cut(again)
        only = [p for p in rows if bool(irregular.narrow(0, p.start, p.length).any())]
        for own in again.statistics:
            state = self.tensor(own.name)
            dim = dimension(own.labels, own.labels.index(again.rows))
            for part in only:
                state.narrow(dim, part.start, part.length).zero_()
        self.prepare(again)
        self.sweep(again, only)

    def irregular(self, again: Sweep) -> Tensor:
        """Return for which rows something is not finite, or is of nothing."""
        running = {name for own in again.statistics for name in own.running}
        seen = [own for own in self.passing.statistics if own.name in running]
        flags = [
            is_irregular(own, self.tensor(own.name), again.rows, is_running=True) for own in seen
        ]
        flags += [is_irregular(own, self.tensor(own.name), again.rows) for own in again.statistics]
        return functools.reduce(torch.logical_or, flags)


@functools.lru_cache(maxsize=512)
def find_read_once(nodes: tuple[Node, ...]) -> frozenset[str]:
    """Return the tensors that are read once, however what several sums share is computed."""
    uses, times = Counter(nodes), Counter[str]()
    for node in reversed([*in_order(nodes)]):
        for arg in node.args:
            uses[arg] += uses[node]
        if node.op == READ:
            times[node.name] += uses[node]
    return frozenset(name for name, many in times.items() if many == 1)
