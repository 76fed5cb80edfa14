"""The operators that derivatives are: their lines, their formulas, and what is saved for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pullback.define import derivative
from pullback.define.formula import build, differentiate
from pullback.define.formula.formula import Formula, element, labels
from pullback.define.formula.functions import TABLE
from pullback.define.formula.node import NUMBER, READ, SCALAR, Node, in_order
from pullback.define.index.indexed import Indexed
from pullback.define.line import Line, Scalar, Tensor

# More outputs than this are not tried in every combination: 2**n derivatives would be compared.
MOST_TRIED = 4
# A tensor that lacks a dimension of the space is small beside one that has them all.
SMALL = 0.01
SUFFIXES = {"backward": "grad", "jvp": "tangent", "vmap": "vmap"}


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A derivative of which it is not yet decided what it reads.

    Attributes:
        original: what it is the derivative of.
        kind: "backward" or "jvp".
        arriving: the gradients or tangents that are its first parameters, by their place.
        outputs: what it returns.
        nodes: one for each output, of the place that it is the derivative of.
    """

    original: Formula
    kind: str
    arriving: Mapping[int, Tensor]
    outputs: tuple[Tensor, ...]
    nodes: Mapping[int, Node]


# A formula is pointwise or in index notation, and so is its derivative.
Mathematics = TypeVar("Mathematics", Formula, Indexed)


@dataclass(frozen=True, kw_only=True)
class Derived(Generic[Mathematics]):
    """A derivative as an operator.

    Attributes:
        formula: its line and mathematics.
        arrives: for each of its first parameters, the place of the output or input of the original
            that the gradient or tangent is of.
        gives: for each of its outputs, the place of the input or output it is the derivative of.
    """

    formula: Mathematics
    arrives: tuple[int, ...]
    gives: tuple[int, ...]

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of the original's tensors and scalars that it needs."""
        return tuple(p.name for p in self.formula.line.parameters[len(self.arrives) :])


def backward(formula: Formula) -> Derived[Formula] | None:
    """Return the operator of the gradients; None if every gradient is zero."""
    line = formula.line
    names = Names(line)
    several = sum(map(is_real, line.outputs)) > 1
    grads = {
        place: Tensor(
            name=names.fresh(f"grad_{output.name}" if several else "grad"),
            dims=output.dims,
            dtype=output.dtype,
        )
        for place, output in enumerate(line.outputs)
        if is_real(output)
    }
    wrt = {place: tensor for place, tensor in enumerate(line.tensors) if is_real(tensor)}
    arriving = [(formula.nodes[k], element(grad, line.qualname)) for k, grad in grads.items()]
    gradients = differentiate.vjp(arriving, [tensor.name for tensor in wrt.values()])
    found = {k: node for k, node in zip(wrt, gradients, strict=True) if node is not None}
    outputs = [
        replace(wrt[k], name=names.fresh(f"grad_{wrt[k].name}"), optional=False) for k in found
    ]
    return _derived(
        _Draft(
            original=formula, kind="backward", arriving=grads, outputs=tuple(outputs), nodes=found
        )
    )


def jvp(formula: Formula) -> Derived[Formula] | None:
    """Return the operator of the tangents; None if every tangent is zero."""
    line = formula.line
    names = Names(line)
    wrt = {place: tensor for place, tensor in enumerate(line.tensors) if is_real(tensor)}
    tangents = {
        place: Tensor(
            name=names.fresh(f"tangent_{tensor.name}"),
            dims=tensor.dims,
            dtype=tensor.dtype,
        )
        for place, tensor in wrt.items()
    }
    real = {place: output for place, output in enumerate(line.outputs) if is_real(output)}
    given = {wrt[k].name: element(tangent, line.qualname) for k, tangent in tangents.items()}
    pushed = differentiate.jvp([formula.nodes[place] for place in real], given)
    found = {k: node for k, node in zip(real, pushed, strict=True) if node is not None}
    outputs = [replace(real[k], name=names.fresh(f"tangent_{real[k].name}")) for k in found]
    return _derived(
        _Draft(original=formula, kind="jvp", arriving=tangents, outputs=tuple(outputs), nodes=found)
    )


