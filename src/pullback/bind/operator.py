"""The callable that `pb.operator` returns."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from pullback.bind import notebook
from pullback.bind.registry import operators
from pullback.bind.runtime import Runtime
from pullback.define.line import Line, Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition
from pullback.define.shape import format_spec
from pullback.diagnostic import PullbackError, Rule, an, did_you_mean, parse

if TYPE_CHECKING:
    from pullback.bind.kinds.kind import Kind
    from pullback.bind.math.flops import Cost
    from pullback.bind.math.plan import Plan
    from pullback.bind.math.shown import Derivative
    from pullback.bind.sharding import Sharding

WrongCall = Rule("PB341", "wrong-call")
NotDefined = Rule("PB342", "not-defined")
NoFormula = Rule("PB343", "no-formula")

PYTHON_TYPES: dict[str, object] = {
    **{"int": int, "float": float, "bool": bool, "str": str},
    **{"int[]": list[int], "float[]": list[float]},
}


class Operator:
    """A registered operator: call it like a function, or as `torch.ops.<namespace>.<name>`.

    Attributes:
        kind: how it is registered, computed and differentiated.
        definition: what its author declared.
        overload: PyTorch's `OpOverload`.
        file: the Python file that defines it; None in a notebook.
    """

    kind: Kind
    definition: Definition
    overload: torch._ops.OpOverload
    file: Path | None = None

    def __init__(self, kind: Kind, overload: torch._ops.OpOverload) -> None:
        definition = kind.definition
        self.kind = kind
        self.definition = definition
        self.overload = overload
        self.__name__ = definition.line.name
        self.__qualname__ = definition.line.qualname
        self.__doc__ = write_docstring(kind)
        self.__signature__ = make_signature(definition)

    @property
    def line(self) -> Line:
        """What the operator is."""
        return self.definition.line

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the operator through PyTorch's dispatcher."""
        if torch.compiler.is_compiling():
            return self.overload(*args, **kwargs)
        # Before PyTorch's own check, which accepts a tensor as a number and truncates it to an int.
        if wrong := find_misuse(self, args, kwargs):
            raise wrong
        try:
            return self.overload(*args, **kwargs)
        except RuntimeError as error:
            if self.refine(error) is error:
                raise
            raise self.refine(error) from None

    def reload(self) -> None:
        """Compile the kernels whose files have changed since; the next call runs them.

        Raises:
            PullbackError: PB2xx, one does not compile; the earlier kernels stay in use.
        """
        self.kind.reload()
        self.connect()

    def plan(self, *args: object, device: Literal["cuda"] | None = None) -> Plan:
        """Return how a call of an operator in index notation, and its backward, are computed.

        Loops are compiled and compared as in the call itself; print the result.

        Args:
            args: what the operator is called with.
            device: None, that of the tensors. "cuda" says on any machine which loops a GPU would
                have, for an H100 where there is none: threads, shared memory, and the least time
                that it takes; and registers, if nvcc is installed.

        Raises:
            PullbackError: PB343, it is not in index notation; PB1xx, PB341, it cannot be called so.
        """
        return self.kind.plan(self, args, device)

    def cost(self, *args: object) -> Cost:
        """Return what a call of an operator in index notation costs; print it.

        Nothing is computed. `flops` are operations on real numbers, each value computed once;
        `read` and `written` are bytes of the inputs and outputs; `dense` the bytes that are moved
        if every expression is a tensor. `plan` shows those of the backward too.

        Args:
            args: what the operator is called with; tensors on `meta` will do.

        Raises:
            PullbackError: PB343, it is not in index notation; PB1xx, PB341, it cannot be called so.
        """
        return self.kind.cost(self, args)

    def sharding(self) -> Sharding:
        """Return how an operator may be split over processes; print it.

        A table for the operator, and in index notation one for its gradients: a row is a way to
        split, with what each process has of each tensor. DTensors are placed accordingly.
        """
        from pullback.bind import sharding  # noqa: PLC0415  (seldom needed)

        return sharding.show_tables(self.kind.tables())

    def derivative(self) -> Derivative:
        """Return the derivative of a formula, to print: text, LaTeX, and what is saved.

        Raises:
            PullbackError: PB343, it is not a formula.
        """
        return self.kind.derivative()

    def connect(self) -> None:
        """Look up the definition that a call runs; only the native class needs to."""

    @staticmethod
    def refine(error: Exception) -> Exception:
        """Return the PullbackError that the runtime's message stands for, or the error itself."""
        return refine_error(error)

    def __repr__(self) -> str:
        return f"<operator {self.line}>"

    def _repr_html_(self) -> str:
        """Show the operator in a notebook: its line, its formula, its kernels."""
        return notebook.show_operator(self.kind)

    def _repr_latex_(self) -> str | None:
        """Show the formula of one in a notebook."""
        shown = notebook.formula_latex(self.kind)
        return f"$$\n{shown}\n$$" if shown else None

    def __reduce__(self) -> tuple[object, ...]:
        # By name: the process that unpickles has to have defined the operator.
        return (by_name, (self.line.qualname,))


def by_name(qualname: str) -> Operator:
    """Return the operator of that name; unpickling an `Operator` calls it."""
    if qualname not in operators:
        raise NotDefined.error(
            f"{qualname} is not defined in this process",
            help="import the module that defines it before unpickling",
        )
    return operators[qualname]


@functools.cache
def native_operator(runtime: Runtime) -> type[Operator]:
    """Return the class of operators that are called in C++.

    Its instances have the `__call__` above, which Dynamo traces through and which takes over
    where an argument is not plain; but calling one enters the runtime directly.
    """

    class NativeOperator(Operator, runtime.Caller):
        def __init__(self, kind: Kind, overload: torch._ops.OpOverload) -> None:
            super().__init__(kind, overload)
            self.connect()

        def connect(self) -> None:
            self.find(self.line.qualname)

    NativeOperator.__name__ = NativeOperator.__qualname__ = "Operator"
    runtime.accelerate(NativeOperator)
    return NativeOperator


