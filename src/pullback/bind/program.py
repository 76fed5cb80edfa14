"""A declared derivative -> the program that the runtime runs: calls of operators, wired by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import torch

from pullback.define import derivative
from pullback.define.derivative import Constant, Expression, Variable
from pullback.define.line import Line
from pullback.define.operator import Definition
from pullback.define.schema import schema
from pullback.diagnostic import Rule, an, did_you_mean

UnknownOperator = Rule("PB321", "unknown-operator")
WrongArguments = Rule("PB322", "wrong-arguments")
UnwiredResult = Rule("PB323", "unwired-result")


class Origin(Enum):
    """Where an argument comes from: `Reference::Origin` in operator.h."""

    grad = auto()
    tangent = auto()
    argument = auto()
    output = auto()
    result = auto()
    constant = auto()
    mask = auto()


# How the items of a list are converted, by the types given and wanted.
LISTS: dict[tuple[str, str], type] = {
    **{("List[]", f"List[{item}]"): int for item in ("int", "float", "bool")},
    **{(f"List[{given}]", "List[float]"): float for given in ("int", "float or int")},
}


@dataclass(frozen=True)
class Reference:
    """One argument of a call, or one result of a program."""

    origin: Origin
    index: int = 0
    result: int = 0
    optional: bool = False
    constant: object = None

    def fields(self) -> dict[str, object]:
        """Return it as the runtime reads it."""
        return {**vars(self), "origin": self.origin.name}


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator."""

    operator: str
    overload: str
    arguments: tuple[Reference, ...]
    results: int

    def fields(self) -> dict[str, object]:
        """Return it as the runtime reads it."""
        return {**vars(self), "arguments": tuple(each.fields() for each in self.arguments)}


@dataclass(frozen=True)
class Program:
    """Calls in an order in which they can run, and a reference to each result; None is zero."""

    calls: tuple[OperatorCall, ...]
    results: tuple[Reference | None, ...]

    def fields(self) -> dict[str, object]:
        """Return it as the runtime reads it."""
        results = tuple(result.fields() if result else None for result in self.results)
        return {"calls": tuple(call.fields() for call in self.calls), "results": results}


