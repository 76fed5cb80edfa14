"""What a node computes, as a model-local function of ONNX: built node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

ANYWHERE = "pullback.body"  # the domain of a function whose node is not known yet


class Underivable(Exception):  # noqa: N818  (it becomes a notice, or a PullbackError)
    """A source from which no body can be derived; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Body:
    """A function whose name is given when it is attached to a model.

    Attributes:
        function: its inputs are the line's tensors, its attributes those that it refers to.
        calls: functions that it calls.
    """

    function: ir.Function
    calls: tuple[ir.Function, ...] = ()


class Builder:
    """Collects nodes; a constant that is asked for twice is one."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []
        self.attributes: dict[str, ir.Attr] = {}
        self._constants: dict[tuple[object, ...], ir.Value] = {}

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:  # noqa: ANN401
        """Add a node of a standard operator with one output, and return that."""
        made = ir.node(op_type, list(inputs), attributes)
        self.nodes.append(made)
        return made.outputs[0]

    def constant(self, value: object, dtype: ir.DataType) -> ir.Value:
        """Return a constant: a number, or a list of them."""
        key = (repr(value), dtype)
        if key not in self._constants:
            array = np.array(value, dtype=dtype.numpy())
            self._constants[key] = self.op("Constant", value=ir.tensor(array, dtype))
        return self._constants[key]

    def attribute(self, name: str, type: ir.AttributeType) -> ir.Value:
        """Return the value of one of the function's attributes."""
        if name not in self.attributes:
            self.attributes[name] = ir.Attr(name, type, None)
            field = VALUE_FIELDS[type]
            made = ir.Node("", "Constant", [], [ir.RefAttr(field, name, type)])
            self.nodes.append(made)
            self._constants["attribute", name] = made.outputs[0]
        return self._constants["attribute", name]

    def body(
        self,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        names: Sequence[str],
        opset: int,
        calls: Sequence[ir.Function] = (),
    ) -> Body:
        """Return the function of the nodes so far.

        Args:
            inputs: its formal inputs.
            outputs: what it returns; each gets a value of its own.
            names: of the outputs.
            opset: the version of the standard operators.
            calls: functions that the nodes call.
        """
        own: list[ir.Value] = []
        for output, name in zip(outputs, names, strict=True):
            fresh = output in inputs or output in own
            returned = self.op("Identity", output) if fresh else output
            returned.name = name
            own.append(returned)
        graph = ir.Graph(list(inputs), own, nodes=self.nodes)
        every = ir.traversal.RecursiveGraphIterator(graph)
        graph.opset_imports.update({node.domain: 1 for node in every if node.domain}, **{"": opset})
        function = ir.Function(ANYWHERE, "body", graph=graph, attributes=self.attributes.values())
        return Body(function=tidied(function), calls=tuple(calls))


# The fields of ONNX's Constant that a function's attribute can stand in for.
VALUE_FIELDS: Mapping[ir.AttributeType, str] = {
    ir.AttributeType.FLOAT: "value_float",
    ir.AttributeType.INT: "value_int",
    ir.AttributeType.STRING: "value_string",
    ir.AttributeType.FLOATS: "value_floats",
    ir.AttributeType.INTS: "value_ints",
    ir.AttributeType.TENSOR: "value",
}


def tidied(function: ir.Function) -> ir.Function:
    """Name the values in order, and drop what does not belong to what is computed.

    Two functions that compute the same then have the same text, whatever they were made from.
    """
    given = [*function.inputs, *function.outputs]
    taken = {value.name for value in given}
    count = 0
    for node in ir.traversal.RecursiveGraphIterator(function):
        node.name = node.doc_string = None
        node.metadata_props.clear()
        for value in node.outputs:
            value.type = value.shape = None
            value.metadata_props.clear()
            if value in given:
                continue
            while f"t{count}" in taken:
                count += 1
            value.name = f"t{count}"
            count += 1
    for value in given:
        value.type = value.shape = None
        value.metadata_props.clear()
    return function


def text_of(function: ir.Function) -> bytes:
    """Return what two functions that compute the same have in common."""
    proto = ir.serde.serialize_function(function)
    proto.domain = proto.name = proto.overload = ""
    return proto.SerializeToString(deterministic=True)
