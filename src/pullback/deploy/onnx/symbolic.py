"""A Function's old `symbolic(g, ...)`: run with a graph of our own, it gives a node or a body.

If it adds one operator only, and not one of ONNX's, that is the node, and forward gives its body.
Anything else is the body of a node that has the operator's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import to_torch_dtype
from torch import Tensor

from pullback.define.line import Scalar
from pullback.deploy.onnx.body import Body, BodyBuilder
from pullback.deploy.onnx.call import OnnxCall, sizes_of
from pullback.deploy.onnx.naming import split
from pullback.diagnostic import PullbackError, Rule, an

OnnxSymbolic = Rule("PB757", "onnx-symbolic")

# alpha_f=1.0: the attribute `alpha`, a float; the old exporter's letters.
ATTRIBUTE = re.compile(r"(?P<name>.+)_(?P<kind>[ifst])")
KINDS: dict[str, tuple[ir.AttributeType, ir.AttributeType]] = {
    "i": (ir.AttributeType.INT, ir.AttributeType.INTS),
    "f": (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS),
    "s": (ir.AttributeType.STRING, ir.AttributeType.STRINGS),
    "t": (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS),
}
OLD_NAMES = {
    **{"FLOAT": "Float", "DOUBLE": "Double", "FLOAT16": "Half", "BFLOAT16": "BFloat16"},
    **{"INT64": "Long", "INT32": "Int", "INT16": "Short", "INT8": "Char", "UINT8": "Byte"},
    "BOOL": "Bool",
}


@dataclass(frozen=True)
class Named:
    """A node that a `symbolic` names.

    Attributes:
        name: its domain and type, "functions::MYLINEAR".
        attributes: by name.
        order: which of the call's inputs each of its own is.
    """

    name: str
    attributes: dict[str, ir.Attr]
    order: tuple[int | None, ...]


@dataclass(frozen=True)
class Said:
    """What a `symbolic` gives.

    Attributes:
        node: the only node, if it is not one of ONNX's; else None.
        body: the function of all nodes.
    """

    node: Named | None
    body: Body


def run_symbolic(call: OnnxCall, function: type[Any]) -> Said:
    """Run a Function's `symbolic` for a call.

    Raises:
        PullbackError: PB757, it raises, or adds what ONNX does not have.
    """
    graph = SymbolicGraph(call, function.__name__)
    arguments = [graph.argument(parameter) for parameter in call.line.parameters]
    try:
        returned: Any = function.symbolic(graph, *arguments)  # pyright: ignore[reportAttributeAccessIssue]
    except PullbackError:
        raise
    except Exception as error:
        raise OnnxSymbolic.error(
            f"{call.line.qualname}: symbolic of {function.__name__} raised "
            f"{type(error).__name__}: {error}",
            have="g.op(name, *inputs, name_f=..., outputs=...); and of a value type().sizes(), "
            "dim(), scalarType(), dtype()",
        ) from error
    outputs = list(returned) if isinstance(returned, tuple | list) else [returned]
    return graph.said(outputs)


class SymbolicValue:
    """A value in a `symbolic`: what `g.op` returns, and the arguments."""

    def __init__(self, value: ir.Value) -> None:
        self.value = value

    def type(self) -> SymbolicValue:
        """Return the value itself, which knows its sizes and dtype."""
        return self

    setType = setTypeAs = lambda self, *_: self  # noqa: N815  (the old exporter's name)

    def sizes(self) -> list[int | None] | None:
        """Return the sizes, None for those that vary."""
        if self.value.shape is None:
            return None
        return [size if isinstance(size, int) else None for size in sizes_of(self.value)]

    def dim(self) -> int | None:
        """Return its number of dimensions."""
        return None if self.value.shape is None else len(self.value.shape)

    def scalarType(self) -> str | None:  # noqa: N802  (the old exporter's name)
        """Return the dtype by its old name, "Float"."""
        return OLD_NAMES.get(self.value.dtype.name) if self.value.dtype else None

    def dtype(self) -> torch.dtype | None:
        """Return the dtype."""
        return to_torch_dtype(self.value.dtype) if self.value.dtype else None


class SymbolicGraph:
    """The `g` of a `symbolic`."""

    def __init__(self, call: OnnxCall, function: str) -> None:
        self.call = call
        self.function = function
        self.builder = BodyBuilder()
        self.inputs = [
            ir.val(name, type=value and value.type, shape=value and value.shape)
            for name, value in zip(call.input_names, call.inputs, strict=True)
        ]
        self.opset = call.opset

    def argument(self, parameter: object) -> object:
        """Return a parameter of the line as `symbolic` takes it."""
        name: str = parameter.name  # pyright: ignore[reportAttributeAccessIssue]
        value = self.call.given[name]
        if isinstance(parameter, Scalar) or value is None:
            return value
        if isinstance(value, list):
            return [self.given(f"{name}_{place}") for place in range(len(value))]
        return self.given(name)

    def given(self, name: str) -> SymbolicValue:
        """Return the input of that name."""
        return SymbolicValue(self.inputs[self.call.input_names.index(name)])

    def op(self, name: str, *inputs: object, outputs: int = 1, **attributes: object) -> Any:  # noqa: ANN401
        """Add a node: `g.op("Elu", x, alpha_f=1.0)`, `g.op("com.acme::Scan", x, outputs=2)`."""
        domain, op_type = split(name)
        if domain == "onnx":
            domain = ""
        own = dict(self.attribute(name, key, value) for key, value in attributes.items())
        if domain == "":
            domain = "" if self.is_standard(op_type, own) else self.call.line.namespace
        given = [self.input(value) for value in inputs]
        made = ir.Node(domain, op_type, given, list(own.values()), num_outputs=outputs)
        self.builder.nodes.append(made)
        values = tuple(SymbolicValue(value) for value in made.outputs)
        return values[0] if outputs == 1 else values

    def attribute(self, name: str, key: str, value: Any) -> tuple[str, ir.Attr]:  # noqa: ANN401
        """Return an attribute that is given as `alpha_f=1.0`."""
        found = ATTRIBUTE.fullmatch(key)
        if found is None:
            raise self.error(
                f"gives '{name}' the attribute '{key}', which does not say its type",
                help=f"end it with _i, _f, _s or _t: {key}_f",
            )
        many = isinstance(value, list | tuple)
        type = KINDS[found["kind"]][many]
        if found["kind"] == "t":
            value = ir.tensor(np.asarray(value.numpy() if isinstance(value, Tensor) else value))
        elif found["kind"] == "i":
            value = [int(v) for v in value] if many else int(value)
        elif found["kind"] == "f":
            value = [float(v) for v in value] if many else float(value)
        return found["name"], ir.Attr(found["name"], type, value)

    def is_standard(self, op_type: str, attributes: dict[str, ir.Attr]) -> bool:
        """Return whether ONNX has an operator of that name; stop if it has other attributes."""
        try:
            schema = onnx.defs.get_schema(op_type, self.opset, "")
        except onnx.defs.SchemaError:
            return False
        for attribute in attributes:
            if attribute not in schema.attributes:
                raise self.error(
                    f"gives '{op_type}' the attribute '{attribute}', which it lacks in opset "
                    f"{self.opset}",
                    have=", ".join(schema.attributes) or "no attributes",
                    help="it may be an input since: "
                    "g.op('Constant', value_t=torch.tensor([1])) makes one",
                )
        return True

    def input(self, value: object) -> ir.Value | None:
        """Return an input of a node: a value, None, or what becomes a constant."""
        if value is None:
            return None
        if isinstance(value, SymbolicValue):
            return value.value
        if isinstance(value, Tensor | int | float | bool):
            # A float gets the tensors' dtype, as in PyTorch.
            dtype = to_torch_dtype(self.call.shared) if isinstance(value, float) else None
            constant = self.op("Constant", value_t=torch.as_tensor(value, dtype=dtype))
            return constant.value
        raise self.error(f"gives a node {an(type(value).__name__)} as input")

    def said(self, outputs: Sequence[object]) -> Said:
        """Return what was given, from what `symbolic` returned."""
        wanted = len(self.call.line.outputs)
        values = [output.value for output in outputs if isinstance(output, SymbolicValue)]
        if len(values) != len(outputs):
            raise self.error("returns something that g.op did not")
        if len(values) != wanted:
            raise self.error(f"returns {len(outputs)} values, the operator {wanted}")
        only = len(self.builder.nodes) == 1 and self.builder.nodes[0].domain != ""
        named = self.named_by(values) if only else None
        names = [output.name for output in self.call.line.outputs]
        body = self.builder.body(self.inputs, values, names, self.opset)
        return Said(node=named, body=body)

    def named_by(self, outputs: Sequence[ir.Value]) -> Named | None:
        """Return the one node that was added, if its outputs are all that is returned."""
        (node,) = self.builder.nodes
        if list(node.outputs) != list(outputs):
            return None
        order = tuple(None if v is None else self.inputs.index(v) for v in node.inputs)
        return Named(f"{node.domain}::{node.op_type}", dict(node.attributes), order)

    def error(self, message: str, *, help: str | None = None, **evidence: object) -> PullbackError:
        """Return the error of this `symbolic`."""
        text = f"{self.call.line.qualname}: symbolic of {self.function} {message}"
        return OnnxSymbolic.error(text, help=help, **evidence)
