"""A Python function -> nodes: it is called once, with symbols in place of tensors and scalars."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.define.dimension import Batch
from pullback.define.line import Line, Scalar, Tensor
from pullback.define.math.functions import find_function
from pullback.define.math.grammar import FormulaSyntax
from pullback.define.math.language import (
    FormulaArguments,
    FormulaOutputs,
    FormulaPlace,
    FormulaType,
    build_call,
)
from pullback.define.math.node import Node, number
from pullback.define.math.other_words import suggest_instead
from pullback.diagnostic import an

KINDS = {float: "float", int: "int", bool: "bool"}


def kind_of(annotation: object, default: object) -> str | None:
    """Return the type of a scalar parameter, by its annotation or else by its default."""
    if annotation in ("float", "int", "bool"):
        return str(annotation)  # as text, by `from __future__ import annotations`
    for candidate in (annotation, type(default)):
        if isinstance(candidate, type) and candidate in KINDS:
            return KINDS[candidate]
    return None


class Symbol:
    """Stands for an element of a tensor, or for a scalar, while a function is traced.

    PyTorch's functions, its methods and Python's operators make nodes of it.

    Attributes:
        node: what it is.
        of: whose formula it is, for messages.
    """

    def __init__(self, node: Node, of: str) -> None:
        self.node = node
        self.of = of

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Symbol:
        """Return the node of one of PyTorch's functions."""
        return call(func.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        """Return one of PyTorch's methods: `x.tanh()`."""
        if find_function(name) is None:
            cure = suggest_instead(name)
            raise AttributeError(f"a formula has no '{name}'" + (f"; {cure}" if cure else ""))
        return lambda *args, **kwargs: call(name, (self, *args), kwargs)

    def __bool__(self) -> bool:
        """Refuse to be a condition of Python's: `if x > 0`."""
        raise FormulaType.error(
            f"{self.of}: a formula is the same for every element, so Python cannot ask whether one "
            "is true",
            help="write torch.where(condition, a, b)",
        )

    def __float__(self) -> float:
        """Refuse to be a number: `math.tanh(x)`."""
        raise FormulaType.error(
            f"{self.of}: a formula is traced with symbols, which are no numbers",
            help="use torch's functions: torch.tanh(x), not math.tanh(x)",
        )

    __int__ = __index__ = __float__


def call(name: str, args: Sequence[object], keywords: Mapping[str, object]) -> Symbol:
    """Return the call of a function of the table, by the name that PyTorch gives it."""
    of = next(arg.of for arg in (*args, *keywords.values()) if isinstance(arg, Symbol))
    values = [value_of(arg, of) for arg in args]
    words = {word: value_of(value, of) for word, value in keywords.items() if value is not None}
    return Symbol(build_call(name, values, words, FormulaPlace(of)), of)


def value_of(value: object, of: str) -> Node | str:
    """Return a symbol's node, a number as one, or a word."""
    if isinstance(value, Symbol):
        return value.node
    if isinstance(value, str):
        return value
    if isinstance(value, int) and abs(value) >= 2**63:
        raise FormulaSyntax.error(f"{of}: {value} does not fit in 64 bits")
    if isinstance(value, bool | int | float):
        return number(value)
    raise FormulaType.error(
        f"{of}: a formula cannot use {an(type(value).__name__)}",
        help="make it a parameter of the function, or a number",
    )


def _operator(name: str, *, swapped: bool = False) -> Callable[[Symbol, object], Symbol]:
    def apply(self: Symbol, other: object) -> Symbol:
        return call(name, (other, self) if swapped else (self, other), {})

    return apply


BINARY = {
    **{"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"},
    **{"mod": "remainder", "floordiv": "floor_divide"},
}
for word, name in BINARY.items():
    setattr(Symbol, f"__{word}__", _operator(name))
    setattr(Symbol, f"__r{word}__", _operator(name, swapped=True))
TESTS = ("lt", "le", "gt", "ge", "eq", "ne")
CONDITIONS = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor"}
for name in TESTS:
    setattr(Symbol, f"__{name}__", _operator(name))
for word, name in CONDITIONS.items():
    setattr(Symbol, f"__{word}__", _operator(name))
    setattr(Symbol, f"__r{word}__", _operator(name, swapped=True))
for word, name in (("neg", "neg"), ("abs", "abs"), ("invert", "logical_not")):
    setattr(Symbol, f"__{word}__", lambda self, name=name: call(name, (self,), {}))
Symbol.__pos__ = lambda self: self  # pyright: ignore[reportAttributeAccessIssue]
Symbol.__hash__ = object.__hash__


def parameters_of(function: Callable[..., Any], of: str) -> list[inspect.Parameter]:
    """Return a function's parameters, by whose names it is called."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except TypeError:
        kind = type(function).__name__
        raise FormulaArguments.error(
            f"{of}: a formula is made of a function, and this is {an(kind)}"
        ) from None
    except ValueError:
        found = []  # built in, and without a signature
    for parameter in found:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise FormulaArguments.error(f"{of}: a formula has no *{parameter.name}")
    if not found or any(parameter.kind is parameter.POSITIONAL_ONLY for parameter in found):
        raise FormulaArguments.error(
            f"{of}: the function's parameters have no names", help="write lambda x: torch.tanh(x)"
        )
    return found


def line_of(qualname: str, function: Callable[..., Any]) -> Line:
    """Return the line that a function's parameters imply: scalars by annotation or default.

    Args:
        qualname: "demo::name".
        function: its other parameters are tensors of any shape that broadcast.
    """
    parameters: list[Tensor | Scalar] = []
    for parameter in parameters_of(function, qualname):
        default = None if parameter.default is parameter.empty else parameter.default
        kind = kind_of(parameter.annotation, default)
        if kind is None:
            parameters.append(Tensor(name=parameter.name, dims=(Batch(),)))
        else:
            value = float(default) if kind == "float" and default is not None else default
            parameters.append(Scalar(name=parameter.name, type=kind, default=value))  # pyright: ignore
    namespace, _, name = qualname.partition("::")
    output = Tensor(name="output", dims=(Batch(),))
    return Line(namespace=namespace, name=name, parameters=tuple(parameters), outputs=(output,))


def trace_function(
    function: Callable[..., Any], names: Mapping[str, Node], of: str
) -> tuple[list[Node], list[str]]:
    """Return what a function returns for some symbols, and the names if it is a dictionary."""
    symbols = {name: Symbol(node, of) for name, node in names.items()}
    own = [parameter.name for parameter in parameters_of(function, of)]
    if set(own) != set(symbols):
        raise FormulaArguments.error(
            f"{of}: the function's parameters are not the line's",
            function=", ".join(own),
            line=", ".join(symbols),
        )
    try:
        returned = function(**symbols)
    except (TypeError, AttributeError) as error:
        raise FormulaSyntax.error(
            f"{of}: the function does what a formula cannot",
            reason=error,
            help="a formula is made of operators, of torch's functions and methods element by "
            "element, and of numbers",
        ) from error
    values = list(returned.values()) if isinstance(returned, Mapping) else returned
    values = list(values) if isinstance(values, tuple | list) else [values]
    nodes = [value_of(value, of) for value in values if value is not None]
    kept = [node for node in nodes if isinstance(node, Node)]
    if not kept or len(kept) < len(values):
        raise FormulaOutputs.error(f"{of}: the function returns nothing, or something else")
    return kept, list(map(str, returned)) if isinstance(returned, Mapping) else []
