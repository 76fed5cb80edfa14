"""An operator that somebody else registered, taken over by its name: what it lacks is added."""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton as registry

from pullback.bind.program import find_schema
from pullback.define.dimension import Anything
from pullback.define.line import Line, Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition
from pullback.define.schema import type_of
from pullback.diagnostic import Rule, an, did_you_mean

if TYPE_CHECKING:
    from pullback.bind.kinds.kind import Kind

NotRegistered = Rule("PB381", "not-registered")
OtherSchema = Rule("PB382", "other-schema")
HasDerivative = Rule("PB383", "has-derivative")
BeyondLine = Rule("PB384", "beyond-a-line")

has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key


def line_of(qualname: str) -> Line:
    """Return the line of a registered operator, which says nothing about shapes."""
    schema = find_schema(qualname, "")
    if schema is None:
        known = [s.name for s in torch._C._jit_get_all_schemas()]
        raise NotRegistered.error(
            f"{qualname} is not registered",
            help=did_you_mean(qualname, known)
            or "import what registers it first; or give the whole line and a kernel",
        )
    namespace, _, name = qualname.partition("::")
    parameters = [parameter_of(qualname, argument) for argument in schema.arguments]
    changed = {
        tuple(a.alias_info.before_set): p
        for a, p in zip(schema.arguments, parameters, strict=True)
        if a.alias_info is not None and a.alias_info.is_write
    }
    outputs = [
        output_of(qualname, value, index, len(schema.returns), changed)
        for index, value in enumerate(schema.returns)
    ]
    return Line(
        namespace=namespace, name=name, parameters=tuple(parameters), outputs=tuple(outputs)
    )


def parameter_of(qualname: str, argument: torch._C.Argument) -> TensorSpec | Scalar:
    """Return one parameter of a registered operator."""
    text = format_type(argument)
    type, optional = text.removesuffix("?"), text.endswith("?")
    if type in ("Tensor", "Tensor[]"):
        return TensorSpec(
            name=argument.name, dims=(Anything(),), optional=optional, many=type == "Tensor[]"
        )
    if type not in ("int", "float", "bool", "str", "int[]", "float[]") or argument.kwarg_only:
        raise BeyondLine.error(
            f"{qualname}: '{argument.name}' is {an(argument.type)}"
            + (" for keywords only" if argument.kwarg_only else "")
            + ", which a line cannot say",
            help="wrap it in a Python function and give that as python=",
        )
    default = argument.default_value if argument.has_default_value() else None
    if isinstance(default, list):
        default = tuple(default)
    return Scalar(name=argument.name, type=type, default=default, optional=optional)  # pyright: ignore


def output_of(
    qualname: str,
    value: torch._C.Argument,
    index: int,
    count: int,
    changed: dict[tuple[str, ...], TensorSpec | Scalar],
) -> TensorSpec:
    """Return one output of a registered operator."""
    if value.alias_info is not None:
        own = changed.get(tuple(value.alias_info.before_set))
        if isinstance(own, TensorSpec):
            return own
    if str(value.type) != "Tensor" or value.alias_info is not None:
        raise BeyondLine.error(
            f"{qualname} returns {an(value.type)}"
            + (", a view of its input" if value.alias_info is not None else "")
            + ", which a line cannot say"
        )
    name = value.name or ("output" if count == 1 else f"output{index}")
    return TensorSpec(name=name, dims=(Anything(),))


def require_same(line: Line) -> None:
    """Stop at a line that does not fit what is registered under its name."""
    schema = find_schema(line.qualname, "")
    assert schema
    registered = [format_type(argument) for argument in schema.arguments]
    declared = [type_of(parameter) for parameter in line.parameters]
    if registered != declared or len(schema.returns) != len(line.outputs):
        raise OtherSchema.error(
            f"{line.qualname} is registered with other parameters than the line's",
            registered=schema,
            line=line,
            help="the line has the registered parameters, in their order; names may differ",
        )


def format_type(argument: torch._C.Argument) -> str:
    """Return a registered argument's type as `type_of` writes it for a line."""
    text = str(argument.type).replace("SymInt", "int")
    optional = text.startswith("Optional[")
    text = text.removeprefix("Optional[").removesuffix("]") if optional else text
    if text.startswith("List["):
        text = text.removeprefix("List[").removesuffix("]") + "[]"
    return f"{text}{'?' * optional}"


@functools.cache
def has_derivative(qualname: str) -> bool:
    """Return whether an operator came with a derivative of its own; asked before one is added."""
    custom_op = OPDEFS.get(qualname)
    if custom_op is not None:
        return custom_op._backward_fn is not None
    return any(has_kernel(qualname, key) for key in ("Autograd", "AutogradCPU")) or is_composite(
        qualname
    )


def is_composite(qualname: str) -> bool:
    """Return whether PyTorch sees through an operator to those that it calls."""
    return has_kernel(qualname, "CompositeImplicitAutograd")


def require_addable(definition: Definition) -> Definition:
    """Return the definition of an operator that is taken over, or stop if nothing can be added."""
    line = definition.line
    require_same(line)
    own = has_derivative(line.qualname)
    if own and definition.backward is not None:
        raise HasDerivative.error(
            f"{line.qualname} came with a derivative of its own, and backward= is given",
            help="leave backward= out; forward mode may be added with jvp=",
        )
    function = function_of(line) if own and definition.jvp is None else None
    return replace(definition, taken="with own derivative" if own else "yes", function=function)


def function_of(line: Line) -> type | None:
    """Return a Function that does what a `torch.library.custom_op` with a derivative does.

    Adopted, it gets what PyTorch's operator lacks: forward mode and `torch.func`.
    """
    custom_op = OPDEFS.get(line.qualname)
    if custom_op is None or custom_op._backward_fn is None:
        return None
    overload = custom_op._opoverload

    def forward(*arguments: object) -> object:
        with torch._C._AutoDispatchBelowAutograd():
            return overload(*arguments)

    names = [parameter.name for parameter in line.parameters]
    forward.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )

    def setup_context(ctx: object, inputs: tuple[object, ...], output: object) -> None:
        if custom_op._setup_context_fn is not None:
            custom_op._setup_context_fn(ctx=ctx, inputs=inputs, output=output)

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(custom_op._backward_fn),
    }
    return type(line.name, (torch.autograd.Function,), members)


def register(kind: Kind, library: torch.library.Library, overload: torch._ops.OpOverload) -> None:
    """Register what an operator lacks and the line gives: fake kernel, batching rule."""
    line = kind.definition.line
    known = not any(output.has_any_shape for output in line.outputs)
    if known and not has_fake(line.qualname):
        torch.library.register_fake(line.qualname, kind.fake(), lib=library)
    if not has_kernel(line.qualname, "FuncTorchBatched"):
        kind.register_batching(library, overload)


def has_fake(qualname: str) -> bool:
    """Return whether an operator has a fake kernel."""
    custom_op = OPDEFS.get(qualname)
    if custom_op is not None:
        return custom_op._abstract_fn is not None
    entry = registry.find(qualname)
    return entry.fake_impl.kernel is not None or has_kernel(qualname, "Meta")
