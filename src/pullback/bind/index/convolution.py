"""Sums over `x[i + p] * k[p]` by PyTorch's convolutions, in the three ways that they come.

- `forward`: what is summed over are the taps of a small kernel. The gradient for the input of a
  convolution is one as well, of the kernel turned round: `grad[h - p] * k[p]`.
- `backward`: what is summed over are the places, and the result are the taps: a kernel's gradient.
- `transposed`: `k[h - 2*j] * grad[j]`, the gradient for the input of a convolution with a stride.

Where zeros stand in for what is outside, they meet elements of the other factor that the formula
leaves out: those have to be finite, as 0 times infinity is no 0.
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

from pullback.bind.index import places, reading
from pullback.bind.index.contraction import is_finite
from pullback.bind.index.value import Axis, Value, is_traced, permuted
from pullback.define.formula.lower import Product, Stencil, Window

if TYPE_CHECKING:
    from pullback.bind.index.dense import Dense
    from pullback.bind.index.space import Env

CONVOLVE = (functional.conv1d, functional.conv2d, functional.conv3d)
TRANSPOSED = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


@dataclass(frozen=True, kw_only=True)
class Roles:
    """What the axes are that are no window's.

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
        self.data, axes, left = reading.spread(dense, stencil.read, self.env)
        # A place that is no window's is left where its index does not run over the dimension.
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
        """Return what the other axes are; None if one is none of these."""
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
        if all(w.step < 0 and w.stride == 1 and w.guarded for w in self.windows):
            return self.transposed(roles, read_is_kernel=math.prod(self.seen()) < taps)
        if any(w.step < 0 and w.stride != 1 for w in self.windows):
            return None
        if taps <= outs:
            return self.forward(roles)
        return self.backward(roles) if all(w.step > 0 for w in self.windows) else None

    def padded(self, axes: Sequence[Axis]) -> Tensor | None:
        """Return the factor that is read with dimensions in an order, the windows' last.

        It has exactly the elements that the windows see, with zeros for what is outside; None if
        those meet an element that is not finite.
        """
        data, outside = self.data, False
        for window, dim in zip(self.windows, self.at, strict=True):
            ends = places.reach(self.dense, self.stencil.read.places[window.dimension], self.env)
            assert ends is not None
            low, high = ends
            extent = data.shape[dim]
            before, after = max(0, -low), max(0, high + 1 - extent)
            if before or after:
                outside = True
                data = pad(data, [0, 0] * (data.dim() - 1 - dim) + [before, after])
            data = data.narrow(dim, low + before, high - low + 1)
        if outside and not is_finite(self.other.data):
            return None
        return self.ordered(data, axes)

    def ordered(self, data: Tensor, axes: Sequence[Axis]) -> Tensor:
        """Return the tensor that is read with its dimensions in an order, the windows' last."""
        return data.permute(*(self.dims[axis] for axis in axes), *self.at)

    def turned(self, axes: Sequence[Axis]) -> Tensor:
        """Return the other factor with dimensions in an order, the windows' last.

        It is turned round where the window runs against it: `x[h - p]` is `x[h - (n - 1) + p]`.
        """
        inner = [(w.bound, 0) for w in self.windows]
        data = permuted(self.other.data, self.other.axes, [*axes, *inner])
        back = [len(axes) + k for k, w in enumerate(self.windows) if w.step < 0]
        return data.flip(back) if back else data

    def forward(self, roles: Roles) -> Value | None:
        """Return a convolution with the other factor as the kernel."""
        seen = self.padded([*roles.first, *roles.group, *roles.common])
        if seen is None:
            return None
        groups = self.many(roles.group)
        common = self.many(roles.common)
        inner = seen.shape[seen.dim() - len(self.windows) :]
        seen = seen.reshape(self.many(roles.first), groups * common, *inner)
        kernel = self.turned([*roles.group, *roles.second, *roles.common])
        kernel = kernel.reshape(-1, common, *self.extents(free=False))
        data = CONVOLVE[len(self.windows) - 1](
            seen,
            kernel,
            stride=[w.stride for w in self.windows],
            dilation=[abs(w.step) for w in self.windows],
            groups=groups,
        )
        return self.shaped(data, [*roles.first, *roles.group, *roles.second])

    def backward(self, roles: Roles) -> Value | None:
        """Return the gradient for the kernel of a convolution."""
        seen = self.padded([*roles.common, *roles.group, *roles.first])
        if seen is None:
            return None
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
            [0] * rank,
            [w.stride for w in self.windows],
            False,
            [0] * rank,
            groups,
            [False, True, False],
        )
        return self.shaped(data, [*roles.group, *roles.second, *roles.first])

    def seen(self) -> list[int]:
        """Return the sizes of the dimensions that the windows are on."""
        return [self.data.shape[dim] for dim in self.at]

    def transposed(self, roles: Roles, *, read_is_kernel: bool) -> Value | None:
        """Return a transposed convolution, with either factor as the kernel.

        `x[h - p] * k[p]` is symmetric in the two: with the one that is read as the kernel it is
        `k[h - 2*j] * grad[j]`, with a stride; with the other one, which may be dilated, it is
        `grad[h - p] * k[p]`.
        """
        if not is_finite(self.other.data) or (read_is_kernel and not is_finite(self.data)):
            return None
        steps, rank = [-w.step for w in self.windows], len(self.windows)
        inner = [(w.bound, 0) for w in self.windows]
        groups, common = self.many(roles.group), self.many(roles.common)
        out, own = (roles.second, roles.first) if read_is_kernel else (roles.first, roles.second)
        seen_axes = [*out, *roles.group, *roles.common]
        kernel_axes = [*roles.group, *roles.common, *own]
        if read_is_kernel:
            seen = permuted(self.other.data, self.other.axes, [*seen_axes, *inner])
            kernel = self.ordered(self.data, kernel_axes)
        else:
            seen = self.ordered(self.data, seen_axes)
            kernel = permuted(self.other.data, self.other.axes, [*kernel_axes, *inner])
        data = TRANSPOSED[rank - 1](
            seen.reshape(self.many(out), groups * common, *seen.shape[seen.dim() - rank :]),
            kernel.reshape(groups * common, -1, *kernel.shape[kernel.dim() - rank :]),
            stride=steps if read_is_kernel else [1] * rank,
            dilation=[1] * rank if read_is_kernel else steps,
            groups=groups,
        )
        for dim, window in enumerate(self.windows, start=2):
            data = self.cut(data, dim, window)
        return self.shaped(data, [*out, *roles.group, *own])

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


def convolved(dense: Dense, product: Product, stencil: Stencil, env: Env) -> Value | None:
    """Return a sum over a product as a convolution; None where it is better not one."""
    value = Convolution(dense, stencil, product, env).result()
    if value is None or product.factor == 1:
        return value
    return value._replace(data=value.data * product.factor)
