"""The scalars of a line as attributes of its node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from pullback.define.formula.node import Node
from pullback.define.line import Scalar
from pullback.deploy.onnx.body import Builder
from pullback.deploy.onnx.call import Call
from pullback.deploy.onnx.translate import Precision
from pullback.diagnostic import Rule

OnnxScalar = Rule("PB755", "onnx-scalar")

TYPES: Mapping[str, ir.AttributeType] = {
    **{"int": ir.AttributeType.INT, "bool": ir.AttributeType.INT},
    **{"float": ir.AttributeType.FLOAT, "str": ir.AttributeType.STRING},
    **{"int[]": ir.AttributeType.INTS, "float[]": ir.AttributeType.FLOATS},
}


def attributes_of(call: Call) -> dict[str, ir.Attr]:
    """Return a node's attributes."""
    found = {scalar.name: attribute(call, scalar, value) for scalar, value in call.scalars()}
    if call.mask is not None:
        mask = [int(wanted) for wanted in call.mask]
        found["output_mask"] = ir.Attr("output_mask", ir.AttributeType.INTS, mask)
    return found


def attribute(call: Call, scalar: Scalar, value: Any) -> ir.Attr:  # noqa: ANN401
    """Return a scalar as an attribute."""
    many = scalar.type.endswith("[]")
    for part in value if many else [value]:
        if not isinstance(part, int | float | str):
            raise OnnxScalar.error(
                f"{call.line.qualname}: '{scalar.name}' is computed in the model, and an attribute "
                "of ONNX is a number",
                line=call.line,
                help=f"make a tensor of it in the line: {scalar.name}[]: int64",
            )
    if type_of(call, scalar, value) == ir.AttributeType.TENSOR:
        exact = ir.tensor(np.array(value, dtype=np.float64))
        return ir.Attr(scalar.name, ir.AttributeType.TENSOR, exact)
    convert = {"int": int, "bool": int, "float": float, "str": str}[scalar.type.removesuffix("[]")]
    plain = [convert(part) for part in value] if many else convert(value)
    return ir.Attr(scalar.name, TYPES[scalar.type], plain)


def type_of(call: Call, scalar: Scalar, value: Any) -> ir.AttributeType:  # noqa: ANN401
    """Return the type of a scalar's attribute.

    A float of ONNX is a float32. One that is rounded by that, for tensors of float64, is a tensor.
    """
    if scalar.type.startswith("float") and call.in_double:
        exact = np.array(value, dtype=np.float64)
        if not np.array_equal(exact, exact.astype(np.float32), equal_nan=True):
            return ir.AttributeType.TENSOR
    return TYPES[scalar.type]


def scalar(call: Call, node: Node, builder: Builder, precision: Precision) -> ir.Value:
    """Return a scalar inside a formula's body: what the node's attribute says."""
    declared = next(s for s in call.line.scalars if s.name == node.name)
    type = type_of(call, declared, call.given[node.name])
    value = builder.attribute(node.name, type)
    if node.type == "bool":
        return builder.op("Cast", value, to=ir.DataType.BOOL)
    if node.type == "int":
        return value
    stored = ir.DataType.FLOAT if type == ir.AttributeType.FLOAT else ir.DataType.DOUBLE
    return precision.cast(value, stored)
