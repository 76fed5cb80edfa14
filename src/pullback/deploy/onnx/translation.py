"""In PyTorch's exporter each call of an operator is one node, marked with the call's number.

So is a call of a plain `torch.autograd.Function` with a `symbolic`, which the exporter ignores: it
becomes a node in the domain `autograd`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype
from onnxscript.values import Op, Opset
from torch import Tensor

from pullback.bind.functions.adopted import parameters_of
from pullback.bind.operator import Operator
from pullback.define.dimension import Anything
from pullback.define.line import Line, Scalar, Type
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition
from pullback.deploy.onnx import naming
from pullback.deploy.onnx.call import OnnxCall, inputs_of
from pullback.deploy.onnx.symbolic import OnnxSymbolic
from pullback.diagnostic import PullbackError, an

# The attribute by which a node is found again after the exporter's passes.
MARK = "pullback_call"
# Namespaces whose operators the exporter translates itself.
OF_PYTORCH = ("aten", "prims", "torchvision")

# The domain of Functions that are not operators.
DOMAIN = "autograd"

Schema = onnx.defs.OpSchema


class ModelCalls(list[OnnxCall]):
    """The calls in a model, by number.

    Attributes:
        opset: the version of the standard operators.
        failure: the error of a call while the model was traced.
    """

    def __init__(self, opset: int) -> None:
        super().__init__()
        self.opset = opset
        self.failure: PullbackError | None = None

    def table(self, operators: Iterable[Operator]) -> dict[Callable[..., Any], Callable[..., Any]]:
        """Return the table by which PyTorch's exporter translates operators."""
        return {
            operator.overload: self.translation(operator.definition)
            for operator in operators
            if operator.line.namespace not in OF_PYTORCH
        }

    def translation(self, definition: Definition) -> Callable[..., Any]:
        """Return the function that the exporter calls for each call of an operator in the graph."""

        def translate(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            mask = options.pop("output_mask", None)
            given = complete_arguments(definition.line, arguments, options)
            call = self.add(definition, given, None if mask is None else tuple(map(bool, mask)))
            outputs = emit(call.line, inputs_of(call.line, given), len(self) - 1)
            call.outputs.extend(outputs)
            return outputs[0] if len(outputs) == 1 else outputs

        return translate

    def add(
        self, definition: Definition, given: Mapping[str, Any], mask: tuple[bool, ...] | None = None
    ) -> OnnxCall:
        """Record a call. Its values are copies, as the exporter's passes rename the originals."""
        copies = {name: snapshot(value) for name, value in given.items()}
        self.append(OnnxCall(definition=definition, given=copies, opset=self.opset, mask=mask))
        return self[-1]


def complete_arguments(
    line: Line, arguments: Sequence[object], options: Mapping[str, object]
) -> dict[str, object]:
    """Return a call's arguments by name, with the line's defaults."""
    defaults = {p.name: p.default if isinstance(p, Scalar) else None for p in line.parameters}
    given = {p.name: value for p, value in zip(line.parameters, arguments, strict=False)}
    return {**defaults, **given, **options}


def snapshot(value: object) -> object:
    """Return a value with the shape and the dtype that it has now."""
    if isinstance(value, list):
        return [snapshot(part) for part in value]
    if isinstance(value, ir.Value):
        return ir.val(value.name, type=value.type, shape=value.shape and value.shape.copy())
    return value


def emit(line: Line, inputs: Sequence[object], number: int) -> list[ir.Value]:
    """Write a node into the graph that is being translated, and return its outputs."""
    every = onnx.defs.get_schema("Identity", 18).type_constraints[0].allowed_type_strs
    schema = Schema(
        line.name,
        line.namespace,
        1,
        inputs=[
            Schema.FormalParameter(f"i{k}", "T", param_option=Schema.FormalParameterOption.Optional)
            for k in range(len(inputs))
        ],
        outputs=[Schema.FormalParameter(output.name, "T") for output in line.outputs],
        type_constraints=[("T", list(every), "")],
        attributes=[Schema.Attribute(MARK, Schema.AttrType.INT, "")],
    )
    made: Any = Op(Opset(line.namespace, 1), line.name, schema)(*inputs, **{MARK: number})
    return list(made) if len(line.outputs) > 1 else [made]


# Plain Functions.


@contextmanager
def record_calls(calls: ModelCalls) -> Generator[None]:
    """Make a node of each call of a Function that has a `symbolic`."""
    base: Any = torch.autograd.Function
    original = base.__dict__["apply"]

    def apply(function: type[Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        returned = original.__get__(None, function)(*arguments, **options)
        if not hasattr(function, "symbolic") or not torch.compiler.is_exporting():
            return returned
        outputs = returned if isinstance(returned, tuple) else (returned,)
        try:
            results = node_of(calls, function, arguments, outputs)
        except PullbackError as error:
            # Kept, because the exporter goes on with another way of tracing, without this function.
            calls.failure = error
            raise
        return results if isinstance(returned, tuple) else results[0]

    base.apply = classmethod(apply)
    try:
        yield
    finally:
        base.apply = original


def node_of(
    calls: ModelCalls, function: type[Any], arguments: Sequence[Any], outputs: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Record a call of a Function, and return tensors that the exporter makes a node of.

    Nothing uses what forward computed any more, so it disappears from the graph.
    """
    line = line_of(function, arguments, outputs)
    given = {p.name: value for p, value in zip(line.parameters, arguments, strict=True)}
    known = {name: value_of(value) for name, value in given.items()}
    calls.add(Definition(line=line, function=function), known)
    made = torch.onnx.ops.symbolic_multi_out(
        line.qualname,
        inputs_of(line, given),
        {MARK: len(calls) - 1},
        dtypes=[output.dtype for output in outputs],
        shapes=[output.shape for output in outputs],
        version=1,
    )
    return tuple(made)


def line_of(function: type[Any], arguments: Sequence[Any], outputs: Sequence[Any]) -> Line:
    """Return the line of a Function as it is called: tensors of any shape, and scalars."""
    anything = (Anything(),)
    parameters: list[TensorSpec | Scalar] = []
    own = parameters_of(function)
    for place, value in enumerate(arguments):
        name = own[min(place, len(own) - 1)].name
        if place >= len(own) - 1 and own[-1].kind is own[-1].VAR_POSITIONAL:
            name = f"{name}_{place}"
        if value is None or isinstance(value, Tensor):
            parameters.append(TensorSpec(name=name, dims=anything, optional=value is None))
        else:
            parameters.append(Scalar(name=name, type=type_of(function, name, value)))
    names = ["output"] if len(outputs) == 1 else [f"output_{k}" for k in range(len(outputs))]
    returned = tuple(TensorSpec(name=free_name(n, parameters), dims=anything) for n in names)
    # A class that stands for an operator of ONNX has its name.
    is_standard = function.__name__ in naming.standard_names()
    name = f"{function.__name__}{'Function' * is_standard}"
    return Line(namespace=DOMAIN, name=name, parameters=tuple(parameters), outputs=returned)


def free_name(name: str, parameters: Sequence[TensorSpec | Scalar]) -> str:
    """Return a name that no parameter has."""
    taken = {parameter.name for parameter in parameters}
    return free_name(f"{name}_", parameters) if name in taken else name


def type_of(function: type[Any], name: str, value: object) -> Type:
    """Return the type of a scalar of a Function's call."""
    types: dict[type, Type] = {bool: "bool", int: "int", float: "float", str: "str"}
    if type(value) in types:
        return types[type(value)]
    if isinstance(value, list | tuple) and value:
        kinds = {type(part) for part in value}
        if kinds == {int}:
            return "int[]"
        if kinds <= {int, float}:
            return "float[]"
    raise OnnxSymbolic.error(
        f"{DOMAIN}::{function.__name__}: '{name}' is {an(type(value).__name__)}, which cannot be "
        "an attribute in ONNX",
        help="pass tensors, None, numbers, texts or lists of numbers",
    )


def value_of(value: Any) -> Any:  # noqa: ANN401
    """Return an argument as the call of an operator has it."""
    if not isinstance(value, Tensor):
        return value
    sizes = [str(size.node) if isinstance(size, torch.SymInt) else size for size in value.shape]
    return ir.val(None, from_torch_dtype(value.dtype), sizes)
