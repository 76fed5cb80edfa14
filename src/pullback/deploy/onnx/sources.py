"""Where a node's body comes from: it is given, or derived from a formula or a PyTorch function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
from onnxscript import OnnxFunction

from pullback.bind.kinds import kind_of
from pullback.deploy.onnx import formulas, recurrences, reference
from pullback.deploy.onnx.body import Body, Underivable, tidy
from pullback.deploy.onnx.call import OnnxCall
from pullback.deploy.onnx.symbolic import Named
from pullback.diagnostic import Rule, an

if TYPE_CHECKING:
    from pullback.deploy.onnx.exporter import Exporter


OnnxBody = Rule("PB756", "onnx-body")

CURE = "give an ONNX Script function, a FunctionProto, ONNX's text, or a function of PyTorch"


def sources_of(call: OnnxCall, exporter: Exporter) -> Iterator[tuple[str, Callable[[], Body]]]:
    """Yield the name of each source of a body, and a function that derives the body from it."""
    definition = call.definition
    if definition.pointwise is not None:
        yield "its formula", partial(formulas.body_of, call, definition.pointwise)
    if recurrences.has_scans(call):
        yield "its steps", partial(recurrences.body_of, call, exporter)
    for what, function in kind_of(definition).references().items():
        yield what, partial(reference.body_of, call, function, exporter)


def reorder(body: Body, order: Sequence[int | None]) -> Body:
    """Return a body for a node that takes the call's inputs in another order, or fewer.

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


def given_to(call: OnnxCall, given: Any, exporter: Exporter, named: Named | None = None) -> Body:  # noqa: ANN401
    """Return the body that somebody wrote for a call.

    Args:
        call: of the operator.
        given: what was given for it.
        exporter: of the model.
        named: the node, where a `symbolic` gives it inputs and attributes of its own.

    Raises:
        PullbackError: PB756, it is not a body, or does not fit the line.
    """
    name = call.line.qualname
    if callable(given) and not isinstance(given, OnnxFunction):
        try:
            body = reference.body_of(call, given, exporter)
            return body if named is None else reorder(body, named.order)
        except Underivable as reason:
            raise OnnxBody.error(
                f"{name}: the body given for it cannot be exported: {reason}", help=CURE
            ) from None
    functions = functions_of(name, given)
    function = functions.pop()
    order = range(len(call.input_names)) if named is None else named.order
    scalars = [s.name for s in call.line.scalars] if named is None else list(named.attributes)
    require_fit(call, function, len(order), scalars)
    return Body(function=tidy(function), calls=tuple(functions))


def functions_of(name: str, given: Any) -> list[ir.Function]:  # noqa: ANN401
    """Return a given function, the last one, and those that it calls."""
    if isinstance(given, OnnxFunction):
        called: Iterable[Any] = given.function_ir.get_called_functions().values()
        return [ir.from_proto(function.to_function_proto()) for function in (*called, given)]
    if isinstance(given, ir.Function):
        return [ir.from_proto(ir.to_proto(given))]
    if isinstance(given, str):
        try:
            given = onnx.parser.parse_function(given)
        except onnx.parser.ParseError as error:
            raise OnnxBody.error(
                f"{name}: the body given for it is not a function in ONNX's text",
                onnx=str(error).strip(),
                help='<domain: "demo", opset_import: ["": 18]> f (x) => (y) { y = Neg(x) }',
            ) from None
    if not isinstance(given, onnx.FunctionProto):
        raise OnnxBody.error(f"{name}: {an(type(given).__name__)} is not a body", help=CURE)
    return [ir.from_proto(given)]


def require_fit(
    call: OnnxCall, function: ir.Function, inputs: int, attributes: Sequence[str]
) -> None:
    """Stop at a body with other inputs, outputs or attributes than the node has."""
    name = call.line.qualname
    wanted = inputs, len(call.line.outputs)
    found = len(function.inputs), len(function.outputs)
    if found != wanted:
        raise OnnxBody.error(
            f"{name}: the body given for it has {found[0]} inputs and {found[1]} outputs, "
            f"the node {wanted[0]} and {wanted[1]}",
            line=call.line,
            help="an input that is None has its place in the body too",
        )
    unknown = [attribute for attribute in function.attributes if attribute not in attributes]
    if unknown:
        raise OnnxBody.error(
            f"{name}: the body given for it has the attribute '{unknown[0]}', which the node lacks",
            line=call.line,
            have=", ".join(attributes) or None,
        )
    version = function.opset_imports.get("")
    if version is not None and version > call.opset:
        raise OnnxBody.error(
            f"{name}: the body given for it is of opset {version}, the model of {call.opset}",
            help=f"export with opset={version}, or write the body for opset {call.opset}",
        )
