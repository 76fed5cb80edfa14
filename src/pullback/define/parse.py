"""Text -> `Line`, by recursive descent; a syntax error points at its column."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from pullback.define.dimension import (
    INT_LIMIT,
    PRECEDENCE,
    Anything,
    Arithmetic,
    Batch,
    Dim,
    Expression,
    Name,
    Number,
    Operation,
    Syntax,
)
from pullback.define.line import PYTHON_TYPES, Default, Line, Scalar, Tensor, Type
from pullback.diagnostic import PullbackError, did_you_mean

Kind = Literal["name", "float", "int", "string", "sign", "other", "end"]
Item = TypeVar("Item")
# Names, numbers and minus signs in one dimension: Python's stack has no room for many more.
MOST_PARTS = 200

# The escapes are those that `repr` writes; whatever matches is a Python literal.
ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})"
PLAIN = r"\\\x00-\x08\x0a-\x1f\ud800-\udfff"
TOKEN = re.compile(
    rf"""
      (?P<name>   [A-Za-z_]\w* )
    | (?P<float>  (?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ )
    | (?P<int>    \d+ )
    | (?P<string> '(?:[^'{PLAIN}]|{ESCAPE})*' | "(?:[^"{PLAIN}]|{ESCAPE})*" )
    | (?P<sign>   \.\.\. | :: | -> | // | [-+*%()\[\]:,?!=] )
    | (?P<end>    \Z )
    | (?P<other>  . )
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Token:
    """A word of the text and where it stands."""

    kind: Kind
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end"
        return "a quote that opens no string" if self.text in ("'", '"') else f"'{self.text}'"


def parse(text: str) -> Line:
    """Return the `Line` that `text` says.

    Args:
        text: such as `demo::linear(input[n, i], weight[o, i], bias[o]?) -> output[n, o]`.

    Raises:
        PullbackError: PB101, a syntax error; PB102 to PB109, a line that makes no sense.
    """
    return Parser(text).line()


class Parser:
    """Reads a text token by token; each method reads what it is named after."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.token = self.read(0)
        self.parts = 0  # of the dimension at hand
        self.limits: dict[str, str] = {}

    def read(self, position: int) -> Token:
        """Return the token at or after `position`."""
        while position < len(self.text) and self.text[position].isspace():
            position += 1
        match = TOKEN.match(self.text, position)
        assert match, "the last alternative takes every character"
        kind = cast("Kind", match.lastgroup)
        return Token(kind=kind, text=match.group(), start=position, end=match.end())

    def advance(self) -> Token:
        """Return the present token and go to the next."""
        token, self.token = self.token, self.read(self.token.end)
        return token

    def accept(self, *signs: str) -> Token | None:
        """Go past the present token if it is one of `signs`."""
        return self.advance() if self.token.kind == "sign" and self.token.text in signs else None

    def expect(self, sign: str, expected: str | None = None, help: str | None = None) -> Token:
        """Go past `sign` or stop."""
        token = self.accept(sign)
        if not token:
            raise self.error(expected or f"'{sign}'", help)
        return token

    def error(self, expected: str, help: str | None = None) -> PullbackError:
        """Return the error that says what was expected instead of the present token."""
        start = self.token.start
        begin = self.text.rfind("\n", 0, start) + 1
        row = self.text[begin:].partition("\n")[0].replace("\t", " ")
        at = f"{row}\n{' ' * (start - begin)}^"
        return Syntax.error(f"expected {expected}, found {self.token}", at=at, help=help)

    def name(self, expected: str) -> str:
        """Read an identifier."""
        if self.token.kind != "name":
            raise self.error(expected)
        return self.advance().text

    def separated(self, item: Callable[[], Item], end: str) -> list[Item]:
        """Read items with commas between them, and `end`."""
        items = [item()]
        while not self.accept(end):
            if not self.accept(","):
                raise self.error(f"',' or '{end}'")
            items.append(item())
        return items

    def line(self) -> Line:
        """Read the whole text."""
        namespace = self.name("a namespace")
        self.expect("::")
        name = self.name("the name of the operator")
        self.expect("(")
        parameters = [] if self.accept(")") else self.separated(self.parameter, ")")
        self.expect("->")
        outputs = self.separated(self.output, ")") if self.accept("(") else [self.output()]
        if self.limits and self.token.text != "=":
            raise self.error("'=' and a formula, whose indices have limits")
        return Line(
            namespace=namespace,
            name=name,
            parameters=tuple(parameters),
            outputs=tuple(outputs),
            formula=self.formula(),
            limits=tuple(self.limits.items()),
        )

    def formula(self) -> str | None:
        """Read the end, or take everything after `=` as it is."""
        if self.token.kind == "end":
            return None
        several = "several outputs stand in brackets: -> (a[n], b[n]) = ..."
        cure = several if self.token.text == "," else None
        formula = self.text[self.expect("=", "'=' or the end", cure).end :].strip()
        if not formula:
            raise self.error("a formula")
        return formula

    def parameter(self) -> Tensor | Scalar:
        """Read `name[dims]` or `name: type`."""
        name = self.name("a parameter")
        if self.accept("["):
            return self.tensor(name, self.dims(self.input_dim))
        cure = f"a number is {name}: int or {name}: float, a tensor without dimensions {name}[]"
        self.expect(":", "'[' or ':'", cure)
        return self.scalar(name)

    def output(self) -> Tensor:
        """Read an output, whose dimensions may be computed."""
        name = self.name("an output")
        self.expect("[")
        return self.tensor(name, self.dims(self.limited_dim))

    def tensor(self, name: str, dims: tuple[Dim, ...]) -> Tensor:
        """Read what follows `]`: a dtype, then `?`, `*` or `!`."""
        dtype = self.name("a dtype") if self.accept(":") else None
        mark = self.accept("?", "*", "!")
        optional, many, detached = (bool(mark and mark.text == sign) for sign in "?*!")
        return Tensor(
            name=name, dims=dims, dtype=dtype, optional=optional, many=many, detached=detached
        )

    def dims(self, dim: Callable[[], Dim]) -> tuple[Dim, ...]:
        """Read dimensions and `]`, with `...` at most once."""
        batch: Token | None = None

        def batch_or_dim() -> Dim:
            nonlocal batch
            if batch and self.token.text == "...":
                raise self.error("a name or a number", "a tensor has at most one '...'")
            if token := self.accept("..."):
                batch = token
                return Batch()
            self.parts = 0
            return dim()

        if self.accept("*"):
            self.expect("]", "']': '*' stands alone")
            return (Anything(),)
        return () if self.accept("]") else tuple(self.separated(batch_or_dim, "]"))

    def input_dim(self) -> Dim:
        """Read a name or a number."""
        if self.token.kind not in ("name", "int"):
            raise self.error("a name, a number or '...'")
        dim = self.atom()
        if self.token.text in PRECEDENCE:
            raise self.error("',' or ']'", "name this dimension; arithmetic belongs in outputs")
        return dim

    def limited_dim(self) -> Expression:
        """Read a dimension of an output, which may have a limit: `t < steps`."""
        dim = self.output_dim()
        if self.token.text == "<":
            self.limit(dim)
        return dim

    def limit(self, dim: Expression) -> None:
        """Take the limit of an index as it is, up to the next comma or bracket."""
        start = self.token
        if not isinstance(dim, Name):
            raise self.error("',' or ']'", "a limit stands after the name of an index: y[i < 5]")
        if self.read(start.end).text == "=":
            raise self.error("',' or ']'", f"write {dim} < ..., which leaves the limit out")
        depth, self.token = 0, self.read(start.end)
        while depth or self.token.text not in (",", "]"):
            if self.token.kind == "end" or self.token.text in (";", "="):
                raise self.error("']'")
            depth += (self.token.text in ("(", "[")) - (self.token.text in (")", "]"))
            self.advance()
        text = " ".join(self.text[start.end : self.token.start].split())
        if not text:
            raise self.error("a limit")
        if self.limits.setdefault(dim.name, text) != text:
            raise Syntax.error(
                f"'{dim}' has two limits",
                first=f"{dim} < {self.limits[dim.name]}",
                second=f"{dim} < {text}",
            )

    def output_dim(self) -> Expression:
        """Read a sum; `+` and `-` group from the left."""
        left = self.product()
        while sign := self.accept("+", "-"):
            left = arithmetic(sign, left, self.product())
        return left

    def product(self) -> Expression:
        """Read a product; `*`, `//` and `%` group from the left."""
        left = self.factor()
        while sign := self.accept("*", "//", "%"):
            left = arithmetic(sign, left, self.factor())
        return left

    def factor(self) -> Expression:
        """Read an atom after any number of minus signs; `-n` is kept as `0 - n`."""
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise self.error("',' or ']'", f"a dimension has at most {MOST_PARTS} parts")
        if sign := self.accept("-"):
            operand = self.factor()
            if isinstance(operand, Number):
                return Number(value=-operand.value)
            return arithmetic(sign, Number(value=0), operand)
        return self.atom()

    def atom(self) -> Expression:
        """Read a name, a number, parentheses, or `min` or `max` of two or more."""
        if self.accept("("):
            inner = self.output_dim()
            self.expect(")")
            return inner
        if self.token.kind == "int":
            return Number(value=self.integer())
        name = self.name("a name or a number")
        if name not in ("min", "max") or not self.accept("("):
            return Name(name=name)
        first, *others = self.separated(self.output_dim, ")")
        if not others:
            raise self.error(f"a second size for '{name}'", f"write {name}(n, m)")
        for other in others:
            first = Arithmetic(operator=cast("Operation", name), left=first, right=other)
        return first

    def integer(self) -> int:
        """Read digits that fit in 64 bits."""
        digits = self.token.text
        # Python refuses to convert thousands of digits, so the length is checked first.
        if len(digits) > 19 or int(digits) >= INT_LIMIT:
            raise self.error("a number below 2**63")
        return int(self.advance().text)

    def scalar(self, name: str) -> Scalar:
        """Read a type, then a question mark or a default if there is one."""
        if self.token.text not in PYTHON_TYPES:
            help = did_you_mean(self.token.text, PYTHON_TYPES)
            if self.token.text.lower() == "tensor":
                help = f"a tensor has its dimensions in brackets: {name}[n, d], or {name}[]"
            raise self.error("int, float, bool, str, int[] or float[]", help)
        type = self.advance().text
        if type in ("int", "float") and self.accept("["):
            self.expect("]")
            type += "[]"
        optional = bool(self.accept("?"))
        default = self.default(cast("Type", type)) if self.accept("=") else None
        return Scalar(name=name, type=cast("Type", type), default=default, optional=optional)

    def default(self, type: Type) -> Default:
        """Read a literal, or a list of them in brackets."""
        if not type.endswith("[]"):
            return self.literal(type)
        self.expect("[")
        element = cast("Type", type.removesuffix("[]"))
        items = [] if self.accept("]") else self.separated(lambda: self.literal(element), "]")
        return cast("Default", tuple(items))

    def literal(self, type: Type) -> int | float | bool | str:
        """Read a literal; a whole number is a float where one is declared."""
        if self.token.text in ("True", "False"):
            return self.advance().text == "True"
        if self.token.kind == "string":
            text = ast.literal_eval(self.token.text)
            if "\0" in text:
                raise self.error("a string without \\x00, which would end it in a kernel")
            self.advance()
            return text
        minus = bool(self.accept("-"))
        if self.token.kind not in ("int", "float"):
            raise self.error("a number" if minus else f"a literal of type {type}")
        if self.token.kind == "float" or type == "float":
            value = float(self.advance().text)
        else:
            value = self.integer()
        return -value if minus else value


def arithmetic(sign: Token, left: Expression, right: Expression) -> Arithmetic:
    """Return the node of a sign that the parser has accepted."""
    return Arithmetic(operator=cast("Operation", sign.text), left=left, right=right)
