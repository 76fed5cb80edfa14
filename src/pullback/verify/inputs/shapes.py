"""Small shapes that functions of one, two or more tensors commonly take."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from pullback.define.dimension import Anything, Batch, Dim, Name, Number

Shape = tuple[int, ...]

MATRIX: Shape = (3, 4)
IMAGE: Shape = (2, 3, 6, 6)
ONE: tuple[Shape, ...] = (
    MATRIX,
    (6,),
    (4, 4),
    (2, 3, 4),
    IMAGE,
    (2, 3, 8),
    (2, 4, 8, 8),
    (),
    (1, 8),
)
TWO: tuple[tuple[Shape, Shape], ...] = (
    (MATRIX, MATRIX),
    *((MATRIX, own) for own in ((4, 5), (5, 4), (4,), (3,), (3, 1), (1,), (), (3, 3), (3, 5))),
    *(((2, 3, 4), own) for own in ((2, 3, 4), (2, 4, 5), (2, 5, 4), (4, 5), (5, 4), (4,), (3,))),
    *((IMAGE, own) for own in ((4, 3, 3, 3), (3, 1, 3, 3), (3,), (3, 4, 3, 3), (6,))),
    *(((2, 3, 8), own) for own in ((4, 3, 3), (3,))),
    *(((6,), own) for own in ((6,), (3,), (1,), ())),
    *(((4, 4), own) for own in ((4, 4), (4,), (4, 1), (3, 3))),
    ((8, 8), (3, 3)),
)
THREE: tuple[tuple[Shape, Shape, Shape], ...] = (
    (MATRIX, MATRIX, MATRIX),
    (MATRIX, (4, 5), (5,)),
    (MATRIX, (5, 4), (5,)),
    (MATRIX, (4,), (4,)),
    (MATRIX, (3,), (3,)),
    (MATRIX, (4, 5), (3, 5)),
    (MATRIX, (3, 5), (4, 5)),
    ((2, 3, 4), (4, 5), (5,)),
    ((2, 3, 4), (5, 4), (5,)),
    ((2, 3, 4), (4,), (4,)),
    ((2, 3, 4), (2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (2, 5, 4), (2, 5, 4)),
    ((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
    (IMAGE, (4, 3, 3, 3), (4,)),
    (IMAGE, (3, 4, 3, 3), (4,)),
    (IMAGE, (3,), (3,)),
    ((2, 3, 8), (4, 3, 3), (4,)),
    ((6,), (6,), (6,)),
    ((4, 4), (4, 4), (4, 4)),
    ((4, 4), (4, 4), (4,)),
)
# If no common combination fits, each of these is tried.
BASIC: tuple[Shape, ...] = (MATRIX, (4,), (3,), (4, 5), (5, 4), (5,), (2, 3, 4), (), (1,), (4, 4))
# Different sizes distinguish axes; a batch is the first two.
SIZES = (4, 5, 6, 7, 8, 9)


def shapes_for(count: int) -> Iterator[tuple[Shape, ...]]:
    """Yield shapes for so many tensors, the likeliest first."""
    if count == 1:
        yield from ((shape,) for shape in ONE)
    elif count == 2:
        yield from TWO
    elif count == 3:
        yield from THREE
    else:
        for shape in (MATRIX, (4, 4), (6,), (2, 3, 4), IMAGE):
            yield (shape,) * count
        for first in (MATRIX, (2, 3, 4), IMAGE):
            for size in (first[-1], first[1], first[0]):
                yield (first, *[(size,)] * (count - 1))
        for first in (MATRIX, (2, 3, 4)):
            for weight in ((4, 4), (4, 5), (5, 4)):
                yield (first, weight, (weight[0],), *[(weight[1],)] * (count - 3))
                yield (first, weight, *[(weight[1],)] * (count - 2))


def basic_shapes_for(count: int) -> Iterator[tuple[Shape, ...]]:
    """Yield shapes for so many tensors where no likely ones fit."""
    if 1 < count <= 4:
        yield from itertools.product(BASIC, repeat=count)


def of_modules(count: int, sizes: Iterable[int]) -> Iterator[tuple[Shape, ...]]:
    """Yield shapes whose features or channels are a size of the module's parameters."""
    for size in sorted(set(sizes), reverse=True):
        for shape in ((3, size), (2, 3, size), (2, size, 8, 8), (2, size, 8), (size,)):
            yield (shape,) * count
            if count == 2:
                yield shape, (size,)
                yield shape, (3,)


def of_line(tensors: Sequence[Sequence[Dim]]) -> Iterator[tuple[Shape, ...]]:
    """Yield shapes that fit the dimensions of a line."""
    names = list(
        dict.fromkeys(dim.name for dims in tensors for dim in dims if isinstance(dim, Name))
    )
    named = itertools.cycle(SIZES)
    apart = {name: next(named) for name in names}
    for sizes in (apart, dict.fromkeys(names, 4), {name: 2 * s for name, s in apart.items()}):
        for batch in ((2, 3), (3,), ()):
            yield tuple(shape_of(dims, sizes, batch) for dims in tensors)


def shape_of(dims: Sequence[Dim], sizes: dict[str, int], batch: Shape) -> Shape:
    """Return the shape of a tensor of a line."""
    shape: list[int] = []
    for dim in dims:
        if isinstance(dim, Batch):
            shape += batch
        elif isinstance(dim, Anything):
            shape += MATRIX
        elif isinstance(dim, Name):
            shape.append(sizes[dim.name])
        else:
            assert isinstance(dim, Number)
            shape.append(dim.value)
    return tuple(shape)
