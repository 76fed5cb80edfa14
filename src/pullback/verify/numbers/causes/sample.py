"""A small sample of a wrong derivative: the Jacobian by differences, and backward's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pullback.verify.call import Call, Run
from pullback.verify.numbers.gradient import backward_of, compare_gradients, slope_along, spacing_of
from pullback.verify.numbers.numeric import draw_direction, flatten

# A Jacobian costs some seventy forward calls a column and a backward a row.
MOST_INPUTS = 64
MOST_OUTPUTS = 128


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One input and one output; complex numbers are two real ones.

    Attributes:
        numeric: the Jacobian by differences, outputs by inputs.
        analytic: backward's: row j is what it returns for a gradient that is 1 at output element j.
        known: where differences are conclusive.
        tolerance: by how much equal Jacobians may differ, relative to their size.
        rows: the output elements that were looked at.
        columns: the input elements that were looked at.
    """

    numeric: Tensor
    analytic: Tensor
    known: Tensor
    tolerance: float
    rows: Tensor
    columns: Tensor

    @property
    def whole(self) -> bool:
        """Whether all elements were looked at."""
        full = self.numeric.shape
        return full == (int(self.rows.max()) + 1, int(self.columns.max()) + 1)

    def same(self, a: Tensor, b: Tensor) -> bool:
        """Tell whether two Jacobians are the same where the differences are conclusive."""
        a, b = a * self.known, b * self.known
        return float((a - b).norm()) <= self.tolerance * max(float(a.norm()), float(b.norm()))

    @property
    def wrong(self) -> Tensor:
        """The elements that differ."""
        size = torch.maximum(self.numeric.abs(), self.analytic.abs())
        floor = self.tolerance * (self.numeric * self.known).square().mean().sqrt()
        apart = (self.numeric - self.analytic).abs()
        return (apart > 30 * self.tolerance * size + floor) & self.known


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One call, small enough for its Jacobians, and the input and output that are wrong.

    Attributes:
        call: in float64 if the target takes that.
        leaf: the input, by its place in `call.leaves`.
        output: the output.
    """

    call: Call
    leaf: int
    output: int

    @property
    def name(self) -> str:
        """The input's name."""
        return self.call.leaves[self.leaf].name

    @property
    def value(self) -> Tensor:
        """The input's value."""
        return self.call.leaves[self.leaf].value

    @cached_property
    def run(self) -> Run:
        """A forward of it."""
        return self.call.forward()

    @property
    def returned(self) -> Tensor:
        """The output's value."""
        return self.run.outputs[self.output].detach()

    @property
    def is_complex(self) -> bool:
        """Whether the input or the output is complex."""
        return self.value.is_complex() or self.returned.is_complex()

    @cached_property
    def pair(self) -> Pair:
        """The Jacobians of the wrong input and output."""
        return self.of(self.leaf)

    def of(self, leaf: int, call: Call | None = None) -> Pair:
        """Return the Jacobians of another input, or of another call of the same shapes."""
        known = self._pairs.get((leaf, id(call)))
        if known is None:
            known = compute_jacobians(call or self.call, leaf, self.output)
            self._pairs[leaf, id(call)] = known
            self._kept.append(call)
        return known

    def fits(self, call: Call, leaf: int | None = None) -> bool:
        """Tell whether backward's Jacobian is that of another call of the same shapes.

        It is compared along one random direction, which costs no Jacobian.
        """
        pair, run = self.pair, call.forward()
        drawn = flatten([draw_direction(self.value, 5)])
        wide = torch.zeros_like(drawn)
        wide[pair.columns] = drawn[pair.columns]
        step = unflatten(wide, self.value)
        own = slope_along(call, run, {self.leaf if leaf is None else leaf: step}, [self.output])
        right, error = own.value[pair.rows], own.error[pair.rows]
        found = pair.analytic @ wide[pair.columns]
        known = error.isfinite() & pair.known.all(1)
        if not known.any() or not right[known].any():
            return False
        allowed = 30 * float(error[known].norm()) + pair.tolerance * float(right[known].norm())
        return float((right - found)[known].norm()) <= allowed < float(right[known].norm())

    @cached_property
    def _pairs(self) -> dict[tuple[int, int], Pair]:
        return {}

    @cached_property
    def _kept(self) -> list[Call | None]:
        # So that no other call gets the same id.
        return []


