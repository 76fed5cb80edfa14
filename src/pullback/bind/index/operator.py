"""A definition in index notation -> what the runtime needs of it."""

from __future__ import annotations

from collections.abc import Iterator

from pullback.bind import native, runtime
from pullback.bind.formula import derive
from pullback.bind.formula.derive import KindOf
from pullback.bind.index import verify
from pullback.bind.native import Supply
from pullback.bind.program import Program
from pullback.define.formula.indexed import Indexed
from pullback.define.operator import Definition


class LazyIndexed:
    """One operator: its kernel is in Python, its derivatives are made when they are asked for."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.programs: dict[str, Program] = {}
        self.supply = Supply(complete=self.complete)

    def begin(self) -> None:
        """Hand the definition to the runtime.

        The gradients of an author's operator are registered at once and not when first needed: a
        compiled graph that is loaded from PyTorch's cache calls them by name.
        """
        self.install()
        if not self.definition.line.name.startswith("_"):
            self.complete("backward")
            verify.at_definition(*self.mathematics())

    def mathematics(self) -> Iterator[Indexed]:
        """Yield the operator's formula and that of its gradients."""
        names = [call.operator for call in self.programs["backward"].calls]
        from pullback.bind.register import operators  # noqa: PLC0415  (it imports this module)

        for definition in (self.definition, *(operators[name].definition for name in names)):
            assert definition.indexed
            yield definition.indexed

    def complete(self, kind: KindOf) -> None:
        """Derive a derivative and hand it to the runtime, which calls this when it needs one."""
        with derive.lock:
            if kind not in self.programs:
                self.programs[kind] = derive.derivative(self.definition, kind)
                self.install()

    def install(self) -> None:
        """Hand the definition to the runtime, with the derivatives known so far."""
        runtime.load().define(
            native.definition_fields(
                self.definition,
                self.programs.get("backward"),
                self.programs.get("jvp"),
                {},
                supply=self.supply,
            )
        )
