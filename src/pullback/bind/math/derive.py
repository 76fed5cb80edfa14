"""The operators made from a formula when first needed: its derivatives, and what `vmap` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math.derived import add_dimension
from pullback.define.math.formula import Formula
from pullback.define.operator import Definition

if TYPE_CHECKING:
    from pullback.bind.batching import BatchedCall

import itertools
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pullback.bind import native, program
from pullback.bind.kinds.kind import Kind
from pullback.bind.math import fused
from pullback.bind.native import NativeKeeping
from pullback.bind.operator import Operator
from pullback.bind.program import OperatorCall, Origin, Program, Reference
from pullback.bind.register import register
from pullback.bind.registry import operators
from pullback.define.math import derived, notation
from pullback.define.math.draft import Derived
from pullback.define.math.statistics import Keeping

KindOf = Literal["backward", "jvp"]
DERIVE = {"backward": derived.backward, "jvp": derived.jvp}
# Derivatives may be asked for by several threads at once, and deriving one may ask for another.
lock = threading.RLock()


def register_derivative(own: Kind, kind: KindOf) -> Program:
    """Register the operator of a formula's derivative, and return the program that calls it."""
    definition = own.definition
    assert definition.formula
    found = derive_formula(definition, kind)
    if found is None:
        targets = definition.line.tensors if kind == "backward" else definition.line.outputs
        return Program((), (None,) * len(targets))
    if kind == "backward":
        fused.note_gradients(definition.formula, found)
    with lock:
        return wire_program(
            definition, found, kind, operator_of(found.formula, type(own)).definition
        )


def derive_formula(definition: Definition, kind: KindOf) -> Derived | None:
    """Return a derivative, not yet registered; None if it is zero."""
    assert definition.formula
    return DERIVE[kind](definition.formula)


def register_kept(
    own: Kind,
    found: Keeping | None,
    made_of: type[Kind],
    *,
    is_scaled: bool = False,
) -> NativeKeeping | None:
    """Register the operators that keep something and that read it; None if nothing is kept.

    Args:
        own: the operator.
        found: their formulas.
        made_of: the kind of the one that returns what is kept, too.
        is_scaled: whether these are what was kept, multiplied by the gradient that arrives.
    """
    if found is None or len(found.forward.line.outputs) > native.MOST_ARGUMENTS:
        return None
    fused.note_gradients(found.forward, found.backward)
    with lock:
        forward = operator_of(found.forward, made_of).definition
        backward = operator_of(found.backward.formula, type(own)).definition
    return NativeKeeping(
        forward=forward.line.qualname,
        outputs=len(forward.line.outputs),
        backward=wire_program(forward, found.backward, "backward", backward),
        is_scaled=is_scaled,
    )


def operator_of(formula: Formula, kind: type[Kind]) -> Operator:
    """Return the registered operator of a derived formula; an equal one is used again.

    A graph that was made before its operator was defined again still calls the earlier derivative.
    So a derivative never replaces another: it gets a name of its own.
    """
    first = formula.line
    for number in itertools.count(1):
        line = first if number == 1 else rename_line(first, f"{first.name}_{number}")
        known = operators.get(line.qualname)
        if known is not None and is_same(known.definition.formula, formula, line):
            return known
        if known is None and program.find_schema(line.qualname, "") is None:
            made = replace(formula, line=attach_text(replace(formula, line=line)))
            return register(kind(Definition(line=made.line, formula=made)))
    raise AssertionError


def is_same(known: Formula | None, formula: Formula, line: Line) -> bool:
    """Return whether a registered formula is this one, whatever its text."""
    return known is not None and replace(
        known, line=replace(known.line, formula=line.formula)
    ) == replace(formula, line=line)


def rename_line(line: Line, name: str) -> Line:
    """Return a line with another name."""
    return replace(line, name=name)


def attach_text(formula: Formula) -> Line:
    """Return a formula's line with the formula's text."""
    return replace(formula.line, formula=notation.format_formula(formula))


def wire_program(definition: Definition, found: Derived, kind: KindOf, made: Definition) -> Program:
    """Return the program that calls the operator of a derivative."""
    line = definition.line
    targets = line.tensors if kind == "backward" else line.outputs
    incoming = {p.name: k for p, k in zip(made.line.parameters, found.arrives, strict=False)}
    call = call_of(line, made, incoming, kind)
    results = [
        Reference(Origin.result, 0, found.gives.index(place)) if place in found.gives else None
        for place in range(len(targets))
    ]
    return Program((call,), tuple(results))


def call_of(
    line: Line, made: Definition, incoming: Mapping[str, int], kind: KindOf
) -> OperatorCall:
    """Return the call of a formula's operator, wired by its parameters' names."""
    arriving = Origin.grad if kind == "backward" else Origin.tangent
    references = program.named_references(line, incoming, arriving)
    arguments = [replace(references[p.name], optional=p.optional) for p in made.line.parameters]
    if made.masked:
        arguments.append(Reference(Origin.mask))
    return OperatorCall(made.line.qualname, "", tuple(arguments), len(made.line.outputs))


# --- the formula with one dimension more, which `vmap` calls

# The name of that dimension; in `vmap` of `vmap` each has one `_` more.
DIMENSION = "vmapped"


def call_batched(kind: Kind, call: BatchedCall) -> tuple[Any, Any]:
    """Return a formula's results under `vmap`, and their batch dimensions."""
    definition = kind.definition
    rows = list(zip(definition.line.parameters, call.arguments, call.dims, strict=True))
    moved = [
        value.movedim(dim, 0) if isinstance(value, Tensor) and dim is not None else value
        for _, value, dim in rows
    ]
    batched = {p.name for p, _, dim in rows if dim is not None and isinstance(p, TensorSpec)}
    with lock:
        made = operator_of(batch_formula(definition, batched), type(kind))
    results = made.overload(*moved, **call.keywords)
    if isinstance(results, Tensor):
        return results, 0
    return results, tuple(None if result is None else 0 for result in results)


def batch_formula(definition: Definition, batched: set[str]) -> Formula:
    """Return an operator's formula with the dimension of `vmap`."""
    dimension = DIMENSION + "_" * count_nesting(definition.line)
    assert definition.formula
    return add_dimension(definition.formula, batched, dimension)


def count_nesting(line: Line) -> int:
    """Return how many dimensions of this kind a line has already: `vmap` of `vmap`."""
    return sum(name.startswith(DIMENSION) for name in line.dimensions)
