"""The right numbers in the wrong places: transposed, reversed, rolled or shifted along an axis."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample

Arrange = Callable[[Tensor], Tensor]


class Arrangement(Hypothesis):
    """The gradient, or the gradient that arrives, has its elements in another order."""

    order = 30

    def explain(self, sample: Sample) -> Cause | None:
        """Put the elements of either side in another order."""
        pair = sample.pair
        if not pair.whole or not pair.known.all():
            return None
        sides = (
            (sample.value, f"the gradient of `{sample.name}` is returned {{}}", False),
            (sample.returned, f"the gradient that arrives is used {{}} for `{sample.name}`", True),
        )
        for tensor, text, rows in sides:
            own = pair.analytic if not rows else pair.analytic.T
            right = pair.numeric if not rows else pair.numeric.T
            shape = (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)
            own, right = own.reshape(-1, *shape), right.reshape(-1, *shape)
            for how, arrange in arrangements(tuple(tensor.shape)):
                moved = arrange(right)
                if moved.shape == own.shape and is_same_pair(moved, own, pair.tolerance):
                    return Cause(
                        name="arrangement",
                        text=text.format(how),
                        help="put its elements in the order of forward's: look at .t(), flip, roll"
                        " and the indices of backward",
                        key=(rows, how.split(" by ")[0]),
                    )
        return None


def is_same_pair(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Tell whether two tensors are the same."""
    return float((a - b).norm()) <= tolerance * max(float(a.norm()), float(b.norm()))


def arrangements(shape: tuple[int, ...]) -> Iterator[tuple[str, Arrange]]:
    """Yield orders of the elements of tensors of a shape with an additional first axis."""
    axes = range(len(shape))
    for order in itertools.islice(itertools.permutations(axes), 1, 24):
        if tuple(shape[axis] for axis in order) == shape:
            moved = [axis for axis in axes if order[axis] != axis]
            what = "transposed" if len(moved) == 2 else f"with its axes permuted to {order}"
            several = f" (axes {moved[0]} and {moved[1]})" if len(shape) > 2 else ""
            yield what + (several if len(moved) == 2 else ""), make_permutation(order, len(shape))
    for axis in axes:
        if shape[axis] < 2:
            continue
        along = f"along axis {axis}"
        yield f"reversed {along}", lambda t, axis=axis: t.flip(axis + 1)
        for by in (1, -1):
            yield (
                f"rolled {along} by {by}",
                lambda t, axis=axis, by=by: t.roll(by, axis + 1),
            )
            yield (
                f"shifted {along} by {by}: an index is off by one,",
                lambda t, axis=axis, by=by: shift(t, axis + 1, by),
            )
        for by in range(2, min(shape[axis], 9) - 1):
            yield f"rolled {along} by {by}", lambda t, axis=axis, by=by: t.roll(by, axis + 1)
    if len(shape) > 1:
        every = list(range(1, len(shape) + 1))
        yield "reversed along all axes", lambda t: t.flip(every)
        for two in itertools.combinations(every, 2):
            yield f"reversed along axes {[a - 1 for a in two]}", lambda t, two=two: t.flip(two)
        yield "read in column-major order", lambda t: column_major(t, len(shape))
        yield "written in column-major order", lambda t: row_major(t, len(shape))


def make_permutation(order: tuple[int, ...], count: int) -> Arrange:
    """Return a function that permutes the axes except the first and those past `count`."""
    return lambda t: t.permute(0, *(axis + 1 for axis in order), *range(count + 1, t.dim()))


def shift(t: Tensor, axis: int, by: int) -> Tensor:
    """Return a tensor moved by one along an axis, with zeros after it."""
    moved = t.roll(by, axis).clone()
    moved.select(axis, 0 if by > 0 else -1).zero_()
    return moved


def column_major(t: Tensor, count: int) -> Tensor:
    """Return the elements as if each tensor's memory were in the other order."""
    axes = range(1, count + 1)
    return t.permute(0, *reversed(axes), *range(count + 1, t.dim())).reshape(t.shape)


def row_major(t: Tensor, count: int) -> Tensor:
    """Undo `column_major`."""
    axes = list(range(1, count + 1))
    turned = t.reshape(
        t.shape[0], *(t.shape[axis] for axis in reversed(axes)), *t.shape[count + 1 :]
    )
    return turned.permute(0, *reversed(axes), *range(count + 1, t.dim()))


class MissingPlace(Hypothesis):
    """Forward uses an input in two orders, but backward only one: `2*g` for `g + g.T`."""

    order = 31

    def explain(self, sample: Sample) -> Cause | None:
        """Add backward's result in another order to it."""
        pair = sample.pair
        if not pair.whole or not pair.known.all() or sample.is_complex:
            return None
        shape = tuple(sample.value.shape)
        own = pair.analytic.reshape(-1, *shape)
        right = pair.numeric.reshape(-1, *shape)
        for how, arrange in arrangements(shape):
            moved = arrange(own)
            if is_same_pair(moved, own, pair.tolerance):
                continue
            for share, what in ((1.0, "is missing"), (0.5, "stands in its own place instead")):
                if is_same_pair(share * (own + moved), right, pair.tolerance):
                    return Cause(
                        name="missing place",
                        text=f"forward uses `{sample.name}` {how} as well, and that part of its "
                        f"gradient {what}",
                        help="an input that is used twice has a term for each use: grad + grad.mT "
                        "for a + a.mT",
                        key=(how, share),
                    )
        return None


class Jacobian(Hypothesis):
    """Backward multiplies by the Jacobian instead of its transpose."""

    order = 36

    def explain(self, sample: Sample) -> Cause | None:
        """Compare with the transpose."""
        pair = sample.pair
        if not pair.whole or sample.value.shape != sample.returned.shape or sample.is_complex:
            return None
        if not pair.known.all() or not is_same_pair(pair.analytic, pair.numeric.T, pair.tolerance):
            return None
        lower = not torch.triu(pair.numeric, 1).any() or not torch.tril(pair.numeric, -1).any()
        why = "running sums and recurrences go backwards there" if lower else "it is not symmetric"
        return Cause(
            name="adjoint",
            text=f"the gradient of `{sample.name}` uses the Jacobian instead of its transpose: the "
            "same map as forward's is applied to the gradient that arrives",
            help=f"transpose it ({why})",
        )
