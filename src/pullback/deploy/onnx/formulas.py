"""A formula -> the body of its node, in ONNX's operators.

A body serves all sizes. It names no dtype where constants can be cast like one of the tensors, so
that float32 and float64 share it. Narrower dtypes are computed in float32, as in the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from pullback.bind.dense import arrange
from pullback.define.line import Tensor
from pullback.define.math import absent, build
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, at
from pullback.define.math.node import NUMBER, READ, SCALAR, Node, in_order, number
from pullback.deploy.onnx import functions
from pullback.deploy.onnx.body import Body, BodyBuilder, Underivable
from pullback.deploy.onnx.call import NAMES, OnnxCall, attribute_type, sizes_of

INT64 = ir.DataType.INT64
TYPES = {"int": INT64, "bool": ir.DataType.BOOL}


def body_of(call: OnnxCall, formula: Formula) -> Body:
    """Return the body of a call of a formula's operator.

    Raises:
        Underivable: the formula uses something that has no translation here.
    """
    if unknown := call.dtypes - set(NAMES.values()):
        dtype = min(unknown, key=str)
        raise Underivable(f"formulas are of real numbers, and a tensor is {dtype}")
    for node in in_order(formula.elements):
        if node.op not in (NUMBER, READ, SCALAR) and not functions.has(node.op):
            raise Underivable(f"'{node.op}' has no translation to ONNX's operators here")
    builder = BodyBuilder()
    space = _Space(call, formula, builder)
    translator = Translator(builder, space.precision, space.leaf)
    nodes = absent.drop_absent(settle_orders(formula.elements, call), call.missing)
    results = [space.finished(k, node, translator.value(node)) for k, node in enumerate(nodes)]
    names = [output.name for output in call.line.outputs]
    return builder.body(list(space.inputs.values()), results, names, call.opset)


def settle_orders(nodes: Sequence[Node], call: OnnxCall) -> list[Node]:
    """Return nodes in which the order of each polygamma function is a number, as its text needs."""
    settled: dict[Node, Node] = {}
    for node in in_order(nodes):
        args = [settled[arg] for arg in node.args]
        if node.op == "polygamma":
            args[0] = number(whole_number(node.args[0], call))
        settled[node] = build.rebuild(node, tuple(args)) if args else node
    return [settled[node] for node in nodes]


def whole_number(node: Node, call: OnnxCall) -> int:
    """Return the value of a whole number that depends on scalars alone."""
    if node.op == SCALAR:
        return int(call.given[node.name])
    if node.op == NUMBER:
        return int(node.number)
    folded = [number(whole_number(arg, call)) for arg in node.args]
    return whole_number(build.rebuild(node, tuple(folded)), call)


class _Space:
    """What one call's formula is computed over, and how its tensors lie in it.

    Attributes:
        inputs: the body's, by name.
        present: the tensors that are given.
        batch: how many dimensions `...` has.
        shared: a tensor of the dtype that the line does not name.
        precision: what real numbers are computed in.
    """

    def __init__(self, call: OnnxCall, formula: Formula, builder: BodyBuilder) -> None:
        self.call = call
        self.formula = formula
        self.builder = builder
        self.inputs = {tensor.name: ir.Value(name=tensor.name) for tensor in formula.line.tensors}
        self.present = [t for t in formula.line.tensors if t.name not in call.missing]
        batches = [self.batch_of(tensor) for tensor in self.present if tensor.has_batch]
        self.batch = max(batches, default=0)
        own = [self.inputs[tensor.name] for tensor in self.present if tensor.dtype is None]
        self.shared = own[0] if own else None
        compute = ir.DataType.DOUBLE if call.in_double else ir.DataType.FLOAT
        like = self.shared if call.shared == compute else None
        self.precision = Precision(builder, compute, like)

    def batch_of(self, tensor: Tensor) -> int:
        """Return how many dimensions of a tensor `...` stands for."""
        value = self.call.given[tensor.name]
        assert isinstance(value, ir.Value)
        return len(sizes_of(value)) - len(arrange.core_indices(tensor))

    def leaf(self, node: Node) -> ir.Value:
        """Return a scalar, or a tensor's element everywhere in the space."""
        if node.op == SCALAR:
            return scalar(self.call, node, self.builder, self.precision)
        tensor = next(tensor for tensor in self.present if tensor.name == node.name)
        if node.indices != tuple(map(at, tensor.labels)):
            raise Underivable(f"the formula reads '{tensor.name}' at indices of their own")
        value = self.view(tensor)
        if node.type == "real":
            return (
                value
                if tensor.dtype is None and self.precision.like
                else self.precision.cast(value, self.call.dtype_of(tensor))
            )
        wide = node.type == "bool" or tensor.dtype == "int64"
        return value if wide else self.builder.op("Cast", value, to=INT64)

    def view(self, tensor: Tensor) -> ir.Value:
        """Return a tensor with its dimensions lined up with those of the space.

        Places count from the right, so that it does not matter how many dimensions `...` stands
        for, if it comes first.
        """
        value, space = self.inputs[tensor.name], self.formula.space
        own, whole = self.places(tensor), self.places(space)
        order = [own.index(label) for label in whole if label in own]
        if order != sorted(order):
            own, whole = self.spread(tensor), self.spread(space)
            order = [own.index(label) for label in whole if label in own]
            value = self.builder.op("Transpose", value, perm=order)
        first = min((whole.index(label) for label in own), default=len(whole))
        gaps = [k - len(whole) for k in range(first, len(whole)) if whole[k] not in own]
        return self.builder.op("Unsqueeze", value, self.numbers(gaps)) if gaps else value

    def places(self, tensor: Tensor) -> list[str]:
        """Return a tensor's dimensions, `...` as one of them where it can be."""
        between = (self.formula.space, *self.present)
        if any(BATCH in other.labels[1:] for other in between):
            return self.spread(tensor)
        return list(tensor.labels)

    def spread(self, tensor: Tensor) -> list[str]:
        """Return a tensor's dimensions, each of `...` by itself; they line up from the right."""
        missing = self.batch - self.batch_of(tensor) if tensor in self.present else 0
        return arrange.spread_axes(tensor.labels, self.batch, missing)

    def numbers(self, values: Sequence[int]) -> ir.Value:
        """Return whole numbers as a constant."""
        return self.builder.constant(list(values), INT64)

    def finished(self, k: int, node: Node, value: ir.Value) -> ir.Value:
        """Return a value over the space as output `k`: summed, with its dimensions in order."""
        output = self.formula.line.outputs[k]
        real = output.dtype is None or "float" in output.dtype
        value = self.expanded(node, value)
        if self.formula.sums[k]:
            value = self.summed(value, self.formula.sums[k])
        value = self.ordered(value, output)
        return self.cast(value, output, real=real)

    def expanded(self, node: Node, value: ir.Value) -> ir.Value:
        """Return a value in the sizes of the space, even if it reads only some of the tensors."""
        read = {leaf.name for leaf in in_order([node]) if leaf.op == READ}
        others = [tensor for tensor in self.present if tensor.name not in read]
        covered = {label for t in self.present if t.name in read for label in t.labels}
        for tensor in others:
            whole = self.formula.space.labels
            own = [label for label in tensor.labels if label in whole]
            batch = BATCH in own and self.batch_of(tensor) > 0
            if batch or not {*own} - {BATCH} <= covered:
                value = self.builder.op("Expand", value, self.shape_of(tensor))
                covered |= {*own}
        return value

    def shape_of(self, tensor: Tensor) -> ir.Value:
        """Return a tensor's sizes in the space, 1 where it has no dimension."""
        own, whole = self.spread(tensor), self.spread(self.formula.space)
        sizes = self.builder.op("Shape", self.inputs[tensor.name])
        if own == whole[len(whole) - len(own) :]:
            return sizes
        with_one = self.builder.op("Concat", sizes, self.numbers([1]), axis=0)
        picked = [own.index(label) if label in own else len(own) for label in whole]
        return self.builder.op("Gather", with_one, self.numbers(picked))

    def summed(self, value: ir.Value, over: Sequence[str]) -> ir.Value:
        """Return the sum over some indices."""
        space = self.formula.space
        whole = self.spread(space) if BATCH in over else self.places(space)
        gone = arrange.spread_axes(over, self.batch) if BATCH in over else list(over)
        axes = [whole.index(label) - len(whole) for label in gone]
        if not axes:
            return value
        return self.builder.op("ReduceSum", value, self.numbers(axes), keepdims=0)

    def ordered(self, value: ir.Value, output: Tensor) -> ir.Value:
        """Return a value with the dimensions that are left in the output's order."""
        own, whole = output.labels, self.formula.space.labels
        if [label for label in whole if label in own] == list(own):
            return value
        spread = self.spread(output)
        left = [label for label in self.spread(self.formula.space) if label in spread]
        return self.builder.op("Transpose", value, perm=[left.index(label) for label in spread])

    def cast(self, value: ir.Value, output: Tensor, *, real: bool) -> ir.Value:
        """Return a value in an output's dtype."""
        if output.dtype is None and self.precision.like is None:
            if self.shared is not None:
                return self.builder.op("CastLike", value, self.shared)
            return self.builder.op("Cast", value, to=self.call.shared)
        if output.dtype in (None, "bool", "int64") or (
            real and self.precision.like is None and NAMES[output.dtype] == self.precision.dtype
        ):
            return value
        return self.builder.op("Cast", value, to=NAMES[output.dtype])