@dataclass
class Wiring:
    """The names of one operator's derivative, and the calls found so far.

    Attributes:
        definition: the operator whose derivative it is.
        incoming: the names of what arrives, and their index: gradients or tangents.
        origin: which of the two arrives.
        lines: the lines of the operators defined so far, by qualname.
        of: what to call the derivative in messages.
    """

    definition: Definition
    incoming: Mapping[str, int]
    origin: Origin
    lines: Mapping[str, Line]
    of: str
    calls: list[OperatorCall] = field(default_factory=list["OperatorCall"])

    @property
    def line(self) -> Line:
        """The line of the operator whose derivative it is."""
        return self.definition.line

    @property
    def names(self) -> dict[str, Reference]:
        """Every name that the derivative can use."""
        return named_references(self.line, self.incoming, self.origin)

    def expression(self, expression: Expression, *, optional: bool = False) -> Reference:
        """Return the reference of an expression's value, with its calls added."""
        if isinstance(expression, Constant):
            return Reference(Origin.constant, constant=expression.value)
        if isinstance(expression, Variable):
            return self.name(expression.name, optional=optional)
        target = self.schema(expression.operator, expression.overload)
        given = len(expression.arguments)
        if given > len(target.arguments):
            raise self.wrong(target, f"{given} arguments are given for {len(target.arguments)}")
        if len(target.returns) != 1:
            raise self.wrong(target, f"it returns {len(target.returns)} values, not one")
        arguments: list[Reference] = []
        for index, argument in enumerate(target.arguments):
            if index < given:
                optional = may_be_none(argument)
                reference = self.expression(expression.arguments[index], optional=optional)
                arguments.append(self.fitted(reference, argument, target))
            else:
                arguments.append(self.default(argument, target))
        return self.call(expression.operator, expression.overload, arguments, results=1)

    def by_name(self, operator: str, wanted: Sequence[str]) -> list[Reference | None]:
        """Wire a whole operator by its parameters' and outputs' names."""
        operator, _, overload = operator.partition(".")
        target = self.schema(operator, overload)
        arguments: list[Reference] = []
        for argument in target.arguments:
            if argument.name == "output_mask":
                arguments.append(Reference(Origin.mask))
            elif argument.name in self.names:
                reference = self.name(argument.name, optional=may_be_none(argument))
                arguments.append(self.fitted(reference, argument, target))
            elif argument.has_default_value():
                arguments.append(self.default(argument, target))
            else:
                raise derivative.unknown_name(
                    argument.name, list(self.names), of=f"{self.of}: '{operator}'"
                )
        outputs = self.outputs_of(operator, target, wanted)
        call = self.call(operator, overload, arguments, results=len(outputs))
        return [
            Reference(Origin.result, call.index, outputs.index(name)) if name in outputs else None
            for name in wanted
        ]

    def outputs_of(
        self, operator: str, target: torch._C.FunctionSchema, wanted: Sequence[str]
    ) -> list[str]:
        """Return the names of an operator's outputs, each of which has to be wanted."""
        if operator in self.lines:
            outputs = [output.name for output in self.lines[operator].outputs]
        elif len(target.returns) == len(wanted):
            # An operator without a line: its results are taken in order.
            return list(wanted)
        else:
            raise self.wrong(target, f"it returns {len(target.returns)} values for {len(wanted)}")
        for name in outputs:
            if name not in wanted:
                raise UnwiredResult.error(
                    f"{self.of}: '{operator}' returns '{name}', which is not asked for",
                    asked=", ".join(wanted),
                    help=did_you_mean(name, wanted),
                )
        return outputs

    def call(
        self, operator: str, overload: str, arguments: list[Reference], *, results: int
    ) -> Reference:
        """Add a call, or reuse an equal one; return its first result."""
        call = OperatorCall(operator, overload, tuple(arguments), results)
        if call not in self.calls:
            self.calls.append(call)
        return Reference(Origin.result, self.calls.index(call))

    def name(self, name: str, *, optional: bool) -> Reference:
        """Return the reference of a name."""
        if name not in self.names:
            raise derivative.unknown_name(name, list(self.names), of=self.of)
        reference = self.names[name]
        return Reference(reference.origin, reference.index, optional=optional)

    def schema(self, operator: str, overload: str) -> torch._C.FunctionSchema:
        """Return the schema of the operator itself, or of a registered one."""
        if operator == self.line.qualname:
            own = self.definition
            text = schema(self.line, masked=own.masked, symbols=own.symbols)
            return torch._C.parse_schema(f"{self.line.namespace}::{text}")
        found = find_schema(operator, overload)
        if found is None and "::" not in operator:
            raise UnknownOperator.error(
                f"{self.of} names '{operator}', but an operator has a namespace",
                help=did_you_mean(f"{self.line.namespace}::{operator}", self.lines),
            )
        if found is None:
            overloads = torch._C._jit_get_schemas_for_operator(operator)
            have = ", ".join(s.overload_name or "(none)" for s in overloads)
            raise UnknownOperator.error(
                f"{self.of} calls {operator}, which is not registered"
                + (f" with the overload '{overload}'" if overloads else ""),
                overloads=have or None,
                help=did_you_mean(operator, [*self.lines, self.line.qualname])
                or "define it before this operator",
            )
        return found

    def fitted(
        self, reference: Reference, argument: torch._C.Argument, target: torch._C.FunctionSchema
    ) -> Reference:
        """Return the reference as the argument's type takes it, or stop."""
        type_ = self.type_of(reference)
        wanted = str(argument.type)
        if may_be_none(argument):
            wanted = wanted.removeprefix("Optional[").removesuffix("]")
        if wanted == type_ or (type_ == "NoneType" and may_be_none(argument)):
            return reference
        if reference.origin is Origin.constant and isinstance(reference.constant, int | float):
            if wanted == "float":
                return Reference(Origin.constant, constant=float(reference.constant))
            if wanted == "number":
                return reference
        if isinstance(reference.constant, tuple) and (type_, wanted) in LISTS:
            item = LISTS[type_, wanted]
            return Reference(Origin.constant, constant=tuple(map(item, reference.constant)))
        if wanted == "number" and type_ in ("int", "float", "bool"):
            return reference
        raise self.wrong(target, f"'{argument.name}' is {an(wanted)}, and {an(type_)} is given")

    def type_of(self, reference: Reference) -> str:
        """Return the type of a reference, as a schema prints it."""
        if isinstance(reference.constant, tuple):
            kinds = sorted({type(each).__name__ for each in reference.constant})
            return f"List[{' or '.join(kinds)}]"
        if reference.origin is Origin.constant:
            return type(reference.constant).__name__
        if reference.origin is Origin.argument:
            parameter = self.line.parameters[reference.index]
            return getattr(parameter, "type", "Tensor")
        return "Tensor"

    def default(self, argument: torch._C.Argument, target: torch._C.FunctionSchema) -> Reference:
        """Return the default of an argument that is not given."""
        if not argument.has_default_value():
            raise self.wrong(target, f"'{argument.name}' is not given")
        default = argument.default_value
        return Reference(
            Origin.constant, constant=tuple(default) if isinstance(default, list) else default
        )

    def wrong(self, target: torch._C.FunctionSchema, why: str) -> Exception:
        """Return the error for a call that does not fit."""
        return WrongArguments.error(
            f"{self.of} calls {target.name} with arguments that do not fit: {why}", schema=target
        )


