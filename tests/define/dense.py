"""Index notation for tests: an evaluator that gives every index a dimension."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.define import parse as lines
from pullback.define.math import extents, node, notation
from pullback.define.math.functions import TABLE
from pullback.define.math.index import Affine, at, is_size
from pullback.define.math.node import Node
from pullback.define.math.ranges import Ranges

Axes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Indexed:
    """A formula: its tensors with their indices, the output's indices, and its element."""

    name: str
    dims: dict[str, tuple[str, ...]]
    whole: set[str]
    output: str
    indices: tuple[str, ...]
    ranges: Ranges
    node: Node

    @property
    def real(self) -> list[str]:
        """The tensors that something is derived by."""
        return [name for name in self.dims if name not in self.whole]

    def read(self, name: str, dims: tuple[str, ...]) -> Node:
        """Return the element of another tensor."""
        return node.read(name, map(at, dims))


def parse(text: str) -> Indexed:
    """Return a formula of one output, `name(x[i], k[j]: int64) -> y[i] = expression`."""
    line = lines.parse(f"test::{text}")
    formula = notation.parse(line)
    return Indexed(
        name=line.name,
        dims={tensor.name: tensor.labels for tensor in line.tensors},
        whole={tensor.name for tensor in line.tensors if tensor.dtype},
        output=line.outputs[0].name,
        indices=line.outputs[0].labels,
        ranges=Ranges(formula.sizes),
        node=formula.nodes[0],
    )


class Dense:
    """Evaluates nodes; a value has a dimension for each index, of size 1 where it is the same."""

    def __init__(
        self, tensors: Mapping[str, Tensor], sizes: Mapping[str, int], ranges: Ranges | None = None
    ) -> None:
        self.tensors = tensors
        self.sizes = sizes
        self.ranges = ranges or Ranges()
        self.known: dict[tuple[Node, Axes], Tensor] = {}

    def __call__(self, root: Node, indices: tuple[str, ...]) -> Tensor:
        """Return an expression for all values of some indices."""
        axes = tuple((index, self.extent(self.ranges.size(index))) for index in indices)
        return self.of(root, axes).broadcast_to([extent for _, extent in axes])

    def extent(self, size: Affine) -> int:
        """Return a size as a number."""
        found = extents.evaluate_size(size, self.sizes)
        assert found is not None
        return found

    def of(self, part: Node, axes: Axes) -> Tensor:
        """Return a node's value over some axes."""
        key = (part, axes)
        if key not in self.known:
            value = self.computed(part, axes)
            self.known[key] = value.reshape((1,) * (len(axes) - value.dim()) + tuple(value.shape))
        return self.known[key]

    def computed(self, part: Node, axes: Axes) -> Tensor:  # noqa: PLR0911, PLR0912  (one for each kind)
        """Return a node's value from those of its operands."""
        match part.op:
            case "number":
                dtype = {"real": torch.float64, "int": torch.int64, "bool": torch.bool}[part.type]
                return torch.tensor(part.data, dtype=dtype)
            case "read":
                return self.read(part, axes)
            case "scalar":
                return self.tensors[part.name]
            case "index":
                return self.place(part.places[0], axes)
            case "inside":
                place = self.place(part.places[0], axes)
                return (place >= 0) & (place < self.extent(part.size))
            case "equal":
                return self.place(part.places[0], axes) == 0
            case "sum" | "max" | "argmax":
                extent = self.extent(part.size)
                body = self.of(part.args[0], (*axes, (part.bound, extent)))
                body = body.expand(*body.shape[:-1], extent)
                if part.op == "max":
                    return body.amax(-1)
                return body.sum(-1) if part.op == "sum" else body.argmax(-1)
            case "powi":
                return self.of(part.args[0], axes) ** int(str(part.data))
            case "real":
                return self.of(part.args[0], axes).double()
            case "whole":
                return self.of(part.args[0], axes).long()
            case "softplus":  # PyTorch's own is x beyond 20
                x = self.of(part.args[0], axes)
                return torch.logaddexp(x, torch.zeros_like(x))
            case _:
                path = TABLE[part.op].torch.split(".")
                function: Callable[..., Tensor] = functools.reduce(getattr, path, torch)  # pyright: ignore
                return function(*(self.of(arg, axes) for arg in part.args))

    def place(self, place: Affine, axes: Axes) -> Tensor:
        """Return the values of an affine index."""
        total = torch.tensor(place.constant)
        for term, factor in place.terms:
            if isinstance(term, Node):
                total = total + factor * self.of(term, axes)
            elif is_size(term):
                total = total + factor * self.sizes[term.strip("|")]
            else:
                own = [name for name, _ in axes].index(term)
                steps = torch.arange(axes[own][1])
                total = total + factor * steps.reshape(-1, *[1] * (len(axes) - own - 1))
        return total

    def read(self, part: Node, axes: Axes) -> Tensor:
        """Return elements; what lies outside is not looked at where a guard is right."""
        tensor = self.tensors[part.name]
        if not part.places:
            return tensor
        if 0 in tensor.shape:  # all of it is outside
            tensor = torch.full([max(extent, 1) for extent in tensor.shape], torch.nan).to(tensor)
        places = [self.place(place, axes) for place in part.places]
        limits = zip(torch.broadcast_tensors(*places), tensor.shape, strict=True)
        outside = [(place < 0) | (place >= extent) for place, extent in limits]
        limits = zip(torch.broadcast_tensors(*places), tensor.shape, strict=True)
        value = tensor[tuple(place.clamp(0, extent - 1) for place, extent in limits)]
        # NaN where a kernel would read another tensor's memory: a missing guard is seen.
        wrong = functools.reduce(torch.logical_or, outside)
        return torch.where(wrong, torch.nan, value) if value.is_floating_point() else value
