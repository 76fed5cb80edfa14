"""Sums over a delta whose place is data, `sum[n](where(v == idx[n], a[n], 0))`: `index_add_`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind.dense import places
from pullback.bind.dense.contraction import sum_axes
from pullback.bind.dense.value import Axis, Value, align, is_differentiated, is_traced, join_axes
from pullback.define.math.lower import Scatter
from pullback.define.math.node import SUM, Node

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is added up, as rows.

    Attributes:
        values: the rows.
        places: which row of the result each is added to; both are flat.
        many: how many rows the result has.
        shape: of the result.
        axes: of the result.
    """

    values: Tensor
    places: Tensor
    many: int
    shape: Sequence[int]
    axes: tuple[Axis, ...]


def scatter_add(dense: Dense, scatter: Scatter, factor: float, env: Env) -> Value:
    """Return the sum: what is added is computed once for each value of the summed indices.

    What lies outside the result is dropped.
    """
    rows = find_rows(dense, scatter, env)
    values = rows.values
    result = torch.zeros([rows.many, *values.shape[1:]], dtype=values.dtype, device=values.device)
    add = result.index_add if is_differentiated(values) else result.index_add_
    data = add(0, rows.places, values).reshape(rows.shape)
    if factor != 1:
        data = data * factor
    return Value(data, rows.axes)


def add_into(dense: Dense, node: Node, env: Env) -> Value | None:
    """Return `a + b` or `a - b` where `b` is such a sum: its rows are added to `a`, in its memory.

    None where `a` is needed elsewhere, or `b` is something else.
    """
    if not dense.reuses or node.op not in {"add", "sub"}:
        return None
    whole, added = node.args
    if added.op != SUM or dense.is_known(added, env):
        return None
    sizes = {name: dense.space.whole(env[name]) for name in env if name in added.free}
    found = dense.program.scatter(added, sizes)
    if found is None or not all(map(dense.program.is_for_one, node.args)):
        return None
    value = dense.one(whole, env)
    axes = dense.space.axes({name: own for name, own in env.items() if name in node.free})
    is_spare = value.own and isinstance(value.data, Tensor) and {*value.axes} == {*axes}
    if not is_spare or value.data.dtype != dense.call.compute:
        return None
    dense.taken(whole, env)
    rows = find_rows(dense, found, env)
    factor = dense.program.product(added).factor * (-1 if node.op == "sub" else 1)
    values = rows.values if factor == 1 else rows.values * factor
    # What is added may be the same along some axes of `a`.
    alike = [axis for axis in axes if axis not in rows.axes]
    lengths = [dense.space.length(axis, env) for axis in alike]
    own = [*values.shape[1:], *lengths]
    values = values.reshape(*values.shape, *[1] * len(alike)).expand(-1, *own)
    result = align(value, [*rows.axes, *alike]).contiguous().view(rows.many, *own)
    result.index_add_(0, rows.places, values.to(result.dtype))
    return Value(result.view(*rows.shape, *lengths), (*rows.axes, *alike))


def find_rows(dense: Dense, scatter: Scatter, env: Env) -> Rows:
    """Return what such a sum adds up, and where."""
    inner = {**{i: s for i, s in env.items() if i not in dict(scatter.places)}}
    inner |= dict(scatter.bound)
    at: dict[str, Value] = {}
    for index, place in scatter.places:
        value = places.compute_place(dense, place, inner)
        at[index] = value._replace(data=dense.numbers.tensor(value.data))
    across = join_axes(at.values(), dense.space.axes(inner))
    over = dense.space.axes(dict(scatter.bound))
    value = dense.of(scatter.value, inner)
    early = [axis for axis in over if axis not in across]
    value = sum_axes(dense, value, early, inner)
    # An index that both the places and the result have is one more dimension of the result.
    batched = [axis for axis in across if axis not in over]
    targets: list[tuple[Axis, Tensor]] = []
    certain: set[Axis] = set(batched)
    for index, place in scatter.places:
        own, start = align(at[index], across), dense.space.start(env[index])
        targets.append(((index, 0), own - start if start else own))
        if not start and places.is_inside(dense, place, dense.space.extent(env[index]), inner):
            certain.add((index, 0))
    for axis in batched:
        steps = torch.arange(dense.space.length(axis, inner), device=dense.call.device)
        targets.append((axis, align(Value(steps, (axis,)), across)))
    rest = [axis for axis in value.axes if axis not in across]
    lengths = [dense.space.length(axis, inner) for axis in across]
    flat, valid = linearize(dense, targets, certain, env, lengths)
    source = lay_out_rows(dense, value, [*across, *rest], len(across), inner)
    if valid is not None:
        source, flat = select_valid(source, flat, valid)
    shape = [dense.space.length(axis, env) for axis, _ in targets]
    return Rows(
        values=source,
        places=flat,
        many=math.prod(shape),
        shape=[*shape, *(dense.space.length(axis, inner) for axis in rest)],
        axes=(*(axis for axis, _ in targets), *rest),
    )


def linearize(
    dense: Dense,
    targets: Sequence[tuple[Axis, Tensor]],
    certain: set[Axis],
    env: Env,
    shape: Sequence[int],
) -> tuple[Tensor, Tensor | None]:
    """Return each element's flat index in the result, and which elements are inside it.

    Args:
        dense: the call.
        targets: the axes of the result that are decided, with the places along them.
        certain: those along which all places are known to be inside.
        env: how far the indices run.
        shape: of what is added.
    """
    flat: Tensor | None = None
    valid: Tensor | None = None
    for (index, k), place in targets:
        extent = dense.space.length((index, k), env)
        if (index, k) not in certain and (is_traced(place) or not places.is_within(place, extent)):
            own = (place >= 0) & (place < extent)
            valid = own if valid is None else valid & own
        flat = place if flat is None else flat * extent + place
    assert flat is not None
    flat = flat.broadcast_to(shape).reshape(-1)
    return flat, None if valid is None else valid.broadcast_to(shape).reshape(-1)


def lay_out_rows(dense: Dense, value: Value, axes: Sequence[Axis], many: int, env: Env) -> Tensor:
    """Return values as rows, one for each element that is added."""
    data = align(value, axes)
    data = dense.numbers.tensor(data) if not isinstance(data, Tensor) else data
    lengths = [dense.space.length(axis, env) for axis in axes]
    return data.expand(lengths).reshape(math.prod(lengths[:many]), *lengths[many:])


def select_valid(source: Tensor, flat: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows that go inside, and where."""
    if not is_traced(flat):
        return source[valid], flat[valid]
    rows = valid.reshape(-1, *[1] * (source.dim() - 1))
    return torch.where(rows, source, 0), torch.where(valid, flat, 0)
