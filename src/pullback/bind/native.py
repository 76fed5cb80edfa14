"""A definition -> the fields that the C++ runtime reads: `read_definition` of python/fields.cpp.

Each dictionary is a struct of the runtime, and its keys are the names of that struct's members.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pullback.bind.program import Program
from pullback.define import shape
from pullback.define.dimension import Arithmetic, Expression, Name, Number
from pullback.define.line import Line, Scalar, Tensor
from pullback.define.operator import Definition
from pullback.define.source import Source
from pullback.kernels.glue import Device

# One bit of a 64-bit mask says whether an argument is saved.
MOST_ARGUMENTS = 63
# `Step::Kind` of the operations between numbers and names.
OPERATIONS = {
    **{"+": "add", "-": "subtract", "*": "multiply", "//": "divide", "%": "modulo"},
    **{"min": "least", "max": "greatest"},
}
# `ScalarSpec::Kind` of those that a compiled kernel can take.
SCALAR_KINDS = {"int": "integer", "float": "real", "bool": "boolean", "str": "text"}
# The numbers of `at::ScalarType`, which are those of PyTorch's files.
SCALAR_TYPES = {
    **{"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6},
    **{"float64": 7, "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15},
}


Fields = dict[str, object]


class Finish(NamedTuple):
    """What the loop's result is summed over for one output.

    Attributes:
        sums: core dimensions of the space, by position.
        sums_batch: whether the dimensions of `...` too.
    """

    sums: tuple[int, ...]
    sums_batch: bool


@dataclass(frozen=True, kw_only=True)
class NativeFormula:
    """How a compiled loop computes an operator.

    Attributes:
        space: the index space of the loop, written like a tensor of the line. Its name stands in
            messages about its sizes, so it is best that of an output.
        alignments: one for each input tensor. None: it lines up with the space from the right.
            Else, for each core dimension of the space (before `...`, then after), the position of
            that dimension among the input's, or -1 where it has none. `...` lines up by itself.
        finishes: one for each output. The dimensions not summed over are its own, in any order.
        devices: where a loop can be asked for.
    """

    space: Tensor
    alignments: tuple[tuple[int, ...] | None, ...]
    finishes: tuple[Finish, ...]
    devices: tuple[Device, ...]


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What the runtime asks for once it needs it.

    Attributes:
        complete: `complete("backward")` or `complete("jvp")` derives that derivative and defines
            the operator again with it, and with this very `complete`: so the runtime knows that
            it is the same operator, and keeps the loops that it has.
        request: `request(device, dtype, wanted, present) -> (address, used)` returns the compiled
            loop, a `Loop` or on a GPU a `Launcher` of kernel_abi.h. `dtype` is the
            name of the shared dtype; `wanted` has a bit for each output that is asked for,
            `present` for each input tensor that is not None, `used` for each that the loop reads.
            It is called from any thread, and from two at once if both need a loop first. None for
            an operator without a `NativeFormula`.
        keep: `keep(*arguments)` returns which of the operator's `keepings` a call that is recorded
            has, or None; the operator is then defined with it. None for one that has none. Where
            `rows` says which calls do, it is asked once for each.
    """

    complete: Callable[[Literal["backward", "jvp"]], None]
    request: Callable[[Device, str, int, int], tuple[int, int]] | None = None
    keep: Callable[..., int | None] | None = None


class NativeKeeping(NamedTuple):
    """How a recorded call keeps what its first derivative reads.

    Attributes:
        forward: the name of the operator that returns this too, behind the outputs.
        outputs: how many it returns.
        backward: the gradients that read it.
        is_scaled: whether these are what was kept, multiplied by the gradient that arrives.
    """

    forward: str
    outputs: int
    backward: Program
    is_scaled: bool = False

    def fields(self) -> Fields:
        """Return it as the runtime reads it: a `Keeping`."""
        return {**self._asdict(), "backward": self.backward.fields()}


class NativeRows(NamedTuple):
    """Which calls keep statistics of the rows of a tensor: a `Rows`.

    Attributes:
        argument: the tensor.
        reduced: its dimensions that the statistics lack.
        least_length: how many elements a row has, at least.
        least_rows: how many rows there are.
        least_elements: how many elements the tensor has.
    """

    argument: int
    reduced: tuple[int, ...]
    least_length: int
    least_rows: int
    least_elements: int


