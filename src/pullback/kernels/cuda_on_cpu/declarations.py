"""Declarations of kernels and of variables in the GPU's memory -> C++ of the same meaning.

A kernel's body gets constants for the index variables. A variable in the GPU's memory has internal
linkage in CUDA: two units may define one name.
"""

from __future__ import annotations

from pullback.kernels.cuda_on_cpu.facts import MEMORY, Facts, variable_name
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import (
    ATTRIBUTES,
    CLASS_KEYS,
    ends_name,
    outside_templates,
    scope,
    statement_start,
    top_level,
)

INDICES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
# What may follow a lambda's captures.
AFTER_CAPTURES = frozenset({"(", "{", "<", "mutable", "__device__", "__host__"})
# Words in a declaration that already has internal or shared linkage, or none.
LINKED = frozenset(
    {"extern", "static", "inline", "constexpr", "constinit", "thread_local"}
    | {"template", "typedef", "using", "friend"}
)


def rewrite_kernels(stream: TokenStream, facts: Facts, out: Rewriting) -> None:
    """Mark where each kernel's body begins."""
    marked: set[int] = set()
    for index in stream.find("__global__", *facts.kernel_words):
        for at in top_level(stream, index + 1, len(stream)):
            word = stream.words[at]
            if word == "{" and at not in marked and not _hides_locals(stream, at):
                marked.add(at)
                out.after(stream, at, " CUDA_ON_CPU_KERNEL ")
            if word in (";", "{", "}", "="):
                break


def _hides_locals(stream: TokenStream, body: int) -> bool:
    """Tell whether a function or lambda in a body could not use a variable of the body.

    If one reads `threadIdx`, a local constant of that name would be an error. Without the constant
    the kernel only runs slower.
    """
    close = stream.partner[body]
    for index in range(body + 1, close):
        word = stream.words[index]
        if word == "[" and _captures_by_name(stream, index):
            return True
        if word in CLASS_KEYS:
            brace = next((at for at in (index + 1, index + 2) if stream.word(at) == "{"), -1)
            inside = stream.words[brace : stream.partner[brace]] if brace > 0 else []
            if not INDICES.isdisjoint(inside):
                return True
    return False


def _captures_by_name(stream: TokenStream, index: int) -> bool:
    """Tell whether a bracket begins a lambda that captures nothing, or only what it names."""
    close = stream.partner[index]
    captures = stream.words[index + 1 : close]
    if ends_name(stream, index - 1) or stream.word(close + 1) not in AFTER_CAPTURES:
        return False
    if stream.word(index - 1) in ("operator", "[") or captures[:1] == ["["]:
        return False  # operator[], an attribute
    return captures[:1] != ["="] and captures[:2] not in (["&"], ["&", ","])


def rewrite_variables(stream: TokenStream, facts: Facts, out: Rewriting) -> None:
    """Put `static` before variables at namespace scope."""
    if stream.macro is not None:
        return
    done: set[int] = set()
    for index in stream.find(*MEMORY):
        start = statement_start(stream, index)
        if start in done:
            continue
        done.add(start)
        if not _is_variable(stream, start, index) or scope(stream, index) != "namespace":
            continue
        # A variable that is declared `extern` first may not be `static` later.
        if variable_name(stream, index) not in facts.extern_variables:
            out.before(stream, index, "static ")


def _is_variable(stream: TokenStream, start: int, specifier: int) -> bool:
    """Tell whether a declaration is of a variable without an explicit linkage."""
    for index in outside_templates(stream, start, len(stream)):
        word = stream.words[index]
        if word in LINKED:
            return False
        if word == "(" and stream.word(index - 1) not in ATTRIBUTES:
            return stream.word(index + 1) == "*"
        if word in (";", "=", "[", "{"):
            # `auto f = [] __device__ (int i) {...}`: the specifier is a lambda's.
            return index > specifier
    return False
