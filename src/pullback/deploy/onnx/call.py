"""One call of an operator in an exported model: what is known about it, and what its node keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype

from pullback.define.line import DTYPES, Line, Scalar, Tensor
from pullback.define.operator import Definition
from pullback.diagnostic import Rule

OnnxScalar = Rule("PB755", "onnx-scalar")

# The metadata in which a node keeps how its operator is called.
KEY = "pullback.operator"
ATTRIBUTES: Mapping[str, ir.AttributeType] = {
    **{"int": ir.AttributeType.INT, "bool": ir.AttributeType.INT},
    **{"float": ir.AttributeType.FLOAT, "str": ir.AttributeType.STRING},
    **{"int[]": ir.AttributeType.INTS, "float[]": ir.AttributeType.FLOATS},
}
# The dtypes that a line can name, except complex ones.
NAMES: Mapping[str, ir.DataType] = {
    name: from_torch_dtype(getattr(torch, name)) for name in DTYPES if "complex" not in name
}


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxCall:
    """One call of an operator.

    Attributes:
        definition: of the operator.
        given: its arguments by the line's names: a value, a list of values, None, or a scalar.
        outputs: its results, whose dtypes are known once the model is translated.
        opset: the version of the standard operators.
        mask: which outputs are wanted, if the caller said so.
    """

    definition: Definition
    given: Mapping[str, Any]
    opset: int
    outputs: list[ir.Value] = field(default_factory=list[ir.Value])
    mask: tuple[bool, ...] | None = None

    @property
    def line(self) -> Line:
        """What the operator is."""
        return self.definition.line

    @cached_property
    def inputs(self) -> list[ir.Value | None]:
        """The node's inputs."""
        return inputs_of(self.line, self.given)

    @cached_property
    def input_names(self) -> list[str]:
        """Names for them; those of a list are numbered."""
        names: list[str] = []
        for tensor in self.line.tensors:
            count = len(values_of(tensor, self.given))
            many = [f"{tensor.name}_{place}" for place in range(count)]
            names += many if tensor.many else [tensor.name]
        return names

    @property
    def kind(self) -> str:
        """All that a body may depend on, as a text: two calls of a kind have one body."""
        tensors = [v and (v.dtype, sizes_of(v)) for v in self.inputs]
        outputs = [v.dtype for v in self.outputs]
        scalars = {scalar.name: value for scalar, value in self.scalars()}
        # Two Functions may have one name.
        function = id(self.definition.function)
        return f"{self.line} {function} {tensors} {outputs} {scalars} {self.mask}"

    @property
    def missing(self) -> set[str]:
        """The optional tensors that are not given."""
        return {tensor.name for tensor in self.line.tensors if self.given[tensor.name] is None}

    def scalars(self) -> Iterator[tuple[Scalar, Any]]:
        """Yield the scalars that are given, with their values."""
        for scalar in self.line.scalars:
            if self.given[scalar.name] is not None:
                yield scalar, self.given[scalar.name]

    @cached_property
    def dtypes(self) -> set[ir.DataType]:
        """The dtypes of everything that goes in and comes out."""
        return {v.dtype for v in (*self.inputs, *self.outputs) if v is not None and v.dtype}

    @cached_property
    def in_double(self) -> bool:
        """Whether it computes in float64, as it does if one of its tensors is float64."""
        return ir.DataType.DOUBLE in self.dtypes

    @cached_property
    def shared(self) -> ir.DataType:
        """The dtype of the tensors for which the line names none."""
        for tensor in self.line.tensors:
            values = [] if tensor.dtype else values_of(tensor, self.given)
            for value in values:
                if value is not None and value.dtype is not None:
                    return value.dtype
        unnamed = [k for k, output in enumerate(self.line.outputs) if output.dtype is None]
        known = [self.outputs[k].dtype for k in unnamed if k < len(self.outputs)]
        return next((dtype for dtype in known if dtype is not None), ir.DataType.FLOAT)

    def dtype_of(self, tensor: Tensor) -> ir.DataType:
        """Return the dtype of a tensor of the line in this call."""
        return NAMES[tensor.dtype] if tensor.dtype else self.shared


def values_of(tensor: Tensor, given: Mapping[str, Any]) -> list[Any]:
    """Return what is given for a tensor: several values for a list."""
    return list(given[tensor.name]) if tensor.many else [given[tensor.name]]


