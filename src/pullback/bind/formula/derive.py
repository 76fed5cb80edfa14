"""The derivatives of a formula as operators: derived, registered and wired when first needed."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pullback.bind import program
from pullback.bind.program import Kind, OperatorCall, Program, Source
from pullback.define.formula import derived
from pullback.define.formula.derived import Derived
from pullback.define.formula.formula import Formula
from pullback.define.line import Line
from pullback.define.operator import Definition

if TYPE_CHECKING:
    import torch

KindOf = Literal["backward", "jvp"]
DERIVE = {"backward": derived.backward, "jvp": derived.jvp}
# Derivatives may be asked for by several threads at once, and deriving one may ask for another.
lock = threading.RLock()


def derivative(definition: Definition, kind: KindOf) -> Program:
    """Return the program of a derivative, its operator registered."""
    formula = definition.formula
    assert formula
    found = DERIVE[kind](formula)
    if found is None:
        targets = definition.line.tensors if kind == "backward" else definition.line.outputs
        return Program((), (None,) * len(targets))
    with lock:
        return wired(definition, found, kind, operator_of(found.formula))


def operator_of(formula: Formula) -> Definition:
    """Return the registered operator of a derived formula; one that has just this formula is kept.

    A graph that was made before its operator was defined again still calls the earlier derivative.
    So a derivative never replaces another: it gets a name of its own.
    """
    from pullback.bind.register import operators, register  # noqa: PLC0415  (it imports this module)

    first = formula.line
    for number in itertools.count(1):
        line = first if number == 1 else renamed(first, f"{first.name}_{number}")
        known = operators.get(line.qualname)
        if known is not None and is_same(known.definition.formula, formula, line):
            return known.definition
        if known is None and program.find_schema(line.qualname, "") is None:
            made = replace(formula, line=with_text(replace(formula, line=line)))
            return register(Definition(line=made.line, formula=made)).definition
    raise AssertionError


def overload_of(definition: Definition) -> torch._ops.OpOverload:
    """Return the operator that a definition is registered as."""
    from pullback.bind.register import operators  # noqa: PLC0415  (it imports this module)

    return operators[definition.line.qualname].overload


def is_same(known: Formula | None, formula: Formula, line: Line) -> bool:
    """Return whether a registered formula is this one."""
    return (
        known is not None
        and replace(known.line, formula=None) == line
        and known.nodes == formula.nodes
        and known.space == formula.space
        and known.accuracy == formula.accuracy
    )


def renamed(line: Line, name: str) -> Line:
    """Return a line with another name."""
    return replace(line, name=name, formula=None)


def with_text(formula: Formula) -> Line:
    """Return a formula's line with its text."""
    return replace(formula.line, formula=formula.text)


def wired(definition: Definition, found: Derived, kind: KindOf, made: Definition) -> Program:
    """Return the program that calls the operator of a derivative."""
    line = definition.line
    targets = line.tensors if kind == "backward" else line.outputs
    arriving = Kind.grad if kind == "backward" else Kind.tangent
    parameters = made.line.parameters
    arguments = [
        Source(arriving, place, optional=parameter.optional)
        for place, parameter in zip(found.arrives, parameters, strict=False)
    ]
    inputs = {parameter.name: place for place, parameter in enumerate(line.parameters)}
    outputs = {output.name: place for place, output in enumerate(line.outputs)}
    for parameter in parameters[len(arguments) :]:
        name = parameter.name
        arguments.append(
            Source(Kind.argument, inputs[name])
            if name in inputs
            else Source(Kind.output, outputs[name])
        )
    if made.masked:
        arguments.append(Source(Kind.mask))
    call = OperatorCall(made.line.qualname, "", tuple(arguments), len(found.gives))
    results = [
        Source(Kind.result, 0, found.gives.index(place)) if place in found.gives else None
        for place in range(len(targets))
    ]
    return Program((call,), tuple(results))