def compute_jacobians(call: Call, leaf: int, output: int) -> Pair:
    """Return both Jacobians of one input and one output."""
    run = call.forward()
    value, returned = call.leaves[leaf].value, run.outputs[output].detach()
    columns = choose_indices(flatten([value]).numel(), MOST_INPUTS)
    rows = choose_indices(flatten([returned]).numel(), MOST_OUTPUTS)
    numeric, error = [], []
    size = float(flatten([draw_direction(value, 0)]).square().mean().sqrt()) or 1.0
    for column in columns.tolist():
        step = unit_like(value, column, size)
        own = slope_along(call, run, {leaf: step}, [output])
        numeric.append(own.value[rows] / size)
        error.append(own.error[rows] / size)
    analytic = [
        part_of(backward_of(run, output, unit_like(returned, row, 1.0))[leaf], value)[columns]
        for row in rows.tolist()
    ]
    j, off, a = torch.stack(numeric, 1), torch.stack(error, 1), torch.stack(analytic)
    usual = j[off.isfinite()].square().mean().sqrt() if off.isfinite().any() else torch.zeros(())
    known = off.isfinite() & ((off <= 1e-2 * usual) | (off <= 16 * off.median())) & a.isfinite()
    noise = float((off * known).nan_to_num().norm() / max(float((j * known).norm()), 1e-300))
    j, a = j * known, a.nan_to_num() * known
    # Rounding counts as 0, since hypotheses look at which elements depend on which.
    eps = spacing_of(call, run)
    j = torch.where(j.abs() <= 10 * off, 0.0, j)
    a = torch.where(a.abs() <= 256 * eps * a.abs().max(), 0.0, a)
    return Pair(
        numeric=j,
        analytic=a,
        known=known,
        tolerance=min(0.3, max(1e-6, 10 * noise, 16 * eps)),
        rows=rows,
        columns=columns,
    )


def choose_indices(count: int, most: int) -> Tensor:
    """Return all indices, or some spread over them."""
    if count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most).long()


def unit_like(value: Tensor, index: int, size: float) -> Tensor:
    """Return a tensor like `value` that is 0 except at one of its real numbers."""
    wide = torch.zeros(flatten([value]).numel(), dtype=torch.float64)
    wide[index] = size
    return unflatten(wide, value)


def unflatten(vector: Tensor, value: Tensor) -> Tensor:
    """Return a real vector in the shape of a tensor; undo `flatten`."""
    if value.is_complex():
        return torch.view_as_complex(vector.reshape(*value.shape, 2)).to(value)
    return vector.reshape(value.shape).to(value)


def part_of(gradient: Tensor | None, value: Tensor) -> Tensor:
    """Return a gradient as a vector; a missing one is 0."""
    return torch.zeros_like(flatten([value])) if gradient is None else flatten([gradient])


def samples(call: Call, leaf: int, output: int) -> Iterator[Sample]:
    """Yield small samples that are wrong too: of the given values, then of fresh ones.

    Sizes are cut as far as forward allows; if a fault needs the size, a few elements are looked at.
    """
    call = call.double or call
    for index, small in enumerate([*shrink(call), call]):
        with suppress(Exception):
            if is_wrong(small, leaf, output):
                yield Sample(call=small, leaf=leaf, output=output)
                yield from draw_fresh(small, leaf, output)
                return
        assert index < 8


def is_wrong(call: Call, leaf: int, output: int) -> bool:
    """Tell whether the mismatch is there too."""
    return any((m.leaf, m.output) == (leaf, output) for m in compare_gradients(call).mismatches)


def draw_fresh(call: Call, leaf: int, output: int) -> Iterator[Sample]:
    """Yield a sample of other values near the given ones on which the derivative is wrong."""
    for seed, spread in ((1, 0.3), (2, 0.1), (3, 0.01)):
        values = [
            own.value + spread * draw_direction(own.value, seed).to(own.value)
            if own.value.is_floating_point() or own.value.is_complex()
            else own.value
            for own in call.leaves
        ]
        other = call.with_values(values)
        with suppress(Exception):
            finite = all(flatten([o]).isfinite().all() for o in other.values(values))
            if finite and is_wrong(other, leaf, output):
                yield Sample(call=other, leaf=leaf, output=output)
                return


def shrink(call: Call) -> Iterator[Call]:
    """Yield smaller calls; equal sizes stay equal and different ones different."""
    shapes = [own.value.shape for own in call.leaves]
    sizes = sorted({size for shape in shapes for size in shape})
    if max((math.prod(shape) for shape in shapes), default=0) <= MOST_INPUTS:
        return
    for least in (3, 4, 8):
        smaller: dict[int, int] = {}
        following = least
        for size in sizes:
            smaller[size] = min(size, following) if size > least else size
            following = max(following, smaller[size] + 1)
        values = [cut(own.value, [smaller[s] for s in own.value.shape]) for own in call.leaves]
        small = call.with_values(values)
        with suppress(Exception):
            run = small.forward()
            run.backward(run.random_grads())
            yield small


def cut(value: Tensor, shape: list[int]) -> Tensor:
    """Return the first part of a tensor along each axis."""
    for axis, size in enumerate(shape):
        value = value.narrow(axis, 0, size)
    return value.clone()