def definition_fields(  # noqa: PLR0913  (all that the runtime knows)
    definition: Definition,
    backward: Program | None,
    jvp: Program | None,
    kernels: Mapping[Device, int],
    *,
    formula: NativeFormula | None = None,
    supply: Supply | None = None,
    keepings: Sequence[NativeKeeping | None] = (),
    rows: NativeRows | None = None,
    shortcuts: object | None = None,
) -> Fields:
    """Return all that the runtime knows about an operator: a `Definition`, with its `Signature`.

    Args:
        definition: the operator.
        backward: its gradients, wired.
        jvp: its tangents, wired.
        kernels: the address of the entry point for each device that has one.
        formula: what computes it on devices without a kernel.
        supply: where its derivatives come from, if they are made when they are needed.
        keepings: how its calls keep what their gradients read. Of rows the second is that of
            tensors in half precision.
        rows: which calls keep statistics of rows; None if `Supply.keep` says which do.
        shortcuts: the runtime's `Shortcuts`, if it makes the calls that are known.
    """
    line = definition.shaped
    position = {parameter.name: index for index, parameter in enumerate(line.parameters)}
    return {
        "name": line.qualname,
        "called": line.called,
        "inputs": tuple(tensor_fields(each, line, position[each.name]) for each in line.tensors),
        "outputs": tuple(tensor_fields(output, line, 0) for output in line.outputs),
        "scalars": tuple(
            scalar_fields(scalar, position[scalar.name])
            for scalar in line.scalars
            if scalar.type in SCALAR_KINDS and not scalar.optional
        ),
        "dimensions": line.dimensions,
        "arguments": len(line.parameters) + definition.masked,
        "masked": definition.masked,
        "backward": backward.fields() if backward else None,
        "jvp": jvp.fields() if jvp else None,
        # Without one in C++, the CUDA kernel runs on the CPU.
        "cpu": kernel_fields(definition.cpu or definition.cuda, kernels.get("cpu")),
        "cuda": kernel_fields(definition.cuda, kernels.get("cuda")),
        "taken": definition.taken,
        "formula": formula_fields(formula, line) if formula else None,
        "supply": vars(supply) if supply else None,
        "keepings": tuple(each and each.fields() for each in keepings),
        "rows": rows._asdict() if rows else None,
        "shortcuts": shortcuts,
    }


def formula_fields(formula: NativeFormula, line: Line) -> Fields:
    """Return how a loop computes the operator: a `Formula`."""
    assert len(formula.alignments) == len(line.tensors)
    assert len(formula.finishes) == len(line.outputs)
    return {
        "space": tensor_fields(formula.space, line, 0),
        "alignments": formula.alignments,
        "finishes": tuple(finish._asdict() for finish in formula.finishes),
        "devices": formula.devices,
    }


def kernel_fields(source: Source | None, address: int | None) -> Fields:
    """Return a `NativeKernel`: its address, 0 if it has none, and whether it takes any strides."""
    return {"function": address or 0, "strided": source is not None and source.strided}


def tensor_fields(tensor: Tensor, line: Line, argument: int) -> Fields:
    """Return a tensor of the line: a `TensorSpec`."""
    return {
        "name": tensor.name,
        "text": shape.format_spec(tensor),
        "before": tuple(dimension_fields(dim, line) for dim in tensor.before),
        "after": tuple(dimension_fields(dim, line) for dim in tensor.after),
        "batched": tensor.has_batch,
        "optional": tensor.optional,
        "dtype": SCALAR_TYPES[tensor.dtype] if tensor.dtype else -1,
        "argument": argument,
        "detached": tensor.detached,
        "any_shape": tensor.has_any_shape,
    }


def scalar_fields(scalar: Scalar, argument: int) -> Fields:
    """Return a scalar of the line: a `ScalarSpec`."""
    return {"kind": SCALAR_KINDS[scalar.type], "name": scalar.name, "argument": argument}


def dimension_fields(dim: Expression, line: Line) -> Fields:
    """Return a `Dimension`: its text, and its steps in postfix order."""
    own = tuple({"kind": kind, "value": value} for kind, value in steps(dim, line))
    return {"text": str(dim), "steps": own}


def steps(dim: Expression, line: Line) -> list[tuple[str, int]]:
    """Return an expression in postfix order, each step as its `Step::Kind` and its value."""
    match dim:
        case Number():
            return [("number", dim.value)]
        case Name() if dim.name in line.dimensions:
            return [("dimension", line.dimensions.index(dim.name))]
        case Name():
            names = [parameter.name for parameter in line.parameters]
            return [("scalar", names.index(dim.name))]
        case Arithmetic():
            own = (OPERATIONS[dim.operator], 0)
            return [*steps(dim.left, line), *steps(dim.right, line), own]


def address_of(function: object) -> int:
    """Return the address of a function of a loaded library."""
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyright: ignore[reportArgumentType]
    assert address
    return address
