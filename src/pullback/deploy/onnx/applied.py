"""A plain `torch.autograd.Function` with a `symbolic`, which PyTorch's exporter does not ask.

While a model is exported, such a Function becomes one node as an operator does, in the domain
`autograd`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor

from pullback.bind.functions.adopted import parameters_of
from pullback.define.line import Anything, Line, Scalar, Type
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition
from pullback.deploy.onnx import naming
from pullback.deploy.onnx.symbolic import OnnxSymbolic
from pullback.deploy.onnx.translation import MARK, Calls
from pullback.diagnostic import PullbackError, an

DOMAIN = "autograd"


@contextmanager
def recorded(calls: Calls) -> Generator[None]:
    """Make a node of each call of a Function that has a `symbolic`."""
    base: Any = torch.autograd.Function
    original = base.__dict__["apply"]

    def apply(function: type[Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        returned = original.__get__(None, function)(*arguments, **options)
        if not hasattr(function, "symbolic") or not torch.compiler.is_exporting():
            return returned
        outputs = returned if isinstance(returned, tuple) else (returned,)
        try:
            made = node_of(calls, function, arguments, outputs)
        except PullbackError as error:
            # The exporter tries another way of tracing, which does not come here.
            calls.failure = error
            raise
        return made if isinstance(returned, tuple) else made[0]

    base.apply = classmethod(apply)
    try:
        yield
    finally:
        base.apply = original


def node_of(
    calls: Calls, function: type[Any], arguments: Sequence[Any], outputs: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Record a call of a Function, and return what the exporter makes a node of.

    What forward computed is used by nothing any more, so it disappears from the graph.
    """
    line = line_of(function, arguments, outputs)
    given = {p.name: value_of(value) for p, value in zip(line.parameters, arguments, strict=True)}
    calls.add(Definition(line=line, function=function), given)
    tensors = [
        value
        for parameter, value in zip(line.parameters, arguments, strict=True)
        if isinstance(parameter, TensorSpec)
    ]
    made = torch.onnx.ops.symbolic_multi_out(
        line.qualname,
        tensors,
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
    returned = tuple(TensorSpec(name=free(n, parameters), dims=anything) for n in names)
    # A class that stands for an operator of ONNX is called like that.
    taken = function.__name__ in naming.standard()
    name = f"{function.__name__}{'Function' * taken}"
    return Line(namespace=DOMAIN, name=name, parameters=tuple(parameters), outputs=returned)


def free(name: str, parameters: Sequence[TensorSpec | Scalar]) -> str:
    """Return a name that no parameter has."""
    taken = {parameter.name for parameter in parameters}
    return free(f"{name}_", parameters) if name in taken else name


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
    name = str(value.dtype).removeprefix("torch.").upper()
    dtype = ir.DataType[{"FLOAT32": "FLOAT", "FLOAT64": "DOUBLE"}.get(name, name)]
    sizes = [str(size.node) if isinstance(size, torch.SymInt) else size for size in value.shape]
    return ir.val(None, dtype, sizes)
