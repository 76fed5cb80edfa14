"""Index notation as an operator: what each output's element is, and how far its indices run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pullback.define.formula.formula import labels
from pullback.define.formula.index import Affine, is_size, size
from pullback.define.formula.node import INDEX, INSIDE, PLACED, REDUCTIONS, Node, in_order
from pullback.define.formula.ranges import Ranges
from pullback.define.index.subscripts import quotient
from pullback.define.line import Arithmetic, Dim, Expression, Line, Name, Number, Tensor, is_masked


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """The mathematics of one operator in index notation.

    Attributes:
        line: what it is the formula of.
        nodes: one for each output: its element at the output's indices, `labels(output)`; it
            depends on no others.
        sizes: how far an index runs whose name is no dimension of an input, or is one that has to
            have this size: in `correlate(x[h, w], k[p, q]) -> y[i, j]`, i is |h| - |p| + 1.
        accuracy: the largest error of one function, in units of the last place.
        full: the inputs that certainly have all batch dimensions: what arrives in a backward.
    """

    line: Line
    nodes: tuple[Node, ...]
    sizes: Mapping[str, Affine] = field(default_factory=dict[str, Affine])
    accuracy: int = 4
    full: frozenset[str] = frozenset()

    @cached_property
    def masked(self) -> bool:
        """Whether a call may ask for some of the outputs alone; the others are then None."""
        return is_masked(self.line)

    @property
    def ranges(self) -> Ranges:
        """How far the indices of the outputs run."""
        return Ranges(self.sizes)

    @cached_property
    def layout(self) -> tuple[tuple[str, ...], ...]:
        """The names of its parameters and outputs, in their order, each with its indices.

        What one operator computes is not what another one does that has just these nodes, if its
        parameters come in another order, or its dimensions do.
        """
        parameters, outputs = self.line.parameters, self.line.outputs
        return tuple(
            (value.name, *(labels(value) if isinstance(value, Tensor) else ()))
            for value in (*parameters, *outputs)
        )

    @cached_property
    def shaped(self) -> Line:
        """The line with sizes in place of new indices: `y[h - p + 1, w - q + 1]`."""
        known = self.line.dimensions
        return replace(
            self.line,
            outputs=tuple(
                replace(o, dims=tuple(self._sized(dim, known) for dim in o.dims))
                for o in self.line.outputs
            ),
        )

    def _sized(self, dim: Dim, known: tuple[str, ...]) -> Dim:
        if isinstance(dim, Name) and dim.name not in known and dim.name in self.sizes:
            return arithmetic(self.sizes[dim.name])
        return dim


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
    """Return a dimension of a line as a size; None if it is no sum of multiples and quotients."""
    match dim:
        case Number():
            return Affine(dim.value)
        case Name():
            return size(dim.name)
        case _:
            left, right = affine(dim.left), affine(dim.right)
            return left and right and _combined(dim.operator, left, right)


def _combined(operator: str, left: Affine, right: Affine) -> Affine | None:
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
    """Return one term of a size: that of a dimension, or a quotient, (h - p)//2."""
    if isinstance(term, str):
        assert is_size(term)
        return Name(name=term.strip("|"))
    assert term.op == "floor_divide", term
    dividend, divisor = term.args
    left = arithmetic(dividend.places[0]) if dividend.op == "index" else _part(dividend)
    return Arithmetic(operator="//", left=left, right=Number(value=int(divisor.number)))


def dimensions_of(tensor: Tensor) -> tuple[str, ...]:
    """Return the named dimensions of a tensor, `...` among them, each once."""
    names = (index.rstrip("'") for index in labels(tensor))
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
            # A size's quotients are no operands of the node.
            places += [
                p for part in in_order(node.size.nodes) if part.op == INDEX for p in part.places
            ]
    terms = (term for place in places for term, _ in place.terms)
    return {term.strip("|") for term in terms if isinstance(term, str) and is_size(term)}
