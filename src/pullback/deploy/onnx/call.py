"""One call of an operator in an exported model: what is known of its tensors and scalars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import onnx_ir as ir

from pullback.define.line import Line, Scalar, Tensor
from pullback.define.operator import Definition

# The dtypes that a line can name, but for complex ones.
NAMES: Mapping[str, ir.DataType] = {
    **{"float64": ir.DataType.DOUBLE, "float32": ir.DataType.FLOAT},
    **{"float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16},
    **{"int64": ir.DataType.INT64, "int32": ir.DataType.INT32, "int16": ir.DataType.INT16},
    **{"int8": ir.DataType.INT8, "uint8": ir.DataType.UINT8, "bool": ir.DataType.BOOL},
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """One call.

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

    def values_of(self, tensor: Tensor) -> list[ir.Value | None]:
        """Return what is given for a tensor: several values for a list."""
        value = self.given[tensor.name]
        return list(value) if tensor.many else [value]

    @cached_property
    def inputs(self) -> list[ir.Value | None]:
        """The node's inputs: the tensors in the line's order, lists one by one."""
        return [value for tensor in self.line.tensors for value in self.values_of(tensor)]

    @cached_property
    def input_names(self) -> list[str]:
        """Names for them; those of a list are numbered."""
        names: list[str] = []
        for tensor in self.line.tensors:
            count = len(self.values_of(tensor))
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
        """Whether it computes in float64: wherever one of its tensors is."""
        return ir.DataType.DOUBLE in self.dtypes

    @cached_property
    def shared(self) -> ir.DataType:
        """The dtype of the tensors for which the line names none."""
        for tensor in self.line.tensors:
            values = [] if tensor.dtype else self.values_of(tensor)
            for value in values:
                if value is not None and value.dtype is not None:
                    return value.dtype
        unnamed = [k for k, output in enumerate(self.line.outputs) if output.dtype is None]
        known = [self.outputs[k].dtype for k in unnamed if k < len(self.outputs)]
        return next((dtype for dtype in known if dtype is not None), ir.DataType.FLOAT)

    def dtype_of(self, tensor: Tensor) -> ir.DataType:
        """Return the dtype of a tensor of the line in this call."""
        return NAMES[tensor.dtype] if tensor.dtype else self.shared


def sizes_of(value: ir.Value) -> list[int | str]:
    """Return a value's sizes, those that vary as texts.

    The exporter writes a symbol that turned out to be a number as a text of it.
    """
    assert value.shape is not None
    texts = [size if isinstance(size, int) else str(size.value) for size in value.shape]
    return [int(size) if isinstance(size, str) and size.isdecimal() else size for size in texts]
