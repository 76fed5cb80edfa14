"""Operators whose author declares their derivatives, which the C++ runtime calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal

from pullback.bind import native, program, rule, runtime
from pullback.bind.kinds.kind import Derivatives, Kind
from pullback.bind.program import Origin, Program
from pullback.bind.registry import operators
from pullback.bind.rule import DerivativeRule
from pullback.bind.runtime import Runtime
from pullback.define import derivative
from pullback.define.derivative import Declared as Declaration
from pullback.define.operator import Definition
from pullback.diagnostic import Rule

ReadsDetached = Rule("PB328", "reads-detached")


class Declared(Kind):
    """One operator with `backward=` and `jvp=`, or without a derivative."""

    @cached_property
    def runtime(self) -> Runtime | None:
        """The C++ runtime."""
        return runtime.load()

    def prepare(self) -> None:
        """Wire the derivatives, and compile the kernels."""
        self.derivatives = self.wired()
        super().prepare()

    def wired(self) -> Derivatives:
        """Return the programs of the derivatives, wired with the operators defined by now."""
        return wire(self.definition)

    def install(self) -> None:
        """Hand the definition and its kernels to the runtime."""
        found = self.derivatives
        assert self.runtime
        self.runtime.define(
            native.definition_fields(self.definition, found.backward, found.jvp, self.addresses)
        )


def wire(definition: Definition) -> Derivatives:
    """Return the programs of the declared derivatives, and the Python functions among them."""
    rules: list[DerivativeRule] = []
    programs: dict[str, Program | None] = {"backward": None, "jvp": None}
    kinds: tuple[tuple[Literal["backward", "jvp"], Any, Any], ...] = (
        ("backward", program.backward, rule.backward_rule),
        ("jvp", program.jvp, rule.jvp_rule),
    )
    for kind, wire, rule_of in kinds:
        declared: Declaration | None = getattr(definition, kind)
        if callable(declared):
            rules.append(rule_of(definition.line, declared))
            rules[-1].schema()
            programs[kind] = rules[-1].program()
        elif declared is not None:
            programs[kind] = program_of(definition, kind, declared, wire)
        require_attached(definition, programs[kind])
    return Derivatives(backward=programs["backward"], jvp=programs["jvp"], rules=tuple(rules))


def program_of(
    definition: Definition,
    kind: Literal["backward", "jvp"],
    declared: Mapping[str, str | None] | str,
    wire: Callable[..., Program],
) -> Program:
    """Return the program of a derivative; entries that are formulas become an operator first."""
    lines = {name: other.line for name, other in operators.items()}
    texts = derivative.formulas_in(declared)
    if not texts:
        return wire(definition, declared, lines)
    from pullback.bind.math import written  # noqa: PLC0415  (only formulas need it)

    assert isinstance(declared, Mapping)
    rest = wire(definition, {**declared, **dict.fromkeys(texts)}, lines)
    return written.add_operators(definition, kind, texts, rest)


def require_attached(definition: Definition, program: Program | None) -> None:
    """Stop at a derivative that reads an output `steps[n]!`, and could be differentiated again.

    The second derivative would silently lack the part through that output. An operator without a
    derivative may read it: there a second derivative raises.

    Raises:
        PullbackError: PB328.
    """
    if program is None:
        return
    read = [s for s in program.results if s is not None]
    for call in program.calls:
        called = operators.get(call.operator)
        if called is None or called.kind.has_derivative or called.definition.taken != "no":
            read += call.arguments
    outputs = [definition.line.outputs[s.index] for s in read if s.origin is Origin.output]
    for output in outputs:
        if output.detached:
            raise ReadsDetached.error(
                f"{definition.line.qualname}: a derivative reads '{output.name}', which has none "
                "by its '!', so a second derivative would lack that part",
                help="write it in terms of the inputs; or leave '!' out and use "
                f"grad_{output.name} as well; or name an operator that has no derivative itself; "
                "a count is an int64 output",
            )
