"""A derivative as a draft: what arrives, what is returned, and what its operator is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define import derivative
from pullback.define.line import Line, Scalar, Tensor
from pullback.define.math.formula import Formula, element
from pullback.define.math.index import BATCH
from pullback.define.math.node import Node, names_read
from pullback.define.math.recurrence import Group, State
from pullback.define.math.sizes import dimensions_of, dimensions_used

SUFFIXES = {"backward": "grad", "jvp": "tangent", "vmap": "vmap"}
WORDS = {"backward": "gradient", "jvp": "tangent"}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A derivative whose operands are not decided yet.

    Attributes:
        original: what it is the derivative of.
        kind: "backward" or "jvp".
        arriving: its first parameters: gradients by the output's place, or tangents by the input's.
        outputs: what it returns.
        nodes: its outputs' nodes, by the place of the input or output each is the derivative of.
        groups: the states that these read.
    """

    original: Formula
    kind: str
    arriving: Mapping[int, Tensor]
    outputs: tuple[Tensor, ...]
    nodes: Mapping[int, Node]
    groups: tuple[Group, ...] = ()

    @property
    def states(self) -> list[State]:
        """The states of all groups."""
        return [state for group in self.groups for state in group.states]

    @property
    def computed(self) -> list[Node]:
        """All that is computed."""
        return [*(state.node for state in self.states), *self.nodes.values()]


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A derivative as an operator.

    Attributes:
        formula: its line and mathematics.
        arrives: for each of its first parameters, a gradient or tangent, the place of its output or
            input in the original.
        gives: for each of its outputs, the place of the input or output it is the derivative of.
    """

    formula: Formula
    arrives: tuple[int, ...]
    gives: tuple[int, ...]

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of the original's tensors and scalars that it needs."""
        return tuple(p.name for p in self.formula.line.parameters[len(self.arrives) :])


def backward(
    original: Formula,
    gradients: Callable[[Mapping[int, Node], Sequence[Tensor]], Sequence[Node | None]],
) -> Draft:
    """Return the draft of the gradients, without those that are zero.

    Args:
        original: what it is the derivative of.
        gradients: given what arrives, by the output's place, returns the gradient of each tensor;
            None if it is zero.
    """
    line = original.line
    names = FreeNames(line)
    real = real_tensors(line.outputs)
    grads = {
        place: Tensor(
            name=names.fresh(f"grad_{output.name}" if len(real) > 1 else "grad"),
            dims=output.dims,
            dtype=output.dtype,
        )
        for place, output in real.items()
    }
    wrt = real_tensors(line.tensors)
    arriving = {place: element(grad, line.qualname) for place, grad in grads.items()}
    nodes = nonzero_nodes(wrt, gradients(arriving, list(wrt.values())))
    outputs = tuple(
        replace(wrt[k], name=names.fresh(f"grad_{wrt[k].name}"), optional=False) for k in nodes
    )
    return Draft(original=original, kind="backward", arriving=grads, outputs=outputs, nodes=nodes)


def jvp(
    original: Formula,
    pushed: Callable[[Sequence[Node], Mapping[str, Node]], Sequence[Node | None]],
) -> Draft:
    """Return the draft of the tangents, without those that are zero.

    Args:
        original: what it is the derivative of.
        pushed: given outputs and the tangents of tensors, by name, returns the outputs' tangents;
            None if one is zero.
    """
    line = original.line
    names = FreeNames(line)
    tangents = {
        place: Tensor(
            name=names.fresh(f"tangent_{tensor.name}"), dims=tensor.dims, dtype=tensor.dtype
        )
        for place, tensor in real_tensors(line.tensors).items()
    }
    given = {line.tensors[k].name: element(t, line.qualname) for k, t in tangents.items()}
    real = real_tensors(line.outputs)
    nodes = nonzero_nodes(real, pushed([original.elements[place] for place in real], given))
    outputs = tuple(replace(real[k], name=names.fresh(f"tangent_{real[k].name}")) for k in nodes)
    return Draft(original=original, kind="jvp", arriving=tangents, outputs=outputs, nodes=nodes)


