"""An operator -> what C and C++ call: a function in a header, and AOTInductor's C shim."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.define.line import Line, Scalar, Tensor
from pullback.deploy import shims
from pullback.deploy.cmake.definitions import format_bool, format_double, quote
from pullback.deploy.shims import format_name
from pullback.deploy.shipped import Shipped

EXPORTED = '__attribute__((visibility("default")))'
TYPES = {"int": "int64_t", "float": "double", "bool": "bool", "str": "c10::string_view"}


def write_header(name: str, shipped: Sequence[Shipped]) -> str:
    """Return the header of a library: a function for each operator that was asked for."""
    declared = "\n\n".join(
        f"/// {each.line}\nnamespace {format_name(each.line.namespace)} {{\n"
        f"{EXPORTED} {write_declaration(each.line, defaults=True)};\n}}"
        for each in public_operators(shipped)
    )
    return f"""/// The operators of lib{name}.so. They work with autograd, on the CPU and on GPUs.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

{declared}
"""


def public_operators(shipped: Sequence[Shipped]) -> list[Shipped]:
    """Return the operators that have a function: not those that only derivatives call."""
    return [each for each in shipped if each.order == 0 and not each.definition.masked]


def write_function(line: Line) -> str:
    """Return the definition of an operator's function: a call through PyTorch's dispatcher."""
    arguments = ", ".join(format_name(parameter.name) for parameter in line.parameters)
    types = ", ".join(type_of(parameter) for parameter in line.parameters)
    return f"""namespace {format_name(line.namespace)} {{
{write_declaration(line, defaults=False)} {{
  static const auto pullback_operator = c10::Dispatcher::singleton()
      .findSchemaOrThrow({quote(line.qualname)}, "").typed<{return_type(line)}({types})>();
  return pullback_operator.call({arguments});
}}
}}
"""


def write_declaration(line: Line, *, defaults: bool) -> str:
    """Return a function's type and name, with the line's defaults for a header."""
    parameters: list[str] = []
    may_be_left_out = defaults
    for parameter in reversed(line.parameters):
        default = default_of(parameter) if may_be_left_out else None
        may_be_left_out = default is not None
        shown = f" = {default}" if default else ""
        parameters.append(f"{type_of(parameter)} {format_name(parameter.name)}{shown}")
    return f"{return_type(line)} {format_name(line.name)}({', '.join(reversed(parameters))})"


def return_type(line: Line) -> str:
    """Return an operator's return type."""
    tensors = ", ".join("at::Tensor" for _ in line.outputs)
    return tensors if len(line.outputs) == 1 else f"std::tuple<{tensors}>"


def type_of(parameter: Tensor | Scalar) -> str:
    """Return the C++ type of a parameter."""
    if isinstance(parameter, Scalar):
        return TYPES[parameter.type]
    return "const std::optional<at::Tensor>&" if parameter.optional else "const at::Tensor&"


def default_of(parameter: Tensor | Scalar) -> str | None:
    """Return a parameter's default; None if it has none."""
    if isinstance(parameter, Tensor):
        return "std::nullopt" if parameter.optional else None
    match parameter.default:
        case bool():
            return format_bool(parameter.default)
        case int() | float():
            real = parameter.type == "float"
            return format_double(float(parameter.default)) if real else str(parameter.default)
        case str():
            return quote(parameter.default)
        case _:
            return None


def symbol_of(line: Line) -> str:
    """Return a C++ name that no other operator has."""
    return f"pullback_shim_{line.namespace}_{line.name}"


def write_shim(line: Line, device: str) -> str:
    """Return the C function that AOTInductor's programs call."""
    schema = shims.schema_of(line.qualname)
    given = ", ".join(f"given({format_name(name)})" for name in (p.name for p in line.parameters))
    results = ", ".join(f"ret{k}" for k in range(len(line.outputs)))
    name = quote(line.qualname)
    plain = shims.declaration(schema, device)
    unique = plain.replace(shims.symbol(schema.name, device), f"{symbol_of(line)}_{device}")
    return f"""extern "C" {EXPORTED}
{plain} {{
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow({name}, "");
  return pullback::call(op, {{{given}}}, {{{results}}});
}}
extern "C" {EXPORTED}
{unique} __asm__("{shims.unique_symbol(schema.name, device)}")
    __attribute__((alias("{shims.symbol(schema.name, device)}")));
"""
