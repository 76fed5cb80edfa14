"""Sums over products, factor by factor: products of matrices wherever two factors allow one.

The factors are values of their own, each over its own indices, so no tensor has the indices of all.
A condition is put on one factor that has its indices. Since 0 times infinity is not 0, the other
factors have to be finite then, which is checked in each call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import SymInt, Tensor

from pullback.bind.dense import matrices, reading, slices
from pullback.bind.dense.value import (
    Axis,
    Value,
    align,
    is_proxied,
    is_traced,
    join_axes,
    likely_size,
)
from pullback.define.math.extents import evaluate_size
from pullback.define.math.index import at
from pullback.define.math.lower import Product, is_contraction
from pullback.define.math.node import INSIDE, READ, Node
from pullback.define.shape import Size

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env


def contract(dense: Dense, product: Product, env: Env) -> Value | None:
    """Return a sum over a product; None where it is better computed element by element."""
    if not is_contraction(product):
        return None
    inner, asked = {**env, **dict(product.bound)}, list[Node]()
    with ExitStack() as windows:
        for guard in product.conditions:
            if (part := find_part(dense, product, guard, inner)) is None:
                asked.append(guard)
                continue
            index, first, many = part
            if many != dense.space.extent(inner[index]):
                window = dense.window(inner[index], index, first, many)
                inner[index] = windows.enter_context(window)
        return multiply(dense, replace(product, conditions=tuple(asked)), inner)


def multiply(dense: Dense, product: Product, inner: Env) -> Value | None:
    """Return a sum over a product, of whose indices some run over parts of their ranges."""
    factors = read_factors(dense, product, inner)
    for part in product.under:
        factors = divide_factors(dense, factors, dense.held(part, inner), inner)
    guards = [(guard, dense.of(guard, inner)) for guard in product.conditions]
    if any(condition.data is False for _, condition in guards):
        return Value(torch.zeros([], dtype=dense.call.compute, device=dense.call.device), ())
    # Whether a factor is finite is asked only where something is outside.
    conditions = [
        condition
        for guard, condition in guards
        if condition.data is not True and not is_implied(dense, product, guard, inner)
    ]
    if conditions:
        masked = select_factors(dense, factors, conditions, inner)
        if masked is None:
            return None
        factors = masked
    over = dense.space.axes(dict(product.bound))
    value = widen(dense, contract_by_pairs(dense, factors, over, inner))
    if product.factor != 1:
        value = value._replace(data=value.data * product.factor)
    return value


def read_factors(dense: Dense, product: Product, env: Env) -> list[Value]:
    """Return the factors of a product: tensors in half precision as they are, if that may be.

    Where a tensor has more digits, none is.
    """
    half = dense.call.ways.half
    given = [dense.call.arguments[p.name] for p in product.over if p.op == READ]
    tensors = [value for value in given if isinstance(value, Tensor) and value.is_floating_point()]
    if not (half and all(t.dtype == half and not is_traced(t) for t in tensors)):
        return [dense.held(part, env) for part in product.over]

    def factor(part: Node) -> Value:
        if part.op == READ and part.type == "real":
            return reading.read(dense, part, env, dtype=half)
        if half == torch.bfloat16 and tensors:
            return dense.rounded(part, env, half)
        return dense.held(part, env)

    return [factor(part) for part in product.over]


def widen(dense: Dense, value: Value) -> Value:
    """Return a value in the dtype that the call computes in."""
    half = dense.call.ways.half
    if half is None or not isinstance(value.data, Tensor) or value.data.dtype != half:
        return value
    return value._replace(data=value.data.to(dense.call.compute), own=True)


def find_part(dense: Dense, product: Product, guard: Node, env: Env) -> tuple[str, int, int] | None:
    """Return a summed index and the part of it in which a condition holds; None if it says more.

    Of `where(t > 0, g[t]*h[t - 1], 0)` those products are left that are not 0: nothing is padded,
    and no factor has to be finite. Only of what is read: other factors may be needed in full.
    """
    bound, space = dict(product.bound), dense.space
    steps = reading.find_steps(guard.places[0]) if guard.op == INSIDE else []
    if len(steps) != 1 or steps[0][0] not in bound or steps[0][1] != 1:
        return None
    ((index, _),) = steps
    if any(part.op != READ for part in (*product.over, *product.under) if index in part.free):
        return None
    extent, size = space.extent(env[index]), space.extent(guard.size)
    moved = evaluate_size(guard.places[0] - at(index), space.sizes)
    is_known = not any(isinstance(number, SymInt) for number in (extent, size, moved))
    if space.is_batch(bound[index]) or moved is None or not is_known:
        return None
    before = moved + space.start(env[index])
    first = min(max(-before, 0), extent)
    return index, first, max(min(extent, size - before) - first, 0)


def is_implied(dense: Dense, product: Product, guard: Node, env: Env) -> bool:
    """Return whether a product is 0 anyway where a condition does not hold."""
    padded = [part for part in product.over if reading.is_padded(dense, part, guard, env)]
    if not padded or product.under:
        return False
    return all(
        is_finite(dense.of(part, env).data) for part in product.over if part is not padded[0]
    )


def divide_factors(dense: Dense, factors: list[Value], divisor: Value, env: Env) -> list[Value]:
    """Return factors, the best one divided: the smallest that has the divisor's axes."""
    having = [f for f in factors if set(divisor.axes) <= set(f.axes)]
    best = min(having or factors, key=lambda factor: len(factor.axes))
    axes = join_axes([best, divisor], dense.space.axes(env))
    quotient = Value(align(widen(dense, best), axes) / align(divisor, axes), axes)
    return [quotient if factor is best else factor for factor in factors]


