"""A definition -> the C++ data that the runtime holds of it; `bind.native` makes it for Python."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pullback.bind import native
from pullback.bind.dense import arrange
from pullback.bind.program import OperatorCall, Origin, Program, Reference
from pullback.define import shape
from pullback.define.dimension import Expression
from pullback.define.line import Line, Tensor
from pullback.define.math.formula import Formula
from pullback.deploy.cmake.sources import BuiltLoop
from pullback.deploy.shipped import Shipped, ShippedKernel
from pullback.kernels.glue import Device

DTYPES = {
    **{"float64": "at::kDouble", "float32": "at::kFloat", "float16": "at::kHalf"},
    **{"bfloat16": "at::kBFloat16", "complex64": "at::kComplexFloat"},
    **{"complex128": "at::kComplexDouble", "int64": "at::kLong", "int32": "at::kInt"},
    **{"int16": "at::kShort", "int8": "at::kChar", "uint8": "at::kByte", "bool": "at::kBool"},
}


# C++ literals.


def quote(text: str) -> str:
    """Return a text as C++ writes it; control characters in octal, which has three digits."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{ord(found[0]):03o}", escaped) + '"'


def format_bool(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def enclose(items: Iterable[str]) -> str:
    """Return a list in braces."""
    return f"{{{', '.join(items)}}}"


def format_fields(**values: str | None) -> str:
    """Return an aggregate by the names of its members, in their order; None leaves one out."""
    return enclose(f".{name} = {value}" for name, value in values.items() if value is not None)


def format_double(value: float) -> str:
    """Return a number of double's precision, to the last bit."""
    if math.isnan(value):
        return "std::numeric_limits<double>::quiet_NaN()"
    if math.isinf(value):
        return f"{'-' * (value < 0)}std::numeric_limits<double>::infinity()"
    return repr(value)


def format_int(value: int) -> str:
    """Return a whole number of 64 bits."""
    return "INT64_MIN" if value == -(2**63) else f"int64_t{{{value}}}"


# What the runtime holds.


def write_definition(
    shipped: Shipped, loops: Sequence[BuiltLoop], devices: Sequence[Device] = ()
) -> str:
    """Return the function that makes an operator's definition.

    Args:
        shipped: the operator.
        loops: of a pointwise formula.
        devices: where one in index notation has loops.
    """
    rows = [f".{name} = {value}," for name, value in write_signature(shipped).items()]
    body = ["Definition definition;", "definition.signature = {", *(f"    {r}" for r in rows), "};"]
    for kind in ("backward", "jvp"):
        wired: Program | None = getattr(shipped, kind)
        if wired is not None:
            body += [
                f"definition.{kind} = Program{{",
                *(f"    {r}" for r in write_program(wired)),
                "};",
            ]
    for kernel in shipped.kernels:
        body += guard_lines(
            kernel.device, [f"definition.{kernel.device} = {write_kernel(kernel)};"]
        )
    if shipped.definition.pointwise:
        body += write_formula(shipped, shipped.definition.pointwise, loops)
    elif shipped.definition.formula:
        body.append("finish_indexed(definition, {")
        for device in devices:
            table = f"    .{device} = &{name_table(shipped, device)},"
            body += guard_lines(device, [table])
        body.append(f"}}, /*derived=*/{format_bool(not shipped.left_out)});")
    body.append("return definition;")
    lines = "\n".join(row if row.startswith("#") else f"  {row}" for row in body)
    return f"/// {shipped.line}\nDefinition {name_of(shipped.line)}() {{\n{lines}\n}}\n"


def name_of(line: Line) -> str:
    """Return a C++ name that no other operator has."""
    return f"{line.namespace}_{line.name}"


def name_table(shipped: Shipped, device: Device) -> str:
    """Return the name of the tables of an operator in index notation."""
    return f"{device}_table_of_{name_of(shipped.line)}"


def guard_lines(device: str, rows: list[str]) -> list[str]:
    """Return the lines; those about CUDA only count where the library has CUDA."""
    return ["#if defined(PULLBACK_CUDA)", *rows, "#endif"] if device == "cuda" else rows


def write_signature(shipped: Shipped) -> dict[str, str]:
    """Return the members of `Signature`."""
    line = shipped.definition.shaped
    position = {parameter.name: index for index, parameter in enumerate(line.parameters)}
    inputs = (write_tensor(each, line, position[each.name]) for each in line.tensors)
    scalars = (
        format_fields(
            kind=f"ScalarSpec::Kind::{native.SCALAR_KINDS[each.type]}",
            name=quote(each.name),
            argument=str(position[each.name]),
        )
        for each in line.scalars
    )
    masked = shipped.definition.masked
    return {
        "name": quote(line.qualname),
        "called": quote(line.called),
        "inputs": enclose(inputs),
        "outputs": enclose(write_tensor(each, line, 0) for each in line.outputs),
        "scalars": enclose(scalars),
        "dimensions": enclose(map(quote, line.dimensions)),
        "arguments": str(len(line.parameters) + masked),
        "masked": format_bool(masked),
    }


def write_tensor(spec: Tensor, line: Line, argument: int) -> str:
    """Return a tensor of the line."""
    return format_fields(
        name=quote(spec.name),
        text=quote(shape.format_spec(spec)),
        before=enclose(write_dimension(dim, line) for dim in spec.before),
        after=enclose(write_dimension(dim, line) for dim in spec.after),
        batched=format_bool(spec.has_batch),
        optional=format_bool(spec.optional),
        dtype=DTYPES[spec.dtype] if spec.dtype else None,
        argument=str(argument),
        detached="true" if spec.detached else None,
    )


def write_dimension(dim: Expression, line: Line) -> str:
    """Return a dimension's steps and text."""
    steps = (f"{{Step::Kind::{kind}, {value}}}" for kind, value in native.steps(dim, line))
    return format_fields(steps=enclose(steps), text=quote(str(dim)))


def write_program(wired: Program) -> list[str]:
    """Return the members of `Program`."""
    results = (write_reference(each) if each else "std::nullopt" for each in wired.results)
    return [
        ".calls = {",
        *(f"    {write_call(each)}," for each in wired.calls),
        "},",
        f".results = {enclose(results)},",
    ]


def write_call(call: OperatorCall) -> str:
    """Return a call of an operator."""
    return format_fields(
        operator_name=f"c10::OperatorName({quote(call.operator)}, {quote(call.overload)})",
        arguments=enclose(map(write_reference, call.arguments)),
        results=str(call.results),
    )


def write_reference(reference: Reference) -> str:
    """Return where an argument comes from."""
    given = format_fields(
        origin=f"Reference::Origin::{reference.origin.name}",
        index=str(reference.index) if reference.index else None,
        result=str(reference.result) if reference.result else None,
        optional="true" if reference.optional else None,
        constant=write_constant(reference.constant)
        if reference.origin is Origin.constant
        else None,
    )
    return f"Reference{given}"


def write_constant(value: object) -> str | None:
    """Return a constant as the dispatcher takes it; None for None, which is the default."""
    match value:
        case None:
            return None
        case bool():
            return f"c10::IValue({format_bool(value)})"
        case int():
            return f"c10::IValue({format_int(value)})"
        case float():
            return f"c10::IValue({format_double(value)})"
        case str():
            return f"c10::IValue(std::string({quote(value)}))"
        case tuple():
            return f"c10::IValue({write_list(value)})"
        case _:
            raise AssertionError(value)


def write_list(values: tuple[Any, ...]) -> str:
    """Return a list of numbers, all of the type of the first."""
    if values and isinstance(values[0], bool):
        return f"c10::List<bool>({enclose(map(format_bool, values))})"
    if values and isinstance(values[0], float):
        return f"std::vector<double>{enclose(map(format_double, values))}"
    return f"std::vector<int64_t>{enclose(map(format_int, values))}"


def write_kernel(kernel: ShippedKernel) -> str:
    """Return a kernel's entry point."""
    return format_fields(function=kernel.symbol, strided=format_bool(kernel.source.strided))


def write_formula(shipped: Shipped, own: Formula, loops: Sequence[BuiltLoop]) -> list[str]:
    """Return how compiled loops compute an operator."""
    alignments = (
        "std::nullopt" if each is None else f"std::vector<int64_t>{enclose(map(str, each))}"
        for each in (arrange.alignment(tensor, own.space) for tensor in own.line.tensors)
    )
    finishes = (
        format_fields(sums=enclose(map(str, summed)), sums_batch=format_bool(batch))
        for summed, batch in arrange.finishes(own)
    )
    rows: list[str] = []
    for device in ("cpu", "cuda"):
        here = [f"    {write_row(loop, device)}," for loop in loops if loop.device == device]
        rows += guard_lines(device, here) if here else []
    return [
        "definition.formula.emplace();",
        f"definition.formula->space = {write_tensor(own.space, own.line, 0)};",
        f"definition.formula->alignments = {enclose(alignments)};",
        f"definition.formula->finishes = {enclose(finishes)};",
        "finish_formula(definition, {",
        *rows,
        f"}}, /*derived=*/{format_bool(not shipped.left_out)});",
    ]


def write_row(loop: BuiltLoop, device: str) -> str:
    """Return a loop and what it was compiled for."""
    of = loop.loop
    key = format_fields(
        wanted=str(of.wanted),
        present=str(of.present),
        dtype=DTYPES[of.dtype],
        device=f"at::k{device.upper()}",
    )
    built = format_fields(
        address=f"reinterpret_cast<void*>({loop.symbol})",
        used=str(of.used),
        wanted=str(of.wanted),
    )
    return f"{{{key}, {built}}}"
