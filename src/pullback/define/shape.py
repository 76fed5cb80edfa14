"""Sizes: what the inputs' shapes say, checked against the line, and the outputs' shapes.

A size is an int, or a `torch.SymInt` that stands for one: it is compared and computed with,
never converted, so that tracing keeps it symbolic. The C++ runtime mirrors these checks, in
the same order and with the same messages.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from pullback.define.dimension import Expression, Name, Number, names_in
from pullback.define.line import Line, Tensor, UnknownDimension
from pullback.diagnostic import PullbackError, Rule

RankMismatch = Rule("PB111", "rank-mismatch")
SizeMismatch = Rule("PB112", "size-mismatch")
BatchMismatch = Rule("PB113", "batch-mismatch")
OutputSize = Rule("PB114", "output-size")
AbsentDimension = Rule("PB115", "absent-dimension")

# Of 8 bytes each, more than 64 bits count.
MOST_ELEMENTS = 2**60

Size = int
Shape = Sequence[Size]


def bound(of: str, by: Callable[[Size, Size], Size]) -> Callable[[Size, Size], Size]:
    """Return `min` or `max` that keeps a symbolic size symbolic.

    Args:
        of: the method of `torch.SymInt`.
        by: the function of numbers.
    """

    def extreme(left: Size, right: Size) -> Size:
        for one, other in ((left, right), (right, left)):
            if hasattr(one, of):
                return getattr(one, of)(other)
        return by(left, right)

    return extreme


OPERATIONS: dict[str, Callable[[Size, Size], Size]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": bound("__sym_min__", min),
    "max": bound("__sym_max__", max),
}


@dataclass(frozen=True)
class Sizes:
    """What the names of a line stand for in one call.

    A dimension that only absent tensors have is not in `dims`.
    """

    dims: dict[str, Size]
    batch: tuple[Size, ...]


def solve(line: Line, shapes: Mapping[str, Shape | Sequence[Shape] | None]) -> Sizes:
    """Return the sizes that the inputs' shapes give to the names of `line`.

    Args:
        line: the operator.
        shapes: by name of input tensor; None for an optional one that is absent; for a list the
            shape of each.

    Raises:
        PullbackError: PB111, a wrong number of dimensions; PB112, a size that differs from
            the line's or from the same name's elsewhere; PB113, `...` that do not broadcast.
    """
    owners: dict[str, Owner] = {}
    batch: tuple[Size, ...] = ()
    for tensor, shape in present_tensors(line, shapes):
        if tensor.has_any_shape:
            continue
        check_rank(line, tensor, shape)
        for index, dim in core_dimensions(tensor, len(shape)):
            if isinstance(dim, Number):
                check_number(line, Owner(tensor, shape, index), dim)
            elif isinstance(dim, Name):
                owner = Owner(tensor, shape, index)
                check_name(line, dim, owners.setdefault(dim.name, owner), owner)
        if tensor.has_batch:
            own = tuple(shape[len(tensor.before) : len(shape) - len(tensor.after)])
            batch = broadcast(line, tensor, own, batch)
    return Sizes({name: owner.size for name, owner in owners.items()}, batch)


def present_tensors(
    line: Line, shapes: Mapping[str, Shape | Sequence[Shape] | None]
) -> Iterator[tuple[Tensor, Shape]]:
    """Yield each tensor that is present with its shape; those of a list one by one, as `xs[0]`."""
    for tensor in line.tensors:
        shape = shapes[tensor.name]
        if shape is None:
            assert tensor.optional, f"{line.called}: '{tensor.name}' is None"
        elif tensor.many:
            for index, element in enumerate(cast("Sequence[Shape]", shape)):
                yield replace(tensor, name=f"{tensor.name}[{index}]", many=False), element
        else:
            yield tensor, cast("Shape", shape)


@dataclass(frozen=True)
class Owner:
    """The dimension `index` of an input of this shape."""

    tensor: Tensor
    shape: Shape
    index: int

    @property
    def size(self) -> Size:
        """The size there."""
        return self.shape[self.index]

    def __str__(self) -> str:
        return f"'{self.tensor.name}' {format_shape(self.shape)}"


def core_dimensions(tensor: Tensor, rank: int) -> Iterator[tuple[int, Expression]]:
    """Yield the dimensions that are no batch dimensions, each with its index in the shape."""
    yield from enumerate(tensor.before)
    yield from enumerate(tensor.after, start=rank - len(tensor.after))


def check_rank(line: Line, tensor: Tensor, shape: Shape) -> None:
    """Stop at a shape with too many or too few dimensions."""
    rank, least = len(shape), len(tensor.before) + len(tensor.after)
    if rank < least or (rank > least and not tensor.has_batch):
        raise RankMismatch.error(
            f"{line.called}: '{tensor.name}' has {rank} dimension{'s' * (rank != 1)} "
            f"{format_shape(shape)}, the line says {format_spec(tensor)}"
        )


def check_number(line: Line, found: Owner, number: Number) -> None:
    """Stop at a size other than the one that the line fixes."""
    if not found.size == number.value:
        raise SizeMismatch.error(
            f"{line.called}: dimension {found.index} of {found} is {found.size}, "
            f"the line says {format_spec(found.tensor)}"
        )


def check_name(line: Line, name: Name, first: Owner, found: Owner) -> None:
    """Stop at a size that differs from the one where the name appears first."""
    if not found.size == first.size:
        raise SizeMismatch.error(
            f"{line.called}: dimension '{name}' is {first.size} in {first} "
            f"but {found.size} in {found}"
        )


def broadcast(
    line: Line, tensor: Tensor, own: tuple[Size, ...], batch: tuple[Size, ...]
) -> tuple[Size, ...]:
    """Broadcast the batch dimensions of `tensor` with those before it, as NumPy does."""
    overlap = min(len(own), len(batch))
    leading = max(own, batch, key=len)[: max(len(own), len(batch)) - overlap]
    pairs = zip(batch[len(batch) - overlap :], own[len(own) - overlap :], strict=True)
    together: list[Size] = []
    for a, b in pairs:
        # Equality first: an unbacked size, which depends on data, can answer nothing else.
        if b in (a, 1):
            together.append(a)
        elif a == 1:
            together.append(b)
        else:
            raise BatchMismatch.error(
                f"{line.called}: the '...' of '{tensor.name}' {format_shape(own)} "
                f"does not broadcast with {format_shape(batch)}"
            )
    return (*leading, *together)


def output_shapes(
    line: Line, sizes: Sizes, scalars: Mapping[str, object] = {}
) -> list[tuple[Size, ...]]:
    """Return the shapes of the outputs, in order; that of `y[*]` is unknown and left empty.

    Args:
        line: the operator.
        sizes: from `solve`.
        scalars: by name; a default stands in for one that is left out.

    Raises:
        PullbackError: PB106, a dimension that only a formula names; PB114, a size below zero
            or beyond any memory, or a division by zero; PB115, a dimension that only an absent
            tensor has.
    """
    ints = {s.name: scalars.get(s.name, s.default) for s in line.scalars if s.type == "int"}
    values = {**sizes.dims, **cast("dict[str, Size]", ints)}
    return [output_shape(line, output, sizes.batch, values) for output in line.outputs]


def output_shape(
    line: Line, output: Tensor, batch: tuple[Size, ...], values: Mapping[str, Size]
) -> tuple[Size, ...]:
    """Return the shape of one output."""
    around = batch if output.has_batch else ()
    rank = len(output.before) + len(around) + len(output.after)
    sizes = [output_size(line, output, i, dim, values) for i, dim in core_dimensions(output, rank)]
    end = len(output.before)
    found = (*sizes[:end], *around, *sizes[end:])
    if all(type(size) is int for size in found) and math.prod(found) > MOST_ELEMENTS:
        shown = " x ".join(map(str, found))
        raise OutputSize.error(
            f"{line.called}: '{output.name}' would have {shown} elements, more than any memory",
            help="check the sizes and int scalars that the call was given",
        )
    return found


def output_size(
    line: Line, output: Tensor, index: int, dim: Expression, values: Mapping[str, Size]
) -> Size:
    """Return one size of an output; stop if it would be below zero."""
    for name in names_in(dim):
        if name not in values:
            raise unknown_dimension(line, output, name)
    # An input's size is never below zero, and an unbacked one could not be asked.
    if isinstance(dim, Name) and dim.name in line.dimensions:
        return values[dim.name]
    place = f"{line.called}: dimension {index} of '{output.name}'"
    try:
        size = evaluate(dim, values)
    except ZeroDivisionError:
        raise OutputSize.error(f"{place} divides by zero: {format_working(dim, values)}") from None
    if size < 0:
        raise OutputSize.error(f"{place} would be {size}: {format_working(dim, values)}")
    return size


def format_working(dim: Expression, values: Mapping[str, Size]) -> str:
    """Print `dim` and the values of its names: `h - p + 1 with h = 3, p = 6`."""
    given = ", ".join(f"{name} = {values[name]}" for name in dict.fromkeys(names_in(dim)))
    return f"{dim} with {given}" if given else f"{dim}"


def evaluate(dim: Expression, values: Mapping[str, Size]) -> Size:
    """Return the value of `dim`, with Python's `//` and `%`.

    Raises:
        ZeroDivisionError: so that the caller can say where.
    """
    if isinstance(dim, Number):
        return dim.value
    if isinstance(dim, Name):
        return values[dim.name]
    left, right = evaluate(dim.left, values), evaluate(dim.right, values)
    # Checked here, because a symbolic size would divide by zero silently.
    if dim.operator in ("//", "%") and right == 0:
        raise ZeroDivisionError
    return OPERATIONS[dim.operator](left, right)


def unknown_dimension(line: Line, output: Tensor, name: str) -> PullbackError:
    """Return the error for a dimension that no input of this call gives."""
    place = f"{line.called}: dimension '{name}' of '{output.name}' is not known"
    for tensor in line.tensors:
        if Name(name=name) in tensor.dims:
            return AbsentDimension.error(f"{place} when '{tensor.name}' is None")
    return UnknownDimension.error(f"{place} from the inputs")


def format_shape(shape: Shape) -> str:
    """Print a shape: `()`, `(5)`, `(2, 3)`."""
    return f"({', '.join(map(str, shape))})"


def format_spec(tensor: Tensor) -> str:
    """Print a tensor's name and dimensions as in the line."""
    return f"{tensor.name}[{', '.join(map(str, tensor.dims))}]"
