"""Inline PTX: translated where C++ has an exact equivalent; the rest raises when it is reached.

One instruction becomes an expression, several a lambda; `ptx_table` has the instructions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from pullback.kernels.cuda_on_cpu.ptx_table import TYPES, translate_instruction
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import line_of, top_level

WORDS = ("asm", "__asm__", "__asm")
# `add.f32`, `bar.sync`, but not the CPU's `.globl`, `pause`, `mov %0, %%rbx`, `jmp .L1`.
INSTRUCTION = re.compile(
    r"(?<![\w.%])(?:@!?%?\w+\s+)?"
    r"((?:[a-z]\w*(?:\.[\w:]+)+)|trap|exit|brkpt|ret)(?=[\s;,{]|$)"
)


@dataclass(frozen=True)
class AsmStatement:
    """An `asm` statement: its code, and the expressions for `%0` and so on."""

    code: str
    outputs: list[str]
    inputs: list[str]


class UnknownInstructionError(Exception):
    """An instruction without an equivalent; its text is the argument."""


def rewrite_ptx(stream: TokenStream, out: Rewriting) -> None:
    """Rewrite all statements with PTX; those of the CPU's own assembly stay."""
    for index in stream.find(*WORDS):
        open_ = index + 1
        while stream.word(open_) in ("volatile", "__volatile__", "inline"):
            open_ += 1
        if stream.word(open_) != "(" or stream.partner[open_] < 0:
            continue
        close = stream.partner[open_]
        literals = range(open_ + 1, close)
        code = " ".join(
            _content(stream.words[at]) for at in literals if stream.kinds[at] == "string"
        )
        if not INSTRUCTION.search(code):
            continue
        out.replace(stream, index, _translate(_read_statement(stream, open_), code))
        for at in range(index + 1, close + 1):
            out.replace(stream, at, "")


def _translate(statement: AsmStatement | None, code: str) -> str:
    """Return an expression that does what a statement does, or raises when it is reached."""
    unknown = code
    try:
        if statement:
            return _translate_statement(statement)
    except UnknownInstructionError as error:
        unknown = str(error)
    name = INSTRUCTION.search(unknown) or INSTRUCTION.search(code)
    shown = json.dumps(name[1] if name else code)
    return f"::cuda_on_cpu::cuda_on_cpu_ptx({shown}, __FILE__, __LINE__)"


def _read_statement(stream: TokenStream, open_: int) -> AsmStatement | None:
    """Return the parts of a statement; None where a macro makes some of them."""
    close = stream.partner[open_]
    colons: list[int] = []
    for at in top_level(stream, open_ + 1, close):
        if stream.words[at] == ":":
            colons.append(at)
        elif stream.words[at] == "::":
            colons += (at, at)  # no outputs
    code_end = colons[0] if colons else close
    if any(stream.kinds[at] != "string" for at in range(open_ + 1, code_end)):
        return None
    code = "".join(_content(stream.words[at]) for at in range(open_ + 1, code_end))
    ends = [*colons[1:], close, close]
    parts = [_read_operands(stream, left + 1, end) for left, end in zip(colons, ends, strict=False)]
    outputs, inputs, *_ = [*parts, [], []]
    return AsmStatement(code, outputs, inputs)


def _read_operands(stream: TokenStream, first: int, behind: int) -> list[str]:
    """Return the expressions of `"=r"(x), "l"(y)`, with their parentheses."""
    found: list[str] = []
    for at in top_level(stream, first, behind):
        if stream.words[at] == "(":
            found.append(line_of(stream, at, stream.partner[at] + 1))
    return found


def _content(literal: str) -> str:
    """Return what a string literal holds, each escape and line end a space."""
    if literal.startswith("R"):
        return re.sub(r'^R"[^(]*\(|\)[^)]*"$', "", literal)
    return re.sub(r"\\\r?\n|\\.", " ", literal.strip('"'))


def _translate_statement(statement: AsmStatement) -> str:
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
