"""Chooses the loops that compute some outputs: the cheapest nest, by a model of their work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.math import node as graph
from pullback.define.math.index import at
from pullback.define.math.node import Node, in_order
from pullback.define.math.ranges import Ranges
from pullback.kernels.loops import sums, worth
from pullback.kernels.loops.abreast import count_copies, find_small, place_beside, stack, widen
from pullback.kernels.loops.choices import write_choices
from pullback.kernels.loops.cost import count_operations, estimate_cost
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.hoisted import SHARED, Hoisted, repeat_whole
from pullback.kernels.loops.kernel import write_kernel
from pullback.kernels.loops.nest import KernelSetting, KernelText, Nest, Output
from pullback.kernels.loops.outputs import indices_of, outermost, rename_output, split_rows
from pullback.kernels.loops.phases import write_phases
from pullback.kernels.loops.scatters import PLACE, SegmentedOutputs, replace_nodes
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.segments import Segments
from pullback.kernels.loops.target import Target
from pullback.kernels.loops.tiles import hold, tile
from pullback.kernels.loops.windows import Windows

# Whole numbers up to twice this are real numbers of 32 bits.
EXACT = 2**23
# Less work than this may be done many times, and less than that more than once.
SLIGHT, SLIGHTEST = 600_000.0, 60_000.0
# Operations of which each needs the result of the one before, at most.
MOST_DEEP = 150
# Where loops cost so many times the needed work, what they do again may be what rows share.
AGAIN = 1.5


@dataclass(frozen=True, kw_only=True)
class ScheduleStep:
    """One kernel of a schedule, and what becomes of its totals.

    Attributes:
        kernel: its text.
        totals: the sums that a later step reads by this name, with their indices.
    """

    kernel: KernelText
    totals: tuple[Output, ...] = ()

    @property
    def is_inner(self) -> bool:
        """Whether what it writes is only for the later steps."""
        return any(o.name.startswith((PLACE, SHARED)) for o in self.kernel.nest.outputs)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The kernels that compute some outputs, in order; what they read, and which loops they are."""

    steps: tuple[ScheduleStep, ...]
    family: str
    candidate: Candidate
    segments: tuple[Segments, ...] = ()

    def written_for(self, target: Target) -> Schedule:
        """Return the same nests for another target, which has less memory for rows."""
        return replace(
            self.candidate, setting=replace(self.candidate.setting, target=target)
        ).made()

    @property
    def filled(self) -> float:
        """The share of a vector that its elements fill: the others are no work too many."""
        nest, setting = self.candidate.nests[-1][0], self.candidate.setting
        if setting.target.has_narrower:
            return 1.0
        many = setting.measure(nest.lane) if nest.lane else setting.target.lanes
        return min(1.0, many / setting.target.lanes)

    def work(self, sizes: Mapping[str, int]) -> float:
        """Return the vector operations that it does, each counted as one."""
        return sum(count_operations(step.kernel, sizes) for step in self.steps)


def choose_schedule(
    outputs: Sequence[Output], setting: KernelSetting, sizes: Mapping[str, int]
) -> Schedule:
    """Return the cheapest schedule.

    Raises:
        Refused: none of them can compute the outputs.
    """
    require_shallow(outputs)
    if setting.target.has_rival:
        worth.require_no_contraction(outputs, setting.ranges, sizes)
    reasons: list[str] = []
    found = [*make_all(candidates(outputs, setting, sizes), setting, sizes, reasons)]
    for write in (write_phases, write_choices):
        if (others := write(outputs, setting)) != [*outputs]:
            found += make_all(candidates(others, setting, sizes), setting, sizes, reasons)
    needed = max(1.0, worth.count_needed(outputs, setting.ranges, sizes)) / setting.target.lanes

    def does_much(times: float, made: Schedule) -> bool:
        return made.work(sizes) * made.filled > max(SLIGHT, times * needed)

    def is_repeated(cost: float, made: Schedule) -> bool:
        if setting.target.needs_neighbours:
            return cost > max(SLIGHTEST, AGAIN * needed)
        # What a GPU costs with few rows is that most of it has nothing to do, as between launches.
        return made.work(sizes) > max(SLIGHT, AGAIN * needed)

    sums_of = (each for output in outputs for each in outermost(output))
    if all(is_repeated(*each) for each in found) or repeat_whole(sums_of):
        found += make_all(hoist(outputs, setting, sizes), setting, sizes, reasons)
    if not found:
        raise RefusedLoops(reasons[0] if reasons else "no loops fit it")
    if not setting.target.has_rival:
        return min(found, key=lambda each: each[0])[1]
    good = [each for each in found if not does_much(worth.most_work(each[1].family), each[1])]
    if not good:
        times = min(made.work(sizes) * made.filled for _, made in found) / needed
        raise RefusedLoops(f"its loops would do {times:.0f} times the work that is needed")
    return min(good, key=lambda each: each[0])[1]


