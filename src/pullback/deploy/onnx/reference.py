"""A function of PyTorch -> a body: it is exported by itself, at the call's dtypes and scalars."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import to_torch_dtype
from torch import Tensor
from torch.export import Dim

from pullback.deploy.onnx.body import Body, BodyBuilder, Underivable
from pullback.deploy.onnx.call import OnnxCall, sizes_of
from pullback.diagnostic import PullbackError

if TYPE_CHECKING:
    from pullback.deploy.onnx.exporter import Exporter

# The size of a varying dimension if the model's example gives none; the smallest size that a trace
# does not specialise on.
SOME, SMALLEST = 4, 2


class _Called(torch.nn.Module):
    """A function as a module of the tensors that are given, with its scalars filled in."""

    def __init__(self, function: Callable[..., Any], call: OnnxCall) -> None:
        super().__init__()
        self.function = function
        self.call = call

    def forward(self, *tensors: Tensor) -> Any:  # noqa: ANN401
        """Return what the function returns."""
        given = iter(tensors)
        arguments: list[object] = []
        for parameter in self.call.line.parameters:
            value = self.call.given[parameter.name]
            if isinstance(value, list) and getattr(parameter, "many", False):
                arguments.append(list(itertools.islice(given, len(value))))
            else:
                arguments.append(next(given) if isinstance(value, ir.Value) else value)
        return self.function(*arguments)


def body_of(call: OnnxCall, function: Callable[..., Any], exporter: Exporter) -> Body:
    """Return the body that a function of PyTorch gives.

    It is exported for any sizes first, and if that fails for those that are fixed in the model.

    Raises:
        Underivable: the exporter cannot do it, or it fixes what varies in the model.
    """
    values = [value for value in call.inputs if value is not None]
    module = _Called(function, call).eval()
    examples = tuple(make_example(value, exporter) for value in values)
    reason: Exception | None = None
    for free in (True, False):
        sizes = tuple(
            {k: Dim.AUTO for k in varying_dimensions(value, free=free)} for value in values
        )
        try:
            # Not in the exporter's own way, which drops what a trace assumes about the sizes.
            traced = torch.export.export(module, examples, dynamic_shapes=(sizes,))
            model = exporter.program_of(traced, ()).model
        except PullbackError:
            raise
        except Exception as error:  # an author's function may raise anything
            reason = error
            continue
        require_varying(values, model.graph.inputs)
        return as_body(call, model)
    raise Underivable(innermost_reason(reason))


def make_example(value: ir.Value, exporter: Exporter) -> Tensor:
    """Return a tensor of the dtype and the sizes of the model's own example.

    A size that varies is at least `SMALLEST`, so that a trace does not specialise on it.
    """
    assert value.dtype is not None
    sizes = [
        size if isinstance(size, int) else max(exporter.sizes.get(size, SOME), SMALLEST)
        for size in sizes_of(value)
    ]
    return torch.ones(sizes, dtype=to_torch_dtype(computed_in(value.dtype)))


def computed_in(dtype: ir.DataType) -> ir.DataType:
    """Return the dtype that a function is traced in: ONNX Runtime hardly computes in bfloat16."""
    return ir.DataType.FLOAT if dtype == ir.DataType.BFLOAT16 else dtype


def varying_dimensions(value: ir.Value, *, free: bool) -> list[int]:
    """Return the dimensions whose size the body leaves open.

    Args:
        value: what is given in the model.
        free: also those that are fixed in the model, except 1, which broadcasts, and 0.
    """
    sizes = enumerate(sizes_of(value))
    return [k for k, size in sizes if not isinstance(size, int) or (free and size > 1)]


def require_varying(values: Sequence[ir.Value], traced: Sequence[ir.Value]) -> None:
    """Stop where the function has fixed a size that varies in the model."""
    for value, formal in zip(values, traced, strict=True):
        for k, (size, fixed) in enumerate(zip(sizes_of(value), sizes_of(formal), strict=True)):
            if not isinstance(size, int) and isinstance(fixed, int):
                raise Underivable(
                    f"traced, it only works for {fixed} elements in dimension {k} of an input, "
                    "and that size varies in the model"
                )


def as_body(call: OnnxCall, model: ir.Model) -> Body:
    """Return a whole model's graph as a function of the line's tensors."""
    require_outputs(call, model.graph.outputs)
    builder = BodyBuilder()
    formals, outputs, nodes = take_apart(model.graph, builder)
    given = iter(formals)
    inputs = [ir.Value() if value is None else next(given) for value in call.inputs]
    formal = [narrow(builder, own, value) for own, value in zip(inputs, call.inputs, strict=True)]
    builder.nodes += nodes
    returned = [
        own if output.dtype in (None, own.dtype) else builder.op("Cast", own, to=output.dtype)
        for own, output in zip(outputs, call.outputs, strict=True)
    ]
    for value, name in zip(formal, call.input_names, strict=True):
        value.name = name
    return builder.body(formal, returned, [o.name for o in call.line.outputs], call.opset)


def take_apart(
    graph: ir.Graph, builder: BodyBuilder
) -> tuple[list[ir.Value], list[ir.Value], list[ir.Node]]:
    """Return the inputs, the outputs and the nodes of a graph; its constants become nodes."""
    inputs, outputs, nodes = list(graph.inputs), list(graph.outputs), list(graph)
    constants = list(graph.initializers.values())
    for part in (graph.outputs, graph.inputs, graph.initializers):
        part.clear()
    graph.remove(nodes)
    for value in constants:
        constant = ir.Attr("value", ir.AttributeType.TENSOR, value.const_value)
        builder.nodes.append(ir.Node("", "Constant", [], [constant], outputs=[value]))
    return inputs, outputs, nodes


def require_outputs(call: OnnxCall, outputs: Sequence[ir.Value]) -> None:
    """Stop at a function whose outputs are not the operator's."""
    if len(outputs) != len(call.line.outputs):
        raise Underivable(f"it returns {len(outputs)} tensors")
    for spec, own, output in zip(call.line.outputs, outputs, call.outputs, strict=True):
        # An output that nobody wants has no dtype.
        if output.dtype is not None and own.dtype != computed_in(output.dtype):
            raise Underivable(f"it returns {own.dtype} for '{spec.name}', not {output.dtype}")


def narrow(builder: BodyBuilder, own: ir.Value, given: ir.Value | None) -> ir.Value:
    """Return the body's input for one of the traced function's, which may be in a wider dtype."""
    if given is None or given.dtype is None or computed_in(given.dtype) == given.dtype:
        return own
    formal = ir.Value()
    cast = ir.Node(
        "", "Cast", [formal], [ir.AttrInt64("to", computed_in(given.dtype))], num_outputs=1
    )
    own.replace_all_uses_with(cast.outputs[0])
    builder.nodes.append(cast)
    return formal


def innermost_reason(error: Exception | None) -> str:
    """Return the innermost reason in one line."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__ if isinstance(error.__cause__, Exception) else None
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"
