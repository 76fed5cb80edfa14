"""The formulas made from a formula: its derivatives, with what they save, and its batched form."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from pullback.define.dimension import Name
from pullback.define.line import Line, Tensor
from pullback.define.math import adjoint, build, differentiate, draft, recall, reverse
from pullback.define.math.draft import (
    WORDS,
    Derived,
    Draft,
    choose_operands,
    full_tensors,
    is_real,
    name_of,
)
from pullback.define.math.formula import Formula, element
from pullback.define.math.functions import TABLE
from pullback.define.math.index import Affine, at
from pullback.define.math.node import NUMBER, READ, SCALAR, Node, in_order, place_of, read, remake

# Stands for a formula's text until its line exists, which is needed to write the text.
UNWRITTEN = "..."
# At most this many outputs are tried in every combination: 2**n derivatives are compared.
MOST_TRIED = 4
# What saving a tensor counts that lacks a dimension of the space, beside 1 for one with all.
SMALL = 0.01
# Formulas whose gradients are remembered.
MOST_KNOWN = 64
# Multiplications that one tensor less to save is worth. A function such as exp costs more.
KEPT = 8

# A derivative that reads some results of the original: nodes, and the reads that stand for them.
Drafted = Callable[[Mapping[Node, Node]], Draft]


# The gradients of a definition are compared, and then registered, or cut for what is kept.
@functools.lru_cache(maxsize=MOST_KNOWN)
def backward(formula: Formula) -> Derived | None:
    """Return the operator of the gradients; None if every gradient is zero."""
    if formula.groups:
        return make_operator(adjoint.backward(formula))

    return _cheapest(formula, lambda results: _draft_gradients(formula, results, {}))


def backward_reading(
    formula: Formula,
    elements: Sequence[Node],
    kept: Mapping[str, Node],
    places: Mapping[Node, Tensor],
) -> Derived | None:
    """Return the operator of the gradients that read what the formula keeps; None if all are zero.

    Args:
        formula: in index notation; its last outputs, without a derivative, are what it keeps.
        elements: its other outputs, which read these.
        kept: the elements of what it keeps, by name; each may read those before it.
        places: the places of maxima that it keeps too.
    """
    cut = replace(formula, elements=(*elements, *kept.values(), *places))
    results = recall.results_of(cut)
    drafted = _recalled(_draft_gradients(cut, results, kept), results)
    of_places = {node: element(own, formula.line.qualname) for node, own in places.items()}
    return make_operator(_recalled(drafted, of_places))


def backward_recalling(
    formula: Formula, saved: Collection[str], kept: Mapping[Node, Tensor]
) -> Derived | None:
    """Return the operator of the gradients that read some outputs back; None if all are zero.

    Args:
        formula: in index notation.
        saved: the names of outputs with a derivative that may be read.
        kept: those without one, each by its element.
    """
    every = recall.results_of(formula)
    results = {node: own for node, own in every.items() if own.name in saved}
    drafted = _recalled(_draft_gradients(formula, results, {}), results)
    of_kept = {node: element(own, formula.line.qualname) for node, own in kept.items()}
    return make_operator(_recalled(drafted, of_kept))


def _draft_gradients(
    formula: Formula, results: Mapping[Node, Node], kept: Mapping[str, Node]
) -> Draft:
    def gradients(grads: Mapping[int, Node], wrt: Sequence[Tensor]) -> list[Node | None]:
        if formula.pointwise:
            arriving = [(formula.elements[k], grad) for k, grad in grads.items()]
            return differentiate.vjp(arriving, [tensor.name for tensor in wrt])
        outputs = [
            (formula.line.outputs[k].labels, formula.nodes[k], grad) for k, grad in grads.items()
        ]
        indices = {tensor.name: tensor.labels for tensor in wrt}
        defined = {
            element(output, formula.line.qualname): kept[output.name]
            for output in formula.line.outputs
            if output.name in kept
        }
        return reverse.gradients(outputs, indices, formula.ranges, results, defined)

    return draft.backward(formula, gradients)


def _recalled(drafted: Draft, results: Mapping[Node, Node]) -> Draft:
    """Return a derivative that reads results where it has them as they are."""
    nodes = tuple(drafted.nodes.values())
    found = recall.recall_results(nodes, results, drafted.original.ranges)
    return replace(drafted, nodes=dict(zip(drafted.nodes, found, strict=True)))


def jvp(formula: Formula) -> Derived | None:
    """Return the operator of the tangents; None if every tangent is zero."""
    if formula.groups:
        return make_operator(adjoint.jvp(formula))

    def drafted(results: Mapping[Node, Node]) -> Draft:
        return draft.jvp(
            formula,
            lambda outputs, given: differentiate.jvp(outputs, given, formula.ranges, results),
        )

    return _cheapest(formula, drafted)


def make_operator(drafted: Draft) -> Derived | None:
    """Return a draft as an operator, which takes what it reads and what tells the sizes."""
    if not drafted.nodes:
        return None
    original = drafted.original
    made = Line(
        namespace=original.line.namespace,
        name=name_of(original.line, drafted.kind),
        parameters=choose_operands(drafted),
        outputs=drafted.outputs,
        formula=UNWRITTEN,
        stands_for=f"the {WORDS[drafted.kind]} of {original.line.called}",
    )
    own = {name for tensor in (*made.tensors, *made.outputs) for name in tensor.labels}
    own |= {index for state in drafted.states for index in state.indices}
    return Derived(
        formula=Formula(
            line=made,
            elements=tuple(drafted.nodes.values()),
            sizes={index: size for index, size in original.sizes.items() if index in own},
            groups=drafted.groups,
            dims=original.dims,
            accuracy=original.accuracy,
            full=full_tensors(drafted, made.tensors),
        ),
        arrives=tuple(drafted.arriving),
        gives=tuple(drafted.nodes),
    )


def _cheapest(formula: Formula, drafted: Drafted) -> Derived | None:
    """Return the cheaper derivative: reading outputs of the original back, or computing again."""
    if formula.pointwise:
        return make_operator(_cheapest_choice(drafted({})))
    results = recall.results_of(formula)
    reading = make_operator(_recalled(drafted(results), results))
    if reading is None or not {read.name for read in results.values()} & {*reading.saved}:
        return reading
    computing = make_operator(drafted({}))
    if computing is None:
        # It shows that it is zero only without the outputs: x/x has y/x - y/x, and 1/x - x/x/x.
        return None
    sizes = recall.usual_sizes(formula)
    return min(computing, reading, key=lambda made: recall.usual_cost(made.formula, sizes))


# --- of a pointwise formula: every choice of outputs is tried


def _cheapest_choice(drafted: Draft) -> Draft:
    """Return the derivative that reads those outputs of the original that make it cheapest.

    An output is a node of the graph like others: wherever the derivative has that node, it can be
    read back instead of computed again from the inputs.
    """
    formula = drafted.original
    outputs = zip(formula.line.outputs, formula.elements, formula.sums, strict=True)
    usable = [
        place
        for place, (output, node, summed) in enumerate(outputs)
        if is_real(output) and not summed and node.args and not formula.line.returns_gradients
    ][:MOST_TRIED]
    candidates: list[Draft] = []
    for count in range(len(usable) + 1):
        for chosen in itertools.combinations(usable, count):
            nodes = replace_nodes(list(drafted.nodes.values()), read_outputs(formula, chosen))
            candidates.append(replace(drafted, nodes=dict(zip(drafted.nodes, nodes, strict=True))))
    return min(candidates, key=_cost)


def read_outputs(formula: Formula, chosen: Iterable[int]) -> dict[Node, Node]:
    """Return the nodes of some outputs, and the reads that stand for them.

    An output also stands for what the table can tell from it (`FunctionRow.told`).
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
            told = build.evaluate(of_result, {"result": output})
            found[build.evaluate(of_parameters, names)] = told
    return found