def select_factors(
    dense: Dense, factors: list[Value], conditions: list[Value], env: Env
) -> list[Value] | None:
    """Return factors, one of them 0 where the conditions do not hold.

    None if no factor has all their axes, or another one is not finite.
    """
    needed = {axis for condition in conditions for axis in condition.axes}
    having = [f for f in factors if needed <= set(f.axes)]
    if not having:
        return None
    best = min(having, key=lambda factor: len(factor.axes))
    if not all(is_finite(factor.data) for factor in factors if factor is not best):
        return None
    mask = conditions[0]
    for condition in conditions[1:]:
        axes = join_axes([mask, condition], dense.space.axes(env))
        mask = Value(align(mask, axes) & align(condition, axes), axes)
    kept = torch.where(align(mask, best.axes), dense.numbers.tensor(best.data), 0.0)
    return [Value(kept, best.axes) if factor is best else factor for factor in factors]


def is_finite(tensor: Tensor | float) -> bool:
    """Return whether a value has no NaN and no infinity; False where that cannot be seen.

    Of values whose range is no number of their type it cannot.
    """
    if not isinstance(tensor, Tensor):
        return math.isfinite(tensor)
    if is_traced(tensor):
        return False
    if tensor.numel() == 0 or not tensor.is_floating_point():
        return True
    least, most = torch.aminmax(tensor.detach())
    return bool(most - least < math.inf)  # `isfinite` of both takes nine operations


def contract_by_pairs(dense: Dense, factors: list[Value], over: Sequence[Axis], env: Env) -> Value:
    """Return a sum over a product of tensors, two at a time, the cheapest two first."""
    missing = [axis for axis in over if not any(axis in factor.axes for factor in factors)]
    left = list(factors)
    while len(left) > 1:
        pairs = itertools.combinations(range(len(left)), 2)
        i, j = min(pairs, key=lambda pair: count_products(dense, [left[k] for k in pair], env))
        rest = [factor for k, factor in enumerate(left) if k not in (i, j)]
        kept = {axis for factor in rest for axis in factor.axes}
        summed = [a for a in over if a not in kept and (a in left[i].axes or a in left[j].axes)]
        left = [*rest, contract_pair(dense, left[i], left[j], summed, env)]
    return sum_axes(dense, left[0], [a for a in over if a in (*left[0].axes, *missing)], env)


def count_products(dense: Dense, pair: Iterable[Value], env: Env) -> int:
    """Return how many products two factors have."""
    axes = {axis for value in pair for axis in value.axes}
    return math.prod(likely_size(dense.space.length(axis, env)) for axis in axes)


