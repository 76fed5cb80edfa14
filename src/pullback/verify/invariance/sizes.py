"""A call at other sizes: axes of equal size change together, with values like the example's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pullback.verify.call import Call, InputLeaf, can_require_grad
from pullback.verify.numbers.gradient import structure_of
from pullback.verify.randomness import make_generator

# Around kernels' block sizes: powers of two from a warp's on, and sizes that are no multiple of
# one.
SIZES = (1, 7, 33, 64, 100, 300, 1024, 1030)
# More elements in a leaf would make a check slow, and show no other block.
MOST = 1 << 17


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Axes of the inputs that have to keep the same size.

    Attributes:
        size: in the example.
        of: for each leaf, its axes.
    """

    size: int
    of: tuple[tuple[int, ...], ...]

    def shape(self, leaf: int, value: Tensor, size: int) -> tuple[int, ...]:
        """Return the shape of a leaf with these axes at another size."""
        return tuple(size if k in self.of[leaf] else n for k, n in enumerate(value.shape))


def axes_of(call: Call) -> Iterator[Axes]:
    """Yield groups of axes: all that have one size.

    Equal axes belong together: if forward takes another size for one of them only because it
    broadcasts, the author did not mean that. A group that forward refuses is skipped.
    """
    values = [leaf.value for leaf in call.leaves]
    sizes = dict.fromkeys(size for value in values for size in value.shape if size)
    for n in sizes:
        of = tuple(tuple(k for k, m in enumerate(v.shape) if m == n) for v in values)
        yield Axes(size=n, of=of)


def is_small(call: Call, axes: Axes, size: int) -> bool:
    """Tell whether no leaf of the call at another size would have too many elements."""
    leaves = enumerate(call.leaves)
    return all(torch.Size(axes.shape(i, own.value, size)).numel() <= MOST for i, own in leaves)


def edges_of(call: Call) -> Iterator[Axes]:
    """Yield the first axes of equal size alone, then the last ones: they may be equal by chance."""
    values = [leaf.value for leaf in call.leaves]
    groups: list[Axes] = []
    for edge in (0, -1):
        for size in dict.fromkeys(v.shape[edge] for v in values if v.ndim):
            of = tuple((edge % v.ndim,) if v.ndim and v.shape[edge] == size else () for v in values)
            groups.append(Axes(size=size, of=of))
    yield from (group for group in dict.fromkeys(groups) if group.size > 0)


def resize(call: Call, axes: Axes, size: int) -> Iterator[Call]:
    """Yield the call at another size; a number among the arguments that states it changes too."""
    values = [
        fill_like(leaf, axes.shape(i, leaf.value, size), axes.size, size)
        for i, leaf in enumerate(call.leaves)
    ]
    other = call.with_values(values)
    named = [k for k, own in enumerate(call.arguments) if is_number(own) and own == axes.size]
    if named:
        yield replace(
            other,
            arguments=tuple(size if k in named else own for k, own in enumerate(other.arguments)),
        )
    keywords = [k for k, own in call.keywords.items() if is_number(own) and own == axes.size]
    if keywords:
        yield replace(other, keywords={**other.keywords, **dict.fromkeys(keywords, size)})
    if not (named or keywords):
        yield other


def follows(call: Call, other: Call, axes: Axes) -> bool:
    """Tell whether no axis of the outputs keeps a size that the inputs' axes no longer have.

    Otherwise forward took the other size only because it broadcasts.
    """
    own, now = (one.values([leaf.value for leaf in one.leaves]) for one in (call, other))
    if len(own) != len(now):
        return False
    pairs = zip(own, now, strict=True)
    return all(axes.size not in a.shape or axes.size not in b.shape for a, b in pairs)


def repeats(call: Call, other: Call) -> Iterator[InputLeaf]:
    """Yield the integers of a resized call that repeat along an axis where the example's do not."""
    for own, now in zip(call.leaves, other.leaves, strict=True):
        if not can_require_grad(own.value) and own.value.dtype is not torch.bool:
            before, after = repeats_along(own.value), repeats_along(now.value)
            if any(b and not a for a, b in zip(before, after, strict=True)):
                yield now


def repeats_along(value: Tensor) -> list[bool]:
    """Tell for each axis whether a number occurs twice along it."""
    found: list[bool] = []
    for axis in range(value.ndim):
        ordered = value.sort(axis).values
        found.append(bool((ordered.diff(dim=axis) == 0).any()))
    return found


def has_numbers(call: Call) -> bool:
    """Tell whether an integer above 1 is among the arguments: it may be a number of elements."""
    every: list[object] = [*call.arguments, *call.keywords.values()]
    inner = [item for own in every if isinstance(own, list | tuple) for item in own]
    return any(is_number(own) and own > 1 for own in (*every, *inner))  # type: ignore[operator]


def is_number(argument: object) -> bool:
    """Tell whether an argument is an integer but not a bool."""
    return isinstance(argument, int) and not isinstance(argument, bool)


