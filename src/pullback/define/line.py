"""The line: what an operator is, as frozen data that prints back to its own text."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pullback.define.dimension import (
    INT_LIMIT,
    Anything,
    Arithmetic,
    Batch,
    Dim,
    Expression,
    Name,
    Number,
    Syntax,
    expressions,
    names_in,
)
from pullback.diagnostic import PullbackError, Rule, an, did_you_mean

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

Type = Literal["int", "float", "bool", "str", "int[]", "float[]"]
Default = int | float | bool | str | tuple[int, ...] | tuple[float, ...]
PYTHON_TYPES: dict[str, type] = {
    **{"int": int, "float": float, "bool": bool, "str": str},
    **{"int[]": tuple, "float[]": tuple},
}


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of a line: `weight[o, i]`, `index[m]: int64`, `bias[o]?`, a list `layers[n, d]*`.

    An output that has no derivative, though its dtype could have one, is marked: `steps[n]!`.
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: str | None = None
    optional: bool = False
    many: bool = False
    detached: bool = False

    def __post_init__(self) -> None:
        if Anything() in self.dims and len(self.dims) > 1:
            raise Syntax.error(f"'{self.name}' has '*' beside other dimensions", at=self)
        if self.dims.count(Batch()) > 1:
            raise Syntax.error(f"'{self.name}' has more than one '...'", at=self)
        if self.dtype is not None and self.dtype not in DTYPES:
            raise UnknownDtype.error(
                f"'{self.name}' has the unknown dtype '{self.dtype}'",
                have=", ".join(DTYPES),
                help=did_you_mean(self.dtype, DTYPES),
            )

    def __str__(self) -> str:
        return self.written({})

    def written(self, limits: Mapping[str, str]) -> str:
        """Return its text, with the limits of the indices that have one: `u[t < steps, x]`."""
        dims = [f"{d} < {limits[str(d)]}" if str(d) in limits else str(d) for d in self.dims]
        dtype = f": {self.dtype}" if self.dtype else ""
        mark = "?" * self.optional + "*" * self.many + "!" * self.detached
        return f"{self.name}[{', '.join(dims)}]{dtype}{mark}"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The dimensions as indices; the second `n` of `x[n, n]` is `n'`."""
        names = list(map(str, self.dims))
        return tuple(name + "'" * names[:place].count(name) for place, name in enumerate(names))

    @cached_property
    def has_batch(self) -> bool:
        """Whether `...` is among the dimensions."""
        return Batch() in self.dims

    @cached_property
    def has_any_shape(self) -> bool:
        """Whether it may have any shape: `x[*]`."""
        return Anything() in self.dims

    @cached_property
    def before(self) -> tuple[Expression, ...]:
        """The dimensions before `...`; without `...` all of them."""
        end = self.dims.index(Batch()) if self.has_batch else len(self.dims)
        return expressions(self.dims[:end])

    @cached_property
    def after(self) -> tuple[Expression, ...]:
        """The dimensions after `...`; without `...` none."""
        return () if self.has_any_shape else expressions(self.dims[len(self.before) :])


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """A scalar parameter: `eps: float = 1e-05`; without a default it is required.

    `k: int?` may be None, and may be left out as an optional tensor may.
    """

    name: str
    type: Type
    default: Default | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        default = self.default
        if default is None:
            return
        if self.optional:
            raise WrongDefault.error(f"'{self.name}' has '?', so its default is None: {default!r}")
        # `type` and not `isinstance`: True is not an int here.
        if type(default) is not PYTHON_TYPES[self.type]:
            raise self.wrong_type(default)
        for value in default if isinstance(default, tuple) else (default,):
            self.require_number(value)

    def wrong_type(self, value: Default) -> PullbackError:
        """Return the error for a default, or an element of one, of another type."""
        return WrongDefault.error(
            f"the default of '{self.name}' is not of type {self.type}: {value!r}"
        )

    def require_number(self, value: Default) -> None:
        """Stop at a number in the default that a schema cannot hold."""
        if self.type.endswith("[]") and type(value).__name__ != self.type[:-2]:
            raise self.wrong_type(value)
        if isinstance(value, float) and not math.isfinite(value):
            raise WrongDefault.error(f"the default of '{self.name}' is not finite: {value}")
        if isinstance(value, int) and abs(value) >= INT_LIMIT:
            raise WrongDefault.error(f"the default of '{self.name}' is beyond 64 bits: {value}")

    def __str__(self) -> str:
        value = list(self.default) if isinstance(self.default, tuple) else self.default
        default = "" if value is None else f" = {value!r}"
        return f"{self.name}: {self.type}{'?' * self.optional}{default}"

    @cached_property
    def may_be_left_out(self) -> bool:
        """Whether it has a default, None included."""
        return self.optional or self.default is not None