def contract_pair(dense: Dense, x: Value, y: Value, over: Sequence[Axis], env: Env) -> Value:
    """Return the sum over the product of two tensors."""
    union_axes = join_axes([x, y], dense.space.axes(env))
    axes = tuple(axis for axis in union_axes if axis not in over)
    slices.require_small(dense, axes, env)
    shared = set(x.axes) & set(y.axes)
    # A product of rows by rows, element by element, is faster than one matrix product a row.
    if not shared or not over or (axes and shared.issuperset(axes)):
        x, y = widen(dense, x), widen(dense, y)
        data = align(x, union_axes) * align(y, union_axes)
        return Value(data.sum([union_axes.index(axis) for axis in over]) if over else data, axes)
    alone = [[axis for axis in over if axis in own.axes and axis not in shared] for own in (x, y)]
    x, y = sum_axes(dense, x, alone[0], env), sum_axes(dense, y, alone[1], env)
    if axes and not shared.intersection(axes) and axes[0] in y.axes:
        x, y = y, x  # so that the result's axes come in the order asked for
    return multiply_matrices(dense, x, y, [axis for axis in over if axis in shared], env)


def multiply_matrices(dense: Dense, x: Value, y: Value, over: Sequence[Axis], env: Env) -> Value:
    """Return the sum over the product of two tensors which both have what is summed over."""
    batch = [axis for axis in x.axes if axis in y.axes and axis not in over]
    rows, columns = ([a for a in own.axes if a not in (*batch, *over)] for own in (x, y))
    axes = (*batch, *rows, *columns)
    b, n, m, k = (
        math.prod(dense.space.length(axis, env) for axis in part)
        for part in (batch, rows, columns, over)
    )
    if batch or columns:
        many = [b] if batch else []
        first = as_matrix(x, batch, (rows, over), [*many, n, k])
        second = as_matrix(y, batch, (over, columns), [*many, k, m])
        multiply_by = matrices.multiply_each if batch else matrices.multiply
        if dense.call.ways.half in (first.dtype, second.dtype):
            multiply_by = matrices.multiply_halves
        data = multiply_by(first, second)
    else:
        x, y = widen(dense, x), widen(dense, y)
        first, second = align(x, (*rows, *over)), align(y, over)
        matrix, vector = reshape_to(first, [n, k]), reshape_to(second, [k])
        # What onnxruntime makes of a turned matrix by a vector is wrong; by a matrix it is not.
        data = (matrix @ vector[:, None])[:, 0] if is_proxied() else torch.mv(matrix, vector)
    return Value(reshape_to(data, [dense.space.length(axis, env) for axis in axes]), axes)


def as_matrix(
    value: Value,
    batch: Sequence[Axis],
    parts: tuple[Sequence[Axis], Sequence[Axis]],
    shape: Sequence[Size],
) -> Tensor:
    """Return a tensor as matrices, turned if their columns lie side by side: copies are fast then.

    Args:
        value: the tensor.
        batch: axes of which each value has a matrix.
        parts: the axes of its rows, and of its columns.
        shape: of the result.
    """
    rows, columns = parts
    data, turned = align(value, (*batch, *rows, *columns)), align(value, (*batch, *columns, *rows))
    is_one = not (rows and columns) or is_traced(data)
    if not is_one and data.stride(-1) != 1 and turned.stride(-1) == 1:
        return reshape_to(turned, [*shape[:-2], shape[-1], shape[-2]]).mT
    return reshape_to(data, shape)


def reshape_to(data: Tensor, shape: Sequence[Size]) -> Tensor:
    """Return a tensor in a shape, unchanged if it has that."""
    return data if list(data.shape) == list(shape) else data.reshape(shape)


def sum_axes(dense: Dense, value: Value, over: Sequence[Axis], env: Env) -> Value:
    """Return the sum of a value over some axes; those that it lacks multiply it."""
    if not over:
        return value
    value = widen(dense, value)
    many = math.prod(dense.space.length(axis, env) for axis in over if axis not in value.axes)
    dims = [value.axes.index(axis) for axis in over if axis in value.axes]
    data = value.data.sum(dims) if dims else value.data
    if many != 1:
        data = data * many
    axes = tuple(axis for axis in value.axes if axis not in over)
    return Value(data, axes, data is not value.data)