def named_references(
    line: Line, incoming: Mapping[str, int], origin: Origin
) -> dict[str, Reference]:
    """Return the reference of every name that a derivative can use.

    Args:
        line: the operator whose derivative it is.
        incoming: the names of what arrives, and their index.
        origin: what arrives, gradients or tangents.
    """
    arguments = {p.name: Reference(Origin.argument, i) for i, p in enumerate(line.parameters)}
    outputs = {o.name: Reference(Origin.output, i) for i, o in enumerate(line.outputs)}
    return {
        **arguments,
        **outputs,
        **{n: Reference(origin, index) for n, index in incoming.items()},
    }


def find_schema(operator: str, overload: str) -> torch._C.FunctionSchema | None:
    """Return a registered operator's schema."""
    try:
        return torch._C._get_schema(operator, overload)
    except RuntimeError:
        return None


def may_be_none(argument: torch._C.Argument) -> bool:
    """Return whether an argument takes None."""
    return str(argument.type).startswith("Optional[")


def backward(definition: Definition, declared: object, lines: Mapping[str, Line]) -> Program:
    """Return the program of `backward=`: one result for each input tensor.

    Args:
        definition: the operator.
        declared: expressions by input, or the name of an operator.
        lines: those of the operators defined so far.
    """
    line = definition.line
    of = f"the derivative of {line.qualname}"
    wiring = Wiring(definition, derivative.grad_names(line), Origin.grad, lines, of)
    names = [tensor.name for tensor in line.tensors]
    wanted = derivative.differentiable(line)
    return _read_program(wiring, declared, names, wanted, prefix="grad_")


def jvp(definition: Definition, declared: object, lines: Mapping[str, Line]) -> Program:
    """Return the program of `jvp=`: one result for each output."""
    line = definition.line
    of = f"the jvp of {line.qualname}"
    wiring = Wiring(definition, derivative.tangent_names(line), Origin.tangent, lines, of)
    names = [output.name for output in line.outputs]
    wanted = [output.name for output in line.outputs if derivative.has_derivative(output)]
    return _read_program(wiring, declared, names, wanted, prefix="tangent_")


def _read_program(
    wiring: Wiring, declared: object, names: list[str], wanted: list[str], *, prefix: str
) -> Program:
    if isinstance(declared, str):
        results = wiring.by_name(declared, [prefix + name for name in wanted])
        found = dict(zip(wanted, results, strict=True))
    else:
        assert isinstance(declared, Mapping)
        kind = "input with a gradient" if prefix == "grad_" else "output with a tangent"
        derivative.require_keys(declared, wanted, of=wiring.of, kind=kind)
        found = {name: _read_entry(wiring, name, declared[name]) for name in wanted}
    return Program(tuple(wiring.calls), tuple(found.get(name) for name in names))


def _read_entry(wiring: Wiring, name: str, text: object) -> Reference | None:
    if text is None:
        return None
    of = f"{wiring.of} for '{name}'"
    if not isinstance(text, str):
        raise derivative.ExpressionSyntax.error(
            f"{of} is {an(type(text).__name__)}, and not an expression",
            help=f'write it as a text, "{name}": "2*grad", or None if it is always zero',
        )
    expression = derivative.parse(text, of=of)
    derivative.require_names(expression, list(wiring.names), of=of)
    return wiring.expression(expression)
