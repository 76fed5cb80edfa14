"""The gradient is a constant times the true one: the sign, a forgotten 2, 1/n or scale."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pullback.verify.call import Call, names_of
from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample


class Sign(Hypothesis):
    """Exactly minus the true one."""

    order = 20

    def explain(self, sample: Sample) -> Cause | None:
        """Compare with the negative."""
        pair = sample.pair
        if not pair.same(pair.analytic, -pair.numeric):
            return None
        return Cause(
            name="sign",
            text=f"the gradient of `{sample.name}` has the wrong sign "
            "(analytic = -1.000 x numeric everywhere)",
            help="change the sign in backward; a reversal that is meant is declared: reversal=True",
        )


class Factor(Hypothesis):
    """One number for all elements."""

    order = 21

    def explain(self, sample: Sample) -> Cause | None:
        """Fit the number."""
        pair = sample.pair
        size = float(pair.numeric.square().sum())
        if size == 0:
            return None
        c = float((pair.analytic * pair.numeric).sum()) / size
        if c == 0 or not pair.same(pair.analytic, c * pair.numeric):
            return None
        lost = name_number(1 / c, sample.call)
        extra = name_number(c, sample.call)
        if extra and (not lost or len(extra) <= len(lost)) and abs(c) > 1:
            why = f"a constant factor is too many ({extra}?)"
        elif lost:
            why = f"a constant factor is missing ({lost}?)"
        else:
            why = f"a constant factor is wrong: {1 / c:.6g} is missing"
        reversal = "; a reversal that is meant is declared: reversal=True" if c < 0 else ""
        return Cause(
            name="factor",
            text=f"the gradient of `{sample.name}` is {c:.4g} x the true one everywhere: {why}",
            help="compare the constants of backward with the derivative of forward: "
            f"a 2 of a square, a scale, 1/n of a mean, a reduction done twice{reversal}",
            key=(round(math.log(abs(c)), 3), c > 0),
        )


def name_number(c: float, call: Call) -> str | None:
    """Return a name for a number: a simple one, or one made of a size or an argument."""
    found = [(text, value) for text, value in numbers(call) if value and abs(c / value - 1) < 1e-4]
    return found[0][0] if found else None


def numbers(call: Call) -> Iterator[tuple[str, float]]:
    """Yield numbers that are likely to be forgotten, the likeliest first."""
    yield from ((str(n), float(n)) for n in (2, 3, 4))
    yield from ((f"1/{n}", 1 / n) for n in (2, 3, 4))
    for sign, mark in ((1.0, ""), (-1.0, "-")):
        for text, value in quantities(call):
            if value > 0:
                yield f"{mark}{text}", sign * value
                yield f"{mark}1/{text}", sign / value
                yield f"{mark}sqrt({text})", sign * math.sqrt(value)
                yield f"{mark}1/sqrt({text})", sign / math.sqrt(value)
                yield f"{mark}{text}**2", sign * value**2
                yield f"{mark}2*{text}", sign * 2 * value
                yield f"{mark}2/{text}", sign * 2 / value
            if value > 1:
                yield f"{mark}{text}/({text} - 1)", sign * value / (value - 1)
                yield f"{mark}({text} - 1)/{text}", sign * (value - 1) / value
    yield from (("ln 2", math.log(2)), ("1/ln 2", 1 / math.log(2)))
    yield from (("ln 10", math.log(10)), ("1/ln 10", 1 / math.log(10)))
    yield from (("pi", math.pi), ("2/sqrt(pi)", 2 / math.sqrt(math.pi)), ("2*pi", 2 * math.pi))
    yield from ((str(n), float(n)) for n in (-2, 5, 6, 8, 10, 16, 32, 64, 128, 255, 256))
    yield from ((f"1/{n}", 1 / n) for n in (-2, 5, 6, 8, 10, 16, 32, 64, 128, 255, 256))


def quantities(call: Call) -> Iterator[tuple[str, float]]:
    """Yield numbers of a call with their names: arguments and their sizes."""
    signature = call.target.signature
    names = names_of(signature, len(call.arguments))
    given = {**dict(zip(names, call.arguments, strict=False)), **call.keywords}
    if signature:
        for name, parameter in signature.parameters.items():
            given.setdefault(name, parameter.default)
    for name, value in given.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and value not in (0, 1):
            yield name, abs(float(value))
    for own in call.leaves:
        if own.value.numel() == 1 and not own.value.is_complex():
            yield own.name, abs(float(own.value))
    for own in call.leaves:
        shape = own.value.shape
        for axis, size in enumerate(shape):
            if size > 1:
                yield f"{own.name}.shape[{axis}] = {size}", float(size)
        if len(shape) > 1 and math.prod(shape) > 1:
            yield f"{own.name}.numel() = {math.prod(shape)}", float(math.prod(shape))
    for out in call.values([own.value for own in call.leaves]):
        if out.numel() > 1:
            yield f"{out.numel()} output elements", float(out.numel())
