"""Indices as numbers: where a tensor is read, and whether that is inside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind.dense import slices
from pullback.bind.dense.space import labels_of
from pullback.bind.dense.value import Value, align, is_traced, join_axes
from pullback.define.math import bounds
from pullback.define.math.bounds import Gather, Maximum
from pullback.define.math.facts import derive_facts
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine, is_quotient, is_size, size
from pullback.define.math.node import ARGMAX, INSIDE, Node
from pullback.define.math.ranges import Ranges
from pullback.define.math.required import Check, is_inside_for_facts
from pullback.define.math.subscripts import is_data
from pullback.define.shape import Size
from pullback.diagnostic import Rule

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env

IndexOutside = Rule("PB149", "index-outside")
HELP = "an index runs from 0 to the size less 1; where(...) leaves others out"


def compute_place(dense: Dense, index: Affine, env: Env) -> Value:
    """Return the values of an affine index."""
    parts: list[tuple[Value, int]] = []
    constant: Size = index.constant
    for term, factor in index.terms:
        if isinstance(term, Node):
            value = dense.of(term, env)
            if isinstance(value.data, Tensor):
                parts.append((value, factor))
            else:
                constant = constant + value.data * factor
        elif is_size(term):
            constant = constant + dense.space.sizes[term.strip("|")] * factor
        else:
            parts.append((compute_steps(dense, term, env), factor))
    axes = join_axes((value for value, _ in parts), dense.space.axes(env))
    if len(parts) > 1:
        slices.require_small(dense, axes, env)
    total = constant
    for value, factor in parts:
        own = align(value, axes)
        own = own if factor == 1 else own * factor
        total = own if isinstance(total, int) and total == 0 else total + own
    return Value(total, axes)


def compute_steps(dense: Dense, index: str, env: Env) -> Value:
    """Return an index's own values: 0, 1, 2, ..."""
    size = env[index]
    start = dense.space.start(size)
    values = torch.arange(start, start + dense.space.extent(size), device=dense.call.device)
    axes = tuple(dense.space.axes_of(index, size))
    return Value(values.reshape(dense.space.batch) if len(axes) != 1 else values, axes)


def reach(dense: Dense, index: Affine, env: Env) -> tuple[Size, Size] | None:
    """Return the least and the greatest value of an index; None if data decides or it has none."""
    least = most = index.constant
    for term, factor in index.terms:
        if isinstance(term, Node):
            if term.op != ARGMAX:
                return None
            first, last = 0, dense.space.extent(term.size) - 1
        elif is_size(term):
            known = dense.space.sizes[term.strip("|")] * factor
            least, most = least + known, most + known
            continue
        else:
            first = dense.space.start(env[term])
            last = first + dense.space.extent(env[term]) - 1
        if last < first:
            return None
        ends = (first * factor, last * factor)
        least, most = least + ends[factor < 0], most + ends[factor > 0]
    return least, most


def compute_inside(dense: Dense, node: Node, env: Env) -> Value:
    """Return where an index is from 0 to below a size: a bool where it always is, or never."""
    index, extent = node.places[0], dense.space.extent(node.size)
    ends = reach(dense, index, env)
    if ends is not None:
        if ends[0] >= 0 and ends[1] < extent:
            return Value(True)
        if ends[1] < 0 or ends[0] >= extent:
            return Value(False)
    value = compute_place(dense, index, env)
    if not isinstance(value.data, Tensor):
        return Value(0 <= value.data < extent)
    low = ends is None or ends[0] < 0
    high = ends is None or ends[1] >= extent
    if low and high:
        return Value((value.data >= 0) & (value.data < extent), value.axes)
    return Value(value.data >= 0 if low else value.data < extent, value.axes)


def is_certain(indexed: Formula, gather: Gather) -> bool:
    """Return whether an index is inside wherever it is selected: of a maximum, or under `pad`.

    One that is divided is looked at in each call, unless conditions around it say that it is.
    """
    place = gather.place
    label = labels_of(indexed.line)[gather.read.name][gather.dimension]
    extent = indexed.ranges.size(label.rstrip("'"))
    guards = [c for c in gather.conditions if c.op == INSIDE and c.places[0] == place]
    if any(guard.size in (extent, size(label)) for guard in guards):
        return True
    if is_data(place):
        return False
    if not gather.conditions or not any(map(is_quotient, place.nodes)):
        return True
    ranges = Ranges({**indexed.sizes, **dict(gather.bound)})
    facts = [fact for each in gather.conditions for fact in derive_facts(each, True, ranges)]
    check = Check(gather.read, gather.bound, tuple(facts))
    return is_inside_for_facts(indexed, check, place, extent)


def measure(dense: Dense, gather: Gather) -> Size:
    """Return how long the dimension is that data picks from: of a tensor, or of a state."""
    name = gather.read.name
    if name in dense.call.arguments:
        return dense.given(name).shape[dense.space.dimension(gather.read, gather.dimension)]
    return dense.space.extent(dense.program.size(dense.space.labels[name][gather.dimension]))


