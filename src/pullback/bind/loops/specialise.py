"""Which sizes loops are made for, and the schedules for these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.bind.dense import places
from pullback.bind.memo import Memo
from pullback.define.math import bounds
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, size
from pullback.define.math.ranges import Ranges
from pullback.define.math.sizes import dimensions_used
from pullback.kernels.loops import schedule as schedules
from pullback.kernels.loops import worth
from pullback.kernels.loops.nest import KernelSetting, Output
from pullback.kernels.loops.schedule import Schedule
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import Target

# A kernel is made for sizes up to this, if the call is not small.
SMALL = 16
# Sizes above this are told apart more finely where they decide what fits a memory.
LONG = 8192
# Below this many vector operations nothing is made for the sizes of one call.
FEW = 20_000
# Loops do at least the necessary operations; by so much these may be counted too high.
LARGE = 2
# Sizes that stand for unknown ones when loops are chosen for small calls.
USUAL = 300


def usual_sizes(sizes: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    """Return sizes for loops that are compiled ahead of a call, where only some are known."""
    numbers = {name: size for name, size in sizes.items() if name.isdecimal()}
    return {**dict.fromkeys(sizes, USUAL), **numbers, **known}


def round_size(size: int, parts: int = 1) -> int:
    """Return the size that stands for similar ones: they have the same loops.

    Args:
        size: of a call.
        parts: how many sizes stand for those between long ones and twice as long ones.
    """
    if size <= SMALL:
        return size
    most = 1 << (size - 1).bit_length()
    # As many vectors as a block may have: how many there are decides what it looks like.
    step = SMALL if size <= 8 * SMALL else most
    if size > LONG:
        step = most // (2 * parts)
    return -(-size // step) * step


def round_sizes(indexed: Formula, sizes: Mapping[str, int], parts: int = 1) -> dict[str, int]:
    """Return the sizes that stand for those of a call.

    Loops are never made for what an int scalar says, of which a call may have any: also the small
    ones are rounded.
    """
    counts = {*indexed.counts}
    counts |= {i for i, own in indexed.sizes.items() if counts & dimensions_used((), [own])}
    return {
        name: 1 << max(n - 1, 0).bit_length() if name in counts else round_size(n, parts)
        for name, n in sizes.items()
    }


def choose_schedules(  # noqa: PLR0913  (all that decides which loops there are)
    indexed: Formula,
    outputs: Sequence[Output],
    dtypes: dict[str, str],
    target: Target,
    sizes: Mapping[str, int],
    *,
    for_any: bool = False,
) -> tuple[tuple[Schedule, ...], dict[str, int], Target]:
    """Return schedules, the sizes that they are made for, and the target.

    A small call has loops for any sizes. For a large one these are not even written.

    Args:
        indexed: the formula.
        outputs: what the loops write.
        dtypes: of its tensors.
        target: what the loops are written for.
        sizes: of a call.
        for_any: whether they have to be for any sizes, though that call is none.

    Raises:
        RefusedLoops: there are none.
    """
    if for_any:
        if general := general_schedules(indexed, outputs, dtypes, target, sizes):
            return general, {}, target
        raise RefusedLoops("none for any sizes")
    if worth.count_needed(outputs, indexed.sizes, sizes) < LARGE * FEW * target.lanes:
        general = general_schedules(indexed, outputs, dtypes, target, sizes)
        if general and sum(schedule.work(sizes) for schedule in general) < FEW:
            return general, {}, target
    known = find_small(indexed, sizes)
    for index in find_short_rows(outputs, known):
        if known[index] >= target.shortest:
            target = target.for_rows(known.pop(index))
    if length := worth.row_length(outputs, Ranges(indexed.sizes), sizes):
        target = target.for_rows(length)
    setting = make_setting(indexed, outputs, dtypes, target, sizes, known)
    return schedules_of(outputs, setting, sizes), known, target


def find_short_rows(outputs: Sequence[Output], known: Mapping[str, int]) -> list[str]:
    """Return the small indices of rows that share loops with what is added up from all of them.

    Written out, rows would share nothing with their sums.
    """
    own = [{*output.indices} for output in outputs]
    shared = set.intersection(*own)
    is_alike = all(each == shared for each in own)
    return [] if is_alike else [index for index in known if index in shared]


def find_small(indexed: Formula, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the small sizes of a call, which a kernel may be made for."""
    names = {i.rstrip("'") for t in indexed.line.tensors for i in t.labels} - {BATCH}
    # A size that follows from others cannot be chosen where loops are tried on tiny inputs.
    names -= set(indexed.sizes)
    return {name: n for name, n in sizes.items() if n <= SMALL and name in names}