def _derived(draft: _Draft) -> Derived[Formula] | None:
    """Return a derivative as an operator; None if all of it is zero."""
    if not draft.nodes:
        return None
    return Derived(
        formula=_cheapest(draft), arrives=tuple(draft.arriving), gives=tuple(draft.nodes)
    )


def is_real(tensor: Tensor) -> bool:
    """Return whether a tensor of a formula has a derivative."""
    return derivative.is_floating(tensor.dtype)


def name_of(line: Line, kind: str) -> str:
    """Return the name of what is made of a formula: `_mul_grad`, `_mul_grad_tangent`.

    Other derivatives, which authors write, are called `_mul_backward` and `_mul_jvp`.
    """
    return f"_{line.name.removeprefix('_')}_{SUFFIXES[kind]}"


class Names:
    """Names that nothing in a line has: an output named as an input would be changed in place."""

    def __init__(self, line: Line) -> None:
        self.taken = {value.name for value in (*line.parameters, *line.outputs)}
        self.taken.update(line.dimensions)

    def fresh(self, name: str) -> str:
        """Return the name, or one like it."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _cheapest(draft: _Draft) -> Formula:
    """Return the derivative that reads those outputs of the original that make it cheapest.

    An output is a node of the graph like others: wherever the derivative has that node, it can be
    read back instead of computed again from the inputs.
    """
    formula = draft.original
    usable = [
        place
        for place, (output, summed) in enumerate(
            zip(formula.line.outputs, formula.sums, strict=True)
        )
        if is_real(output) and not summed and formula.nodes[place].args and not formula.masked
    ][:MOST_TRIED]
    candidates = [
        _formula(draft, replaced(list(draft.nodes.values()), leaves(formula, chosen)))
        for count in range(len(usable) + 1)
        for chosen in itertools.combinations(usable, count)
    ]
    return min(candidates, key=lambda candidate: _cost(candidate, draft))


def leaves(formula: Formula, chosen: Iterable[int]) -> dict[Node, Node]:
    """Return the nodes of some outputs, and the reads that stand for them.

    With an output is known what the table says can be told from it.
    """
    line = formula.line
    found: dict[Node, Node] = {}
    for place in chosen:
        node, output = formula.nodes[place], element(line.outputs[place], line.qualname)
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


def _formula(draft: _Draft, nodes: tuple[Node, ...]) -> Formula:
    """Return a derivative that computes some nodes: what they read are its parameters."""
    original, kind, arriving = draft.original, draft.kind, list(draft.arriving.values())
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
        outputs=draft.outputs,
    )
    return Formula(
        line=made,
        nodes=nodes,
        space=original.space,
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


def plain(value: Tensor | Scalar) -> Tensor | Scalar:
    """Return a parameter without its default: a derivative is given everything."""
    if isinstance(value, Scalar):
        return Scalar(name=value.name, type=value.type)
    return value


def _cost(candidate: Formula, draft: _Draft) -> tuple[float, int]:
    """Return how much a derivative keeps alive, then how much it computes.

    Forward mode keeps nothing: inputs and outputs are at hand.
    """
    whole = set(labels(draft.original.space))
    names = {value.name for value in (*draft.original.line.tensors, *draft.original.line.outputs)}
    saved = [tensor for tensor in candidate.line.tensors if tensor.name in names]
    kept = sum(1.0 if set(labels(tensor)) >= whole else SMALL for tensor in saved)
    computed = sum(work(node) for node in in_order(candidate.nodes))
    return (kept if draft.kind == "backward" else 0.0, computed)


def work(node: Node) -> int:
    """Return about how many multiplications a node costs."""
    if node.op in (NUMBER, READ, SCALAR):
        return 0
    return TABLE[node.op].work
