"""Variables in the GPU's memory have internal linkage in CUDA: two units may define one name."""

from __future__ import annotations

from pullback.kernels.cuda_on_cpu.facts import MEMORY, Facts, variable_name
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import ATTRIBUTES, outside_templates, scope, statement_start

# Words in a declaration that already has internal or shared linkage, or none.
LINKED = frozenset(
    {"extern", "static", "inline", "constexpr", "constinit", "thread_local"}
    | {"template", "typedef", "using", "friend"}
)


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