def require_shallow(outputs: Iterable[Output]) -> None:
    """Refuse what is so deep that Python cannot write one operation within another."""
    depths = dict[Node, int]()
    for node in in_order([output.node for output in outputs]):
        depths[node] = 1 + max((depths[arg] for arg in node.args), default=0)
    if (deepest := max(depths.values(), default=0)) > MOST_DEEP:
        raise RefusedLoops(f"{deepest} operations need one another's results")


def make_all(
    every: Iterable[Candidate],
    setting: KernelSetting,
    sizes: Mapping[str, int],
    reasons: list[str],
) -> Iterator[tuple[float, Schedule]]:
    """Yield the schedules of some candidates with their costs; why others have none is noted."""
    for candidate in every:
        try:
            made = candidate.made()
        except RefusedLoops as refused:
            reasons.append(str(refused))
            continue
        yield estimate_cost(made, setting.target, sizes), made


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to nest the loops."""

    nests: tuple[tuple[Nest, tuple[Output, ...]], ...]
    setting: KernelSetting

    def made(self) -> Schedule:
        """Return its kernels."""
        setting = self.setting
        steps: list[ScheduleStep] = []
        for nest, totals in self.nests:
            steps.append(ScheduleStep(kernel=write_kernel(nest, setting), totals=totals))
            setting = add_totals(setting, totals)
        nodes = [output.node for nest, _ in self.nests for output in nest.outputs]
        return Schedule(
            steps=tuple(steps),
            family=worth.SCATTER
            if setting.segments or self.nests[0][0].pushes
            else worth.name_family(nodes, self.nests[0][0].lane),
            candidate=self,
            segments=setting.segments,
        )


def add_totals(setting: KernelSetting, totals: Iterable[Output]) -> KernelSetting:
    """Return a setting in which totals are tensors."""
    ranges = Ranges(setting.ranges)
    dims = {t.name: tuple(ranges.size(i) for i in t.indices) for t in totals}
    return replace(
        setting,
        dtypes={**setting.dtypes, **dict.fromkeys(dims, "float64")},
        dims={**setting.dims, **dims},
    )


def candidates(
    outputs: Sequence[Output], setting: KernelSetting, sizes: Mapping[str, int]
) -> Iterator[Candidate]:
    """Yield the ways to compute some outputs."""
    for nest in nests(outputs, setting, sizes):
        yield Candidate(nests=((nest, ()),), setting=setting)
    yield from peel(outputs, setting, sizes)
    yield from push(outputs, setting, sizes)
    yield from sort(outputs, setting, sizes)


def nests(
    outputs: Sequence[Output],
    setting: KernelSetting,
    sizes: Mapping[str, int],
    over: str | None = None,
) -> Iterator[Nest]:
    """Yield the nests that compute some outputs."""
    indices = list(dict.fromkeys(i for output in outputs for i in output.indices))
    small = find_small(outputs, setting)
    shared = [i for i in indices if all(i in output.indices for output in outputs)]
    if wide := [i for i in indices if i not in shared and i not in small]:
        lies = all(wide[0] not in output.indices[:-1] for output in outputs)
        if len(wide) == 1 and lies and over is None and wide[0] not in setting.rows:
            # What lacks the lane is written once a row.
            nest = nest_of(outputs, wide[0], shared, small, setting, sizes, over)
            yield place_beside(nest, setting, sizes)
        yield from hold(outputs, shared, setting, over)
        return
    for lane in [*(i for i in shared if i not in setting.rows), None]:
        rest = [i for i in shared if i != lane]
        own = [i for i in small if i != lane]
        if lane in small and any(i not in small for i in shared) and lane != shared[-1]:
            continue
        nest = nest_of(outputs, lane, rest, own, setting, sizes, over)
        yield place_beside(nest, setting, sizes)
        yield from widen(nest, setting, sizes)
        yield from stack(nest, setting, sizes)
        yield from tile(nest, setting, sizes)
    yield from hold(outputs, shared, setting, over)


def nest_of(  # noqa: PLR0913, PLR0917  (the parts of a nest)
    outputs: Sequence[Output],
    lane: str | None,
    rest: Sequence[str],
    small: Sequence[str],
    setting: KernelSetting,
    sizes: Mapping[str, int],
    over: str | None,
) -> Nest:
    """Return a nest, with as many values side by side as there are registers for."""
    ranges = Ranges(setting.ranges)
    outer = tuple(i for i in rest if i not in small)
    copies = count_copies(outputs, small, setting)
    picks = setting.target.ahead > 0 and worth.picks_rows(outputs, ranges)
    # Rows that data picks are looked up once for all vectors that are side by side.
    abreast = setting.target.chains * (2 if picks else 1)
    vectors = max(1, min(abreast if picks else 4, abreast // copies))
    rows = 1
    if lane is not None:
        extent = Extents(sizes).number(ranges.size(lane)) or 1
        needed = max(1, -(-extent // setting.target.lanes))
        if picks:
            # Side by side, rows would be fetched too late: the order of their places counts. Of a
            # row that is looked up several times each has as many vectors.
            vectors = -(-needed // -(-needed // vectors))
        elif needed < vectors and outer and over is None and outer[-1] not in setting.rows:
            rows = 4 // needed
            vectors = needed
    return Nest(
        outputs=tuple(outputs),
        lane=lane,
        outer=outer,
        small=tuple(small),
        over=over,
        over_size=None if over is None else ranges.size(over),
        vectors=vectors,
        rows=rows,
        picks=picks,
    )


def peel(
    outputs: Sequence[Output], setting: KernelSetting, sizes: Mapping[str, int]
) -> Iterator[Candidate]:
    """Yield the schedules that add up an outer sum in chunks, and finish it in a second kernel.

    Outputs that have the index of the sum are written on the way: they read the same rows.
    """
    extents = Extents(setting.known)
    outputs, rows = split_rows(outputs)
    sums_of = list(dict.fromkeys(s for output in outputs for s in outermost(output)))
    if not sums_of or len({s.size for s in sums_of}) != 1 or repeat_whole(sums_of):
        return
    size = sums_of[0].size
    if any(Ranges(setting.ranges).size(row) != size for row, _ in rows):
        return
    if (extents.number(size) or sums.MOST_WRITTEN + 1) <= sums.MOST_WRITTEN:
        return
    index = f"~over:{size}"  # a schedule may have several
    setting = replace(setting, ranges={**setting.ranges, index: size})
    others: dict[Node, Node] = {}
    totals: list[Output] = []
    whole: list[Output] = []
    for place, node in enumerate(sums_of):
        indices = tuple(i for i in indices_of(outputs) if i in node.free)
        total = Output(name=f"~total{place}", indices=indices, node=node, dtype="float64")
        whole.append(total)
        body = graph.rename_index(node.args[0], node.bound, index)
        totals.append(replace(total, node=body))
        others[node] = graph.read(total.name, map(at, indices))
    small = find_small(outputs, setting)
    if len({frozenset(t.indices) - {*small} for t in totals}) != 1:
        return
    is_alike = len({frozenset(t.indices) for t in totals}) == 1
    after = [replace(output, node=replace_nodes(output.node, others)) for output in outputs]
    finish = add_totals(setting, totals)
    beside = tuple(rename_output(output, row, index) for row, output in rows)
    # A sum that another one reads is needed as a whole, and of a chunk there is only its part.
    parts_of = [{*in_order(node.args)} for node in sums_of]
    is_nested = any(node in parts for parts in parts_of for node in sums_of)
    for last in nests(after, finish, sizes):
        for parts in (totals,) if beside or is_nested else (totals, whole):
            for nest in nests(parts, setting, sizes, over=index):
                if (beside and nest.lane is None) or (nest.held and (beside or not is_alike)):
                    continue
                nest = replace(  # noqa: PLW2901  (the same, inside)
                    nest, is_split=parts is whole, outputs=(*nest.outputs, *beside)
                )
                yield Candidate(nests=((nest, tuple(parts)), (last, ())), setting=setting)
        break


def hoist(
    outputs: Sequence[Output], setting: KernelSetting, sizes: Mapping[str, int]
) -> Iterator[Candidate]:
    """Yield the schedules in which what rows share is computed by kernels that come before."""
    known: set[Node] = set()
    for has_rows in (False, True):
        hoisted = Hoisted(outputs, setting, has_rows=has_rows)
        made = {output.node for output in hoisted.made.values()}
        if not made - known:
            continue
        known = made
        found, own = list[tuple[Nest, tuple[Output, ...]]](), hoisted.setting
        for group in hoisted.groups():
            try:
                way = choose_schedule(group, own, sizes).candidate
            except RefusedLoops:
                return
            found, own = [*found, *way.nests], way.setting
        yield Candidate(nests=tuple(found), setting=own)


def push(
    outputs: Sequence[Output], setting: KernelSetting, sizes: Mapping[str, int]
) -> Iterator[Candidate]:
    """Yield the schedules in which each window adds what it has where data says."""
    if not setting.target.pushed:
        return
    windows = Windows(outputs, setting)
    windows.push()
    first, setting = [(nest, ()) for nest in windows.nests], windows.setting
    if first and not windows.outputs:
        yield Candidate(nests=tuple(first), setting=setting)
    elif first:
        for nest in nests(windows.outputs, setting, sizes):
            yield Candidate(nests=(*first, (nest, ())), setting=setting)


def segment(
    outputs: Sequence[Output], setting: KernelSetting
) -> tuple[SegmentedOutputs, KernelSetting]:
    """Return outputs whose sums no longer scatter, and a setting that knows of their segments."""
    real = setting.target.real
    found = SegmentedOutputs(list(outputs), Ranges(setting.ranges), real)
    found.replace_sums()
    dims = {p.name: tuple(map(found.ranges.size, p.indices)) for p in found.places.values()}
    for each in found.segments:
        dims |= each.dims(found.ranges)
    dtypes = {name: real if name.startswith((PLACE, "~value:")) else "int64" for name in dims}
    return found, replace(
        setting,
        ranges=found.ranges.sizes,
        dtypes={**setting.dtypes, **dtypes},
        dims={**setting.dims, **dims},
    )


def sort(
    outputs: Sequence[Output], setting: KernelSetting, sizes: Mapping[str, int]
) -> Iterator[Candidate]:
    """Yield the schedules in which one task adds up all that a scatter adds to one place."""
    found, setting = segment(outputs, setting)
    if not found.segments:
        return
    if setting.target.has_rival:
        worth.require_no_contraction(found.outputs, found.ranges.sizes, sizes)
    places = list(found.places.values())
    if any((Extents(sizes).number(node.size) or 0) > EXACT for node in found.places):
        raise RefusedLoops("a maximum over more places than a real number can tell apart")
    first: list[tuple[Nest, tuple[Output, ...]]] = []
    for place in places:
        ways = [
            Candidate(nests=((nest, ()),), setting=setting)
            for nest in nests([place], setting, sizes)
        ]
        first += min(ways, key=lambda way: estimate_cost(way.made(), setting.target, sizes)).nests
    setting = replace(setting, segments=(*setting.segments, *found.segments))
    for nest in nests(found.outputs, setting, sizes):
        yield Candidate(nests=(*first, (nest, ())), setting=setting)
