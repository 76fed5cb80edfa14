"""Sizes as C++: a number where it is known, else sums of the sizes that a call gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pullback.define.math.extents import evaluate_size, term_of
from pullback.define.math.index import Affine, is_size
from pullback.define.math.node import INDEX, Node


@dataclass
class Extents:
    """The sizes of one kernel.

    Attributes:
        known: those that the kernel is made for.
        slots: the others that it uses, in the order in which a call gives them.
    """

    known: Mapping[str, int]
    slots: dict[str, int] = field(default_factory=dict[str, int])

    def number(self, size: Affine) -> int | None:
        """Return a size if it is known."""
        value = evaluate_size(size, self.known)
        return None if value is None else int(value)

    def text(self, size: Affine) -> str:
        """Return a size in C++."""
        number = self.number(size)
        if number is not None:
            return f"int64_t{{{number}}}"
        parts = [f"int64_t{{{size.constant}}}"] if size.constant else []
        parts += [times(self.term(term), factor) for term, factor in size.terms]
        is_one = len(parts) == 1 and all(factor == 1 for _, factor in size.terms)
        return parts[0] if is_one else f"({' + '.join(parts)})"

    def term(self, term: str | Node) -> str:
        """Return one part of a size in C++."""
        number = term_of(term, self.known)
        if number is not None:
            return f"int64_t{{{number}}}"
        if isinstance(term, str):
            assert is_size(term), term
            return f"size{self.slots.setdefault(term.strip('|'), len(self.slots))}"
        if term.op == INDEX:
            return self.text(term.places[0])
        assert term.op == "floor_divide", term
        dividend, divisor = map(self.term, term.args)
        return f"floor_divide(int64_t({dividend}), int64_t({divisor}))"


def times(text: str, factor: int) -> str:
    """Return a multiple in C++."""
    return text if factor == 1 else f"{text} * {factor}"
