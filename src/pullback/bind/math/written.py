"""`backward={"x": "grad * -expm1(-beta * y)"}`: derivatives that an author writes as formulas."""

from __future__ import annotations

from collections.abc import Mapping

from pullback.bind.kinds.formula import Pointwise
from pullback.bind.kinds.indexed import Indexed
from pullback.bind.math import derive
from pullback.bind.math.derive import KindOf
from pullback.bind.program import Origin, Program, Reference
from pullback.define import derivative
from pullback.define.dimension import Dim
from pullback.define.line import Line, Tensor
from pullback.define.math import written
from pullback.define.math.formula import Formula
from pullback.define.operator import Definition


def add_operators(
    definition: Definition, kind: KindOf, texts: Mapping[str, str], rest: Program
) -> Program:
    """Return a derivative's program with the formulas' operators added.

    Args:
        definition: whose derivative it is.
        kind: which one.
        texts: formulas by input (backward) or output (jvp).
        rest: the program of the other entries.
    """
    line = definition.line
    backward = kind == "backward"
    targets = line.tensors if backward else line.outputs
    incoming = derivative.grad_names(line) if backward else derivative.tangent_names(line)
    of = line.outputs if backward else line.tensors
    arriving = [Tensor(name=n, dims=of[k].dims, dtype=of[k].dtype) for n, k in incoming.items()]
    words = written.words_of(line, kind, arriving)
    # One operator for each space of pointwise formulas, and one for those with indices.
    groups: dict[tuple[Dim, ...] | None, dict[int, Formula]] = {}
    for place, target in enumerate(targets):
        if target.name in texts:
            made = words.read(target, texts[target.name], name_derivative(line, kind, target))
            groups.setdefault(made.dims, {})[place] = made
    calls, results = list(rest.calls), list(rest.results)
    for group in groups.values():
        formula = written.operator(words, group)
        made = derive.operator_of(formula, Pointwise if formula.pointwise else Indexed)
        calls.append(derive.call_of(line, made.definition, incoming, kind))
        for result, place in enumerate(group):
            results[place] = Reference(Origin.result, len(calls) - 1, result)
    return Program(tuple(calls), tuple(results))


def name_derivative(line: Line, kind: KindOf, target: Tensor) -> str:
    """Return what to call one derivative in messages."""
    word = "derivative" if kind == "backward" else "jvp"
    return f"the {word} of {line.qualname} for '{target.name}'"
