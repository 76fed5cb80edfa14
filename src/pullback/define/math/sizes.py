"""How far indices run as sizes of a line: sums of multiples and quotients of its dimensions."""

from __future__ import annotations

from collections.abc import Iterable

from pullback.define.dimension import Arithmetic, Expression, Name, Number
from pullback.define.line import Line, Tensor, is_int_scalar
from pullback.define.math.index import Affine, is_size, size
from pullback.define.math.node import (
    INDEX,
    INSIDE,
    PLACED,
    REDUCTIONS,
    Node,
    in_order,
    quotient,
)


def arithmetic(size: Affine) -> Expression:
    """Return a size as a dimension of a line."""
    total: Expression | None = None
    terms = sorted(size.terms, key=lambda term: term[1] < 0)
    for term, factor in terms:
        part = _part(term)
        if abs(factor) != 1:
            part = Arithmetic(operator="*", left=Number(value=abs(factor)), right=part)
        if total is None:
            total = (
                part if factor > 0 else Arithmetic(operator="-", left=Number(value=0), right=part)
            )
        else:
            total = Arithmetic(operator="+" if factor > 0 else "-", left=total, right=part)
    if total is None:
        return Number(value=size.constant)
    if not size.constant:
        return total
    sign = "+" if size.constant > 0 else "-"
    return Arithmetic(operator=sign, left=total, right=Number(value=abs(size.constant)))


def affine(dim: Expression) -> Affine | None:
    """Return a line's dimension as a size; None if it is not a sum of multiples and quotients."""
    match dim:
        case Number():
            return Affine(dim.value)
        case Name():
            return size(dim.name)
        case _:
            left, right = affine(dim.left), affine(dim.right)
            return left and right and _combine(dim.operator, left, right)


def _combine(operator: str, left: Affine, right: Affine) -> Affine | None:
    if operator in "+-":
        return left + right if operator == "+" else left - right
    if operator == "*" and not left.terms:
        left, right = right, left
    if right.terms:
        return None
    if operator == "*":
        return left * right.constant
    return quotient(left, right.constant) if operator == "//" and right.constant > 0 else None


def _part(term: str | Node) -> Expression:
    """Return one term of a size: a dimension's, or a quotient, (h - p)//2."""
    if isinstance(term, str):
        assert is_size(term)
        return Name(name=term.strip("|"))
    assert term.op == "floor_divide", term
    dividend, divisor = term.args
    left = arithmetic(dividend.places[0]) if dividend.op == "index" else _part(dividend)
    return Arithmetic(operator="//", left=left, right=Number(value=int(divisor.number)))


def dimensions_of(tensor: Tensor) -> tuple[str, ...]:
    """Return the named dimensions of a tensor, `...` among them, each once."""
    names = (index.rstrip("'") for index in tensor.labels)
    return tuple(dict.fromkeys(name for name in names if not name.isdecimal()))


def dimensions_used(nodes: Iterable[Node], sizes: Iterable[Affine] = ()) -> set[str]:
    """Return the dimensions whose sizes some expressions, and some sizes, depend on."""
    roots = list(nodes)
    places = list(sizes)
    roots += [node for place in places for node in place.nodes]
    for node in in_order(roots):
        if node.op in PLACED:
            places += node.places
        if node.op in (*REDUCTIONS, INSIDE):
            places.append(node.size)
            # A size's quotients are not operands of the node.
            places += [
                p for part in in_order(node.size.nodes) if part.op == INDEX for p in part.places
            ]
    terms = (term for place in places for term, _ in place.terms)
    return {term.strip("|") for term in terms if isinstance(term, str) and is_size(term)}


def find_counts(line: Line, nodes: Iterable[Node], sizes: Iterable[Affine]) -> tuple[str, ...]:
    """Return the int scalars that say how far indices run, in some expressions and sizes."""
    ints = [scalar.name for scalar in line.scalars if is_int_scalar(scalar)]
    used = dimensions_used(nodes, sizes) if ints else set[str]()
    return tuple(name for name in ints if name in used)