def real_tensors(tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """Return the tensors that have a derivative, by their place."""
    return {place: tensor for place, tensor in enumerate(tensors) if is_real(tensor)}


def nonzero_nodes(places: Iterable[int], nodes: Sequence[Node | None]) -> dict[int, Node]:
    """Return the nodes that are not zero, by their place."""
    return {k: node for k, node in zip(places, nodes, strict=True) if node is not None}


def is_real(tensor: Tensor) -> bool:
    """Return whether a tensor of a formula has a derivative."""
    return derivative.has_derivative(tensor)


def strip_default(value: Tensor | Scalar) -> Tensor | Scalar:
    """Return a parameter as a derivative has it: without a default, and without an output's `!`."""
    if isinstance(value, Scalar):
        return Scalar(name=value.name, type=value.type)
    return replace(value, detached=False)


def name_of(line: Line, kind: str) -> str:
    """Return the name of an operator made from a formula: `_mul_grad`, `_mul_grad_tangent`.

    Derivatives that authors write are called `_mul_backward` and `_mul_jvp`.
    """
    return f"_{line.name.removeprefix('_')}_{SUFFIXES[kind]}"


class FreeNames:
    """Names that are free in a line: an output named like an input would be changed in place."""

    def __init__(self, line: Line) -> None:
        self.taken = {value.name for value in (*line.parameters, *line.outputs)}
        self.taken.update(line.dimensions)

    def fresh(self, name: str) -> str:
        """Return the name, with `_` after it while it is taken."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


# --- the parameters of a derivative's operator

Operands = tuple[Tensor | Scalar, ...]


def choose_operands(drafted: Draft) -> Operands:
    """Return the parameters of a derivative: what it reads, and what its sizes follow from."""
    line = drafted.original.line
    read = set(names_read(drafted.computed)) - {state.name for state in drafted.states}
    # How far indices run has to be known, also where their dimension is one of what arrives.
    read |= {*drafted.original.counts}
    saved = [
        strip_default(value) for value in (*line.parameters, *line.outputs) if value.name in read
    ]
    return _in_space(drafted, saved) if drafted.original.pointwise else _of_sizes(drafted, saved)


def full_tensors(drafted: Draft, tensors: Iterable[Tensor]) -> frozenset[str]:
    """Return the tensors that certainly have the shape of the space, or all batch dimensions."""
    return frozenset(tensor.name for tensor in tensors if _is_full(drafted, tensor))


# --- of a pointwise formula: the shape of the space


def _in_space(drafted: Draft, saved: list[Tensor | Scalar]) -> Operands:
    """Return what arrives, what is saved, and what tells the shape of the space."""
    arriving = list(drafted.arriving.values())
    if len(arriving) > 1:
        if drafted.kind == "jvp":
            saved += [tensor for tensor in _carriers_of_space(drafted) if tensor not in saved]
        arriving = _optional_in_space(drafted, saved)
    saved += _carriers_of_sizes(drafted, [*arriving, *saved])
    return (*arriving, *saved)


def _carriers_of_space(drafted: Draft) -> list[Tensor]:
    """Return a tensor that certainly has the shape of the space; else all that have no tangent."""
    original = drafted.original
    if not original.line.returns_gradients and not original.sums[0]:
        return [original.line.outputs[0]]
    known = [t for t in original.line.tensors if t.name in original.full and not t.optional]
    return known[:1] or [tensor for tensor in original.line.tensors if not is_real(tensor)]


def _optional_in_space(drafted: Draft, saved: Sequence[Tensor | Scalar]) -> list[Tensor]:
    """Return what arrives, optional as far as the rest tells the shape of the space.

    What does not arrive is then None, and no zeros are made for it.
    """
    arriving, space = list(drafted.arriving.values()), {*drafted.original.space.labels}
    tensors = [value for value in saved if isinstance(value, Tensor) and not value.optional]
    if any(t.name in _certain_names(drafted) and {*t.labels} == space for t in tensors):
        return [replace(tensor, optional=True) for tensor in arriving]
    wide = [tensor for tensor in arriving if {*tensor.labels} == space]
    if drafted.kind == "jvp" or not wide:
        return arriving
    return [replace(tensor, optional=tensor is not wide[0]) for tensor in arriving]


# --- in index notation: the sizes of dimensions


def _of_sizes(drafted: Draft, saved: list[Tensor | Scalar]) -> Operands:
    """Return what arrives, what is saved, and what tells the remaining sizes."""
    arriving = list(drafted.arriving.values())
    if len(arriving) > 1:
        # If the other tensors tell the sizes, what does not arrive is None, and not zeros.
        saved += _carriers_of_sizes(drafted, saved)
        known = _dimensions_told(drafted, saved) | set(drafted.original.sizes)
        arriving = [replace(t, optional=set(dimensions_of(t)) <= known) for t in arriving]
    saved += _carriers_of_sizes(drafted, [*arriving, *saved])
    return (*arriving, *saved)


def _carriers_of_sizes(drafted: Draft, given: Sequence[Tensor | Scalar]) -> list[Tensor]:
    """Return tensors of the original that tell the sizes missing from those given.

    No gradients: a call may not have computed them.
    """
    line = drafted.original.line
    missing = _dimensions_needed(drafted) - _dimensions_told(drafted, given)
    found: list[Tensor] = []
    is_there = drafted.kind == "jvp" and not line.returns_gradients
    candidates = [*(line.outputs if is_there else ()), *line.tensors]
    while missing:
        best = max(
            candidates, key=lambda tensor: len(_dimensions_told(drafted, [tensor]) & missing)
        )
        told = _dimensions_told(drafted, [best]) & missing
        if not told:
            break
        missing -= told
        found.append(best)
    return found


def _dimensions_needed(drafted: Draft) -> set[str]:
    """Return the dimensions whose sizes a derivative computes with, or has to return."""
    sizes = drafted.original.sizes
    outputs = {name for output in drafted.outputs for name in dimensions_of(output)}
    new = [sizes[index] for index in outputs if index in sizes]
    new += [extent for state in drafted.states for extent in state.extents]
    told = {*sizes, *drafted.original.counts}
    return (outputs | dimensions_used(drafted.computed, new)) - told


def _dimensions_told(drafted: Draft, tensors: Iterable[Tensor | Scalar]) -> set[str]:
    """Return the dimensions whose sizes some tensors tell; `...` only if certainly all of it."""
    given = [t for t in tensors if isinstance(t, Tensor) and not t.optional]
    names = {name for tensor in given for name in dimensions_of(tensor)} - {BATCH}
    whole = any(_has_whole_batch(drafted, tensor) for tensor in given)
    return names | ({BATCH} if whole else set())


# --- of both


def _is_full(drafted: Draft, tensor: Tensor) -> bool:
    """Return whether a tensor certainly has the shape of the space, or all batch dimensions."""
    original = drafted.original
    if original.pointwise:
        return tensor.name in _certain_names(drafted) and {*tensor.labels} == {
            *original.space.labels
        }
    return _has_whole_batch(drafted, tensor)


def _has_whole_batch(drafted: Draft, tensor: Tensor) -> bool:
    """Return whether a tensor certainly has all batch dimensions of a call."""
    if not tensor.has_batch or tensor.optional:
        return False
    alone = sum(t.has_batch for t in drafted.original.line.tensors) == 1
    return alone or tensor.name in _certain_names(drafted)


def _certain_names(drafted: Draft) -> set[str]:
    """Return the tensors that are certainly as large as the outputs in the dimensions they have."""
    line, known = drafted.original.line, drafted.original.full
    arriving = {
        tensor.name
        for place, tensor in drafted.arriving.items()
        if drafted.kind == "backward" or line.tensors[place].name in known
    }
    return {*known, *arriving, *(output.name for output in line.outputs)}
