"""Sums over `x[i + p] * k[p]` by PyTorch's convolutions, in the three ways that they come.

- `forward`: the sum runs over the taps of a small kernel. The gradient for the input of a
  convolution is one as well, with the kernel flipped: `grad[h - p] * k[p]`.
- `backward`: the sum runs over the places, and the result is the taps: a kernel's gradient.
- `transposed`: `k[h - 2*j] * grad[j]`, the gradient for the input of a convolution with a stride.

Zeros that stand in for what is outside are multiplied by elements of the other factor that the
formula leaves out: those have to be finite, as 0 times infinity is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import pad

from pullback.bind.dense import places, reading
from pullback.bind.dense.contraction import is_finite
from pullback.bind.dense.value import Axis, Value, is_traced, permute
from pullback.define.math.lower import Product, Stencil, Window

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env

CONVOLVE = (functional.conv1d, functional.conv2d, functional.conv3d)
TRANSPOSED = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The roles of the axes that belong to no window.

    Attributes:
        common: in both factors and summed over: channels.
        group: in both factors and in the result.
        first: in the read alone; `second`: in the other factor alone.
    """

    common: list[Axis]
    group: list[Axis]
    first: list[Axis]
    second: list[Axis]


class Convolution:
    """One sum in one call."""

    def __init__(self, dense: Dense, stencil: Stencil, product: Product, env: Env) -> None:
        self.dense = dense
        self.space = dense.space
        self.stencil = stencil
        self.env = {**env, **dict(product.bound)}
        self.over = dense.space.axes(dict(product.bound))
        self.windows = stencil.windows
        self.data, axes, left = reading.spread_places(dense, stencil.read, self.env)
        # A place that belongs to no window is left if its index does not run over the dimension.
        self.is_whole = left == [stencil.read.places[w.dimension] for w in self.windows]
        self.dims = {axis: dim for dim, axis in enumerate(axes) if axis is not None}
        self.at = [dim for dim, axis in enumerate(axes) if axis is None]
        self.other = dense.of(stencil.other, self.env)

    def many(self, axes: Sequence[Axis]) -> int:
        """Return how many elements some axes have together."""
        return math.prod(self.space.length(axis, self.env) for axis in axes)

    def extents(self, *, free: bool) -> list[int]:
        """Return how far the windows' indices run."""
        indices = [w.free if free else w.bound for w in self.windows]
        return [self.space.extent(self.env[index]) for index in indices]

    def roles(self) -> Roles | None:
        """Return the roles of the other axes; None if one has no role."""
        own = list(self.dims)
        within = {(w.bound, 0) for w in self.windows}
        others = [axis for axis in self.other.axes if axis not in within]
        alone = [axis for axis in (*own, *others) if not (axis in own and axis in others)]
        if any(axis in self.over for axis in alone) or not self.is_whole:
            return None
        shared = [axis for axis in own if axis in others]
        return Roles(
            common=[axis for axis in shared if axis in self.over],
            group=[axis for axis in shared if axis not in self.over],
            first=[axis for axis in own if axis not in others],
            second=[axis for axis in others if axis not in own],
        )

    def result(self) -> Value | None:
        """Return the sum; None where a convolution does not pay, or would not be right."""
        roles = self.roles()
        sizes = [*self.extents(free=True), *self.extents(free=False), *self.data.shape]
        if (
            roles is None
            or not all(sizes)
            or is_traced(self.data)
            or not self.many([*roles.group, *roles.second, *roles.common])
        ):
            return None
        taps, outs = math.prod(self.extents(free=False)), math.prod(self.extents(free=True))
        across = math.prod(self.data.shape[dim] for dim in self.at)
        if all(w.step < 0 and w.stride == 1 and w.guarded for w in self.windows) and across < taps:
            return self.transposed(roles)
        if any(w.step < 0 and w.stride != 1 for w in self.windows):
            return None
        if taps <= outs:
            return self.forward(roles)
        return self.backward(roles) if all(w.step > 0 for w in self.windows) else None

    def padded(self, axes: Sequence[Axis]) -> tuple[Tensor, list[int]] | None:
        """Return the factor that is read with dimensions in an order, the windows' last.

        It has exactly the elements that the windows see. Zeros for what is outside are returned as
        counts if there are as many on both sides: PyTorch adds them on the way. None if zeros are
        multiplied by an element that is not finite, or a window sees nothing else.
        """
        data, sides = self.data, list[tuple[int, int]]()
        for window, dim in zip(self.windows, self.at, strict=True):
            ends = places.reach(self.dense, self.stencil.read.places[window.dimension], self.env)
            assert ends is not None
            low, high = ends
            extent = data.shape[dim]
            if high < 0 or low >= extent:
                return None
            sides.append((max(0, -low), max(0, high + 1 - extent)))
            first, last = max(0, low), min(extent, high + 1)
            if last - first < extent:
                data = data.narrow(dim, first, max(0, last - first))
        if any(map(any, sides)) and not is_finite(self.other.data):
            return None
        even = all(before == after for before, after in sides) and all(data.shape)
        if not even:
            for dim, own in zip(self.at, sides, strict=True):
                data = pad(data, [0, 0] * (data.dim() - 1 - dim) + list(own))
        return self.ordered(data, axes), [before if even else 0 for before, _ in sides]

    def ordered(self, data: Tensor, axes: Sequence[Axis]) -> Tensor:
        """Return the tensor that is read with its dimensions in an order, the windows' last."""
        order = [*(self.dims[axis] for axis in axes), *self.at]
        return data if order == sorted(order) else data.permute(order)

    def turned(self, axes: Sequence[Axis]) -> Tensor:
        """Return the other factor with dimensions in an order, the windows' last.

        It is flipped where the window runs against it: `x[h - p]` is `x[h - (n - 1) + p]`.
        """
        inner = [(w.bound, 0) for w in self.windows]
        data = permute(self.other.data, self.other.axes, [*axes, *inner])
        back = [len(axes) + k for k, w in enumerate(self.windows) if w.step < 0]
        return data.flip(back) if back else data

    def forward(self, roles: Roles) -> Value | None:
        """Return a convolution with the other factor as the kernel."""
        seen = self.padded([*roles.first, *roles.group, *roles.common])
        if seen is None:
            return None
        seen, zeros = seen
        groups = self.many(roles.group)
        common = self.many(roles.common)
        inner = seen.shape[seen.dim() - len(self.windows) :]
        seen = seen.reshape(self.many(roles.first), groups * common, *inner)
        kernel = self.turned([*roles.group, *roles.second, *roles.common])
        kernel = kernel.reshape(groups * self.many(roles.second), common, *self.extents(free=False))
        data = CONVOLVE[len(self.windows) - 1](
            seen,
            kernel,
            stride=[w.stride for w in self.windows],
            padding=zeros,
            dilation=[abs(w.step) for w in self.windows],
            groups=groups,
        )
        return self.shaped(data, [*roles.first, *roles.group, *roles.second])

    def backward(self, roles: Roles) -> Value | None:
        """Return the gradient for the kernel of a convolution."""
        seen = self.padded([*roles.common, *roles.group, *roles.first])
        if seen is None:
            return None
        seen, zeros = seen
        groups, rank = self.many(roles.group), len(self.windows)
        first, second = self.many(roles.first), self.many(roles.second)
        inner = seen.shape[seen.dim() - rank :]
        seen = seen.reshape(self.many(roles.common), groups * first, *inner)
        arriving = self.turned([*roles.common, *roles.group, *roles.second])
        arriving = arriving.reshape(len(seen), groups * second, *self.extents(free=False))
        shape = [groups * second, first, *self.extents(free=True)]
        _, data, _ = torch.ops.aten.convolution_backward(
            arriving,
            seen,
            arriving.new_empty(1).expand(shape),
            None,
            [w.step for w in self.windows],
            zeros,
            [w.stride for w in self.windows],
            False,
            [0] * rank,
            groups,
            [False, True, False],
        )
        return self.shaped(data, [*roles.group, *roles.second, *roles.first])

    def transposed(self, roles: Roles) -> Value | None:
        """Return a transposed convolution with the factor that is read as the kernel."""
        if not (is_finite(self.data) and is_finite(self.other.data)):
            return None
        groups, common = self.many(roles.group), self.many(roles.common)
        kernel = self.ordered(self.data, [*roles.group, *roles.common, *roles.first])
        taps = kernel.shape[kernel.dim() - len(self.windows) :]
        inner = [(w.bound, 0) for w in self.windows]
        order = [*roles.second, *roles.group, *roles.common, *inner]
        seen = permute(self.other.data, self.other.axes, order)
        data = TRANSPOSED[len(self.windows) - 1](
            seen.reshape(self.many(roles.second), groups * common, *self.extents(free=False)),
            kernel.reshape(groups * common, self.many(roles.first), *taps),
            stride=[-w.step for w in self.windows],
            groups=groups,
        )
        for dim, window in enumerate(self.windows, start=2):
            data = self.cut(data, dim, window)
        return self.shaped(data, [*roles.second, *roles.group, *roles.first])

    def cut(self, data: Tensor, dim: int, window: Window) -> Tensor:
        """Return the part of a transposed convolution that the free index runs over."""
        place = self.stencil.read.places[window.dimension]
        # Where the bound index is 0, the free one and the constant are left.
        place = place.replaced({window.bound: place * 0})
        ends = places.reach(self.dense, place, self.env)
        assert ends is not None
        low, high = ends
        before, after = max(0, -low), max(0, high + 1 - data.shape[dim])
        if before or after:
            data = pad(data, [0, 0] * (data.dim() - 1 - dim) + [before, after])
        return data.narrow(dim, low + before, high - low + 1)

    def shaped(self, data: Tensor, axes: Sequence[Axis]) -> Value:
        """Return a result with all its axes."""
        lengths = [self.space.length(axis, self.env) for axis in axes]
        free = [(w.free, 0) for w in self.windows]
        return Value(data.reshape([*lengths, *self.extents(free=True)]), (*axes, *free))


def convolve(dense: Dense, product: Product, stencil: Stencil, env: Env) -> Value | None:
    """Return a sum over a product as a convolution; None where another way is better."""
    value = Convolution(dense, stencil, product, env).result()
    if value is None or product.factor == 1:
        return value
    return value._replace(data=value.data * product.factor)
