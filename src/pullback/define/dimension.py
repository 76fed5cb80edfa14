"""The dimensions of a line: names, sizes and, in outputs, the arithmetic of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pullback.diagnostic import Rule

Syntax = Rule("PB101", "syntax")

# Sizes, int scalars and the numbers between them are int64 in every kernel.
INT_LIMIT = 2**63

Operation = Literal["+", "-", "*", "//", "%", "min", "max"]
PRECEDENCE: dict[str, int] = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`...`: any number of batch dimensions."""

    def __str__(self) -> str:
        return "..."


@dataclass(frozen=True, kw_only=True)
class Anything:
    """`*`, alone: any dimensions at all."""

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, kw_only=True)
class Name:
    """A named dimension; in an output also an int scalar."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Number:
    """A fixed size; below zero only inside an output's arithmetic."""

    value: int

    def __post_init__(self) -> None:
        if abs(self.value) >= INT_LIMIT:
            raise Syntax.error("a number in a dimension does not fit in 64 bits")

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """`left operator right` with Python's meaning: `//` and `%` round down; `min(left, right)`."""

    operator: Operation
    left: Expression
    right: Expression

    def __str__(self) -> str:
        """Print with the fewest parentheses that keep the tree."""
        if self.operator not in PRECEDENCE:
            return f"{self.operator}({self.left}, {self.right})"
        binding = PRECEDENCE[self.operator]
        left = f"({self.left})" if precedence(self.left) < binding else str(self.left)
        right = f"({self.right})" if precedence(self.right) <= binding else str(self.right)
        return f"{left} {self.operator} {right}"


Expression = Name | Number | Arithmetic
Dim = Batch | Anything | Expression


def precedence(dim: Expression) -> int:
    """Return how tightly the outermost operation binds; 3 for a name, a number or a function."""
    return PRECEDENCE.get(dim.operator, 3) if isinstance(dim, Arithmetic) else 3


def names_in(dim: Dim) -> Iterator[str]:
    """Yield the names in `dim` from left to right."""
    if isinstance(dim, Name):
        yield dim.name
    elif isinstance(dim, Arithmetic):
        yield from names_in(dim.left)
        yield from names_in(dim.right)


def expressions(dims: tuple[Dim, ...]) -> tuple[Expression, ...]:
    """Return the dimensions that have a size of their own: not `...` and not `*`."""
    return tuple(dim for dim in dims if not isinstance(dim, Batch | Anything))
