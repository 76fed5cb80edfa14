"""Code that nvcc takes and g++ does not: a member's template arguments without `template`."""

from __future__ import annotations

from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import angle_close, outside_templates

COMPARING = frozenset({"&&", "||", "==", "!=", "<=", ">=", "?", "="})


def rewrite_member_templates(stream: TokenStream, out: Rewriting) -> None:
    """Write `x.template block<3, 3>()`: if the type of `x` is unknown, `<` is a comparison."""
    for index, word in enumerate(stream.words):
        if word in (".", "->") and _is_member_template(stream, index + 1):
            out.before(stream, index + 1, "template ")


def _is_member_template(stream: TokenStream, name: int) -> bool:
    """Tell whether this is `block<3, 3>(...)`, and not a comparison."""
    is_name = name < len(stream) and stream.kinds[name] == "word"
    if not is_name or stream.word(name + 1) != "<" or not stream.adjacent(name):
        return False
    close = angle_close(stream, name + 1)
    if close < 0 or stream.word(close + 1) != "(" or not stream.adjacent(close):
        return False
    inside = range(name + 2, close)
    if not COMPARING.isdisjoint(stream.words[at] for at in inside):
        return False
    # `f(a.x<b, c>(d))` is ambiguous without knowing the names.
    commas = any(stream.words[at] == "," for at in outside_templates(stream, name + 2, close))
    open_to_doubt = commas and not any(stream.kinds[at] == "number" for at in inside)
    return not open_to_doubt or stream.word(close + 2) == ")"
