"""Which loops a recurrence has: those that threads share, and those that run inside of a task."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from pullback.define.math.fronts import Fronts
from pullback.define.math.index import at
from pullback.define.math.node import REDUCTIONS, Node, in_order
from pullback.define.math.recurrence import reads_of
from pullback.kernels.loops.abreast import count_copies, place_states
from pullback.kernels.loops.nest import KernelSetting, Nest, Output
from pullback.kernels.loops.scope import RefusedLoops

# With fewer tasks than this, each has less.
TASKS = 4


def nest_of(  # noqa: PLR0913, PLR0917  (all that decides the loops)
    outputs: Sequence[Output],
    sequential: tuple[str, int],
    lane: str | None,
    setting: KernelSetting,
    fronts: Fronts | None = None,
    summed: Container[str] = (),
) -> Nest:
    """Return the loops of some states and of what is computed from them at the same step.

    Args:
        outputs: the states first, in their order.
        sequential: the index of the steps, and its direction.
        lane: the index of the lanes, the last one of every output that has it.
        setting: with the sizes of a call.
        fronts: if the steps are fronts.
        summed: indices that sums of the same step run over. No threads share them, if there are
            tasks enough without.

    Raises:
        RefusedLoops: a state is read at a step that no index says.
    """
    own = {o.name: fronts.replace_in(o.indices) if fronts else o.indices for o in outputs}
    reads = [read for output in outputs for read in reads_of([output.node], own)]
    if any(sequential[0] not in read.free for read in reads):
        raise RefusedLoops("a state is read at one step for all others")
    shared = [i for i in own[outputs[0].name] if all(i in indices for indices in own.values())]
    free = [
        index
        for index in shared
        if index != sequential[0]
        and all(read.places[own[read.name].index(index)] == at(index) for read in reads)
    ]
    outer = tuple(index for index in free if index != lane)
    together = tuple(index for index in outer if index not in summed)
    is_enough = _count_tasks(together, lane if lane in free else None, setting) >= TASKS
    if is_enough and not setting.target.keeps_states:
        outer = together
    every = dict.fromkeys(i for indices in own.values() for i in indices)
    inner = tuple(i for i in every if i not in (*outer, lane, sequential[0]))
    copies = count_copies(outputs, (), setting)
    if mixed := find_mixed([o.node for o in outputs], own, lane):
        # Most of a step is those sums, which share what they read of a state.
        copies = min(copies, len(mixed))
    nest = Nest(
        outputs=tuple(outputs),
        lane=lane,
        outer=outer,
        sequential=sequential,
        inner=inner,
        vectors=max(
            1, min(4, setting.target.chains // copies, setting.target.block // setting.target.lanes)
        ),
        meets=not (lane in free and all(lane in indices for indices in own.values())),
        fronts=fronts,
    )
    target = setting.target
    if not (inner or fronts or lane or target.keeps_states):
        return replace(nest, carries=True)
    if nest.meets or (inner and target.keeps_states):
        return nest if fronts else place_states(nest, mixed, setting)
    if target.keeps_states:
        return replace(nest, block=target.block, carries=True)
    if not inner and setting.measure(str(lane)) <= target.lanes:
        return replace(nest, vectors=1, block=target.lanes, carries=True)
    return replace(nest, block=_choose_block(nest, setting))


def join_tasks(nest: Nest, sums: Sequence[frozenset[str]], setting: KernelSetting) -> Nest:
    """Return the loops of which each task has all of some indices, for what is summed over them.

    A task has all of the lanes' index, too. A GPU would have too few tasks: there each has a part
    of the sums over lanes, which run along the index that leaves least to one thread.

    Args:
        nest: the loops.
        sums: which indices each output is summed over.
        setting: with the sizes of a call.
    """
    lane, is_shared = nest.lane, setting.target.keeps_states and not nest.meets
    summed = frozenset[str]().union(*sums)
    if is_shared and lane in summed:

        def left(lane: str) -> frozenset[str]:
            # Of parts that are sums over lanes there may be many.
            return frozenset[str]().union(*(each for each in sums if lane not in each))

        own = [index for index in (lane, *reversed(nest.outer)) if index in summed]
        lane = min(own, key=lambda lane: math.prod(map(setting.measure, left(lane))))
        summed = left(lane)
    every = {i: None for output in nest.outputs for i in nest.run_over(output)}
    outer = tuple(i for i in (*nest.outer, nest.lane) if i and i != lane and i not in summed)
    assert nest.sequential
    inner = tuple(i for i in every if i not in (*outer, lane, nest.sequential[0]))
    block = setting.target.block if is_shared and lane else 0
    return replace(nest, lane=lane, outer=outer, inner=inner, block=block)


def find_mixed(
    nodes: Iterable[Node], own: Mapping[str, Sequence[str]], lane: str | None
) -> list[Node]:
    """Return the sums over the lanes of states, whose indices are given by their names."""
    if lane is None:
        return []

    def is_across(read: Node) -> bool:
        indices = own[read.name]
        return lane in indices and read.places[indices.index(lane)] != at(lane)

    sums = (each for each in in_order(nodes) if each.op in REDUCTIONS)
    return [each for each in sums if any(map(is_across, reads_of([each], own)))]


def _count_tasks(outer: Iterable[str], lane: str | None, setting: KernelSetting) -> int:
    """Return how many tasks there may be, if each has a vector of the lanes' index."""
    vectors = -(-setting.measure(lane) // setting.target.lanes) if lane else 1
    return vectors * math.prod(setting.measure(index) for index in outer)


def _choose_block(nest: Nest, setting: KernelSetting) -> int:
    """Return how many values of the lanes' index a task has."""
    tasks = math.prod(setting.measure(index) for index in nest.outer)
    lanes, block = setting.measure(str(nest.lane)), setting.target.block
    while block > nest.vectors * setting.target.lanes and tasks * -(-lanes // block) < TASKS:
        block //= 2
    return block if lanes > block else 0
