"""A definition -> the tuples that the C++ runtime reads (`read_definition` in module.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

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
OPERATIONS = {"+": 3, "-": 4, "*": 5, "//": 6, "%": 7}
# Those that a compiled kernel can take.
SCALAR_KINDS = {"int": 0, "float": 1, "bool": 2, "str": 3}
TAKEN = ("no", "yes", "with own derivative")
SCALAR_TYPES = {
    **{"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6},
    **{"float64": 7, "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15},
}


def definition_fields(
    definition: Definition,
    backward: Program | None,
    jvp: Program | None,
    kernels: Mapping[Device, int],
) -> tuple[object, ...]:
    """Return all that the runtime knows of an operator.

    Args:
        definition: the operator.
        backward: its gradients, wired.
        jvp: its tangents, wired.
        kernels: the address of the entry point for each device that has one.
    """
    line = definition.line
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
        kernel_fields(definition.cpu, kernels.get("cpu")),
        kernel_fields(definition.cuda, kernels.get("cuda")),
        TAKEN.index(definition.taken),
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
