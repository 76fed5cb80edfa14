"""Observed sizes -> the arithmetic that gives them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pullback.define.dimension import Arithmetic, Expression, Name, Number, Operation
from pullback.define.shape import evaluate

Row = tuple[Mapping[str, int], int]
Integers = NDArray[np.int64]
Values = Mapping[str, Integers]
Term = tuple[int, tuple[str, ...]]  # a coefficient, and the names in the product
SPARE = 3  # rows beyond those that determine the coefficients
DIVISORS = range(2, 9)
COEFFICIENTS = (1, -1, 2, -2, 3, -3)


def fit(names: Sequence[str], rows: Iterable[Row]) -> Expression | None:
    """Return the arithmetic on `names` that gives the size of every row, the simplest first.

    Args:
        names: the dimensions and int scalars that it may contain.
        rows: their values, and the observed size.

    Returns:
        None if no sum, product, or division by a number or by one of `names` gives all of them, or
        if there are too few rows to tell.
    """
    known = {(*(row[name] for name in names), size): (row, size) for row, size in rows}
    sizes = np.array([size for _, size in known.values()], dtype=np.int64)
    values = {name: np.array([row[name] for row, _ in known.values()]) for name in names}
    if (sizes == sizes[0]).all():
        return Number(value=int(sizes[0]))
    families: tuple[Callable[[Values, Integers], Iterator[Expression]], ...] = (
        # A cubic would fit the few values of a quotient, so polynomials come after it.
        *(
            fit_same,
            fit_linear,
            fit_bounded,
            fit_quotient_by_number,
            fit_polynomial,
            fit_quotient_by_name,
        ),
    )
    for family in families:
        for found in family(values, sizes):
            if gives(found, known.values()):
                return found
    return None


def gives(expression: Expression, rows: Iterable[Row]) -> bool:
    """Return whether an expression gives the size of every row."""
    try:
        return all(evaluate(expression, row) == size for row, size in rows)
    except ZeroDivisionError:
        return False


def fit_same(values: Values, sizes: Integers) -> Iterator[Expression]:
    """Yield `n`, which needs fewer rows than arithmetic."""
    if len(sizes) >= SPARE:
        yield from (Name(name=name) for name in values)


def fit_linear(values: Values, sizes: Integers) -> Iterator[Expression]:
    """Yield `n + 2 * padding - k + 1`, with the fewest names."""
    for chosen in choose_names(values, most=6):
        yield from fit_sums(values, sizes, [(), *((name,) for name in chosen)])


def fit_bounded(values: Values, sizes: Integers) -> Iterator[Expression]:
    """Yield `min(n, m)`, `max(n, 2)` and the like plus a constant, if both sides occurred."""
    constants = (int(sizes.min()), int(sizes.max()))
    for index, (name, first) in enumerate(values.items()):
        others = [(Name(name=n), v) for n, v in list(values.items())[index + 1 :]]
        numbers = [(Number(value=c), np.full_like(first, c)) for c in constants]
        for other, second in (*others, *numbers):
            if min((first < second).sum(), (second < first).sum()) < SPARE:
                continue
            for of, least in (("min", np.minimum), ("max", np.maximum)):
                gap = sizes - least(first, second)
                if (gap == gap[0]).all():
                    chosen = build_arithmetic(cast("Operation", of), Name(name=name), other)
                    yield add_constant(chosen, int(gap[0]))


def fit_polynomial(values: Values, sizes: Integers) -> Iterator[Expression]:
    """Yield `n * m` or `n * (n - 1) // 2`, written out."""
    for degree in (2, 3):
        for chosen in choose_names(values, most=4):
            combined = itertools.combinations_with_replacement
            monomials = [m for d in range(degree + 1) for m in combined(chosen, d)]
            yield from fit_sums(values, sizes, monomials, divisors=(1, 2, 3, 6))


def fit_quotient_by_number(values: Values, sizes: Integers) -> Iterator[Expression]:
    """Yield `(h - p) // 2 + 1`."""
    for chosen in choose_names(values, most=3):
        if len(sizes) < len(chosen) + 1 + SPARE:
            return
        every = list(itertools.product(COEFFICIENTS, repeat=len(chosen)))
        numerators = np.array(every) @ np.stack([values[name] for name in chosen])
        for divisor in DIVISORS:
            # The constant within the division lies between these two.
            lows = (divisor * sizes - numerators).max(axis=1)
            highs = (divisor * sizes + divisor - 1 - numerators).min(axis=1)
            for at in np.flatnonzero(lows <= highs):
                if math.gcd(*every[at], divisor) == 1:
                    constant = min(range(int(lows[at]), int(highs[at]) + 1), key=abs)
                    whole, rest = divmod(constant, divisor)
                    names = [(weight, (n,)) for weight, n in zip(every[at], chosen, strict=True)]
                    inner = build_sum([*names, (rest, ())])
                    yield add_constant(build_arithmetic("//", inner, Number(value=divisor)), whole)


def fit_quotient_by_name(values: Values, sizes: Integers) -> Iterator[Expression]:
    """Yield `(n + 2 * padding - k) // stride + 1`, from the rows where `stride` is 1."""
    for name in values:
        plain = values[name] == 1
        rest = {other: column[plain] for other, column in values.items() if other != name}
        divisor = Name(name=name)
        for family in (fit_linear, fit_polynomial):
            for found in family(rest, sizes[plain]):
                for outside in (0, 1, -1, 2):
                    inner = add_constant(found, -outside)
                    yield add_constant(build_arithmetic("//", inner, divisor), outside)


def choose_names(values: Values, *, most: int) -> Iterator[tuple[str, ...]]:
    """Yield sets of names, small ones first."""
    for count in range(1, min(most, len(values)) + 1):
        yield from itertools.combinations(values, count)


def fit_sums(
    values: Values,
    sizes: Integers,
    monomials: Sequence[tuple[str, ...]],
    divisors: Sequence[int] = (1,),
) -> Iterator[Expression]:
    """Yield the sum of products with integer coefficients that gives the sizes, if any does."""
    if len(sizes) < len(monomials) + SPARE:
        return
    ones = np.ones_like(sizes)
    columns = [np.prod([ones, *(values[n] for n in names)], axis=0) for names in monomials]
    matrix: NDArray[Any] = np.stack(columns, axis=1)
    solution, _, rank, _ = np.linalg.lstsq(matrix.astype(float), sizes.astype(float), rcond=None)
    if rank < len(monomials):
        return
    for divisor in divisors:
        whole = np.round(solution * divisor).astype(np.int64)
        if (matrix @ whole == sizes * divisor).all():
            sum_ = build_sum([(int(w), names) for w, names in zip(whole, monomials, strict=True)])
            yield sum_ if divisor == 1 else build_arithmetic("//", sum_, Number(value=divisor))
            return


def build_sum(terms: Iterable[Term]) -> Expression:
    """Return a sum: the added terms, the subtracted ones, the constant."""
    used = [term for term in terms if term[0]]
    # The highest products first, then names in the order they have in the line.
    ordered = sorted(used, key=lambda term: (not term[1], term[0] < 0, -len(term[1])))
    if ordered and ordered[0][0] < 0:
        ordered.sort(key=lambda term: term[0] < 0)
    found: Expression | None = None
    for weight, names in ordered:
        part = build_product(abs(weight) if found or weight > 0 else weight, names)
        found = part if found is None else build_arithmetic("+" if weight > 0 else "-", found, part)
    return found or Number(value=0)


def build_product(weight: int, names: tuple[str, ...]) -> Expression:
    """Return `2 * n * m`."""
    factors: list[Expression] = [Name(name=name) for name in names]
    if weight != 1 or not names:
        factors.insert(0, Number(value=weight))
    found = factors[0]
    for factor in factors[1:]:
        found = build_arithmetic("*", found, factor)
    return found


def add_constant(expression: Expression, constant: int) -> Expression:
    """Return `expression + constant`, combined with a constant at its end."""
    if isinstance(expression, Arithmetic) and expression.operator in ("+", "-"):
        if isinstance(expression.right, Number):
            sign = 1 if expression.operator == "+" else -1
            return add_constant(expression.left, sign * expression.right.value + constant)
    elif isinstance(expression, Number):
        return Number(value=expression.value + constant)
    if constant == 0:
        return expression
    return build_arithmetic("+" if constant > 0 else "-", expression, Number(value=abs(constant)))


def build_arithmetic(operator: Operation, left: Expression, right: Expression) -> Arithmetic:
    """Return `left operator right`."""
    return Arithmetic(operator=operator, left=left, right=right)
