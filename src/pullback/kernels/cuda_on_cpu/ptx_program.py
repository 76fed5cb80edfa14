"""The code of an `asm` statement -> an expression: one instruction, or several in a lambda."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pullback.kernels.cuda_on_cpu.ptx_table import TYPES, translate_instruction


@dataclass(frozen=True)
class AsmStatement:
    """An `asm` statement: its code, and the expressions for `%0` and so on."""

    code: str
    outputs: list[str]
    inputs: list[str]


class UnknownInstructionError(Exception):
    """An instruction without an equivalent; its text is the argument."""


def translate_statement(statement: AsmStatement) -> str:
    """Return an expression equivalent to a statement.

    Raises:
        UnknownInstructionError: there is none.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", statement.code).replace("%%", "%").strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    lines = [" ".join(line.split()) for line in text.split(";")]
    lines = [line for line in lines if line]
    if len(lines) == 1 and not lines[0].startswith("@"):
        operands = [*statement.outputs, *statement.inputs]
        return (
            f"({_write_instruction(lines[0], {f'%{n}': each for n, each in enumerate(operands)})})"
        )
    return _write_program(lines, statement)


def _write_program(lines: list[str], statement: AsmStatement) -> str:
    """Return several instructions as a lambda that is called at once."""
    names = {f"%{n}": each for n, each in enumerate(statement.outputs)}
    parts: list[str] = []
    for number, value in enumerate(statement.inputs, len(statement.outputs)):
        # Inputs are read once, first: an output may be the same variable.
        names[f"%{number}"] = f"cuda_on_cpu_i{number}"
        parts.append(f"const auto cuda_on_cpu_i{number} = {value};")
    for line in lines:
        parts.append(
            _write_declaration(line, names) if line.startswith(".") else _write_guarded(line, names)
        )
    return f"[&] {{ {' '.join(parts)} }}()"


def _write_declaration(line: str, names: dict[str, str]) -> str:
    """Return the declaration of registers: `.reg .pred p, q`, `.reg .b32 r<4>`."""
    match = re.fullmatch(r"\.reg ?\.(\w+) (.+)", line)
    kind = {**TYPES, "pred": "bool"}.get(match[1]) if match else None
    if match is None or kind is None:
        raise UnknownInstructionError(line)
    made: list[str] = []
    for register in match[2].split(","):
        name, _, count = register.strip().rstrip(">").partition("<")
        for each in [f"{name}{n}" for n in range(int(count))] if count else [name]:
            names[each] = f"cuda_on_cpu_r_{each.strip('%')}"
            made.append(f"{names[each]}{{}}")
    return f"{kind} {', '.join(made)};"


def _write_guarded(line: str, names: dict[str, str]) -> str:
    """Return an instruction as a statement: `@p` or `@!p` before it is a condition."""
    match = re.fullmatch(r"(?:@(!?)(%?\w+) )?(.*)", line)
    assert match
    written = _write_instruction(match[3], names)
    if not match[2]:
        return f"{written};"
    if match[2] not in names:
        raise UnknownInstructionError(line)
    return f"if ({match[1]}{names[match[2]]}) {{ {written}; }}"


def _write_instruction(line: str, names: dict[str, str]) -> str:
    written = translate_instruction(line, names)
    if written is None:
        raise UnknownInstructionError(line)
    return written
