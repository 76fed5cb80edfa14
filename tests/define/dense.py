"""Index notation for tests: a small parser, and an evaluator that gives every index a dimension."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pullback.define.formula import build, node, reduce
from pullback.define.formula.functions import ALIASES, TABLE
from pullback.define.formula.index import BATCH, Affine, at, is_size, size
from pullback.define.formula.node import Node, Type, number
from pullback.define.formula.ranges import Ranges

OPERATORS: dict[type[ast.AST], str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"},
    **{ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq"},
}
Axes = tuple[tuple[str, int], ...]


@dataclass
class Indexed:
    """A formula: its tensors with their indices, the output's indices, and its element."""

    name: str
    dims: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    whole: set[str] = field(default_factory=set[str])
    output: str = ""
    indices: tuple[str, ...] = ()
    ranges: Ranges = field(default_factory=Ranges)
    node: Node = field(default_factory=lambda: number(0.0))

    @property
    def real(self) -> list[str]:
        """The tensors that something is derived by."""
        return [name for name in self.dims if name not in self.whole]

    def read(self, name: str, dims: tuple[str, ...]) -> Node:
        """Return the element of another tensor."""
        return node.read(name, map(at, dims))


def parse(text: str) -> Indexed:
    """Return a formula, `name(x[i], k[j]: int) -> y[i] = expression; i < size(n) - 1, ...`."""
    line, _, rest = text.partition("=")
    expression, _, limits = rest.partition(";")
    name, args, out = re.fullmatch(r"\s*(\w+)\((.*)\) -> (.*?)\s*", line).groups()  # pyright: ignore
    formula = Indexed(name)
    for tensor, inside, whole in re.findall(r"(\w+)(?:\[(.*?)\])?(: int)?(?:, |$)", args):
        formula.dims[tensor] = tuple(inside.split(", ")) if inside else ()
        formula.whole |= {tensor} if whole else set()
    formula.output, _, inside = out.rstrip("]").partition("[")
    formula.indices = tuple(inside.split(", ")) if inside else ()
    reader = Reader(formula)
    for limit in filter(None, limits.split(", ")):
        index, _, extent = limit.partition(" < ")
        formula.ranges.sizes[index.strip()] = reader.place(ast.parse(extent, mode="eval").body)
    tree = ast.parse(expression.strip().replace("...", "__"), mode="eval").body
    reader.infer(tree)
    formula.node = build.real(reader.node(tree))
    return formula


class Reader:
    """Reads one expression."""

    def __init__(self, formula: Indexed) -> None:
        self.formula = formula
        self.ranges = formula.ranges

    def infer(self, tree: ast.expr) -> None:
        """Take the range of an index that is nowhere declared from a plain read: `max[m](x[m])`."""
        declared = {*self.ranges.sizes, *(i for dims in self.formula.dims.values() for i in dims)}
        for part in ast.walk(tree):
            if isinstance(part, ast.Subscript) and (name := text_of(part.value)) not in (
                "sum",
                "max",
            ):
                for place, dim in zip(elements(part.slice), self.formula.dims[name], strict=True):
                    if isinstance(place, ast.Name) and place.id not in {*declared, "__"}:
                        self.ranges.sizes.setdefault(place.id, size(dim))

    def place(self, tree: ast.expr) -> Affine:
        """Return an affine index."""
        match tree:
            case ast.Name(id=name):
                return at(BATCH if name == "__" else name)
            case ast.Subscript():
                return node.place_of(self.node(tree))
            case ast.Call(args=[ast.Name(id=name)]):
                return size(name)
            case ast.Constant(value=int() as value):
                return Affine(value)
            case ast.BinOp(left=ast.Constant(value=int() as value), op=ast.Mult(), right=right):
                return self.place(right) * value
            case ast.BinOp(left=left, op=op, right=right):
                sign = 1 if isinstance(op, ast.Add) else -1
                return self.place(left) + self.place(right) * sign
            case _:
                raise NotImplementedError(ast.dump(tree))

    def node(self, tree: ast.expr) -> Node:  # noqa: PLR0911  (one for each kind of tree)
        """Return the node of a tree."""
        match tree:
            case ast.Constant(value=int() | float() as value):
                return number(value)
            case ast.Name(id=name) if name in self.formula.dims:
                return node.read(name, map(at, self.formula.dims[name]))
            case ast.Name(id=name):
                return node.index(at(name))
            case ast.Subscript(value=ast.Name(id=name)):
                return self.read(name, [self.place(place) for place in elements(tree.slice)])
            case ast.UnaryOp(operand=operand):
                return build.apply("neg", self.node(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return build.apply(OPERATORS[type(op)], self.node(left), self.node(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return build.apply(OPERATORS[type(op)], self.node(left), self.node(right))
            case ast.Call(func=ast.Name(id="size"), args=[ast.Name(id=name)]):
                return node.index(size(name))
            case ast.Call(func=ast.Name(id=name), args=args):
                return build.apply(ALIASES.get(name, name), *map(self.node, args))
            case ast.Call(func=ast.Subscript(value=ast.Name(id=name), slice=bound), args=[body]):
                over = reduce.sum_over if name == "sum" else reduce.max_over
                value = self.node(body)
                for index in reversed(elements(bound)):
                    value = over(text_of(index), value, self.ranges)
                return value
            case _:
                raise NotImplementedError(ast.dump(tree))

    def read(self, name: str, places: list[Affine]) -> Node:
        """Return a read, 0 outside of the tensor unless its indices are data."""
        type: Type = "int" if name in self.formula.whole else "real"
        if type == "int" or any(place.nodes for place in places):
            return node.read(name, places, type)
        return reduce.padded(name, places, map(size, self.formula.dims[name]), self.ranges)


def elements(tree: ast.expr) -> list[ast.expr]:
    return list(tree.elts) if isinstance(tree, ast.Tuple) else [tree]


def text_of(tree: ast.expr) -> str:
    assert isinstance(tree, ast.Name)
    return tree.id


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
        terms = ((str(term).strip("|"), factor) for term, factor in size.terms)
        return size.constant + sum(self.sizes[term] * factor for term, factor in terms)

    def of(self, part: Node, axes: Axes) -> Tensor:
        """Return a node's value over some axes."""
        key = (part, axes)
        if key not in self.known:
            value = self.computed(part, axes)
            self.known[key] = value.reshape((1,) * (len(axes) - value.dim()) + tuple(value.shape))
        return self.known[key]

    def computed(self, part: Node, axes: Axes) -> Tensor:  # noqa: PLR0911  (one for each kind)
        """Return a node's value from those of its operands."""
        match part.op:
            case "number":
                dtype = {"real": torch.float64, "int": torch.int64, "bool": torch.bool}[part.type]
                return torch.tensor(part.data, dtype=dtype)
            case "read":
                return self.read(part, axes)
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
        places = [self.place(place, axes) for place in part.places]
        limits = zip(torch.broadcast_tensors(*places), tensor.shape, strict=True)
        outside = [(place < 0) | (place >= extent) for place, extent in limits]
        limits = zip(torch.broadcast_tensors(*places), tensor.shape, strict=True)
        value = tensor[tuple(place.clamp(0, extent - 1) for place, extent in limits)]
        # NaN where a kernel would read another tensor's memory: a missing guard is seen.
        wrong = functools.reduce(torch.logical_or, outside)
        return torch.where(wrong, torch.nan, value) if value.is_floating_point() else value
