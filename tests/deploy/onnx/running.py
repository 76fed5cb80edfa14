"""How the tests run what is exported: one node with its body, or a whole file, in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.bind.dense import elements
from pullback.define.line import Scalar
from pullback.define.math import notation
from pullback.define.math.formula import Formula
from pullback.define.operator import Definition
from pullback.define.parse import parse
from pullback.deploy.onnx import formulas as bodies
from pullback.deploy.onnx.call import OnnxCall, attributes_of
from pullback.deploy.onnx.translation import value_of

onnxruntime.set_default_logger_severity(4)

Outputs = tuple[Tensor, ...]


def formula_of(line: str) -> Formula:
    return notation.parse(parse(line))


def outputs_of(returned: Any) -> Outputs:
    return tuple(returned) if isinstance(returned, tuple | list) else (returned,)


def in_pytorch(formula: Formula, arguments: Sequence[Any]) -> Outputs:
    """Return what a formula gives by PyTorch's operations."""
    definition = Definition(line=formula.line, formula=formula)
    return outputs_of(elements.kernel_of(definition)(*arguments))


def call_of(formula: Formula, arguments: Sequence[Any], opset: int = 18) -> OnnxCall:
    """Return a call as the exporter sees it."""
    line = formula.line
    rest = [p.default if isinstance(p, Scalar) else None for p in line.parameters]
    every = [*arguments, *rest[len(arguments) :]]
    given = {p.name: value_of(value) for p, value in zip(line.parameters, every, strict=True)}
    for name, value in given.items():
        if isinstance(value, ir.Value):
            value.name = name
    definition = Definition(line=line, formula=formula)
    known = kernel.outputs_of(definition, [*every, None] if definition.masked else every)
    outputs = [
        ir.val(spec.name, value_of(torch.empty(0, dtype=dtype)).dtype, shape)
        for spec, dtype, shape in zip(line.outputs, known.dtypes, known.shapes, strict=True)
    ]
    return OnnxCall(definition=definition, given=given, opset=opset, outputs=outputs)


def alone(formula: Formula, arguments: Sequence[Any], opset: int = 18) -> Outputs:
    """Run a formula's node in ONNX Runtime, in a model of its own."""
    call = call_of(formula, arguments, opset)
    function = bodies.body_of(call, formula).function
    function.domain, function.name = "alone", "formula"
    scalars = attributes_of(call).values()
    node = ir.Node("alone", "formula", call.inputs, scalars, outputs=call.outputs)
    inputs = [value for value in call.inputs if value is not None]
    graph = ir.Graph(
        inputs, call.outputs, nodes=[node], opset_imports={"": opset, "alone": 1}, name="graph"
    )
    proto = ir.to_proto(ir.Model(graph, ir_version=10, functions=[function]))
    onnx.checker.check_model(proto, full_check=True)
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    names = [str(value.name) for value in inputs]
    return run(proto.SerializeToString(), dict(zip(names, tensors, strict=True)))


def run(model: bytes | str | Path, inputs: dict[str, Tensor]) -> Outputs:
    """Run a model in a stock ONNX Runtime."""
    session = onnxruntime.InferenceSession(model)
    return fed(session, inputs)


def fed(session: onnxruntime.InferenceSession, inputs: dict[str, Tensor]) -> Outputs:
    """Run a session."""
    arrays = {
        name: ort_value(tensor) for name, tensor in inputs.items() if name in names_of(session)
    }
    outputs = session.run_with_ort_values(None, arrays)
    return tuple(map(as_tensor, outputs))


def as_tensor(value: onnxruntime.OrtValue) -> Tensor:
    """Return what ONNX Runtime returned as a tensor; a condition crosses as a byte."""
    tensor = torch.from_dlpack(value._ortvalue.to_dlpack())
    return tensor.bool() if value.data_type() == "tensor(bool)" else tensor


def names_of(session: onnxruntime.InferenceSession) -> list[str]:
    return [each.name for each in session.get_inputs()]


def ort_value(tensor: Tensor) -> onnxruntime.OrtValue:
    """Return a tensor as ONNX Runtime takes it, bfloat16 among them, which NumPy has not."""
    array = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            array.view(torch.int16).numpy(), onnx.TensorProto.BFLOAT16
        )
    return onnxruntime.OrtValue.ortvalue_from_numpy(array.numpy())
