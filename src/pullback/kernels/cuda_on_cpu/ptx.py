"""Inline PTX: translated where C++ has an exact equivalent; the rest raises when it is reached."""

from __future__ import annotations

import json
import re

from pullback.kernels.cuda_on_cpu.ptx_program import (
    AsmStatement,
    UnknownInstructionError,
    translate_statement,
)
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import line_of, top_level

WORDS = ("asm", "__asm__", "__asm")
# `add.f32`, `bar.sync`, but not the CPU's `.globl`, `pause`, `mov %0, %%rbx`, `jmp .L1`.
INSTRUCTION = re.compile(
    r"(?<![\w.%])(?:@!?%?\w+\s+)?"
    r"((?:[a-z]\w*(?:\.[\w:]+)+)|trap|exit|brkpt|ret)(?=[\s;,{]|$)"
)


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
            return translate_statement(statement)
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
