"""`backward={"x": "grad * -expm1(-beta * y)"}`: derivatives that an author writes as formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pullback.bind.formula import derive
from pullback.bind.formula.derive import KindOf
from pullback.bind.kinds.formula import Pointwise
from pullback.bind.kinds.indexed import Indexed as IndexedKind
from pullback.bind.program import Origin, Program, Reference
from pullback.define import derivative
from pullback.define.formula import draft, formula
from pullback.define.formula.call import FormulaType
from pullback.define.formula.formula import labels
from pullback.define.formula.node import READ, SCALAR, Node, in_order
from pullback.define.index import notation, statements, written
from pullback.define.line import Line, Tensor
from pullback.define.operator import Definition


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
    backward = kind == "backward"
    incoming = derivative.grad_names(line) if backward else derivative.tangent_names(line)
    of = line.outputs if backward else line.tensors
    arriving = [Tensor(name=n, dims=of[k].dims, dtype=of[k].dtype) for n, k in incoming.items()]
    words = written.words_of(line, kind, arriving)
    calls, results = list(rest.calls), list(rest.results)
    indexed: dict[int, tuple[Tensor, str, str]] = {}
    groups: dict[tuple[str, ...], list[Tensor]] = {}
    for place, target in enumerate(targets):
        text = texts.get(target.name)
        if text is None:
            continue
        if notation.is_index_notation(words.of(target, text)):
            indexed[place] = target, text, whose(line, kind, target)
        else:
            groups.setdefault(labels(target), []).append(target)

    def add(made: Definition, places: Iterable[int]) -> None:
        calls.append(derive.call_of(line, made, incoming, kind))
        for result, place in enumerate(places):
            results[place] = Reference(Origin.result, len(calls) - 1, result)

    if indexed:
        add(derive.operator_of(written.operator(words, indexed), IndexedKind).definition, indexed)
    for group in groups.values():
        made = operator_for(line, kind, {t: texts[t.name] for t in group}, arriving)
        add(made, map(targets.index, group))
    return Program(tuple(calls), tuple(results))


def whose(line: Line, kind: KindOf, target: Tensor) -> str:
    """Return what to call one derivative in messages."""
    word = "derivative" if kind == "backward" else "jvp"
    return f"the {word} of {line.qualname} for '{target.name}'"


def operator_for(
    line: Line, kind: KindOf, texts: Mapping[Tensor, str], arriving: Sequence[Tensor]
) -> Definition:
    """Return the registered operator of some formulas with the same dimensions.

    Args:
        line: whose derivative they are.
        kind: which one.
        texts: one for each input or output that they are the derivative of.
        arriving: the gradients or tangents.
    """
    # A parameter that is called as what arrives keeps its name.
    known = {value.name: value for value in (*arriving, *line.outputs, *line.parameters)}
    prefix = "grad" if kind == "backward" else "tangent"
    nodes: list[Node] = []
    elements = formula.names_of(filter(formula.is_usable, known.values()), line.qualname)
    for target, text in texts.items():
        of = whose(line, kind, target)
        (node,) = statements.nodes_of(text, elements, (f"{prefix}_{target.name}",), of)
        if node.type == "bool":
            cure = "write float(...) or where(..., grad, 0)"
            raise FormulaType.error(f"{of} is a condition", at=text, help=cure)
        nodes.append(node)
    used = {n.name for n in in_order(nodes) if n.op in (READ, SCALAR)}
    outputs = tuple(Tensor(name=f"{prefix}_{t.name}", dims=t.dims, dtype=t.dtype) for t in texts)
    parameters = tuple(draft.plain(value) for name, value in known.items() if name in used)
    made = Line(
        namespace=line.namespace,
        name=draft.name_of(line, kind),
        parameters=parameters,
        outputs=outputs,
    )
    return derive.operator_of(formula.of_nodes(made, nodes), Pointwise).definition