def general_schedules(
    indexed: Formula,
    outputs: Sequence[Output],
    dtypes: Mapping[str, str],
    target: Target,
    sizes: Mapping[str, int],
) -> tuple[Schedule, ...]:
    """Return schedules for any sizes; none if they are refused, since those of a call may do.

    Calls that are smaller than usual share them: writing all candidates takes longer than a call.
    """
    usual = usual_sizes(sizes, {})
    # What a row may keep is decided for longer ones.
    typical = sizes if any(sizes[name] > usual[name] for name in sizes) else usual
    setting = make_setting(indexed, outputs, dtypes, target, typical, {})
    try:
        return schedules_of(outputs, setting, usual)
    except RefusedLoops:
        return ()


def schedules_of(
    outputs: Sequence[Output], setting: KernelSetting, sizes: Mapping[str, int]
) -> tuple[Schedule, ...]:
    """Return one schedule for all outputs, or one for each where that is not possible."""
    try:
        return (choose_once(outputs, setting, sizes),)
    except RefusedLoops:
        if len(outputs) == 1:
            raise
        return tuple(choose_once([output], setting, sizes) for output in outputs)


def choose_once(
    outputs: Sequence[Output], setting: KernelSetting, sizes: Mapping[str, int]
) -> Schedule:
    """Return the cheapest schedule, or refuse; each is found once, whatever is beside it."""

    def choose() -> Schedule | str:
        try:
            return schedules.choose_schedule(outputs, setting, sizes)
        except RefusedLoops as refused:
            return str(refused)

    of_inputs = (
        {name: value for name, value in table.items() if not name.startswith("~")}
        for table in (setting.dtypes, setting.dims)
    )
    tables = (sizes, setting.known, setting.typical, setting.ranges, setting.scalars, *of_inputs)
    key = (*outputs, setting.target, setting.picked, *(tuple(table.items()) for table in tables))
    found = _chosen.get_or_make(key, choose)
    if isinstance(found, str):
        raise RefusedLoops(found)
    return found


# Schedules, and why there are none.
_chosen: Memo[tuple[object, ...], Schedule | str] = Memo()


def make_setting(  # noqa: PLR0913, PLR0917  (the parts of a setting)
    indexed: Formula,
    outputs: Sequence[Output],
    dtypes: Mapping[str, str],
    target: Target,
    sizes: Mapping[str, int],
    known: Mapping[str, int],
) -> KernelSetting:
    """Return what the kernels of an operator share."""
    line = indexed.line
    dims = {t.name: tuple(map(size, t.labels)) for t in line.tensors}
    ranges = Ranges(indexed.sizes)
    dims |= {o.name: tuple(ranges.size(index) for index in o.indices) for o in outputs}
    return KernelSetting(
        known=known,
        typical=sizes,
        ranges=indexed.sizes,
        dtypes={**dtypes, **{o.name: o.dtype for o in outputs}},
        dims=dims,
        scalars={s.name: place for place, s in enumerate(line.scalars)},
        target=target,
        picked=frozenset(
            (gather.read.name, gather.dimension)
            for output in outputs
            for gather in bounds.find_gathers(output.node)
            if not places.is_certain(indexed, gather)
        ),
    )
