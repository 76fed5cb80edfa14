"""Which dimensions of an operator may be split over processes, and what its outputs then are.

Every process evaluates the same formula on its own part of some dimension. What comes out is a part
of an output, or a part of a sum or maximum that the processes still have to combine. Where neither
is certain the split is refused, with the reason: a wrong rule would silently give wrong numbers.
This is followed from the reads up, as a `Kind` of each expression.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pullback.define.dimension import Arithmetic, names_in
from pullback.define.line import Tensor
from pullback.define.math import steps
from pullback.define.math.formula import Formula
from pullback.define.math.merging import merge
from pullback.define.math.node import READ, in_order
from pullback.define.math.passes import Unfit
from pullback.define.math.split import Added, SplitFollower, depends
from pullback.define.sharding import Partial, Placement, Placements, RefusedSplit, Replicate, part

# Beyond this many tensors, incoming partial sums are tried one by one and not together.
MOST_TOGETHER = 6
# At most so many tensors, such as a bias, are left to one process if they are added to a sum.
MOST_ADDED = 2


def rules(
    indexed: Formula, wanted: Sequence[bool] | None = None, absent: frozenset[str] = frozenset()
) -> list[Placements]:
    """Return the ways to split an operator, and the ways that are refused.

    Args:
        indexed: the operator.
        wanted: whether each output is; all, if nothing is said.
        absent: the optional tensors that are None.
    """
    line = indexed.line
    tensors = [tensor for tensor in line.tensors if tensor.name not in absent]
    dims = dict.fromkeys(label.rstrip("'") for tensor in tensors for label in tensor.labels)
    wanted = wanted or [True] * len(line.outputs)
    if indexed.groups:
        return [_split_states(indexed, dim, tensors, wanted, absent) for dim in dims]
    found = [_split(indexed, dim, tensors, wanted, absent) for dim in dims]
    return found + _find_partial(indexed, tensors, wanted, absent)


def _split_states(
    recurrence: Formula,
    dim: str,
    tensors: Sequence[Tensor],
    wanted: Sequence[bool],
    absent: frozenset[str],
) -> Placements:
    """Return the effect of splitting one dimension of a recurrence.

    If each process has its part of the states before a step, it has it after the step.
    """
    joint, states = steps.with_states(recurrence)
    own = [tensor for _, tensor in states]
    found = _split(joint, dim, [*tensors, *own], [*(True for _ in own), *wanted], absent)
    for (name, tensor), after in zip(states, found.outputs, strict=False):
        if found.inputs[tensor.name] != after:
            reason = f"a step of '{name}' needs parts of other processes"
            return Placements(split=dim, reason=reason)
    inputs = {tensor.name: found.inputs[tensor.name] for tensor in tensors if found.inputs}
    return replace(found, inputs=inputs, outputs=found.outputs[len(own) :])


def _split(
    indexed: Formula,
    dim: str,
    tensors: Sequence[Tensor],
    wanted: Sequence[bool],
    absent: frozenset[str],
) -> Placements:
    """Return the effect of splitting one dimension."""
    inputs: dict[str, Placement] = {}
    indices: list[str] = []
    try:
        indices = _indices(indexed, dim)
        inputs = {tensor.name: part(tensor, indices) for tensor in tensors}
        split = SplitFollower(indexed, dims=indices, absent=absent)
        return Placements(split=dim, inputs=inputs, outputs=split.place_outputs(wanted))
    except Added as refused:
        whole = [name for name, placement in inputs.items() if placement == Replicate()]
        for partial in _subsets(whole, MOST_ADDED):
            try:
                split = SplitFollower(
                    indexed, dims=indices, partial=frozenset(partial), absent=absent
                )
                outputs = split.place_outputs(wanted)
            except RefusedSplit:
                continue
            once = {**inputs, **dict.fromkeys(partial, Partial())}
            return Placements(split=dim, inputs=once, outputs=outputs)
        return _merge(indexed, indices, wanted, absent, refused)
    except RefusedSplit as refused:
        if not indices:
            return Placements(split=dim, reason=str(refused))
        return _merge(indexed, indices, wanted, absent, refused)


def _merge(
    indexed: Formula,
    indices: Sequence[str],
    wanted: Sequence[bool],
    absent: frozenset[str],
    refused: RefusedSplit,
) -> Placements:
    """Return the effect of splitting a dimension where processes merge statistics, if they can.

    Args:
        indexed: the operator.
        indices: the dimension, and the indices that always have its size.
        wanted: whether each output is.
        absent: the tensors that are None.
        refused: why it cannot be split without.
    """
    try:
        if not indexed.groups:
            return merge(indexed, indices, wanted, absent)
    except (RefusedSplit, Unfit):
        pass
    return Placements(split=indices[0], reason=str(refused))


def _indices(indexed: Formula, dim: str) -> list[str]:
    """Return a dimension and the indices that always have its size.

    Raises:
        RefusedSplit: its size is fixed, or another's depends on it.
    """
    if dim.isdecimal():
        raise RefusedSplit(f"the size {dim} is fixed")
    ranges = indexed.ranges
    own = ranges.size(dim)
    found = [dim]
    for index, size in indexed.sizes.items():
        if index == dim:
            raise RefusedSplit("its size depends on others")
        if size != own and depends(size, dim):
            raise RefusedSplit(f"the size of {index} depends on its size")
        if size == own:
            found.append(index)
    for output in indexed.line.outputs:
        arithmetic = (part for part in output.dims if isinstance(part, Arithmetic))
        if any(dim in names_in(part) for part in arithmetic):
            raise RefusedSplit(f"the size of {output.name} depends on its size")
    return found


def _subsets(names: Sequence[str], most: int) -> Iterator[tuple[str, ...]]:
    """Yield the ways to choose some of the names, the smallest first."""
    for count in range(1, most + 1):
        yield from itertools.combinations(names, count)


def _find_partial(
    indexed: Formula,
    tensors: Sequence[Tensor],
    wanted: Sequence[bool],
    absent: frozenset[str],
) -> list[Placements]:
    """Return the ways in which inputs may be partial sums: the outputs are linear in them.

    They are linear in `x` and `y` together in x + y, and in each of them alone in x*y; only the
    smallest sets are returned.
    """
    nodes = [node for node, needed in zip(indexed.nodes, wanted, strict=True) if needed]
    leaves = (leaf for leaf in in_order(nodes) if leaf.op == READ)
    read = {leaf.name for leaf in leaves if leaf.type == "real"}
    names = [tensor.name for tensor in tensors if tensor.name in read]
    most = len(names) if len(names) <= MOST_TOGETHER else 1
    found: list[Placements] = []
    linear: list[set[str]] = []
    for chosen in _subsets(names, most):
        if any(smaller <= set(chosen) for smaller in linear):
            continue
        split = SplitFollower(indexed, partial=frozenset(chosen), absent=absent)
        try:
            kinds = {split.kind(node, frozenset()) for node in nodes}
        except RefusedSplit:
            continue
        if kinds <= {"sum", "zero"}:
            linear.append(set(chosen))
            found.append(_arriving(indexed, tensors, chosen))
    return found


def _arriving(indexed: Formula, tensors: Sequence[Tensor], chosen: Sequence[str]) -> Placements:
    return Placements(
        split=f"partial {', '.join(chosen)}",
        inputs={t.name: Partial() if t.name in chosen else Replicate() for t in tensors},
        outputs=(Partial(),) * len(indexed.nodes),
    )