def replace_nodes(nodes: Sequence[Node], others: Mapping[Node, Node]) -> tuple[Node, ...]:
    """Return expressions with some nodes replaced."""
    rebuilt: dict[Node, Node] = dict(others)
    # The operands of a replaced node are not visited.
    for node in in_order(nodes, lambda node: () if node in others else node.args):
        if node not in rebuilt:
            args = tuple(rebuilt[arg] for arg in node.args)
            rebuilt[node] = node if args == node.args else build.rebuild(node, args)
    return tuple(rebuilt[node] for node in nodes)


def _cost(drafted: Draft) -> tuple[float, int]:
    """Return what a derivative costs: what it keeps alive, and how much it computes.

    Forward mode keeps nothing: inputs and outputs are at hand.
    """
    original = drafted.original
    whole = set(original.space.labels)
    names = {value.name for value in (*original.line.tensors, *original.line.outputs)}
    saved = [operand for operand in choose_operands(drafted) if operand.name in names]
    tensors = [operand for operand in saved if isinstance(operand, Tensor)]
    kept = sum(1.0 if set(tensor.labels) >= whole else SMALL for tensor in tensors)
    computed = sum(estimate_work(node) for node in in_order(drafted.nodes.values()))
    return (KEPT * kept + computed if drafted.kind == "backward" else 0.0, computed)


