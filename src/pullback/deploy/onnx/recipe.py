"""What an exported node remembers of its operator: enough to call it, by whatever name it has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir

from pullback.define.line import Scalar
from pullback.deploy.onnx.call import Call

KEY = "pullback.operator"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a node's inputs and its operator's arguments belong together; kept as JSON in the node.

    Attributes:
        operator: its name, "demo::linear".
        line: what it was when the model was exported.
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


def recipe_of(call: Call, order: Sequence[int | None], node: ir.Node) -> Recipe:
    """Return what a node remembers of its call.

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
    """Return what a node remembers, None if it is no operator's."""
    text = node.metadata_props.get(KEY)
    return None if text is None else Recipe(**json.loads(text))
