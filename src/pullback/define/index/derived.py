"""The derivatives of an operator in index notation as operators: their lines and formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pullback.define.formula import differentiate, draft, reverse
from pullback.define.formula.draft import Derived, Draft, name_of, plain
from pullback.define.formula.formula import Formula, labels
from pullback.define.formula.index import BATCH
from pullback.define.formula.node import Node, names_read
from pullback.define.formula.sizes import dimensions_of, dimensions_used
from pullback.define.index import recall
from pullback.define.line import Line, Scalar, Tensor

# Stands for the text of a formula until its line is there to write it with.
UNWRITTEN = "..."


def backward(indexed: Formula) -> Derived | None:
    """Return the operator of the gradients; None if every gradient is zero."""

    def drafted(results: Mapping[Node, Node]) -> Draft:
        def gradients(grads: Mapping[int, Node], wrt: Sequence[Tensor]) -> list[Node | None]:
            outputs = [
                (labels(indexed.line.outputs[k]), indexed.nodes[k], grad)
                for k, grad in grads.items()
            ]
            indices = {tensor.name: labels(tensor) for tensor in wrt}
            return reverse.gradients(outputs, indices, indexed.ranges, results)

        return draft.backward(indexed, gradients)

    return _cheapest(indexed, drafted)


def jvp(indexed: Formula) -> Derived | None:
    """Return the operator of the tangents; None if every tangent is zero."""

    def drafted(results: Mapping[Node, Node]) -> Draft:
        return draft.jvp(
            indexed,
            lambda outputs, given: differentiate.jvp(outputs, given, indexed.ranges, results),
        )

    return _cheapest(indexed, drafted)


def _cheapest(indexed: Formula, drafted: Callable[[Mapping[Node, Node]], Draft]) -> Derived | None:
    """Return the derivative that reads outputs of the original back, if it is cheaper so."""
    results = recall.results_of(indexed)
    told = drafted(results)
    nodes = recall.recalled(tuple(told.nodes.values()), results, indexed.ranges)
    reading = as_operator(replace(told, nodes=dict(zip(told.nodes, nodes, strict=True))))
    if reading is None or not {read.name for read in results.values()} & {*reading.saved}:
        return reading
    computing = as_operator(drafted({}))
    if computing is None:
        # Without the outputs it is seen to be zero: x/x has y/x - y/x, and 1/x - x/x/x.
        return None
    sizes = recall.usual_sizes(indexed)
    return min(computing, reading, key=lambda made: recall.usual_cost(made.formula, sizes))


def as_operator(drafted: Draft) -> Derived | None:
    """Return a draft as an operator of what it reads, and of what tells the sizes."""
    if not drafted.nodes:
        return None
    original, line = drafted.original, drafted.original.line
    nodes = tuple(drafted.nodes.values())
    read = set(names_read(nodes))
    saved = [plain(value) for value in (*line.parameters, *line.outputs) if value.name in read]
    arriving = list(drafted.arriving.values())
    if len(arriving) > 1:
        # What does not arrive is None, and no zeros are made of it, if the sizes are known anyhow.
        saved += _carriers(drafted, saved)
        known = _told(drafted, saved) | set(original.sizes)
        arriving = [replace(t, optional=set(dimensions_of(t)) <= known) for t in arriving]
    saved += _carriers(drafted, [*arriving, *saved])
    made = Line(
        namespace=line.namespace,
        name=name_of(line, drafted.kind),
        parameters=(*arriving, *saved),
        outputs=drafted.outputs,
        formula=UNWRITTEN,
    )
    own = {name for tensor in (*made.tensors, *made.outputs) for name in labels(tensor)}
    return Derived(
        formula=Formula(
            line=made,
            elements=nodes,
            sizes={index: size for index, size in original.sizes.items() if index in own},
            accuracy=original.accuracy,
            full=frozenset(t.name for t in made.tensors if _is_full(drafted, t)),
        ),
        arrives=tuple(drafted.arriving),
        gives=tuple(drafted.nodes),
    )


def _carriers(drafted: Draft, given: Sequence[Tensor | Scalar]) -> list[Tensor]:
    """Return tensors of the original that tell the sizes that those given do not."""
    line = drafted.original.line
    missing = _needed(drafted) - _told(drafted, given)
    found: list[Tensor] = []
    candidates = [*(line.outputs if drafted.kind == "jvp" else ()), *line.tensors]
    while missing:
        best = max(candidates, key=lambda tensor: len(_told(drafted, [tensor]) & missing))
        told = _told(drafted, [best]) & missing
        if not told:
            break
        missing -= told
        found.append(best)
    return found


def _needed(drafted: Draft) -> set[str]:
    """Return the dimensions whose sizes a derivative computes with, or has to return."""
    sizes = drafted.original.sizes
    outputs = {name for output in drafted.outputs for name in dimensions_of(output)}
    new = [sizes[index] for index in outputs if index in sizes]
    return (outputs | dimensions_used(drafted.nodes.values(), new)) - set(sizes)


def _told(drafted: Draft, tensors: Iterable[Tensor | Scalar]) -> set[str]:
    """Return the dimensions that some tensors tell; `...` only where certainly all of it."""
    given = [t for t in tensors if isinstance(t, Tensor) and not t.optional]
    names = {name for tensor in given for name in dimensions_of(tensor)} - {BATCH}
    return names | ({BATCH} if any(_is_full(drafted, tensor) for tensor in given) else set())


def _is_full(drafted: Draft, tensor: Tensor) -> bool:
    """Return whether a tensor certainly has all batch dimensions of a call."""
    original = drafted.original
    if not tensor.has_batch or tensor.optional:
        return False
    arriving = drafted.arriving.values() if drafted.kind == "backward" else ()
    sure = {t.name for t in (*original.line.outputs, *arriving)} | original.full
    alone = sum(t.has_batch for t in original.line.tensors) == 1
    return alone or tensor.name in sure
