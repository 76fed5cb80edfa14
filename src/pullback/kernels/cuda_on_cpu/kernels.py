"""`__global__` functions: their bodies get constants for the index variables."""

from __future__ import annotations

from pullback.kernels.cuda_on_cpu.facts import Facts
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import CLASS_KEYS, ends_name, top_level

INDICES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
# What may follow a lambda's captures.
AFTER_CAPTURES = frozenset({"(", "{", "<", "mutable", "__device__", "__host__"})


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