def write_docstring(kind: Kind) -> str:
    """Return the docstring: the line, how it is called, its kernels, its derivative."""
    definition = kind.definition
    line = definition.line
    reference = definition.reference or definition.python or definition.function
    written = inspect.getdoc(reference) if reference else None
    if written == inspect.getdoc(torch.autograd.Function):
        written = None  # inherited, and about something else
    called = f"{line.name}{make_signature(definition)}"
    said = (f"{word}: {text}." for word, text in notebook.describe(kind))
    return "\n".join([str(line), "", called, "", *said, *(["", written] if written else [])])


def name_of(function: object) -> str:
    """Return what to call a function or class."""
    return getattr(function, "__qualname__", repr(function))


def make_signature(definition: Definition) -> inspect.Signature:
    """Return the Python signature, with the line's dimensions as annotations."""
    line = definition.line
    parameters: list[inspect.Parameter] = []
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for index, parameter in enumerate(line.parameters):
        default: object = inspect.Parameter.empty
        if isinstance(parameter, Scalar):
            annotation: Any = PYTHON_TYPES[parameter.type]
            if parameter.default is not None:
                default = parameter.default
        else:
            annotation = list[Tensor] if parameter.many else Tensor
        if parameter.optional:
            annotation = annotation | None
            if all(_may_be_left_out(other) for other in line.parameters[index:]):
                default = None
        parameters.append(
            inspect.Parameter(parameter.name, kind, default=default, annotation=annotation)
        )
    if definition.masked:
        mask = inspect.Parameter.KEYWORD_ONLY
        annotation = list[bool] | None
        parameters.append(
            inspect.Parameter("output_mask", mask, default=None, annotation=annotation)
        )
    count = len(line.outputs)
    returns = Tensor if count == 1 else tuple.__class_getitem__((Tensor,) * count)
    return inspect.Signature(parameters, return_annotation=returns)


def _may_be_left_out(parameter: TensorSpec | Scalar) -> bool:
    return parameter.may_be_left_out if isinstance(parameter, Scalar) else parameter.optional


def refine_error(error: Exception) -> Exception:
    """Return the PullbackError whose text a C++ exception carries, or the error itself."""
    found = None if isinstance(error, PullbackError) else parse(str(error))
    return PullbackError(found) if found else error


def find_misuse(
    operator: Operator, args: tuple[object, ...], kwargs: dict[str, object]
) -> PullbackError | None:
    """Return the error for arguments that do not fit the signature, or None if they do."""
    line, called = operator.line, operator.__signature__
    for name in kwargs:
        if name not in called.parameters:
            return WrongCall.error(
                f"{line.qualname}: it has no parameter '{name}'",
                line=line,
                help=did_you_mean(name, called.parameters),
            )
    try:
        bound = called.bind(*args, **kwargs)
    except TypeError as error:
        return WrongCall.error(f"{line.qualname}: {error}", line=line)
    for parameter in line.parameters:
        value = bound.arguments.get(parameter.name)
        if parameter.name in bound.arguments and not fits(parameter, value):
            return WrongCall.error(
                f"{line.qualname}: '{parameter.name}' is {describe_type(value)}, "
                f"the line says {format_parameter(parameter)}",
                value=_shorten(value),
                help=cure_for(parameter, value),
            )
    return None


def require_call(operator: Operator, args: tuple[object, ...]) -> None:
    """Stop at arguments that do not fit the signature.

    Raises:
        PullbackError: PB341.
    """
    if wrong := find_misuse(operator, args, {}):
        raise wrong


def fits(parameter: TensorSpec | Scalar, value: object) -> bool:
    """Return whether a value has the type that the line says."""
    if value is None:
        return parameter.optional
    if isinstance(parameter, TensorSpec):
        if parameter.many:
            return isinstance(value, list | tuple) and all(isinstance(v, Tensor) for v in value)
        return isinstance(value, Tensor)
    if parameter.type.endswith("[]"):
        kind = parameter.type[:-2]
        return isinstance(value, list | tuple) and all(is_number(v, kind) for v in value)
    return is_number(value, parameter.type)


def is_number(value: object, type: str) -> bool:
    """Return whether a value is of a scalar's type; an int is a float, a bool is not a number."""
    match type:
        case "int":
            is_int = isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
            return is_int and not is_wide(value)
        case "float":
            return isinstance(value, int | float | torch.SymFloat) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case _:
            return isinstance(value, str)


def is_wide(value: object) -> bool:
    """Return whether a value is an int of Python's that has no 64 bits, as PyTorch's have."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def describe_type(value: object) -> str:
    """Return what a value is, in words."""
    return "an int of more than 64 bits" if is_wide(value) else an(type(value).__name__)


def format_parameter(parameter: TensorSpec | Scalar) -> str:
    """Print a parameter as in the line, without its default."""
    if isinstance(parameter, TensorSpec):
        return format_spec(parameter) + "*" * parameter.many
    return f"{parameter.name}: {parameter.type}{'?' * parameter.optional}"


def cure_for(parameter: TensorSpec | Scalar, value: object) -> str | None:
    """Return what to do about a value of the wrong type."""
    if isinstance(parameter, Scalar):
        return f"pass {an(parameter.type)}"
    if value is None:
        return f"pass a tensor, or mark it optional in the line: {format_spec(parameter)}?"
    return f"make a tensor of it: torch.as_tensor({parameter.name})"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
