"""Where a node's body can come from, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import onnx_ir as ir

from pullback.bind.kinds import kind_of
from pullback.deploy.onnx import formulas, reference
from pullback.deploy.onnx.body import Body, Underivable
from pullback.deploy.onnx.call import Call

if TYPE_CHECKING:
    from pullback.deploy.onnx.exporter import Exporter


def of(call: Call, exporter: Exporter) -> Iterator[tuple[str, Callable[[], Body]]]:
    """Yield what says what an operator computes, and what derives a body from it."""
    definition = call.definition
    if definition.pointwise is not None:
        yield "its formula", partial(formulas.body_of, call, definition.pointwise)
    for what, function in reference.functions_of(definition):
        yield what, partial(reference.body_of, call, function, exporter)
    if run := kind_of(definition).in_pytorch():
        yield "its formula in PyTorch", partial(reference.body_of, call, run, exporter)


def reordered(body: Body, order: Sequence[int | None]) -> Body:
    """Return a body for a node whose inputs are others of the call's.

    Raises:
        Underivable: the node lacks an input that the body uses.
    """
    function = body.function
    inputs = list(function.inputs)
    for place, value in enumerate(inputs):
        if place not in order and value.uses():
            raise Underivable(f"symbolic leaves out '{value.name}', which forward uses")
    own: list[ir.Value] = []
    for k, place in enumerate(order):
        again = place is None or inputs[place] in own
        own.append(ir.Value(name=f"unused_{k}") if again or place is None else inputs[place])
    function.inputs.clear()
    function.inputs.extend(own)
    return body
