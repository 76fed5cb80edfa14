"""Operators in PyTorch's exporter: each call becomes one node, marked with the call's number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnxscript.values import Op, Opset

from pullback.bind.operator import Operator
from pullback.define.line import Line, Scalar
from pullback.define.operator import Definition
from pullback.deploy.onnx.call import Call
from pullback.diagnostic import PullbackError

# The attribute by which a node is found again after the exporter's passes.
MARK = "pullback_call"
# Whose operators the exporter translates itself.
OF_PYTORCH = ("aten", "prims", "torchvision")

Schema = onnx.defs.OpSchema


class Calls(list[Call]):
    """The calls in a model, by number.

    Attributes:
        opset: the version of the standard operators.
        failure: what was wrong with a call while the model was traced.
    """

    def __init__(self, opset: int) -> None:
        super().__init__()
        self.opset = opset
        self.failure: PullbackError | None = None

    def table(self, operators: Iterable[Operator]) -> dict[Callable[..., Any], Callable[..., Any]]:
        """Return how PyTorch's exporter translates operators."""
        return {
            operator.overload: self.translation(operator.definition)
            for operator in operators
            if operator.line.namespace not in OF_PYTORCH
        }

    def translation(self, definition: Definition) -> Callable[..., Any]:
        """Return what the exporter calls for each call of an operator in the graph."""

        def translate(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            mask = options.pop("output_mask", None)
            given = completed(definition.line, arguments, options)
            call = self.add(definition, given, None if mask is None else tuple(map(bool, mask)))
            outputs = emitted(call.line, tensors_of(call.line, given), len(self) - 1)
            call.outputs.extend(outputs)
            return outputs[0] if len(outputs) == 1 else outputs

        return translate

    def add(
        self, definition: Definition, given: Mapping[str, Any], mask: tuple[bool, ...] | None = None
    ) -> Call:
        """Record a call. Its values are copies: the exporter's passes rename what they are of."""
        copies = {name: copied(value) for name, value in given.items()}
        self.append(Call(definition=definition, given=copies, opset=self.opset, mask=mask))
        return self[-1]


def completed(
    line: Line, arguments: Sequence[object], options: Mapping[str, object]
) -> dict[str, object]:
    """Return a call's arguments by name, with the line's defaults."""
    defaults = {p.name: p.default if isinstance(p, Scalar) else None for p in line.parameters}
    given = {p.name: value for p, value in zip(line.parameters, arguments, strict=False)}
    return {**defaults, **given, **options}


def copied(value: object) -> object:
    """Return a value with the shape and the dtype that it has now."""
    if isinstance(value, list):
        return [copied(part) for part in value]
    if isinstance(value, ir.Value):
        return ir.val(value.name, type=value.type, shape=value.shape and value.shape.copy())
    return value


def tensors_of(line: Line, given: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that are tensors, lists one by one."""
    return [
        value
        for tensor in line.tensors
        for value in (given[tensor.name] if tensor.many else [given[tensor.name]])
    ]


def emitted(line: Line, inputs: Sequence[object], number: int) -> list[ir.Value]:
    """Write a node into the graph that is being translated, and return its outputs."""
    schema = Schema(
        line.name,
        line.namespace,
        1,
        inputs=[
            Schema.FormalParameter(f"i{k}", "T", param_option=Schema.FormalParameterOption.Optional)
            for k in range(len(inputs))
        ],
        outputs=[Schema.FormalParameter(output.name, "T") for output in line.outputs],
        type_constraints=[("T", any_type(), "")],
        attributes=[Schema.Attribute(MARK, Schema.AttrType.INT, "")],
    )
    made: Any = Op(Opset(line.namespace, 1), line.name, schema)(*inputs, **{MARK: number})
    return list(made) if len(line.outputs) > 1 else [made]


def any_type() -> list[str]:
    """Return the types of tensors that there are, as a schema writes them."""
    return list(onnx.defs.get_schema("Identity", 18).type_constraints[0].allowed_type_strs)
