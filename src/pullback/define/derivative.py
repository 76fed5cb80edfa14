"""A derivative as an author declares it: expressions by name, an operator's name, or a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pullback.define.line import Line, Tensor, TwoMeanings
from pullback.diagnostic import PullbackError, Rule, did_you_mean

NoDerivative = Rule("PB308", "no-derivative")
NoForwardMode = Rule("PB309", "no-forward-mode")
UnknownName = Rule("PB121", "unknown-name")
ExpressionSyntax = Rule("PB122", "expression-syntax")
DerivativeKeys = Rule("PB123", "derivative-keys")

# What `backward=` and `jvp=` take.
Declared = Mapping[str, str | None] | str | Callable[..., object]


Plain = int | float | bool | None


@dataclass(frozen=True)
class Variable:
    """A gradient, a tangent, an input, an output or a scalar, by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Constant:
    """A number, True, False or None; or several of them, `[0, 1]`, as a tuple."""

    value: Plain | tuple[Plain, ...]

    def __str__(self) -> str:
        return repr(list(self.value) if isinstance(self.value, tuple) else self.value)


@dataclass(frozen=True)
class Application:
    """`namespace::name.overload(arguments)`: any operator of PyTorch's dispatcher."""

    operator: str
    overload: str
    arguments: tuple[Expression, ...]

    def __str__(self) -> str:
        overload = f".{self.overload}" if self.overload else ""
        return f"{self.operator}{overload}({', '.join(map(str, self.arguments))})"


Expression = Variable | Constant | Application

TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*(?:::[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)?)"
    r"|(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<mark>[][(),]))"
)
PLAIN = re.compile(r"\s*(?:[A-Za-z_]\w*|-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)?\s*")
CONSTANTS = {"True": True, "False": False, "None": None}
DEEPEST = 100


def parse(text: str, *, of: str) -> Expression:
    """Parse an expression: `grad`, `demo::mul(grad, b)`, `aten::mul.Scalar(grad, 2)`.

    Args:
        text: the expression.
        of: what it is the derivative of, for messages.

    Raises:
        PullbackError: PB122, with the column and what was expected there.
    """
    return _Parser(text, of).run()


class _Parser:
    def __init__(self, text: str, of: str) -> None:
        self.text = text
        self.of = of
        self.position = 0
        self.depth = 0

    def run(self) -> Expression:
        expression = self.expression()
        if self.text[self.position :].strip():
            raise self.error("the end")
        return expression

    def expression(self) -> Expression:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"no more than {DEEPEST} calls within each other")
        expression = self.one()
        self.depth -= 1
        return expression

    def one(self) -> Expression:
        if self.accept("["):
            return Constant(tuple(self.listed()))
        token = TOKEN.match(self.text, self.position)
        if not token or token.lastgroup == "mark":
            raise self.error("a name, a number or the call of an operator")
        self.position = token.end()
        word = token[token.lastgroup or 0]
        if token.lastgroup == "number":
            return Constant(float(word) if re.search(r"[.eE]", word) else int(word))
        if "::" in word:
            operator, _, overload = word.partition(".")
            return Application(operator, overload, tuple(self.arguments()))
        return Constant(CONSTANTS[word]) if word in CONSTANTS else Variable(word)

    def arguments(self) -> Iterator[Expression]:
        if not self.accept("("):
            raise self.error("'('")
        return self.until(")")

    def until(self, end: str) -> Iterator[Expression]:
        if self.accept(end):
            return
        while True:
            yield self.expression()
            if self.accept(end):
                return
            if not self.accept(","):
                raise self.error(f"',' or '{end}'")

    def listed(self) -> Iterator[Plain]:
        start = self.position
        for each in self.until("]"):
            if not isinstance(each, Constant) or isinstance(each.value, tuple | None):
                self.position = start
                raise self.error("a list of numbers")
            yield each.value

    def accept(self, mark: str) -> bool:
        token = TOKEN.match(self.text, self.position)
        if not token or token["mark"] != mark:
            return False
        self.position = token.end()
        return True

    def error(self, expected: str) -> PullbackError:
        rest = self.text[self.position :]
        column = self.position + len(rest) - len(rest.lstrip())
        return ExpressionSyntax.error(
            f"{self.of}: column {column + 1}: expected {expected}",
            at=f"{self.text}\n{' ' * column}^",
            help='a derivative is a name, calls of operators, "demo::mul(grad, b)", or a formula '
            'without such calls, "grad * cos(x)", "sum[n](grad[n, d])"',
        )


