"""Sums over rows of a tensor that data picks, `sum[m](x[idx[n, m], d])`.

PyTorch's embedding bag adds the rows up where they lie, without a tensor of all of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional

from pullback.bind.dense import contraction, places, reading
from pullback.bind.dense.value import Value, align, is_differentiated
from pullback.define.math.lower import Bag, Product

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env


def sum_bags(dense: Dense, product: Product, bag: Bag, env: Env) -> Value | None:
    """Return the sum; None where an embedding bag does not apply."""
    inner = {**env, **dict(product.bound)}
    data, axes, left = reading.spread_places(dense, bag.read, inner)
    place = places.compute_place(dense, bag.place, inner)
    over = dense.space.axes(dict(product.bound))
    rows = [axis for axis in place.axes if axis not in over]
    rest = [axis for axis in axes if axis is not None]
    if (
        left != [bag.place]
        or not isinstance(place.data, Tensor)
        or is_differentiated(data)
        or not {*over} <= {*place.axes}
        or {*place.axes} & {*rest}
        or not all((*data.shape, *place.data.shape))
    ):
        return None
    shape = [math.prod(dense.space.length(axis, inner) for axis in own) for own in (rows, over)]
    order = [*rows, *over]
    row = axes.index(None)
    many = data.shape[row]
    index = reading.clamp_places(dense, bag.place, align(place, order), many, inner)
    index = contraction.reshape_to(index, shape)
    weights = None
    if bag.weight is not None:
        weight = dense.of(bag.weight, inner)
        lengths = [dense.space.length(axis, inner) for axis in order]
        weights = dense.numbers.tensor(align(weight, order)).expand(lengths).reshape(shape)
    lengths = [dense.space.length(axis, inner) for axis in rest]
    table = data if row == 0 else data.permute(row, *(axes.index(axis) for axis in rest))
    table = contraction.reshape_to(table, [many, math.prod(lengths)])
    summed = functional.embedding_bag(index, table, mode="sum", per_sample_weights=weights)
    summed = contraction.reshape_to(summed, [dense.space.length(a, inner) for a in (*rows, *rest)])
    return Value(summed if product.factor == 1 else summed * product.factor, (*rows, *rest))
