"""A definition -> the tuples that the C++ runtime reads: `read_definition` of python/fields.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pullback.bind.program import Program
from pullback.define import shape
from pullback.define.line import Arithmetic, Expression, Line, Name, Number, Scalar, Tensor
from pullback.define.operator import Definition
from pullback.define.source import Source
from pullback.kernels.glue import Device

# One bit of a 64-bit mask says whether an argument is saved.
MOST_ARGUMENTS = 63
# In the order of Step::Kind, ScalarSpec::Kind and at::ScalarType.
NUMBER, DIMENSION, SCALAR = range(3)
OPERATIONS = {"+": 3, "-": 4, "*": 5, "//": 6, "%": 7, "min": 8, "max": 9}
# Those that a compiled kernel can take.
SCALAR_KINDS = {"int": 0, "float": 1, "bool": 2, "str": 3}
TAKEN = ("no", "yes", "with own derivative")
SCALAR_TYPES = {
    **{"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6},
    **{"float64": 7, "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15},
}


@dataclass(frozen=True, kw_only=True)
class NativeFormula:
    """How a compiled loop computes an operator.

    Attributes:
        space: the index space of the loop, written like a tensor of the line. Its name stands in
            messages about its sizes, so it is best that of an output.
        alignments: one an input tensor. None: it lines up with the space from the right as it is.
            Else, for each core dimension of the space (before `...`, then after), the position of
            that dimension among the input's, or -1 where it has none. `...` lines up by itself.
        sums: one an output: the core dimensions of the space, by position, and whether those of
            `...`, over which the loop's result is summed. What is left are the output's dimensions,
            in any order.
        devices: where a loop can be asked for.
    """

    space: Tensor
    alignments: tuple[tuple[int, ...] | None, ...]
    sums: tuple[tuple[tuple[int, ...], bool], ...]
    devices: tuple[Device, ...]


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What the runtime asks for when it first needs it.

    Attributes:
        complete: `complete("backward")` or `complete("jvp")` derives that derivative and defines
            the operator again with it, and with this very `complete`: by that the runtime knows
            that it is the same operator, and keeps the loops that it has.
        request: `request(device, dtype, wanted, present) -> (address, used)` returns the compiled
            loop, a `Loop` or on a GPU a `Launcher` of kernel_abi.h. `dtype` is the
            name of the shared dtype; `wanted` has a bit for each output that is asked for,
            `present` for each input tensor that is not None, `used` for each that the loop reads.
            It is called from any thread, and from two at once if both need a loop first. None for
            an operator without a `NativeFormula`.
    """

    complete: Callable[[Literal["backward", "jvp"]], None]
    request: Callable[[Device, str, int, int], tuple[int, int]] | None = None


def definition_fields(  # noqa: PLR0913  (all that the runtime knows)
    definition: Definition,
    backward: Program | None,
    jvp: Program | None,
    kernels: Mapping[Device, int],
    *,
    formula: NativeFormula | None = None,
    supply: Supply | None = None,
) -> tuple[object, ...]:
    """Return all that the runtime knows of an operator.

    Args:
        definition: the operator.
        backward: its gradients, wired.
        jvp: its tangents, wired.
        kernels: the address of the entry point for each device that has one.
        formula: what computes it on devices without a kernel.
        supply: where its derivatives come from, if they are made when they are needed.
    """
    line = definition.shaped
    position = {parameter.name: index for index, parameter in enumerate(line.parameters)}
    return (
        line.qualname,
        tuple(tensor_fields(tensor, line, position[tensor.name]) for tensor in line.tensors),
        tuple(tensor_fields(output, line, 0) for output in line.outputs),
        tuple(
            scalar_fields(scalar, position[scalar.name])
            for scalar in line.scalars
            if scalar.type in SCALAR_KINDS and not scalar.optional
        ),
        line.dimensions,
        len(line.parameters) + definition.masked,
        definition.masked,
        backward.fields() if backward else None,
        jvp.fields() if jvp else None,
        # Without one in C++, the CUDA kernel runs on the CPU.
        kernel_fields(definition.cpu or definition.cuda, kernels.get("cpu")),
        kernel_fields(definition.cuda, kernels.get("cuda")),
        TAKEN.index(definition.taken),
        formula_fields(formula, line) if formula else None,
        (supply.request, supply.complete) if supply else None,
    )


def formula_fields(formula: NativeFormula, line: Line) -> tuple[object, ...]:
    """Return how a loop computes the operator."""
    assert len(formula.alignments) == len(line.tensors)
    assert len(formula.sums) == len(line.outputs)
    return (
        tensor_fields(formula.space, line, 0),
        formula.alignments,
        formula.sums,
        formula.devices,
    )


def kernel_fields(source: Source | None, address: int | None) -> tuple[object, ...]:
    """Return a kernel's address, 0 if there is none, and whether it takes any strides."""
    return (address or 0, source is not None and source.strided)


def tensor_fields(tensor: Tensor, line: Line, argument: int) -> tuple[object, ...]:
    """Return a tensor of the line."""
    return (
        tensor.name,
        shape.declared(tensor),
        tuple(dimension_fields(dim, line) for dim in tensor.before),
        tuple(dimension_fields(dim, line) for dim in tensor.after),
        tensor.has_batch,
        tensor.optional,
        SCALAR_TYPES[tensor.dtype] if tensor.dtype else -1,
        argument,
        tensor.detached,
        tensor.has_any_shape,
    )


def scalar_fields(scalar: Scalar, argument: int) -> tuple[object, ...]:
    """Return a scalar of the line."""
    return (SCALAR_KINDS[scalar.type], scalar.name, argument)


def dimension_fields(dim: Expression, line: Line) -> tuple[object, ...]:
    """Return a dimension's text and its steps in postfix order."""
    return (str(dim), tuple(steps(dim, line)))


def steps(dim: Expression, line: Line) -> list[tuple[int, int]]:
    """Return an expression in postfix order."""
    match dim:
        case Number():
            return [(NUMBER, dim.value)]
        case Name() if dim.name in line.dimensions:
            return [(DIMENSION, line.dimensions.index(dim.name))]
        case Name():
            names = [parameter.name for parameter in line.parameters]
            return [(SCALAR, names.index(dim.name))]
        case Arithmetic():
            own = (OPERATIONS[dim.operator], 0)
            return [*steps(dim.left, line), *steps(dim.right, line), own]


def address_of(function: object) -> int:
    """Return the address of a function of a loaded library."""
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyright: ignore[reportArgumentType]
    assert address
    return address
