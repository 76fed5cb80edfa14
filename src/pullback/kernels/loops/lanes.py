"""Which index the lanes of a recurrence's loop run along."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from pullback.define.math.functions import TABLE
from pullback.define.math.node import READ, in_order
from pullback.kernels.loops.emit import HEAVY
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import KernelSetting, Output

# An index with fewer values is not worth the lanes.
FEW = 4
# With fewer values of it, which are no neighbours in memory, each is computed alone; or with any
# number, if a step has so few operations.
ALONE, SLIGHT = 8, 3


def choose_lane(
    outputs: Sequence[Output], sequential: str, setting: KernelSetting, stored: Container[str]
) -> str | None:
    """Return the index of the lanes: that along which most elements are neighbours in memory.

    Of several it is the last one, and of short ones the longest.

    Args:
        outputs: the states.
        sequential: the index of the steps.
        setting: with the sizes of a call.
        stored: the names of the states whose order in memory is given.
    """
    extents = Extents(setting.typical)
    own = [i for i in outputs[0].indices if i != sequential]
    if not setting.target.keeps_states:
        # Each lane would have a segment of its own, as only threads can.
        own = [i for i in own if i not in setting.rows]
    sizes = {i: setting.measure(i) for i in own}
    long = [i for i in own if sizes[i] >= FEW]
    if setting.target.keeps_states:
        return long[-1] if long else max(own, key=lambda i: sizes[i], default=None)
    neighbours = dict.fromkeys(long, 0)
    names = {output.name for output in outputs}
    nodes = [*in_order(output.node for output in outputs)]
    reads = [n for n in nodes if n.op == READ and n.name not in names and n.places]
    written = {(o.name, o.indices[-1]) for o in outputs if o.name in stored}
    last = {(read.name, read.places[-1].index) for read in reads} | written
    functions = [n.op for n in nodes if n.op in TABLE]
    is_light = all(TABLE[each].work < HEAVY for each in functions)
    is_alone = max(sizes.values(), default=1) < ALONE or is_slight(functions)
    moving = {each.places[-1].index for each in reads if sequential in each.free}
    if is_light and is_alone and (moving | {index for _, index in written}).isdisjoint(own):
        # Copies of all tensors in which they are neighbours take longer than one after the other.
        return None
    if not long:
        return max(own, key=lambda i: sizes[i], default=None)
    for name, index in last:
        if index in neighbours:
            neighbours[index] += math.prod(extents.number(n) or 1 for n in setting.dims[name])
    return max(long, key=lambda i: (neighbours[i], own.index(i)))


def is_slight(functions: Sequence[str]) -> bool:
    """Return whether a step takes less than a copy of what it reads, that is in another order."""
    arithmetic = [each for each in functions if each != "where"]
    return len(arithmetic) <= SLIGHT and {*arithmetic} <= {"add", "sub", "mul", "neg"}
