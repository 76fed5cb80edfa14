"""Hypothesis strategies: whole lines that mean something, and shapes that fit them."""

from __future__ import annotations

import dataclasses
import keyword
from collections.abc import Sequence

from hypothesis import strategies as st

from pullback.define.dimension import Arithmetic, Batch, Dim, Expression, Name, Number, Operation
from pullback.define.line import DTYPES, RESERVED, Default, Line, Scalar, Tensor, Type

OPERATIONS: tuple[Operation, ...] = ("+", "-", "*", "//", "%", "min", "max")
TYPES: tuple[Type, ...] = ("int", "float", "bool", "str")

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name not in RESERVED
)
LITERALS: dict[Type, st.SearchStrategy[Default]] = {
    "int": st.integers(1 - 2**63, 2**63 - 1),
    # PyTorch cannot read a subnormal default.
    "float": st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
    "bool": st.booleans(),
    # A lone surrogate cannot be handed to PyTorch.
    # A kernel takes a string up to its first zero, so a line has none in it.
    "str": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
}
formulas = st.text().map(str.strip).filter(bool)
fixed_sizes = st.integers(0, 4).map(lambda value: Number(value=value))


def expressions(known: Sequence[str]) -> st.SearchStrategy[Expression]:
    """Arithmetic on the known names, never a number below zero alone."""
    numbers = st.integers(-5, 20).map(lambda value: Number(value=value))
    leaves = (st.sampled_from(known).map(as_name) | numbers) if known else numbers
    trees: st.SearchStrategy[Expression] = st.recursive(
        leaves,
        lambda inner: st.builds(
            Arithmetic, operator=st.sampled_from(OPERATIONS), left=inner, right=inner
        ),
        max_leaves=6,
    )
    return trees.filter(lambda dim: not (isinstance(dim, Number) and dim.value < 0))


def as_name(name: str) -> Name:
    return Name(name=name)


@st.composite
def dims(draw: st.DrawFn, dim: st.SearchStrategy[Dim], *, batch: bool) -> tuple[Dim, ...]:
    """Up to three dimensions, with `...` anywhere among them where it is allowed."""
    drawn: list[Dim] = draw(st.lists(dim, max_size=3))
    if batch and draw(st.booleans()):
        drawn.insert(draw(st.integers(0, len(drawn))), Batch())
    return tuple(drawn)


@st.composite
def inputs(draw: st.DrawFn, name: str, dim_names: Sequence[str]) -> Tensor:
    dim = (st.sampled_from(dim_names).map(as_name) | fixed_sizes) if dim_names else fixed_sizes
    return Tensor(
        name=name,
        dims=draw(dims(dim, batch=True)),
        dtype=draw(st.none() | st.sampled_from(DTYPES)),
        optional=draw(st.booleans()),
    )


@st.composite
def with_defaults(
    draw: st.DrawFn, parameters: Sequence[Tensor | Scalar]
) -> tuple[Tensor | Scalar, ...]:
    """Give defaults to some of the scalars at the end."""
    result: list[Tensor | Scalar] = []
    allowed = True
    for parameter in reversed(parameters):
        if isinstance(parameter, Scalar):
            default = draw(st.none() | LITERALS[parameter.type]) if allowed else None
            allowed = default is not None
            result.append(dataclasses.replace(parameter, default=default))
        else:
            allowed = allowed and parameter.optional
            result.append(parameter)
    return tuple(reversed(result))


@st.composite
def lines(draw: st.DrawFn, *, formula: bool = True) -> Line:
    """Any line that its own checks accept."""
    pool = iter(draw(st.lists(names, min_size=14, max_size=14, unique=True)))
    dim_names = [next(pool) for _ in range(draw(st.integers(0, 4)))]
    tensors = [draw(inputs(next(pool), dim_names)) for _ in range(draw(st.integers(0, 4)))]
    scalars = [
        Scalar(name=next(pool), type=draw(st.sampled_from(TYPES)))
        for _ in range(draw(st.integers(0, 3)))
    ]
    parameters = draw(with_defaults(draw(st.permutations([*tensors, *scalars]))))
    text = draw(st.none() | formulas) if formula else None

    used = {dim.name for tensor in tensors for dim in tensor.dims if isinstance(dim, Name)}
    known = sorted(used | {scalar.name for scalar in scalars if scalar.type == "int"})
    dim: st.SearchStrategy[Dim] = expressions(known)
    if text and dim_names:
        dim |= st.sampled_from(dim_names).map(as_name)
    batch = any(tensor.has_batch for tensor in tensors)
    outputs = [
        Tensor(
            name=next(pool),
            dims=draw(dims(dim, batch=batch)),
            dtype=draw(st.none() | st.sampled_from(DTYPES)),
            detached=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    return Line(
        namespace=draw(names),
        name=draw(names),
        parameters=parameters,
        outputs=tuple(outputs),
        formula=text,
    )


@st.composite
def shapes_for(draw: st.DrawFn, line: Line) -> dict[str, tuple[int, ...] | None]:
    """Shapes that fit the line: sizes for its names, batches that broadcast, some absent."""
    sizes = {name: draw(st.integers(0, 5)) for name in line.dimensions}
    batch = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    shapes: dict[str, tuple[int, ...] | None] = {}
    for tensor in line.tensors:
        if tensor.optional and draw(st.booleans()):
            shapes[tensor.name] = None
            continue
        kept = batch[draw(st.integers(0, len(batch))) :] if tensor.has_batch else ()
        own = tuple(draw(st.sampled_from([1, size])) for size in kept)
        before, after = (
            tuple(sizes[dim.name] if isinstance(dim, Name) else int(str(dim)) for dim in part)
            for part in (tensor.before, tensor.after)
        )
        shapes[tensor.name] = (*before, *own, *after)
    return shapes
