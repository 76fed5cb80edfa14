"""The operators that derivatives are: their lines, their formulas, and what is saved for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pullback.define.formula import build, differentiate, draft
from pullback.define.formula.draft import Derived, Draft, is_real, name_of, plain
from pullback.define.formula.formula import Formula, element, labels
from pullback.define.formula.functions import TABLE
from pullback.define.formula.node import NUMBER, READ, SCALAR, Node, in_order
from pullback.define.line import Line, Scalar, Tensor

# More outputs than this are not tried in every combination: 2**n derivatives would be compared.
MOST_TRIED = 4
# A tensor that lacks a dimension of the space is small beside one that has them all.
SMALL = 0.01


def backward(formula: Formula) -> Derived | None:
    """Return the operator of the gradients; None if every gradient is zero."""

    def gradients(grads: Mapping[int, Node], wrt: Sequence[Tensor]) -> list[Node | None]:
        arriving = [(formula.elements[k], grad) for k, grad in grads.items()]
        return differentiate.vjp(arriving, [tensor.name for tensor in wrt])

    return _derived(draft.backward(formula, gradients))


def jvp(formula: Formula) -> Derived | None:
    """Return the operator of the tangents; None if every tangent is zero."""
    return _derived(draft.jvp(formula, differentiate.jvp))


def _derived(drafted: Draft) -> Derived | None:
    """Return a derivative as an operator; None if all of it is zero."""
    if not drafted.nodes:
        return None
    return Derived(
        formula=_cheapest(drafted), arrives=tuple(drafted.arriving), gives=tuple(drafted.nodes)
    )


def _cheapest(drafted: Draft) -> Formula:
    """Return the derivative that reads those outputs of the original that make it cheapest.

    An output is a node of the graph like others: wherever the derivative has that node, it can be
    read back instead of computed again from the inputs.
    """
    formula = drafted.original
    usable = [
        place
        for place, (output, summed) in enumerate(
            zip(formula.line.outputs, formula.sums, strict=True)
        )
        if is_real(output) and not summed and formula.elements[place].args and not formula.masked
    ][:MOST_TRIED]
    candidates = [
        _formula(drafted, replaced(list(drafted.nodes.values()), leaves(formula, chosen)))
        for count in range(len(usable) + 1)
        for chosen in itertools.combinations(usable, count)
    ]
    return min(candidates, key=lambda candidate: _cost(candidate, drafted))


def leaves(formula: Formula, chosen: Iterable[int]) -> dict[Node, Node]:
    """Return the nodes of some outputs, and the reads that stand for them.

    With an output is known what the table says can be told from it.
    """
    line = formula.line
    found: dict[Node, Node] = {}
    for place in chosen:
        node, output = formula.elements[place], element(line.outputs[place], line.qualname)
        found[node] = output
        function = TABLE.get(node.op)
        if function is not None and function.told:
            of_parameters, of_result = function.told
            names = dict(zip(function.parameters, node.args, strict=True))
            told = build.evaluated(of_result, {"result": output})
            found[build.evaluated(of_parameters, names)] = told
    return found


def replaced(nodes: Sequence[Node], others: Mapping[Node, Node]) -> tuple[Node, ...]:
    """Return expressions with some nodes replaced."""
    made: dict[Node, Node] = dict(others)
    # What is replaced is not looked into.
    for node in in_order(nodes, lambda node: () if node in others else node.args):
        if node not in made:
            args = tuple(made[arg] for arg in node.args)
            made[node] = node if args == node.args else build.rebuilt(node, args)
    return tuple(made[node] for node in nodes)


def _formula(drafted: Draft, nodes: tuple[Node, ...]) -> Formula:
    """Return a derivative that computes some nodes: what they read are its parameters."""
    original, kind, arriving = drafted.original, drafted.kind, list(drafted.arriving.values())
    line = original.line
    used = {node.name for node in in_order(nodes) if node.op in (READ, SCALAR)}
    saved = [plain(value) for value in (*line.parameters, *line.outputs) if value.name in used]
    shape = _carrier(original, kind)
    arrives = arriving
    if len(arriving) > 1:
        others = [shape] if shape else [t for t in line.tensors if not is_real(t)]
        saved += [tensor for tensor in others if tensor not in saved] if kind == "jvp" else []
        arrives = _as_optional(original, kind, arriving, saved)
    made = Line(
        namespace=line.namespace,
        name=name_of(line, kind),
        parameters=(*arrives, *saved),
        outputs=drafted.outputs,
    )
    return Formula(
        line=made,
        elements=nodes,
        dims=original.dims,
        accuracy=original.accuracy,
        full=_full(original, made, arriving if kind == "backward" else ()),
    )


def _carrier(original: Formula, kind: str) -> Tensor | None:
    """Return a tensor that is at hand and certainly has the shape of the space."""
    if kind == "jvp" and not original.masked and not original.sums[0]:
        return original.line.outputs[0]
    known = (t for t in original.line.tensors if t.name in original.full and not t.optional)
    return next(known, None)


def _full(original: Formula, made: Line, gradients: Sequence[Tensor]) -> frozenset[str]:
    """Return those parameters of a derivative that certainly have the shape of the space."""
    full = {*original.full, *(t.name for t in (*original.line.outputs, *gradients))}
    space = set(labels(original.space))
    return frozenset(t.name for t in made.tensors if t.name in full and set(labels(t)) == space)


def _as_optional(
    original: Formula, kind: str, arriving: Sequence[Tensor], saved: Sequence[Tensor | Scalar]
) -> list[Tensor]:
    """Return what arrives, optional as far as the shape of the space can be told from the rest.

    What does not arrive is then None, and no zeros are made of it.
    """
    space = set(labels(original.space))
    sure = {*original.full, *(t.name for t in original.line.outputs)}
    tensors = [value for value in saved if isinstance(value, Tensor)]
    if any(t.name in sure and not t.optional and set(labels(t)) == space for t in tensors):
        return [replace(tensor, optional=True) for tensor in arriving]
    wide = [tensor for tensor in arriving if set(labels(tensor)) == space]
    if kind == "jvp" or not wide:
        return list(arriving)
    return [replace(tensor, optional=tensor is not wide[0]) for tensor in arriving]


def _cost(candidate: Formula, drafted: Draft) -> tuple[float, int]:
    """Return how much a derivative keeps alive, then how much it computes.

    Forward mode keeps nothing: inputs and outputs are at hand.
    """
    original = drafted.original
    whole = set(labels(original.space))
    names = {value.name for value in (*original.line.tensors, *original.line.outputs)}
    saved = [tensor for tensor in candidate.line.tensors if tensor.name in names]
    kept = sum(1.0 if set(labels(tensor)) >= whole else SMALL for tensor in saved)
    computed = sum(work(node) for node in in_order(candidate.elements))
    return (kept if drafted.kind == "backward" else 0.0, computed)


def work(node: Node) -> int:
    """Return about how many multiplications a node costs."""
    if node.op in (NUMBER, READ, SCALAR):
        return 0
    return TABLE[node.op].work