def fill_like(leaf: InputLeaf, shape: Sequence[int], before: int, size: int) -> Tensor:
    """Return values of another shape that are like a leaf's.

    Numbers are between two of the example's, so that bounds hold and no two are equal; if the
    example has equal ones, and for integers, they are the example's own. Symmetric matrices stay
    symmetric, triangles stay triangles, and permutations stay permutations.
    """
    value = leaf.value
    if tuple(shape) == tuple(value.shape):
        return value
    if is_permutation(value, before):
        return torch.randperm(size, generator=make_generator(size)).to(value)
    own = draw_between(value, shape, before, size)
    square = own.ndim > 1 and own.shape[-1] == own.shape[-2]
    restore = structure_of(value) if square else None
    return restore(own) if restore else own


def is_permutation(value: Tensor, size: int) -> bool:
    """Tell whether a tensor contains each index of an axis once."""
    if value.ndim != 1 or value.is_floating_point() or value.is_complex():
        return False
    return size > 1 and value.sort().values.tolist() == list(range(size))


def redraw_values(call: Call, axes: Axes) -> Call:
    """Return the call at its own size, with values drawn as for another size.

    If this is wrong, the values are the cause: a matrix that is no longer symmetric, a filter that
    is no longer a palindrome.
    """
    values = [
        draw_between(leaf.value.roll(1), leaf.value.shape, axes.size, axes.size)
        if axes.of[i] and can_require_grad(leaf.value)
        else leaf.value
        for i, leaf in enumerate(call.leaves)
    ]
    return call.with_values(values)


def shuffle(call: Call) -> Call:
    """Return the call at its own size with its integers in another order along their first axis."""
    values: list[Tensor] = []
    for leaf in call.leaves:
        value = leaf.value
        if is_index(value):
            order = torch.randperm(len(value), generator=make_generator(len(value)))
            value = value[order.to(value.device)]
        values.append(value)
    return call.with_values(values)


def is_index(value: Tensor) -> bool:
    """Tell whether a tensor holds several integers."""
    numbers = not can_require_grad(value) and value.dtype is not torch.bool
    return numbers and value.ndim > 0 and len(value) > 1


def halve(call: Call, axes: Axes) -> Iterator[Call]:
    """Yield the call on the first and on the second half of some axes."""
    size = size_of(call, axes)
    half = max(axes.size, (size + 1) // 2)
    for first in (0, size - half):
        values = list(values_of(call))
        for i, own in enumerate(axes.of):
            for k in own:
                values[i] = values[i].narrow(k, first, half)
        yield call.with_values([value.clone() for value in values])


def size_of(call: Call, axes: Axes) -> int:
    """Return the size that axes have in a call."""
    return next(v.shape[k[0]] for v, k in zip(values_of(call), axes.of, strict=True) if k)


def values_of(call: Call) -> list[Tensor]:
    """Return the values of a call's tensors."""
    return [leaf.value for leaf in call.leaves]


def draw_between(value: Tensor, shape: Sequence[int], before: int, size: int) -> Tensor:
    """Return values of a shape between those of a tensor."""
    count = int(torch.Size(shape).numel())
    flat = value.reshape(-1)
    if not count or not flat.numel():
        return value.new_zeros(tuple(shape))
    generator = make_generator(count)
    one = torch.arange(count) % flat.numel()
    if can_require_grad(value) and not value.is_complex() and is_distinct(flat):
        other = torch.randint(flat.numel(), (count,), generator=generator)
        share = torch.rand(count, generator=generator, dtype=torch.float64).to(flat)
        own = flat[one] * share + flat[other] * (1 - share)
    else:
        own = flat[one]
    if not can_require_grad(value) and own.dtype is not torch.bool and size < before:
        # An index into an axis that is smaller now.
        own = torch.where((own >= size) & (own <= before), own % size, own) if size else own
    return own.reshape(tuple(shape)).contiguous()


def is_distinct(flat: Tensor) -> bool:
    """Tell whether no two elements are equal: then they are measured, not chosen from a few."""
    return flat.unique().numel() == flat.numel()


def sizes_for(call: Call, axes: Axes) -> list[int]:
    """Return the sizes to try for a group of axes, from the small to the large."""
    if axes.size == 1 and any(leaf.value.numel() == 1 for leaf in call.leaves if leaf.value.ndim):
        return []  # a scalar: it is there to be broadcast
    least = axes.size if has_numbers(call) else 0
    others = {n for leaf in call.leaves for n in leaf.value.shape}
    found: list[int] = []
    for size in SIZES:
        if size in others:
            continue  # axes that differ stay apart
        shapes = [axes.shape(i, leaf.value, size) for i, leaf in enumerate(call.leaves)]
        counts = [torch.Size(shape).numel() for shape in shapes]
        given = [leaf.value.numel() for leaf in call.leaves]
        if size > least and size != axes.size and max(counts) <= max(MOST, *given):
            found.append(size)
    # 300 replaces a thousand where that is too large.
    return [size for size in found if size != 300 or 1030 not in found]
