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
from pullback.define.line import Expression, Line, Tensor
from pullback.define.math.formula import Formula
from pullback.deploy.cmake.sources import BuiltLoop
from pullback.deploy.shipped import Kernel, Shipped

DTYPES = {
    **{"float64": "at::kDouble", "float32": "at::kFloat", "float16": "at::kHalf"},
    **{"bfloat16": "at::kBFloat16", "complex64": "at::kComplexFloat"},
    **{"complex128": "at::kComplexDouble", "int64": "at::kLong", "int32": "at::kInt"},
    **{"int16": "at::kShort", "int8": "at::kChar", "uint8": "at::kByte", "bool": "at::kBool"},
}


# C++ literals.


def quoted(text: str) -> str:
    """Return a text as C++ writes it; control characters in octal, which has three digits."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{ord(found[0]):03o}", escaped) + '"'


def truth(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def braces(items: Iterable[str]) -> str:
    """Return a list in braces."""
    return f"{{{', '.join(items)}}}"


def fields(**values: str | None) -> str:
    """Return an aggregate by the names of its members, in their order; None leaves one out."""
    return braces(f".{name} = {value}" for name, value in values.items() if value is not None)


def number(value: float) -> str:
    """Return a number of double's precision, to the last bit."""
    if math.isnan(value):
        return "std::numeric_limits<double>::quiet_NaN()"
    if math.isinf(value):
        return f"{'-' * (value < 0)}std::numeric_limits<double>::infinity()"
    return repr(value)


def integer(value: int) -> str:
    """Return a whole number of 64 bits."""
    return "INT64_MIN" if value == -(2**63) else f"int64_t{{{value}}}"


# What the runtime holds.


def definition(shipped: Shipped, loops: Sequence[BuiltLoop]) -> str:
    """Return the function that makes an operator's definition."""
    rows = [f".{name} = {value}," for name, value in signature(shipped).items()]
    body = ["Definition definition;", "definition.signature = {", *(f"    {r}" for r in rows), "};"]
    for kind in ("backward", "jvp"):
        wired: Program | None = getattr(shipped, kind)
        if wired is not None:
            body += [f"definition.{kind} = Program{{", *(f"    {r}" for r in program(wired)), "};"]
    for kernel in shipped.kernels:
        body += guarded(kernel.device, [f"definition.{kernel.device} = {native_kernel(kernel)};"])
    if shipped.definition.formula:
        body += formula(shipped, shipped.definition.formula, loops)
    body.append("return definition;")
    lines = "\n".join(row if row.startswith("#") else f"  {row}" for row in body)
    return f"/// {shipped.line}\nDefinition {name_of(shipped.line)}() {{\n{lines}\n}}\n"


def name_of(line: Line) -> str:
    """Return a name in C++ that is an operator's alone."""
    return f"{line.namespace}_{line.name}"


def guarded(device: str, rows: list[str]) -> list[str]:
    """Return lines that are there only where the library has CUDA, if they are about that."""
    return ["#if defined(PULLBACK_CUDA)", *rows, "#endif"] if device == "cuda" else rows


def signature(shipped: Shipped) -> dict[str, str]:
    """Return the members of `Signature`."""
    line = shipped.line
    position = {parameter.name: index for index, parameter in enumerate(line.parameters)}
    inputs = (tensor(each, line, position[each.name]) for each in line.tensors)
    scalars = (
        fields(
            kind=f"ScalarSpec::Kind::{native.SCALAR_KINDS[each.type]}",
            name=quoted(each.name),
            argument=str(position[each.name]),
        )
        for each in line.scalars
    )
    masked = shipped.definition.masked
    return {
        "name": quoted(line.qualname),
        "inputs": braces(inputs),
        "outputs": braces(tensor(each, line, 0) for each in line.outputs),
        "scalars": braces(scalars),
        "dimensions": braces(map(quoted, line.dimensions)),
        "arguments": str(len(line.parameters) + masked),
        "masked": truth(masked),
    }


