"""Sums that are held in memory: one for each value of an index, all through one loop.

`sum[m](f(n, m)*(x[n, d] - y[m, d]))` has in each turn one f for all d. If the sums of all d go
through one loop over m, f is computed once; they are more than there are registers, but fit a
cache nearby: rows of whole vectors of the lanes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pullback.define.math.index import Affine
from pullback.define.math.node import SUM, Node
from pullback.kernels.loops import accumulate
from pullback.kernels.loops.scope import Copy, RefusedLoops, Scope

if TYPE_CHECKING:
    from pullback.kernels.loops.accumulate import Accumulator
    from pullback.kernels.loops.emit import Emitter


class HeldSums:
    """The sums of one kernel that are held in memory.

    Attributes:
        emitter: what writes it.
        index: that these sums are of, one for each of its values; None if there are none.
        rows: the names of all rows, each of a vector for each value of the index.
        taken: how many of them are in use.
        known: where each copy of such a sum is when its loop has run.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.index: str | None = None
        self.rows: list[str] = []
        self.taken = 0
        self.known: dict[tuple[Node, Copy], str] = {}

    @property
    def waiting(self) -> frozenset[str]:
        """The index, where its loop is not open."""
        is_open = any(self.index in scope.indices for scope in self.emitter.scopes)
        return frozenset() if self.index is None or is_open else frozenset({self.index})

    def takes(self, node: Node) -> bool:
        """Return whether a sum is held."""
        if not node.free & self.waiting:
            return False
        if node.op != SUM or node.type != "real":
            raise RefusedLoops("only sums of real numbers are held in memory")
        return True

    def open(self) -> str:
        """Return the name of a row that is not in use."""
        if self.taken == len(self.rows):
            self.rows.append(f"held{self.taken}")
        self.taken += 1
        return self.rows[self.taken - 1]

    def restart(self) -> None:
        """Forget what was held: another version of the lanes' loop is written."""
        self.taken, self.known = 0, {}

    @property
    def extent(self) -> Affine:
        """How far the index runs."""
        return self.emitter.ranges.size(str(self.index))

    @property
    def size(self) -> str:
        """The same in C++."""
        return self.emitter.extents.text(self.extent)

    def each(self, lines: Sequence[str]) -> None:
        """Write what is done with each vector of some rows, whose number is `k`."""
        if lines:
            body = " ".join(lines)
            self.emitter.line(f"for (int64_t k = 0; k < {self.size}; ++k) {{ {body} }}")

    def clear(self, rows: Sequence[str]) -> None:
        """Write what makes some rows zero."""
        self.each([f"{store(row, 'k', 'Real{}')}" for row in rows])

    def add(self, rows: Mapping[str, str]) -> None:
        """Write what adds rows to others."""
        self.each([store(a, "k", f"{load(a, 'k')} + {load(b, 'k')}") for a, b in rows.items()])

    @contextmanager
    def opened(self) -> Generator[Scope]:
        """Open the loop over the index, and write it at the end."""
        emitter, outer = self.emitter, self.emitter.here
        index = str(self.index)
        scope = Scope(
            indices=frozenset({index}),
            lane=outer.lane,
            edge=outer.edge,
            run=outer.run,
            trips=emitter.trips_over(self.extent),
        )
        variable = emitter.variables[index] = emitter.name("h")
        emitter.scopes = [*emitter.scopes, scope]
        yield scope
        emitter.scopes = emitter.scopes[:-1]
        body = "\n".join(scope.code)
        head = f"for (int64_t {variable} = 0; {variable} < {self.size}; ++{variable})"
        emitter.line(f"{head} {{\n{body}\n}}")

    def accumulate(self, held: Sequence[Accumulator], copies: Sequence[Mapping[str, int]]) -> None:
        """Write what one turn of a loop adds to its held sums."""
        emitter = self.emitter
        with self.opened():
            place = emitter.variables[str(self.index)]
            emitter.prepare(list(dict.fromkeys(a.body for a in held)))
            parts = [emitter.name("a") for _ in held]
            for part, a in zip(parts, held, strict=True):
                emitter.line(f"Real {part} = {load(a.part, place)};", 1)
            for copy in copies:
                for part, a in zip(parts, held, strict=True):
                    one = replace(a, copy={**a.copy, **copy}, part=part)
                    accumulate.accumulate(emitter, one, "", "splat(true)")
            for part, a in zip(parts, held, strict=True):
                emitter.line(store(a.part, place, part), 1)

    def keep(self, a: Accumulator) -> None:
        """Note where a sum is when its loop has run."""
        self.known[self.emitter.key(a.node, a.copy)] = a.name

    def has(self, node: Node, copy: Mapping[str, int]) -> bool:
        """Return whether a sum is held."""
        return self.emitter.key(node, copy) in self.known

    def load(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return a held sum, where the loop over the index is open."""
        row = self.known[self.emitter.key(node, copy)]
        return self.emitter.kept(load(row, self.emitter.variables[str(self.index)]), node, 1)


def load(row: str, place: str) -> str:
    """Return a vector of a row."""
    return f"load<Compute>(reinterpret_cast<const char*>({row} + {place} * lanes))"


def store(row: str, place: str, value: str) -> str:
    """Return the statement that stores a vector of a row."""
    return f"store<Compute>(reinterpret_cast<char*>({row} + {place} * lanes), {value});"