def inputs_of(line: Line, given: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that are tensors, in the line's order, lists one by one."""
    return [value for tensor in line.tensors for value in values_of(tensor, given)]


def sizes_of(value: ir.Value) -> list[int | str]:
    """Return a value's sizes, those that vary as texts.

    The exporter writes a symbol that turned out to be a number as that number's text.
    """
    assert value.shape is not None
    texts = [size if isinstance(size, int) else str(size.value) for size in value.shape]
    return [int(size) if isinstance(size, str) and size.isdecimal() else size for size in texts]


# Scalars as attributes.


def attributes_of(call: OnnxCall) -> dict[str, ir.Attr]:
    """Return a node's attributes."""
    found = {scalar.name: attribute(call, scalar, value) for scalar, value in call.scalars()}
    if call.mask is not None:
        mask = [int(wanted) for wanted in call.mask]
        found["output_mask"] = ir.Attr("output_mask", ir.AttributeType.INTS, mask)
    return found


def attribute(call: OnnxCall, scalar: Scalar, value: Any) -> ir.Attr:  # noqa: ANN401
    """Return a scalar as an attribute."""
    many = scalar.type.endswith("[]")
    for part in value if many else [value]:
        if not isinstance(part, int | float | str):
            raise OnnxScalar.error(
                f"{call.line.qualname}: '{scalar.name}' is computed in the model, and an attribute "
                "of ONNX is a number",
                line=call.line,
                help="give it as a number: a model has sizes of its own"
                if scalar.name in call.definition.counts
                else f"make a tensor of it in the line: {scalar.name}[]: int64",
            )
    if attribute_type(call, scalar, value) == ir.AttributeType.TENSOR:
        exact = ir.tensor(np.array(value, dtype=np.float64))
        return ir.Attr(scalar.name, ir.AttributeType.TENSOR, exact)
    convert = {"int": int, "bool": int, "float": float, "str": str}[scalar.type.removesuffix("[]")]
    plain = [convert(part) for part in value] if many else convert(value)
    return ir.Attr(scalar.name, ATTRIBUTES[scalar.type], plain)


def attribute_type(call: OnnxCall, scalar: Scalar, value: Any) -> ir.AttributeType:  # noqa: ANN401
    """Return the type of a scalar's attribute.

    ONNX's floats are float32. One that this would round, beside tensors of float64, is a tensor.
    """
    if scalar.type.startswith("float") and call.in_double:
        exact = np.array(value, dtype=np.float64)
        if not np.array_equal(exact, exact.astype(np.float32), equal_nan=True):
            return ir.AttributeType.TENSOR
    return ATTRIBUTES[scalar.type]


# What a node remembers.


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a node's inputs and its operator's arguments belong together; kept as JSON in the node.

    Attributes:
        operator: its name, "demo::linear".
        line: its line when the model was exported.
        arguments: for each parameter the scalar, or where its tensor is among the node's inputs: a
            place, None, or a list of places.
        tensors: the parameters that are tensors.
        inputs: the dtypes of the node's inputs, by ONNX's names; None where one is absent.
        outputs: those of its outputs.
    """

    operator: str
    line: str
    arguments: list[Any]
    tensors: list[bool]
    inputs: list[str | None]
    outputs: list[str]

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))


def recipe_of(call: OnnxCall, order: Sequence[int | None], node: ir.Node) -> Recipe:
    """Return the recipe of a node.

    Args:
        call: of the operator.
        order: which of the call's inputs each of the node's is.
        node: with the outputs.
    """
    places = iter([order.index(k) if k in order else None for k in range(len(call.inputs))])
    arguments: list[Any] = []
    for parameter in call.line.parameters:
        value = call.given[parameter.name]
        if isinstance(parameter, Scalar):
            arguments.append(value)
        elif parameter.many:
            arguments.append([next(places) for _ in value])
        else:
            place = next(places)
            arguments.append(None if value is None else place)
    dtypes = [
        output.dtype or own.dtype for output, own in zip(call.outputs, node.outputs, strict=True)
    ]
    given = [None if place is None else call.inputs[place] for place in order]
    return Recipe(
        operator=call.line.qualname,
        line=str(call.line),
        arguments=arguments,
        tensors=[not isinstance(parameter, Scalar) for parameter in call.line.parameters],
        inputs=[value.dtype.name if value and value.dtype else None for value in given],
        outputs=[dtype.name if dtype else "FLOAT" for dtype in dtypes],
    )


def recipe_in(node: ir.Node) -> Recipe | None:
    """Return the recipe in a node; None if it is not an operator's."""
    text = node.metadata_props.get(KEY)
    return None if text is None else Recipe(**json.loads(text))
