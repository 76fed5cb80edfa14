"""Sums and maxima over an index: by an operation of PyTorch if it has one, else of all elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pullback.bind.dense import bag, contraction, convolution, scatter
from pullback.bind.dense.space import Env
from pullback.bind.dense.value import Axis, Value, is_differentiated
from pullback.define.math import softmax
from pullback.define.math.index import Affine
from pullback.define.math.node import ARGMAX, SUM, Node

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense


def compute_sum(dense: Dense, node: Node, env: Env) -> Value:
    """Return a sum over an index, and over those right inside."""
    sizes = {name: dense.space.whole(env[name]) for name in env if name in node.free}
    found = dense.program.scatter(node, sizes)
    if found is not None:
        return scatter.scatter_add(dense, found, dense.program.product(node).factor, env)
    value = compute_recognised(dense, node, env)
    if value is not None:
        return value
    over: dict[str, Affine] = {}
    while node.op == SUM:
        over[node.bound] = dense.program.range(node.size)
        node = node.args[0]
    inner = {**env, **over}
    return contraction.sum_axes(dense, dense.of(node, inner), dense.space.axes(over), inner)


def compute_recognised(dense: Dense, node: Node, env: Env) -> Value | None:
    """Return a sum for which PyTorch has an operation; None if it has none."""
    product = dense.program.product(node)
    rows, stencil = dense.program.bag(node), dense.program.stencil(node)
    value = None
    if rows is not None:
        value = bag.sum_bags(dense, product, rows, env)
    if value is None and stencil is not None:
        value = convolution.convolve(dense, product, stencil, env)
    return contraction.contract(dense, product, env) if value is None else value


def compute_max(dense: Dense, node: Node, env: Env) -> Value:
    """Return a maximum over an index, or the first place where it is taken."""
    body = node.args[0]
    inner = {**env, node.bound: dense.program.range(node.size)}
    value = dense.of(body, inner)
    [axis] = dense.space.axes_of(node.bound, node.size)
    axes = tuple(other for other in value.axes if other != axis)
    if dense.space.extent(node.size) == 0:
        return compute_empty_max(dense, node, axes, inner)
    if axis not in value.axes:
        return Value(0) if node.op == ARGMAX else value._replace(own=False)
    dim, data = value.axes.index(axis), value.data
    if data.dtype == torch.bool:
        data = data.to(torch.uint8)
    if node.op == ARGMAX:
        return Value(data.argmax(dim), axes)
    # The gradient of `amax` is shared among all greatest elements; that of `max` goes to one.
    most = data.max(dim).values if is_differentiated(data) else data.amax(dim)
    return Value(most.to(value.data.dtype), axes)


def compute_softmax(dense: Dense, node: Node, env: Env) -> Value | None:
    """Return weights divided by their sum, in PyTorch's one pass; None if a node is not that."""
    found = softmax.match_softmax(node)
    if found is None:
        return None
    scores, index = found
    value = dense.of(scores, env)
    axes = dense.space.axes_of(index, env[index])
    if len(axes) != 1 or axes[0] not in value.axes or not value.data.numel():
        return None
    if env[index] != node.args[1].size:
        return None  # a slice, or another range than the sum's
    return Value(torch.softmax(value.data, value.axes.index(axes[0])), value.axes)


def compute_empty_max(dense: Dense, node: Node, axes: tuple[Axis, ...], env: Env) -> Value:
    """Return a maximum over nothing, which is unused: `places.require_values` has checked that."""
    shape = [dense.space.length(axis, env) for axis in axes]
    types = {"real": dense.call.compute, "int": torch.int64, "bool": torch.bool}
    return Value(torch.zeros(shape, dtype=types[node.type], device=dense.call.device), axes)
