"""Outputs that the line says have no derivative, `steps[n]!`, and derivatives that read them."""

from __future__ import annotations

from collections.abc import Mapping

from pullback.bind.operator import Operator
from pullback.bind.program import Origin, Program, Reference
from pullback.define.operator import Definition
from pullback.diagnostic import Rule

ReadsDetached = Rule("PB328", "reads-detached")


def require_safe(
    definition: Definition, program: Program | None, operators: Mapping[str, Operator]
) -> None:
    """Stop at a derivative that reads such an output, and could be differentiated again.

    What it has of that output would be missing in the second derivative, and nothing would say so.
    An operator without a derivative may read it: there a second derivative raises.

    Raises:
        PullbackError: PB328.
    """
    if program is None:
        return
    read = [s for s in program.results if s is not None]
    for call in program.calls:
        called = operators.get(call.operator)
        if called is None or not ends_there(called.definition):
            read += call.arguments
    for reference in read:
        if is_detached(definition, reference):
            name = definition.line.outputs[reference.index].name
            raise ReadsDetached.error(
                f"{definition.line.qualname}: a derivative reads '{name}', which has none by its "
                "'!', so a second derivative would lack that part",
                help=f"write it of the inputs; or leave '!' out and use grad_{name} as well; or "
                "name an operator that has no derivative itself; a count is an int64 output",
            )


def ends_there(definition: Definition) -> bool:
    """Return whether an operator of ours has no derivative, so that another one raises."""
    derived = {"formula", "function"} & set(definition.kernels)
    return definition.backward is None and definition.taken == "no" and not derived


def is_detached(definition: Definition, reference: Reference) -> bool:
    """Return whether something is the value of an output that has no derivative."""
    return reference.origin is Origin.output and definition.line.outputs[reference.index].detached
