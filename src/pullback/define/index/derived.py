"""The derivatives of an operator in index notation as operators: their lines and formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.formula import differentiate, reverse
from pullback.define.formula.derived import Derived, Names, is_real, name_of, plain
from pullback.define.formula.formula import element, labels
from pullback.define.formula.index import BATCH
from pullback.define.formula.node import Node, names_read
from pullback.define.index.indexed import Indexed, dimensions_of, dimensions_used
from pullback.define.line import Line, Scalar, Tensor

# Stands for the text of a formula until its line is there to write it with.
UNWRITTEN = "..."


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A derivative of which it is not yet decided what it is given."""

    original: Indexed
    kind: str
    arriving: Mapping[int, Tensor]
    outputs: tuple[Tensor, ...]
    nodes: Mapping[int, Node]


def backward(indexed: Indexed) -> Derived[Indexed] | None:
    """Return the operator of the gradients; None if every gradient is zero."""
    line = indexed.line
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
    gradients = reverse.gradients(
        [
            (labels(line.outputs[k]), indexed.nodes[k], element(grad, line.qualname))
            for k, grad in grads.items()
        ],
        {tensor.name: labels(tensor) for tensor in wrt.values()},
        indexed.ranges,
    )
    found = {k: node for k, node in zip(wrt, gradients, strict=True) if node is not None}
    outputs = [
        replace(wrt[k], name=names.fresh(f"grad_{wrt[k].name}"), optional=False) for k in found
    ]
    return _derived(
        _Draft(
            original=indexed, kind="backward", arriving=grads, outputs=tuple(outputs), nodes=found
        )
    )


def jvp(indexed: Indexed) -> Derived[Indexed] | None:
    """Return the operator of the tangents; None if every tangent is zero."""
    line = indexed.line
    names = Names(line)
    wrt = {place: tensor for place, tensor in enumerate(line.tensors) if is_real(tensor)}
    tangents = {
        place: Tensor(
            name=names.fresh(f"tangent_{tensor.name}"), dims=tensor.dims, dtype=tensor.dtype
        )
        for place, tensor in wrt.items()
    }
    real = {place: output for place, output in enumerate(line.outputs) if is_real(output)}
    given = {wrt[k].name: element(tangent, line.qualname) for k, tangent in tangents.items()}
    pushed = differentiate.jvp([indexed.nodes[k] for k in real], given, indexed.ranges)
    found = {k: node for k, node in zip(real, pushed, strict=True) if node is not None}
    outputs = [replace(real[k], name=names.fresh(f"tangent_{real[k].name}")) for k in found]
    return _derived(
        _Draft(original=indexed, kind="jvp", arriving=tangents, outputs=tuple(outputs), nodes=found)
    )


def _derived(draft: _Draft) -> Derived[Indexed] | None:
    if not draft.nodes:
        return None
    original, line = draft.original, draft.original.line
    nodes = tuple(draft.nodes.values())
    read = set(names_read(nodes))
    saved = [plain(value) for value in (*line.parameters, *line.outputs) if value.name in read]
    arriving = list(draft.arriving.values())
    if len(arriving) > 1:
        # What does not arrive is None, and no zeros are made of it, if the sizes are known anyhow.
        saved += _carriers(draft, saved)
        known = _told(draft, saved) | set(original.sizes)
        arriving = [replace(t, optional=set(dimensions_of(t)) <= known) for t in arriving]
    saved += _carriers(draft, [*arriving, *saved])
    made = Line(
        namespace=line.namespace,
        name=name_of(line, draft.kind),
        parameters=(*arriving, *saved),
        outputs=draft.outputs,
        formula=UNWRITTEN,
    )
    own = {name for tensor in (*made.tensors, *made.outputs) for name in labels(tensor)}
    return Derived(
        formula=Indexed(
            line=made,
            nodes=nodes,
            sizes={index: size for index, size in original.sizes.items() if index in own},
            accuracy=original.accuracy,
            full=frozenset(t.name for t in made.tensors if _is_full(draft, t)),
        ),
        arrives=tuple(draft.arriving),
        gives=tuple(draft.nodes),
    )


def _carriers(draft: _Draft, given: Sequence[Tensor | Scalar]) -> list[Tensor]:
    """Return tensors of the original that tell the sizes that those given do not."""
    line = draft.original.line
    missing = _needed(draft) - _told(draft, given)
    found: list[Tensor] = []
    candidates = [*(line.outputs if draft.kind == "jvp" else ()), *line.tensors]
    while missing:
        best = max(candidates, key=lambda tensor: len(_told(draft, [tensor]) & missing))
        told = _told(draft, [best]) & missing
        if not told:
            break
        missing -= told
        found.append(best)
    return found


def _needed(draft: _Draft) -> set[str]:
    """Return the dimensions whose sizes a derivative computes with, or has to return."""
    sizes = draft.original.sizes
    outputs = {name for output in draft.outputs for name in dimensions_of(output)}
    new = [sizes[index] for index in outputs if index in sizes]
    return (outputs | dimensions_used(draft.nodes.values(), new)) - set(sizes)


def _told(draft: _Draft, tensors: Iterable[Tensor | Scalar]) -> set[str]:
    """Return the dimensions that some tensors tell; `...` only where certainly all of it."""
    given = [t for t in tensors if isinstance(t, Tensor) and not t.optional]
    names = {name for tensor in given for name in dimensions_of(tensor)} - {BATCH}
    return names | ({BATCH} if any(_is_full(draft, tensor) for tensor in given) else set())


def _is_full(draft: _Draft, tensor: Tensor) -> bool:
    """Return whether a tensor certainly has all batch dimensions of a call."""
    original = draft.original
    if not tensor.has_batch or tensor.optional:
        return False
    arriving = draft.arriving.values() if draft.kind == "backward" else ()
    sure = {t.name for t in (*original.line.outputs, *arriving)} | original.full
    alone = sum(t.has_batch for t in original.line.tensors) == 1
    return alone or tensor.name in sure
