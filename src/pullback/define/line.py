"""The line: what an operator is, as frozen data that prints back to its own text."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pullback.diagnostic import Rule, did_you_mean

Syntax = Rule("PB101", "syntax")
DuplicateName = Rule("PB102", "duplicate-name")
TwoMeanings = Rule("PB103", "two-meanings")
ReservedName = Rule("PB104", "reserved-name")
UnknownDtype = Rule("PB105", "unknown-dtype")
UnknownDimension = Rule("PB106", "unknown-dimension")
RequiredAfterDefault = Rule("PB107", "required-after-default")
UnusableOutput = Rule("PB108", "unusable-output")
WrongDefault = Rule("PB109", "wrong-default")

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
# The words that a `call` expression and a derivative use themselves.
RESERVED = frozenset({"batch", "stream", "T", "numel", "size", "stride", "output_mask"})
# Sizes, int scalars and the numbers between them are int64 in every kernel.
INT_LIMIT = 2**63

Operation = Literal["+", "-", "*", "//", "%"]
Type = Literal["int", "float", "bool", "str"]
Default = int | float | bool | str
PRECEDENCE: dict[str, int] = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}
PYTHON_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`...`: any number of batch dimensions."""

    def __str__(self) -> str:
        return "..."


@dataclass(frozen=True, kw_only=True)
class Name:
    """A named dimension; in an output also an int scalar."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Number:
    """A fixed size; below zero only inside an output's arithmetic."""

    value: int

    def __post_init__(self) -> None:
        if abs(self.value) >= INT_LIMIT:
            raise Syntax.error("a number in a dimension does not fit in 64 bits")

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """`left operator right` with Python's meaning: `//` and `%` round down."""

    operator: Operation
    left: Expression
    right: Expression

    def __str__(self) -> str:
        """Print with the fewest parentheses that keep the tree."""
        own = PRECEDENCE[self.operator]
        left = f"({self.left})" if precedence(self.left) < own else str(self.left)
        right = f"({self.right})" if precedence(self.right) <= own else str(self.right)
        return f"{left} {self.operator} {right}"


Expression = Name | Number | Arithmetic
Dim = Batch | Expression


def precedence(dim: Expression) -> int:
    """Return how tightly the outermost operation of `dim` binds; 3 for a name or a number."""
    return PRECEDENCE[dim.operator] if isinstance(dim, Arithmetic) else 3


def names_in(dim: Dim) -> Iterator[str]:
    """Yield the names in `dim` from left to right."""
    if isinstance(dim, Name):
        yield dim.name
    elif isinstance(dim, Arithmetic):
        yield from names_in(dim.left)
        yield from names_in(dim.right)


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of a line: `weight[o, i]`, `index[m]: int64`, `bias[o]?`."""

    name: str
    dims: tuple[Dim, ...]
    dtype: str | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        if self.dims.count(Batch()) > 1:
            raise Syntax.error(f"'{self.name}' has more than one '...'", at=self)
        if self.dtype is not None and self.dtype not in DTYPES:
            raise UnknownDtype.error(
                f"'{self.name}' has the unknown dtype '{self.dtype}'",
                have=", ".join(DTYPES),
                help=did_you_mean(self.dtype, DTYPES),
            )

    def __str__(self) -> str:
        dtype = f": {self.dtype}" if self.dtype else ""
        return f"{self.name}[{', '.join(map(str, self.dims))}]{dtype}{'?' * self.optional}"

    @cached_property
    def has_batch(self) -> bool:
        """Whether `...` is among the dimensions."""
        return Batch() in self.dims

    @cached_property
    def before(self) -> tuple[Expression, ...]:
        """The dimensions before `...`; without `...` all of them."""
        end = self.dims.index(Batch()) if self.has_batch else len(self.dims)
        return tuple(dim for dim in self.dims[:end] if not isinstance(dim, Batch))

    @cached_property
    def after(self) -> tuple[Expression, ...]:
        """The dimensions after `...`; without `...` none."""
        return tuple(dim for dim in self.dims[len(self.before) :] if not isinstance(dim, Batch))


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """A scalar parameter: `eps: float = 1e-05`; without a default it is required."""

    name: str
    type: Type
    default: Default | None = None

    def __post_init__(self) -> None:
        default = self.default
        if default is None:
            return
        # `type` and not `isinstance`: True is no int here.
        if type(default) is not PYTHON_TYPES[self.type]:
            raise WrongDefault.error(f"the default of '{self.name}' is no {self.type}: {default!r}")
        if isinstance(default, float) and not math.isfinite(default):
            raise WrongDefault.error(f"the default of '{self.name}' is not finite: {default}")
        if isinstance(default, int) and abs(default) >= INT_LIMIT:
            raise WrongDefault.error(f"the default of '{self.name}' is beyond 64 bits: {default}")

    def __str__(self) -> str:
        default = "" if self.default is None else f" = {self.default!r}"
        return f"{self.name}: {self.type}{default}"


@dataclass(frozen=True, kw_only=True)
class Line:
    """All that one line says of an operator: `parse(str(line)) == line`."""

    namespace: str
    name: str
    parameters: tuple[Tensor | Scalar, ...]
    outputs: tuple[Tensor, ...]
    formula: str | None = None

    def __post_init__(self) -> None:
        check_names(self)
        check_inputs(self)
        check_outputs(self)
        check_defaults(self)
        if self.formula is not None and (not self.formula or self.formula != self.formula.strip()):
            raise Syntax.error(f"the formula of {self.qualname} is empty or has spaces around it")

    def __str__(self) -> str:
        outputs = ", ".join(map(str, self.outputs))
        returns = outputs if len(self.outputs) == 1 else f"({outputs})"
        formula = "" if self.formula is None else f" = {self.formula}"
        return f"{self.qualname}({', '.join(map(str, self.parameters))}) -> {returns}{formula}"

    @cached_property
    def qualname(self) -> str:
        """The name in PyTorch's dispatcher: `demo::add2`."""
        return f"{self.namespace}::{self.name}"

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """The input tensors, in order."""
        return tuple(p for p in self.parameters if isinstance(p, Tensor))

    @cached_property
    def scalars(self) -> tuple[Scalar, ...]:
        """The scalar parameters, in order."""
        return tuple(p for p in self.parameters if isinstance(p, Scalar))

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the inputs' dimensions, in order of first appearance."""
        dims = (dim for tensor in self.tensors for dim in tensor.dims)
        return tuple(dict.fromkeys(name for dim in dims for name in names_in(dim)))