@dataclass(frozen=True, kw_only=True)
class Line:
    """Everything that one line says about an operator: `parse(str(line)) == line`.

    `stands_for` says of a line that is made from another, as for its gradients, what errors call
    it: nobody has heard of its name.
    """

    namespace: str
    name: str
    parameters: tuple[Tensor | Scalar, ...]
    outputs: tuple[Tensor, ...]
    formula: str | None = None
    limits: tuple[tuple[str, str], ...] = ()  # of outputs' indices, as the formula would say them
    stands_for: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_names(self)
        check_inputs(self)
        check_outputs(self)
        check_defaults(self)
        if self.formula is not None and (not self.formula or self.formula != self.formula.strip()):
            raise Syntax.error(f"the formula of {self.qualname} is empty or has spaces around it")

    def __str__(self) -> str:
        outputs = ", ".join(output.written(dict(self.limits)) for output in self.outputs)
        returns = outputs if len(self.outputs) == 1 else f"({outputs})"
        formula = "" if self.formula is None else f" = {self.formula}"
        return f"{self.qualname}({', '.join(map(str, self.parameters))}) -> {returns}{formula}"

    @cached_property
    def qualname(self) -> str:
        """The name in PyTorch's dispatcher: `demo::add2`."""
        return f"{self.namespace}::{self.name}"

    @cached_property
    def called(self) -> str:
        """What errors of a call call it: the author's operator, or the gradient of that."""
        return self.stands_for or self.qualname

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

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The inputs that are changed in place: an output has the name of its input."""
        inputs = {tensor.name for tensor in self.tensors}
        return tuple(output.name for output in self.outputs if output.name in inputs)

    @cached_property
    def returns_gradients(self) -> bool:
        """Whether it is a backward of several gradients: all outputs are named `grad_<something>`.

        A call may then ask for some of them alone, by `output_mask`; the others are None.
        """
        return len(self.outputs) > 1 and all(o.name.startswith("grad_") for o in self.outputs)


def check_names(line: Line) -> None:
    """Stop at a name that is invalid, reserved, repeated or ambiguous."""
    values = {value.name: value for value in (*line.parameters, *line.outputs)}
    returned = [output for output in line.outputs if output not in line.tensors]
    names = [value.name for value in (*line.parameters, *returned)]
    tensors = (*line.tensors, *line.outputs)
    dims = [name for tensor in tensors for dim in tensor.dims for name in names_in(dim)]
    for name in (line.namespace, line.name, *names, *dims):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise Syntax.error(f"'{name}' is not a name", at=line)
        if keyword.iskeyword(name):
            cure = (
                "a dimension of one element is called 1"
                if name == "None" and name in dims
                else None
            )
            raise ReservedName.error(f"'{name}' is a keyword of Python", at=line, help=cure)
    for name in (*names, *dims):
        if name in RESERVED:
            reserved = ", ".join(sorted(RESERVED))
            raise ReservedName.error(f"'{name}' is reserved", at=line, reserved=reserved)
        if names.count(name) > 1:
            raise DuplicateName.error(f"'{name}' appears twice", at=line, help=cure_for(name, line))
    for name in dims:
        value = values.get(name)
        if value and not (is_int_scalar(value) and name not in line.dimensions):
            mark = "?" * value.optional
            kind = "tensor" if isinstance(value, Tensor) else f"scalar of type {value.type}{mark}"
            raise TwoMeanings.error(f"'{name}' is both a dimension and {an(kind)}", at=line)


def cure_for(name: str, line: Line) -> str | None:
    """Return the cure for a name that an input and an output share."""
    for tensor in line.tensors:
        if tensor.name == name and tensor.name in {output.name for output in line.outputs}:
            return f"write '{tensor}' in both places if it is changed in place"
    return None


def is_int_scalar(value: Tensor | Scalar) -> bool:
    """Return whether `value` can stand in an output's arithmetic."""
    return isinstance(value, Scalar) and value.type == "int" and not value.optional


def check_inputs(line: Line) -> None:
    """Stop at an input whose dimensions are more than names, sizes and `...`."""
    for tensor in line.tensors:
        if tensor.detached:
            raise Syntax.error(
                "'!' marks an output that has no derivative, and this is an input",
                at=tensor,
                help="None in backward= is for an input that has no gradient: "
                f"{{'{tensor.name}': None}}",
            )
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
        if output.many:
            raise UnusableOutput.error(f"the output '{output.name}' is a list", at=line)
        if output.has_batch and not any(tensor.has_batch for tensor in line.tensors):
            raise UnknownDimension.error(f"'{output.name}' has '...', but no input has it", at=line)
        for dim in output.dims:
            check_output_dim(dim, output, known, line)


def check_output_dim(dim: Dim, output: Tensor, known: tuple[str, ...], line: Line) -> None:
    """Stop at a name that no input gives; a formula may name new ones, but not in arithmetic."""
    if isinstance(dim, Number) and dim.value < 0:
        raise Syntax.error(f"the size {dim} of '{output.name}' is below zero", at=output)
    for name in names_in(dim):
        if name not in known and not (line.formula and isinstance(dim, Name)):
            raise UnknownDimension.error(
                f"'{output.name}' has the dimension '{name}', but no input has it",
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
        elif with_default and not p.optional:
            raise RequiredAfterDefault.error(
                f"'{p.name}' has no default but comes after '{with_default.name}', which has one",
                at=line,
                help=f"move '{p.name}' before '{with_default.name}'",
            )
