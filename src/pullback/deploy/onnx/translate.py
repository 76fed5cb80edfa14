"""Nodes of a formula -> ONNX's operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from pullback.define.formula.node import NUMBER, READ, SCALAR, Node, in_order
from pullback.deploy.onnx import functions
from pullback.deploy.onnx.body import Builder

TYPES = {"int": ir.DataType.INT64, "bool": ir.DataType.BOOL}


@dataclass(frozen=True)
class Precision:
    """What real numbers are computed in.

    Attributes:
        builder: what nodes are added to.
        dtype: float32 or float64.
        like: a tensor of that dtype; constants are cast like it, and the dtype stands nowhere.
    """

    builder: Builder
    dtype: ir.DataType
    like: ir.Value | None

    @property
    def double(self) -> bool:
        """Whether it is float64."""
        return self.dtype == ir.DataType.DOUBLE

    def cast(self, value: ir.Value, dtype: ir.DataType | None) -> ir.Value:
        """Return a value of another dtype in this precision; None stands for any other dtype."""
        if self.like is not None:
            return self.builder.op("CastLike", value, self.like)
        return value if dtype == self.dtype else self.builder.op("Cast", value, to=self.dtype)

    def number(self, value: float) -> ir.Value:
        """Return a real number."""
        if self.like is None:
            return self.builder.constant(value, self.dtype)
        return self.cast(self.builder.constant(value, ir.DataType.DOUBLE), None)


class Translator:
    """Writes each node once.

    Args:
        builder: what is written to.
        precision: of real numbers.
        leaf: returns what a tensor or a scalar is.
    """

    def __init__(
        self, builder: Builder, precision: Precision, leaf: Callable[[Node], ir.Value]
    ) -> None:
        self.builder = builder
        self.precision = precision
        self.leaf = leaf
        self.known: dict[Node, ir.Value] = {}
        self._double: Translator | None = None

    def value(self, root: Node) -> ir.Value:
        """Return what a node is."""

        def operands(node: Node) -> tuple[Node, ...]:
            return () if node in self.known else node.args

        for node in in_order([root], operands):
            if node not in self.known:
                self.known[node] = self.one(node)
        return self.known[root]

    def one(self, node: Node) -> ir.Value:
        """Return what a node is whose operands are known."""
        if node.op == NUMBER:
            return self.number(node)
        if node.op in (READ, SCALAR) or not functions.has(node.op):
            return self.leaf(node)
        if node.op == "real":
            return self.precision.cast(self.known[node.args[0]], None)
        if node.op in functions.IN_DOUBLE and not self.precision.double:
            return self.in_double(node)
        operator = functions.operator_of(node, double=self.precision.double)
        if operator is None:
            return self.value(functions.expanded(node, double=self.precision.double))
        name, options = operator
        return self.builder.op(name, *(self.known[arg] for arg in node.args), **options)

    def number(self, node: Node) -> ir.Value:
        """Return a number, a whole one or a condition as it is."""
        if node.type == "real":
            return self.precision.number(node.number)
        return self.builder.constant(node.data, TYPES[node.type])

    def in_double(self, node: Node) -> ir.Value:
        """Return what a node is, computed in float64."""
        if self._double is None:
            precision = Precision(self.builder, ir.DataType.DOUBLE, None)
            self._double = Translator(self.builder, precision, self.leaf)
        for arg in node.args:
            if arg.type == "real":
                wide = self.builder.op("Cast", self.known[arg], to=ir.DataType.DOUBLE)
                self._double.known.setdefault(arg, wide)
        return self.precision.cast(self._double.value(node), None)