def require(dense: Dense, gathers: Iterable[Gather], env: Env) -> None:
    """Stop at an index that data gives and that is outside its tensor, where it is selected."""
    for gather in gathers:
        inner = {**env, **dict(gather.bound)}
        extent = measure(dense, gather)
        if is_inside(dense, gather.place, extent, inner):
            continue
        value = compute_place(dense, gather.place, inner)
        if not isinstance(value.data, Tensor):
            outside = Value(not 0 <= value.data < extent)
        elif is_traced(value.data):
            continue
        elif is_within(value.data, extent):
            dense.inside.add(describe_range(dense, gather.place, extent, inner))
            continue
        else:
            outside = Value((value.data < 0) | (value.data >= extent), value.axes)
        found = find_selected(dense, gather.conditions, value, outside, inner)
        if found is not None:
            raise index_error(dense, gather, found, extent)


def require_once_run(dense: Dense, gathers: Iterable[Gather], env: Env) -> None:
    """Let a graph that is traced stop where `require` would, once its indices have values."""
    for gather in gathers:
        inner = {**env, **dict(gather.bound)}
        extent = measure(dense, gather)
        value = compute_place(dense, gather.place, inner)
        data = value.data if isinstance(value.data, Tensor) else dense.numbers.tensor(value.data)
        outside = Value((data < 0) | (data >= extent), value.axes)
        selected = select(dense, gather.conditions, value, outside, inner)
        if selected is not None:
            told = IndexOutside.error(describe_read(dense, gather, " outside"), help=HELP)
            torch.ops.aten._assert_async.msg(~selected.data.any(), str(told))


def require_values(dense: Dense, maxima: Iterable[Maximum], env: Env) -> None:
    """Stop at a maximum over nothing, where it is selected."""
    for maximum in maxima:
        if dense.space.extent(maximum.node.size) == 0:
            inner = {**env, **dict(maximum.bound)}
            if any(is_traced(dense.of(part, inner).data) for part in maximum.conditions):
                continue
            needed = find_selected(dense, maximum.conditions, Value(0), Value(True), inner)
            if needed is not None:
                raise bounds.empty(dense.call.line, maximum.node)


def is_inside(dense: Dense, index: Affine, extent: Size, env: Env) -> bool:
    """Return whether an index is known to be from 0 to below a size."""
    ends = reach(dense, index, env)
    if ends is None:
        return describe_range(dense, index, extent, env) in dense.inside
    return bool(ends[0] >= 0 and ends[1] < extent)


def describe_range(dense: Dense, index: Affine, extent: Size, env: Env) -> tuple[object, ...]:
    """Return an index together with how far the indices in it run."""
    ends = (extent, *(dense.space.whole(env[name]) for name in sorted(index.free)))
    # A tracer's sizes have no hash.
    return (index, *(end if isinstance(end, int) else str(end) for end in ends))


def is_within(values: Tensor, extent: Size) -> bool:
    """Return whether all indices are inside."""
    if values.numel() == 0:
        return True
    least, most = torch.aminmax(values)
    return bool((least >= 0) & (most < extent))


def find_selected(
    dense: Dense, conditions: Iterable[Node], value: Value, outside: Value, env: Env
) -> int | None:
    """Return the first index outside that all conditions select; None if there is none."""
    selected = select(dense, conditions, value, outside, env)
    if selected is None or not selected.data.any():
        return None
    if not isinstance(value.data, Tensor):
        return int(value.data)
    values, mask = torch.broadcast_tensors(align(value, selected.axes), selected.data)
    return int(values[mask][0])


def select(
    dense: Dense, conditions: Iterable[Node], value: Value, outside: Value, env: Env
) -> Value | None:
    """Return where an index is outside and all conditions select it; None if nowhere."""
    parts = [outside, *(dense.of(condition, env) for condition in conditions)]
    if any(part.data is False for part in parts):
        return None
    if any(dense.space.length(axis, env) == 0 for axis in dense.space.axes(env)):
        return None
    axes = join_axes([*parts, value], dense.space.axes(env))
    mask = dense.numbers.tensor(True)
    for part in parts:
        mask = mask & align(part, axes)
    return Value(mask, axes)


def index_error(dense: Dense, gather: Gather, found: int, extent: Size) -> Exception:
    """Return the error for an index outside."""
    return IndexOutside.error(
        f"{describe_read(dense, gather, f' at {found}')}, which has size {extent}",
        index=found,
        size=extent,
        help=HELP,
    )


def describe_read(dense: Dense, gather: Gather, place: str = "") -> str:
    """Return what is read in words, up to its dimension."""
    name = gather.read.name
    label = dense.space.labels[name][gather.dimension]
    return f"{dense.call.line.called}: '{name}' is read{place} of its dimension '{label}'"