def check_names(line: Line) -> None:
    """Stop at a name that is not one, is reserved, stands twice or has two meanings."""
    values = {value.name: value for value in (*line.parameters, *line.outputs)}
    names = [value.name for value in (*line.parameters, *line.outputs)]
    tensors = (*line.tensors, *line.outputs)
    dims = [name for tensor in tensors for dim in tensor.dims for name in names_in(dim)]
    for name in (line.namespace, line.name, *names, *dims):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise Syntax.error(f"'{name}' is not a name", at=line)
        if keyword.iskeyword(name):
            raise ReservedName.error(f"'{name}' is a keyword of Python", at=line)
    for name in (*names, *dims):
        if name in RESERVED:
            reserved = ", ".join(sorted(RESERVED))
            raise ReservedName.error(f"'{name}' is reserved", at=line, reserved=reserved)
        if names.count(name) > 1:
            raise DuplicateName.error(f"'{name}' stands twice", at=line)
    for name in dims:
        value = values.get(name)
        if value and not (is_int_scalar(value) and name not in line.dimensions):
            kind = "tensor" if isinstance(value, Tensor) else f"scalar of type {value.type}"
            raise TwoMeanings.error(f"'{name}' is both a dimension and a {kind}", at=line)


def is_int_scalar(value: Tensor | Scalar) -> bool:
    """Return whether `value` can stand in an output's arithmetic."""
    return isinstance(value, Scalar) and value.type == "int"


def check_inputs(line: Line) -> None:
    """Stop at an input whose dimensions are more than names, sizes and `...`."""
    for tensor in line.tensors:
        for dim in tensor.dims:
            if isinstance(dim, Arithmetic) or (isinstance(dim, Number) and dim.value < 0):
                raise Syntax.error(
                    f"an input's dimension is a name, a size or '...', not '{dim}'",
                    at=tensor,
                    help="name the dimension here and do the arithmetic in an output",
                )


def check_outputs(line: Line) -> None:
    """Stop unless every output can be allocated from the inputs."""
    if not line.outputs:
        raise UnusableOutput.error(f"{line.qualname} has no outputs")
    known = (*line.dimensions, *(scalar.name for scalar in line.scalars if is_int_scalar(scalar)))
    for output in line.outputs:
        if output.optional:
            raise UnusableOutput.error(f"the output '{output.name}' is optional", at=line)
        if output.has_batch and not any(tensor.has_batch for tensor in line.tensors):
            raise UnknownDimension.error(f"'{output.name}' has '...', but no input has", at=line)
        for dim in output.dims:
            check_output_dim(dim, output, known, line)


def check_output_dim(dim: Dim, output: Tensor, known: tuple[str, ...], line: Line) -> None:
    """Stop at a name that no input gives; a formula may name new dimensions, but alone."""
    if isinstance(dim, Number) and dim.value < 0:
        raise Syntax.error(f"the size {dim} of '{output.name}' is below zero", at=output)
    for name in names_in(dim):
        if name not in known and not (line.formula and isinstance(dim, Name)):
            raise UnknownDimension.error(
                f"'{output.name}' has the dimension '{name}', but no input has",
                at=line,
                have=", ".join(known) or None,
                help=did_you_mean(name, known),
            )


def check_defaults(line: Line) -> None:
    """Stop at a required parameter after one with a default."""
    with_default: Scalar | None = None
    for p in line.parameters:
        if isinstance(p, Scalar) and p.default is not None:
            with_default = p
        elif with_default and not (isinstance(p, Tensor) and p.optional):
            raise RequiredAfterDefault.error(
                f"'{p.name}' has no default but stands after '{with_default.name}', which has one",
                at=line,
                help=f"move '{p.name}' before '{with_default.name}'",
            )
