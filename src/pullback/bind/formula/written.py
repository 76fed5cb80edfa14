"""`backward={"x": "grad * -expm1(-beta * y)"}`: derivatives that an author writes as formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pullback.bind.formula import derive
from pullback.bind.program import Kind, OperatorCall, Program, Source
from pullback.define import derivative
from pullback.define.formula import derived, formula, language
from pullback.define.formula.call import FormulaType
from pullback.define.formula.formula import labels
from pullback.define.formula.node import READ, SCALAR, Node, in_order
from pullback.define.line import Batch, Line, Name, Number, Scalar, Tensor
from pullback.define.operator import Definition

KindOf = Literal["backward", "jvp"]


def added(definition: Definition, kind: KindOf, texts: Mapping[str, str], rest: Program) -> Program:
    """Return a derivative's program with the formulas' operators added.

    Args:
        definition: whose derivative it is.
        kind: which one.
        texts: formulas by input (backward) or output (jvp).
        rest: the program of the other entries.
    """
    line = definition.line
    targets = line.tensors if kind == "backward" else line.outputs
    incoming = arriving(line, kind)
    calls, results = list(rest.calls), list(rest.results)
    groups: dict[tuple[str, ...], list[Tensor]] = {}
    for target in targets:
        if target.name in texts:
            groups.setdefault(labels(target), []).append(target)
    for group in groups.values():
        made = operator_for(
            definition, kind, {t.name: texts[t.name] for t in group}, group, incoming
        )
        calls.append(call_of(line, made, incoming, len(group)))
        for place, target in enumerate(group):
            results[targets.index(target)] = Source(Kind.result, len(calls) - 1, place)
    return Program(tuple(calls), tuple(results))


def arriving(line: Line, kind: KindOf) -> dict[str, tuple[Tensor, Source]]:
    """Return what arrives, by the names that a derivative may use, as tensors and their sources."""
    backward = kind == "backward"
    of = line.outputs if backward else line.tensors
    names = derivative.grad_names(line) if backward else derivative.tangent_names(line)
    source = Kind.grad if backward else Kind.tangent
    return {
        name: (Tensor(name=name, dims=of[k].dims, dtype=of[k].dtype), Source(source, k))
        for name, k in names.items()
    }


def operator_for(
    definition: Definition,
    kind: KindOf,
    texts: Mapping[str, str],
    group: list[Tensor],
    incoming: Mapping[str, tuple[Tensor, Source]],
) -> Definition:
    """Return the registered operator of some formulas with the same dimensions."""
    line = definition.line
    known: dict[str, Tensor | Scalar] = {name: tensor for name, (tensor, _) in incoming.items()}
    known |= {value.name: value for value in (*line.outputs, *line.parameters)}
    prefix = "grad" if kind == "backward" else "tangent"
    nodes: dict[str, Node] = {}
    elements = formula.names_of(filter(usable, known.values()), line.qualname)
    for name, text in texts.items():
        of = f"the {'derivative' if kind == 'backward' else 'jvp'} of {line.qualname} for '{name}'"
        nodes[name] = language.statements(text, elements, (f"{prefix}_{name}",), of)[0]
    for name, node in nodes.items():
        if node.type == "bool":
            raise FormulaType.error(
                f"the derivative of {line.qualname} for '{name}' is a condition",
                at=texts[name],
                help="write float(...) or where(..., grad, 0)",
            )
    used = {n.name for n in in_order(nodes.values()) if n.op in (READ, SCALAR)}
    outputs = tuple(Tensor(name=f"{prefix}_{t.name}", dims=t.dims, dtype=t.dtype) for t in group)
    parameters = tuple(_plain(value) for name, value in known.items() if name in used)
    made = Line(
        namespace=line.namespace,
        name=derived.name_of(line, kind),
        parameters=parameters,
        outputs=outputs,
    )
    return derive.operator_of(formula.of_nodes(made, list(nodes.values())))


def usable(value: Tensor | Scalar) -> bool:
    """Return whether a formula can use a parameter at all."""
    if isinstance(value, Scalar):
        return value.type in formula.SCALAR_TYPES and not value.optional
    plain = all(isinstance(dim, Batch | Name | Number) for dim in value.dims)
    return plain and not value.many and "complex" not in (value.dtype or "")


def _plain(value: Tensor | Scalar) -> Tensor | Scalar:
    return Scalar(name=value.name, type=value.type) if isinstance(value, Scalar) else value


def call_of(
    line: Line, made: Definition, incoming: Mapping[str, tuple[Tensor, Source]], results: int
) -> OperatorCall:
    """Return the call of a formula's operator, wired by name."""
    inputs = {p.name: Source(Kind.argument, k) for k, p in enumerate(line.parameters)}
    outputs = {o.name: Source(Kind.output, k) for k, o in enumerate(line.outputs)}
    sources = {name: source for name, (_, source) in incoming.items()} | outputs | inputs
    arguments = [sources[parameter.name] for parameter in made.line.parameters]
    if made.masked:
        arguments.append(Source(Kind.mask))
    return OperatorCall(made.line.qualname, "", tuple(arguments), results)
