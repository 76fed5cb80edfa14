"""What nodes compute, as model-local functions of ONNX: built node by node, each kept once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from pullback.bind.registry import operators

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


class BodyBuilder:
    """Collects nodes; a constant that is asked for twice is added once."""

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
        return Body(function=tidy(function), calls=tuple(calls))


# The fields of ONNX's Constant that a function's attribute can stand in for.
VALUE_FIELDS: Mapping[ir.AttributeType, str] = {
    ir.AttributeType.FLOAT: "value_float",
    ir.AttributeType.INT: "value_int",
    ir.AttributeType.STRING: "value_string",
    ir.AttributeType.FLOATS: "value_floats",
    ir.AttributeType.INTS: "value_ints",
    ir.AttributeType.TENSOR: "value",
}


def tidy(function: ir.Function) -> ir.Function:
    """Name the values in order, and drop all that does not affect what is computed.

    Two functions that compute the same then have the same text, whatever they were made from.
    """
    interface = [*function.inputs, *function.outputs]
    used = {value.name for value in interface}
    count = 0
    for node in ir.traversal.RecursiveGraphIterator(function):
        node.name = node.doc_string = None
        node.metadata_props.clear()
        for value in node.outputs:
            value.type = value.shape = None
            value.metadata_props.clear()
            if value in interface:
                continue
            while f"t{count}" in used:
                count += 1
            value.name = f"t{count}"
            count += 1
    for value in interface:
        value.type = value.shape = None
        value.metadata_props.clear()
    return function


def text_of(function: ir.Function) -> bytes:
    """Return a function's text without its name; functions that compute the same have the same."""
    proto = ir.serde.serialize_function(function)
    proto.domain = proto.name = proto.overload = ""
    return proto.SerializeToString(deterministic=True)


class FunctionLibrary:
    """Functions by their identifiers."""

    def __init__(self) -> None:
        self.functions: dict[ir.OperatorIdentifier, ir.Function] = {}
        self._types: dict[tuple[str, str], dict[bytes, str]] = {}

    def add(self, name: tuple[str, str], body: Body) -> str:
        """Add a node's body and return the type that the node then has.

        The first body of a name has that name; another one, such as that of float16 where the
        first is of float32, has a number behind it. ONNX's overloads would do, but many versions of
        ONNX Runtime confuse them.

        Args:
            name: the node's domain and type.
            body: what it computes.
        """
        for called in body.calls:
            self.functions.setdefault(called.identifier(), called)
        types = self._types.setdefault(name, {})
        text = text_of(body.function)
        if text not in types:
            types[text] = self.free(*name)
            function = body.function
            function.domain, function.name = name[0], types[text]
            self.functions[function.identifier()] = function
        return types[text]

    def free(self, domain: str, op_type: str) -> str:
        """Return a name that no function has; one with a number is not an operator's either."""
        name, number = op_type, 1
        while (domain, name, "") in self.functions or (
            number > 1 and f"{domain}::{name}" in operators
        ):
            number += 1
            name = f"{op_type}_{number}"
        return name

    def attach(self, model: ir.Model) -> None:
        """Put the functions that a model calls, directly or not, into it."""
        called: list[ir.Function | ir.Graph] = [model.graph, *model.functions.values()]
        while called:
            for function in self.called_by(called.pop()):
                if function.identifier() not in model.functions:
                    model.functions[function.identifier()] = function
                    model.opset_imports.setdefault(function.domain, 1)
                    called.append(function)

    def called_by(self, caller: ir.Graph | ir.Function) -> Iterator[ir.Function]:
        """Yield the functions whose nodes are in a graph or another function."""
        for node in ir.traversal.RecursiveGraphIterator(caller):
            function = self.functions.get(node.op_identifier())
            if function is not None:
                yield function
