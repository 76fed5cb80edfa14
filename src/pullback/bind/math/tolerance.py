"""How far two executions of one formula may be apart: as far as their roundings explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_any, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from pullback.bind.levels import EagerMode
from pullback.bind.math.samples import Case

# Roundings that a loop may make beyond those that PyTorch's operations make.
ROUNDINGS = 64
# How many times the noise of PyTorch's operations themselves.
NOISES = 16
# By how much the results of operations are perturbed to see the effect, and how often.
LITTLE, TIMES = 2.0**-30, 4
# Into how many other values a sum may be rounded by loops that add it up anew.
OTHERS = 2
# Operations that do not round.
EXACT = (
    *("neg", "abs", "where", "maximum", "minimum", "amax", "amin", "max", "min", "clamp", "relu"),
    *("gather", "index", "index_select", "take", "masked_fill", "constant_pad_nd", "cat", "stack"),
    *("clone", "copy", "_to_copy", "zeros", "empty", "full", "fill", "zero", "new_zeros", "arange"),
    *("new_empty", "new_full", "zeros_like", "ones_like", "full_like", "scalar_tensor"),
)
# Operations that add up, each in an order of its own.
ADDING = ("sum", "mean", "mv", "mm", "bmm", "index_add", "scatter_add")


def to_double(case: Case) -> Case:
    """Return a call with its floating-point tensors in float64."""
    return change_tensors(case, lambda value: value.double())


def replace_zeros(case: Case) -> Case:
    """Return a call with other numbers where its floating-point tensors have zeros."""
    return change_tensors(case, lambda value: value.masked_fill(value == 0, 0.75))


def spread_out(case: Case) -> Case:
    """Return a call whose numbers do not cancel, as halves do; what is infinite stays so.

    Where they cancel, one order of adding up finds 0 and another one a rounding, and infinity times
    the one is NaN, times the other not: `tanh` of it is 1.
    """
    return change_tensors(case, _scale_each)


def _scale_each(value: Tensor) -> Tensor:
    angles = torch.arange(1, value.numel() + 1, dtype=torch.float64).view(value.shape)
    return (value * (1 + angles.sin() / 8)).to(value.dtype)


def has_infinities(case: Case) -> bool:
    """Return whether an input has an element that is infinite or no number."""
    tensors = [v for v in case.arguments.values() if isinstance(v, Tensor)]
    return any(v.is_floating_point() and not v.isfinite().all() for v in tensors)


def change_tensors(case: Case, change: Callable[[Tensor], Tensor]) -> Case:
    """Return a call with other floating-point tensors."""
    arguments = {
        name: change(value) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in case.arguments.items()
    }
    return Case(arguments, case.sizes, case.what)


def measure_noises(run: Callable[[], Sequence[Tensor]], little: float = LITTLE) -> list[float]:
    """Return how far results move if every operation's result is perturbed, relative to that.

    This shows cancellation: the result is small, but its terms, which roundings are in proportion
    to, are not. PyTorch's operations may be exact there by luck, as they often are with halves.

    Args:
        run: PyTorch's operations in float64.
        little: by how much they are perturbed.
    """
    exact = run()
    found = [0.0] * len(exact)
    for seed in range(TIMES):
        with _Perturbed(seed, little) as perturbed:
            moved = run()
        for each in zip(*(perturbed.values_of(value) for value in moved), strict=True):
            pairs = zip(found, each, exact, strict=True)
            found = [max(most, measure_distance(own, true) / little) for most, own, true in pairs]
    return found


def find_unsteady(run: Callable[[], Sequence[Tensor]], little: float = LITTLE) -> list[Tensor]:
    """Return where results are infinite, no number or neither by roundings alone.

    Infinity times a difference of equals is NaN, and infinite where one of them is rounded once
    less, by an addition that is fused with a product.

    Args: as `measure_noises`.
    """
    exact = run()
    found = [torch.zeros_like(value, dtype=torch.bool) for value in exact]
    for seed in range(TIMES):
        with _Perturbed(seed, little):
            moved = run()
        found = [
            unsteady | (value.isnan() != true.isnan()) | (value.isfinite() != true.isfinite())
            for unsteady, value, true in zip(found, moved, exact, strict=True)
        ]
    return found


class _Perturbed(EagerMode):
    """Multiplies what arithmetic returns by a factor for each value: equal values stay equal.

    What comes of a sum has other values beside that: a loop that needs a sum twice may add it up
    in two orders, and then `exp(t - max(t))` is not 1 at the greatest `t`. Each of these values is
    computed of any of those of its operands.
    """

    def __init__(self, seed: int, little: float) -> None:
        super().__init__()
        self.random, self.little = Random(seed), little
        self.others = WeakTensorKeyDictionary()

    def values_of(self, value: Tensor) -> list[Tensor]:
        """Return a result, and what loops may find instead."""
        others = self.others[value] if value in self.others else [value] * OTHERS
        return [value, *others]

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        name = func.overloadpacket.__name__
        if name in ("softmax", "_softmax"):
            return self._compute_softmax(*args)
        given = args, kwargs or {}
        result = self._perturb(func, *given)
        if not isinstance(result, Tensor) or result.dtype != torch.float64:
            return result
        if func._schema.is_mutable:
            self.others.pop(result, None)
        elif name in ADDING or tree_any(self._has_others, given):
            chosen = [tree_map_only(Tensor, self._choose, given) for _ in range(OTHERS)]
            self.others[result] = [self._perturb(func, *each) for each in chosen]
        return result

    def _compute_softmax(self, value: Tensor, dim: int, dtype: object = None) -> Tensor:
        """Compute it by operations, each of which rounds."""
        with self:
            weights = (value - value.amax(dim, keepdim=True)).exp()
            return weights / weights.sum(dim, keepdim=True)

    def _has_others(self, value: object) -> bool:
        return isinstance(value, Tensor) and value in self.others

    def _choose(self, value: Tensor) -> Tensor:
        return self.random.choice(self.values_of(value))

    def _perturb(
        self, func: OpOverload, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        result: object = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        is_exact = func.is_view or name.rstrip("_") in EXACT
        if is_exact or not isinstance(result, Tensor) or result.dtype != torch.float64:
            return result
        wild = torch.sin(result * self.random.uniform(1e4, 1e5)).nan_to_num()
        factor = 1 + self.little * (wild + self.random.uniform(-1, 1))
        return result.mul_(factor) if name.endswith("_") else result * factor


def measure_distance(value: Tensor, exact: Tensor) -> float:
    """Return the largest distance of two tensors where both are finite."""
    distance = (value.double() - exact.double()).abs()
    distance = distance[distance.isfinite()]
    return distance.max().item() if distance.numel() else 0.0


def describe_difference(
    got: Tensor, want: Tensor, exact: Tensor, noisy: float = 0.0, *, has_sums: bool = False
) -> str | None:
    """Return where two tensors differ by more than rounding, in words; None if they do not.

    Args:
        got: by a loop.
        want: by PyTorch's operations in the same dtype.
        exact: by the same operations in float64.
        noisy: what `measure_noises` returns for it.
        has_sums: whether something is added up. A product of matrices may then add up a factor
            first, and `inf*(a + b)` is infinite where `inf*a + inf*b` is NaN.
    """
    got = got.reshape(want.shape)
    if not want.is_floating_point():
        return None if torch.equal(got, want) else "whole numbers differ"
    epsilon = torch.finfo(want.dtype).eps
    finite = want.isfinite() & exact.isfinite()
    if not finite.any() and not want.numel():
        return None
    scale = exact[finite].abs().max().item() if finite.any() else 0.0
    off = (want.double() - exact)[finite].abs().max().item() if finite.any() else 0.0
    allowed = ROUNDINGS * epsilon * max(scale, epsilon) + NOISES * max(off, noisy * epsilon)
    alike = (got == want) | (got.isnan() & want.isnan()) | ~same_kind(want, exact)
    if has_sums:
        alike |= ~got.isfinite() & ~want.isfinite() & (got.isnan() | want.isnan())
    same = torch.where(finite, (got.double() - exact).abs() <= allowed, alike)
    if same.all():
        return None
    place = tuple((~same).nonzero()[0].tolist())
    return f"{got[place].item()} and {want[place].item()} at {list(place)}"


def same_kind(want: Tensor, exact: Tensor) -> Tensor:
    """Return where float64 agrees: elsewhere a number is just too large for the dtype."""
    return (want.isnan() & exact.isnan()) | (want.double() == exact)