def scalar(call: OnnxCall, node: Node, builder: BodyBuilder, precision: Precision) -> ir.Value:
    """Return a scalar inside a formula's body: the value of the node's attribute."""
    declared = next(s for s in call.line.scalars if s.name == node.name)
    type = attribute_type(call, declared, call.given[node.name])
    value = builder.attribute(node.name, type)
    if node.type == "bool":
        return builder.op("Cast", value, to=ir.DataType.BOOL)
    if node.type == "int":
        return value
    stored = ir.DataType.FLOAT if type == ir.AttributeType.FLOAT else ir.DataType.DOUBLE
    return precision.cast(value, stored)


@dataclass(frozen=True)
class Precision:
    """What real numbers are computed in.

    Attributes:
        builder: what nodes are added to.
        dtype: float32 or float64.
        like: a tensor of that dtype; constants are cast like it, so that no dtype is named.
    """

    builder: BodyBuilder
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
        leaf: returns the value of a tensor or a scalar.
    """

    def __init__(
        self, builder: BodyBuilder, precision: Precision, leaf: Callable[[Node], ir.Value]
    ) -> None:
        self.builder = builder
        self.precision = precision
        self.leaf = leaf
        self.known: dict[Node, ir.Value] = {}
        self._double: Translator | None = None

    def value(self, root: Node) -> ir.Value:
        """Return the value of a node."""

        def operands(node: Node) -> tuple[Node, ...]:
            return () if node in self.known else node.args

        for node in in_order([root], operands):
            if node not in self.known:
                self.known[node] = self.one(node)
        return self.known[root]

    def one(self, node: Node) -> ir.Value:
        """Return the value of a node whose operands are known."""
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
            return self.value(functions.expand(node, double=self.precision.double))
        name, options = operator
        return self.builder.op(name, *(self.known[arg] for arg in node.args), **options)

    def number(self, node: Node) -> ir.Value:
        """Return a number in this precision; a whole number or a condition as it is."""
        if node.type == "real":
            return self.precision.number(node.number)
        return self.builder.constant(node.data, TYPES[node.type])

    def in_double(self, node: Node) -> ir.Value:
        """Return the value of a node, computed in float64."""
        if self._double is None:
            precision = Precision(self.builder, ir.DataType.DOUBLE, None)
            self._double = Translator(self.builder, precision, self.leaf)
        for arg in node.args:
            if arg.type == "real":
                wide = self.builder.op("Cast", self.known[arg], to=ir.DataType.DOUBLE)
                self._double.known.setdefault(arg, wide)
        return self.precision.cast(self._double.value(node), None)
