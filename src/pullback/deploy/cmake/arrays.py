"""C++ arrays that tables point into: constants, which a compiler need not run to fill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pullback.define.math.index import Affine
from pullback.define.math.node import INDEX, NUMBER, Node


class Arrays:
    """The arrays of one file; equal ones are one.

    Attributes:
        slots: the places of sizes by their names, as `Extent` numbers them.
    """

    def __init__(self, slots: Mapping[str, int]) -> None:
        self.slots = slots
        self.names: dict[tuple[str, str], str] = {}

    def table(self, type: str, items: Iterable[str]) -> str:
        """Return a `Table` of some items."""
        rows = list(items)
        return f"{{{self.name(type, rows)}, {len(rows)}}}" if rows else "{}"

    def one(self, type: str, item: str) -> str:
        """Return the address of something."""
        return self.name(type, [item])

    def name(self, type: str, rows: list[str]) -> str:
        """Return the array of some items."""
        return self.names.setdefault((type, ", ".join(rows)), f"a{len(self.names)}")

    def extent(self, size: Affine) -> str:
        """Return a size as an `Extent`."""
        steps = (f"{{Step::Kind::{kind}, {value}}}" for kind, value in self.steps(size))
        return self.table("Step", steps)

    def extents(self, sizes: Iterable[Affine]) -> str:
        """Return several."""
        return self.table("Extent", map(self.extent, sizes))

    def steps(self, size: Affine) -> list[tuple[str, int]]:
        """Return a size in postfix order."""
        parts: list[list[tuple[str, int]]] = []
        if size.constant or not size.terms:
            parts.append([("number", size.constant)])
        for term, factor in size.terms:
            scaled = [] if factor == 1 else [("number", factor), ("multiply", 0)]
            parts.append([*self.steps_of_term(term), *scaled])
        first, *others = parts
        return [*first, *(step for part in others for step in (*part, ("add", 0)))]

    def steps_of_term(self, term: str | Node) -> list[tuple[str, int]]:
        """Return one part of a size."""
        if isinstance(term, str):
            return [("dimension", self.slots[term.strip("|")])]
        if term.op == NUMBER:
            return [("number", int(term.number))]
        if term.op == INDEX:
            return self.steps(term.places[0])
        assert term.op == "floor_divide", term
        dividend, divisor = map(self.steps_of_term, term.args)
        return [*dividend, *divisor, ("divide", 0)]

    def definitions(self) -> str:
        """Return the arrays, each before those that point to it."""
        rows = (
            f"const {type} {name}[] = {{{items}}};" for (type, items), name in self.names.items()
        )
        return "\n".join(rows)