def tensor(spec: Tensor, line: Line, argument: int) -> str:
    """Return a tensor of the line."""
    return fields(
        name=quoted(spec.name),
        text=quoted(shape.declared(spec)),
        before=braces(dimension(dim, line) for dim in spec.before),
        after=braces(dimension(dim, line) for dim in spec.after),
        batched=truth(spec.has_batch),
        optional=truth(spec.optional),
        dtype=DTYPES[spec.dtype] if spec.dtype else None,
        argument=str(argument),
        detached="true" if spec.detached else None,
    )


def dimension(dim: Expression, line: Line) -> str:
    """Return a dimension's steps and text."""
    steps = (f"{{Step::Kind::{kind}, {value}}}" for kind, value in native.steps(dim, line))
    return fields(steps=braces(steps), text=quoted(str(dim)))


def program(wired: Program) -> list[str]:
    """Return the members of `Program`."""
    results = (reference(each) if each else "std::nullopt" for each in wired.results)
    return [
        ".calls = {",
        *(f"    {operator_call(each)}," for each in wired.calls),
        "},",
        f".results = {braces(results)},",
    ]


def operator_call(call: OperatorCall) -> str:
    """Return the call of an operator."""
    return fields(
        operator_name=f"c10::OperatorName({quoted(call.operator)}, {quoted(call.overload)})",
        arguments=braces(map(reference, call.arguments)),
        results=str(call.results),
    )


def reference(reference: Reference) -> str:
    """Return where an argument comes from."""
    given = fields(
        origin=f"Reference::Origin::{reference.origin.name}",
        index=str(reference.index) if reference.index else None,
        result=str(reference.result) if reference.result else None,
        optional="true" if reference.optional else None,
        constant=constant(reference.constant) if reference.origin is Origin.constant else None,
    )
    return f"Reference{given}"


def constant(value: object) -> str | None:
    """Return a constant as the dispatcher takes it; None is what it is anyway."""
    match value:
        case None:
            return None
        case bool():
            return f"c10::IValue({truth(value)})"
        case int():
            return f"c10::IValue({integer(value)})"
        case float():
            return f"c10::IValue({number(value)})"
        case str():
            return f"c10::IValue(std::string({quoted(value)}))"
        case tuple():
            return f"c10::IValue({listed(value)})"
        case _:
            raise AssertionError(value)


def listed(values: tuple[Any, ...]) -> str:
    """Return a list of numbers, all of the type of the first."""
    if values and isinstance(values[0], bool):
        return f"c10::List<bool>({braces(map(truth, values))})"
    if values and isinstance(values[0], float):
        return f"std::vector<double>{braces(map(number, values))}"
    return f"std::vector<int64_t>{braces(map(integer, values))}"


def native_kernel(kernel: Kernel) -> str:
    """Return a kernel's entry point."""
    return fields(function=kernel.symbol, strided=truth(kernel.source.strided))


def formula(shipped: Shipped, own: Formula, loops: Sequence[BuiltLoop]) -> list[str]:
    """Return how compiled loops compute an operator."""
    alignments = (
        "std::nullopt" if each is None else f"std::vector<int64_t>{braces(map(str, each))}"
        for each in (arrange.alignment(tensor, own.space) for tensor in own.line.tensors)
    )
    finishes = (
        fields(sums=braces(map(str, summed)), sums_batch=truth(batch))
        for summed, batch in arrange.finishes(own)
    )
    rows: list[str] = []
    for device in ("cpu", "cuda"):
        here = [f"    {row(loop, device)}," for loop in loops if loop.device == device]
        rows += guarded(device, here) if here else []
    return [
        "definition.formula.emplace();",
        f"definition.formula->space = {tensor(own.space, own.line, 0)};",
        f"definition.formula->alignments = {braces(alignments)};",
        f"definition.formula->finishes = {braces(finishes)};",
        "finish_formula(definition, {",
        *rows,
        f"}}, /*derived=*/{truth(not shipped.left_out)});",
    ]


def row(loop: BuiltLoop, device: str) -> str:
    """Return a loop and what it was compiled for."""
    of = loop.loop
    key = fields(
        wanted=str(of.wanted),
        present=str(of.present),
        dtype=DTYPES[of.dtype],
        device=f"at::k{device.upper()}",
    )
    built = fields(
        address=f"reinterpret_cast<void*>({loop.symbol})",
        used=str(of.used),
        wanted=str(of.wanted),
    )
    return f"{{{key}, {built}}}"
