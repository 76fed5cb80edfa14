"""The loop of the lanes: blocks of whole vectors, and single vectors at the edges."""

from __future__ import annotations

from collections.abc import Callable

from pullback.kernels.index.emit import Emitter
from pullback.kernels.index.scope import Scope


class Pass:
    """One run of the lanes over an index.

    Attributes:
        emitter: what writes it.
        index: what the lanes stand for.
        vectors: how many make a block.
        block: how many elements of a sum are added up at a time.
    """

    def __init__(self, emitter: Emitter, index: str, vectors: int) -> None:
        self.emitter, self.index, self.vectors = emitter, index, vectors
        self.block = f"block_of_sum * {vectors} * lanes"

    def written(self, main: Callable[[], None], edge: Callable[[], None]) -> str:
        """Return the loop, with `@begin` and `@end` for where it runs."""
        emitter = self.emitter
        emitter.started += 1
        run = emitter.started
        outside = emitter.variables.get(self.index)
        variable = emitter.variables[self.index] = emitter.name("l")
        inner = self.scoped(main, self.vectors, run, edge=False)
        outer = self.scoped(edge, 1, run, edge=True)
        emitter.runs.append((len(emitter.scopes), run))
        if outside is not None:
            emitter.variables[self.index] = outside
        return self.loop(variable, inner, outer)

    def loop(self, variable: str, inner: Scope, outer: Scope) -> str:
        """Return the loop of two versions of its body."""
        step = f"{self.vectors} * lanes"
        fits = f"{variable} + {step} <= @end"
        whole, part = "\n".join(inner.code), "\n".join(outer.code)
        if not inner.tests:
            return (
                f"int64_t {variable} = @begin;\n"
                f"for (; {fits}; {variable} += {step}) {{\n{whole}\n}}\n"
                f"for (; {variable} < @end; {variable} += lanes) {{\n{part}\n}}"
            )
        tests = " && ".join([fits, *(f"({test})" for test in inner.tests)])
        return (
            f"for (int64_t {variable} = @begin; {variable} < @end;) {{\n"
            f"if ({tests}) {{\n{whole}\n{variable} += {step};\n}} else {{\n{part}\n"
            f"{variable} += lanes;\n}}\n}}"
        )

    def scoped(self, write: Callable[[], None], vectors: int, run: int, *, edge: bool) -> Scope:
        """Write one version of the loop's body."""
        emitter = self.emitter
        outer = emitter.here
        trip = (emitter.ranges.size(self.index), vectors * emitter.lanes)
        scope = Scope(
            indices=frozenset({self.index}),
            lane=self.index,
            lane_scope=True,
            edge=edge,
            run=run,
            # An edge is there about once a row.
            trips=outer.trips if edge else (*outer.trips, trip),
        )
        before = emitter.counts.get(self.index)
        emitter.counts[self.index] = vectors
        emitter.scopes = [*emitter.scopes, scope]
        write()
        emitter.scopes = emitter.scopes[:-1]
        if before is None:
            del emitter.counts[self.index]
        else:
            emitter.counts[self.index] = before
        return scope
