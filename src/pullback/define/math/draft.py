"""A derivative as far as it is the same for all formulas: what arrives, and what is returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define import derivative
from pullback.define.line import Line, Scalar, Tensor
from pullback.define.math.formula import Formula, element
from pullback.define.math.node import Node

SUFFIXES = {"backward": "grad", "jvp": "tangent", "vmap": "vmap"}


@dataclass(frozen=True, kw_only=True)
class Draft:
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


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A derivative as an operator.

    Attributes:
        formula: its line and mathematics.
        arrives: for each of its first parameters, the place of the output or input of the original
            that the gradient or tangent is of.
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
    """Return the operator of the gradients, with no node for those that are zero.

    Args:
        original: what it is the derivative of.
        gradients: given what arrives, by the output's place, returns the gradient of each tensor;
            None if it is zero.
    """
    line = original.line
    names = Names(line)
    real = real_ones(line.outputs)
    grads = {
        place: Tensor(
            name=names.fresh(f"grad_{output.name}" if len(real) > 1 else "grad"),
            dims=output.dims,
            dtype=output.dtype,
        )
        for place, output in real.items()
    }
    wrt = real_ones(line.tensors)
    arriving = {place: element(grad, line.qualname) for place, grad in grads.items()}
    nodes = present(wrt, gradients(arriving, list(wrt.values())))
    outputs = tuple(
        replace(wrt[k], name=names.fresh(f"grad_{wrt[k].name}"), optional=False) for k in nodes
    )
    return Draft(original=original, kind="backward", arriving=grads, outputs=outputs, nodes=nodes)


def jvp(
    original: Formula,
    pushed: Callable[[Sequence[Node], Mapping[str, Node]], Sequence[Node | None]],
) -> Draft:
    """Return the operator of the tangents, with no node for those that are zero.

    Args:
        original: what it is the derivative of.
        pushed: given outputs and the tangents of tensors, by name, returns the outputs' tangents;
            None if one is zero.
    """
    line = original.line
    names = Names(line)
    tangents = {
        place: Tensor(
            name=names.fresh(f"tangent_{tensor.name}"), dims=tensor.dims, dtype=tensor.dtype
        )
        for place, tensor in real_ones(line.tensors).items()
    }
    given = {line.tensors[k].name: element(t, line.qualname) for k, t in tangents.items()}
    real = real_ones(line.outputs)
    nodes = present(real, pushed([original.elements[place] for place in real], given))
    outputs = tuple(replace(real[k], name=names.fresh(f"tangent_{real[k].name}")) for k in nodes)
    return Draft(original=original, kind="jvp", arriving=tangents, outputs=outputs, nodes=nodes)


def real_ones(tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """Return the tensors that have a derivative, by their place."""
    return {place: tensor for place, tensor in enumerate(tensors) if is_real(tensor)}


def present(places: Iterable[int], nodes: Sequence[Node | None]) -> dict[int, Node]:
    """Return the nodes that are not zero, by their place."""
    return {k: node for k, node in zip(places, nodes, strict=True) if node is not None}


def is_real(tensor: Tensor) -> bool:
    """Return whether a tensor of a formula has a derivative."""
    return derivative.has_derivative(tensor)


def plain(value: Tensor | Scalar) -> Tensor | Scalar:
    """Return a parameter as a derivative is given it: without a default, and no output's mark."""
    if isinstance(value, Scalar):
        return Scalar(name=value.name, type=value.type)
    return replace(value, detached=False)


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