def formulas_in(declared: object) -> dict[str, str]:
    """Return the entries of a derivative that are formulas, such as `grad * cos(x)`."""
    if not isinstance(declared, Mapping):
        return {}
    return {n: t for n, t in declared.items() if isinstance(t, str) and is_formula(t)}


def is_formula(text: str) -> bool:
    """Return whether a text is more than a name, a number, or calls of operators."""
    return "::" not in text and not PLAIN.fullmatch(text)


def names_in(expression: Expression) -> Iterator[str]:
    """Yield the names that an expression refers to."""
    if isinstance(expression, Variable):
        yield expression.name
    elif isinstance(expression, Application):
        for argument in expression.arguments:
            yield from names_in(argument)


def require_names(expression: Expression, known: list[str], *, of: str) -> None:
    """Stop at an undefined name."""
    for name in names_in(expression):
        if name not in known:
            raise unknown_name(name, known, of=of)


def unknown_name(name: str, known: list[str], *, of: str) -> PullbackError:
    """Return the error for an undefined name."""
    return UnknownName.error(
        f"{of} uses '{name}', which is not defined",
        have=", ".join(sorted(known)),
        help=did_you_mean(name, known),
    )


def differentiable(line: Line) -> list[str]:
    """Return the inputs that can have a gradient: of the shared dtype or of a floating one."""
    return [t.name for t in line.tensors if is_floating(t.dtype)]


def is_floating(dtype: str | None) -> bool:
    """Return whether a tensor of this dtype can have a gradient; None is the shared dtype."""
    return dtype is None or "float" in dtype or "complex" in dtype


def has_derivative(output: Tensor) -> bool:
    """Return whether an output has a derivative: its dtype can, and it is not marked `!`."""
    return is_floating(output.dtype) and not output.detached


def grad_names(line: Line) -> dict[str, int]:
    """Return the names that a backward may use for gradients, each with its output's index."""
    of = {index: output.name for index, output in enumerate(line.outputs) if not output.detached}
    return _incoming(line, "grad", of)


def tangent_names(line: Line) -> dict[str, int]:
    """Return the names that a jvp may use for tangents, each with its input's index."""
    of = {index: tensor.name for index, tensor in enumerate(line.tensors)}
    return _incoming(line, "tangent", of)


def _incoming(line: Line, word: str, of: Mapping[int, str]) -> dict[str, int]:
    taken = {value.name for value in (*line.parameters, *line.outputs)}
    names = {f"{word}_{name}": index for index, name in of.items()}
    kind = {"grad": "gradient"}.get(word, word)
    for name in names:
        if name in taken:
            raise TwoMeanings.error(
                f"{line.qualname}: '{name}' is both a tensor of the line and the arriving {kind}",
                help="give the tensor another name",
            )
    # A tensor called `grad` keeps its name: in the derivative of a backward that is its input.
    return {word: min(of), **names} if len(of) == 1 and word not in taken else names


def require_keys(given: Mapping[str, object], wanted: list[str], *, of: str, kind: str) -> None:
    """Stop unless a dictionary of derivatives has exactly the expected keys."""
    for key in given:
        if key not in wanted:
            raise DerivativeKeys.error(
                f"{of} has an entry for '{key}', which is no {kind}",
                have=", ".join(wanted),
                help=did_you_mean(key, wanted),
            )
    missing = [name for name in wanted if name not in given]
    if missing:
        raise DerivativeKeys.error(
            f"{of} has no entry for '{missing[0]}'",
            help=f'add "{missing[0]}": an expression, or None if the gradient is always zero',
        )