def estimate_work(node: Node) -> int:
    """Return about how many multiplications a node costs."""
    if node.op in (NUMBER, READ, SCALAR):
        return 0
    return TABLE[node.op].work


# --- batched: the formula that `torch.vmap` calls


def add_dimension(formula: Formula, batched: Set[str], dimension: str) -> Formula:
    """Return a formula in which some tensors, and so all outputs, have one dimension more.

    Args:
        formula: the formula.
        batched: the tensors that have the dimension.
        dimension: its name, which comes first.
    """
    names = batched | formula.states.keys()
    return replace(
        formula,
        line=_add_dimension_to_line(formula.line, batched, dimension),
        elements=_add_index(formula.elements, names, dimension),
        groups=adjoint.add_dimension(
            formula.groups, lambda nodes: _add_index(nodes, names, dimension), dimension
        ),
        dims=(Name(name=dimension), *formula.space.dims) if formula.pointwise else None,
        full=formula.full & batched,
    )


def _add_dimension_to_line(line: Line, batched: Set[str], dimension: str) -> Line:
    """Return a line whose outputs and some of whose tensors have one dimension more, the first.

    These tensors are there, since `vmap` found the dimension in them: each tells its size.
    """

    def wider(tensor: Tensor) -> Tensor:
        return replace(tensor, dims=(Name(name=dimension), *tensor.dims), optional=False)

    return Line(
        namespace=line.namespace,
        name=name_of(line, "vmap"),
        parameters=tuple(
            wider(p) if isinstance(p, Tensor) and p.name in batched else p for p in line.parameters
        ),
        outputs=tuple(map(wider, line.outputs)),
        formula=UNWRITTEN,
        stands_for=line.called,
    )


def _add_index(nodes: Sequence[Node], names: Set[str], index: str) -> tuple[Node, ...]:
    """Return expressions in which some tensors are read with one index more, their first."""
    rebuilt: dict[Node, Node] = {}
    others: dict[str | Node, Affine] = {}
    for node in in_order(nodes):
        args = tuple(rebuilt[arg] for arg in node.args)
        rebuilt[node] = remake(node, args, lambda place: place.replaced(others))
        if node.op == READ and node.name in names:
            rebuilt[node] = read(node.name, (at(index), *rebuilt[node].places), node.type)
        if node.type == "int":
            others[node] = place_of(rebuilt[node])
    return tuple(rebuilt[node] for node in nodes)
