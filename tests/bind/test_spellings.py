"""What people write for a function is that function, and not less exact than what they wrote."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from math import isnan
from typing import Any

import pytest
import torch
from formulas import exact, ulp
from torch import Tensor

import pullback as pb
from pullback.define.math import differentiate, notation, statements
from pullback.define.math.node import Node, number, read
from pullback.define.math.spellings import SPELLINGS
from pullback.define.parse import parse
from tests.telling import telling

NAMES: dict[str, Node] = {name: read(name, ()) for name in "abxyu"}
# The rows of gelu differ in where the half stands; one of them is enough to compute.
COMPUTED = [row for row in SPELLINGS if row[1] != "gelu(a)"] + [
    row for row in SPELLINGS if row[1] == "gelu(a)"
][:1]
# What is written beside a row of the table, of two operands that are no letters.
MORE = {
    "x*tanh(log(exp(x) + 1))": "mish(x)",
    "(x - y)/(1 + exp(-(x - y)))": "silu(x - y)",
    "1/(exp(-x) + 1)": "sigmoid(x)",
    "reciprocal(1 + exp(-x))": "sigmoid(x)",
    "log(1/(1 + exp(-x)))": "log_sigmoid(x)",
    "max(0, x) + log1p(exp(-abs(x)))": "softplus(x)",
    "0.5*x*(1 + erf(x/sqrt(2)))": "gelu(x)",
    "x/2*(erf(0.7071067811865475*x) + 1)": "gelu(x)",
    "x*(erf(x/2**0.5) + 1)/2": "gelu(x)",
    "log(exp(x*y) + exp(y - x))": "logaddexp(x*y, y - x)",
}
# What stays as it is written: the function is not what it says, or not where it stands.
OTHERS = """log(1 + x)|exp(x) - 1|sqrt(x*x + y*y)|1 - sigmoid(x)|1 - tanh(x)|x*x|log(2 + exp(x))
log(exp(x) - exp(y))|(exp(x) - exp(-y))/2|2*sigmoid(x) - 1|1/(2 + exp(-x))|0.5*x*erfc(-y)
log1p(exp(x) + 1)|max(x, y) + softplus(-abs(x))|exp(x)/(1 + exp(y))**2|log(cosh(x))"""


def node(text: str) -> Node:
    return statements.nodes_of(text, NAMES, ("output",), "a test")[0]


@pytest.mark.parametrize(("written", "meant"), [*SPELLINGS, *MORE.items()])
def test_what_is_written_is_the_function(written: str, meant: str) -> None:
    assert node(written) is node(meant)


@pytest.mark.parametrize("text", re.split(r"\||\n", OTHERS))
def test_anything_else_stays_as_it_is_written(text: str) -> None:
    called = set(re.findall(r"[a-z_0-9]+(?=\()", text))
    formula = notation.parse(parse(f"demo::f(x[...], y[...]) -> z[...] = {text} + 0*(x + y)"))
    found = set(re.findall(r"[a-z_0-9]+(?=\()", notation.format_formula(formula)))
    assert found - {"maximum"} == called - {"max"}


@pytest.mark.compiler
@pytest.mark.parametrize(("given", "inner"), [("x", "x"), ("t", "exp(t)")])
def test_a_logarithm_that_corrects_its_own_rounding_still_does(given: str, inner: str) -> None:
    """W. Kahan's log(1 + x) divides by the rounded u - 1, and so has the rounding of u twice."""
    line = f"({given}[...]) -> y[...] = u = 1 + {inner}; y = log(u)*{inner}/(u - 1)"
    x = torch.logspace(-6, 0, 200)
    at = x.log() if given == "t" else x
    exactly = (at.double().exp() if given == "t" else at.double()).log1p().float()
    found = pb.operator(f"pbspell::kahan_{given}{line}")(at)
    torch.testing.assert_close(found, exactly, rtol=1e-6, atol=0)


# --- not less exact

OWN: dict[str, Callable[..., Tensor]] = {
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "log_sigmoid": torch.nn.functional.logsigmoid,
    "gelu": torch.nn.functional.gelu,
    "maximum": lambda x, y: torch.maximum(x, torch.as_tensor(y, dtype=x.dtype)),
    "minimum": lambda x, y: torch.minimum(x, torch.as_tensor(y, dtype=x.dtype)),
}


def as_written(text: str) -> Callable[..., Tensor]:
    """Return a text as a function of a and b, in PyTorch's operations."""
    words = {word: getattr(torch, word, None) for word in re.findall("[a-z_0-9]+", text)}
    return eval(f"lambda a, b: {text}", {**words, **OWN})


def points(dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Return where to look: small, usual, where exp overflows, and where nothing is left of it."""
    source = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([1e-8, 1e-3, 0.3, 3, 3, 17, 60, 87, 100, 150, 700, 750]).repeat(3)
    signs = torch.randint(2, (2, 36), generator=source) * 2 - 1
    a, b = sizes * (0.5 + 0.5 * torch.rand(2, 36, generator=source)) * signs
    return a.to(dtype), torch.where(torch.rand(36, generator=source) < 0.5, a, b).to(dtype)


def ends(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return each pair of the ends of the numbers, zeros and NaN."""
    info = torch.finfo(dtype)
    values = [0.0, info.tiny, info.max, float("inf"), 1.0]
    pairs = itertools.product([*values, *(-v for v in values), float("nan")], repeat=2)
    a, b = zip(*pairs, strict=True)
    return torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)


def computed(function: Callable[..., Any], a: Tensor, b: Tensor) -> list[Tensor]:
    """Return the value and the two gradients."""
    leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    value = function(*leaves)
    grads = torch.autograd.grad(value.sum(), leaves, allow_unused=True, materialize_grads=True)
    return [value.detach(), *grads]


def slopes(value: Node) -> list[Node]:
    """Return the derivatives by a and b."""
    found = differentiate.vjp([(value, number(1.0))], "ab")
    return [slope or number(0.0) for slope in found]


class Exact:
    """The value of a function and its two gradients, and what they change by with a and b."""

    def __init__(self, text: str) -> None:
        value = node(text)
        self.values = [value, *slopes(value)]
        self.slopes = [slopes(each) for each in self.values]

    def at(self, a: float, b: float) -> list[tuple[float, float]]:
        """Return each with its size, to which roundings are relative."""
        found: list[tuple[float, float]] = []
        for value, (by_a, by_b) in zip(self.values, self.slopes, strict=True):
            exactly, *moved = (exact(each, {"a": a, "b": b}) for each in (value, by_a, by_b))
            found.append((exactly, abs(exactly) + abs(a * moved[0]) + abs(b * moved[1])))
        return found


@functools.cache
def every() -> pb.Operator:
    """Return all that is written as one operator."""
    rows = "; ".join(f"r{k} = {written} + 0*b" for k, (written, _) in enumerate(COMPUTED))
    outputs = ", ".join(f"r{k}[...]" for k in range(len(COMPUTED)))
    return pb.operator(f"pbspell::every(a[...], b[...]) -> ({outputs}) = {rows}")


each_dtype = pytest.mark.parametrize(
    "dtype", telling({"float32": torch.float32, "float64": torch.float64}, ["float32"])
)


@pytest.mark.compiler
@pytest.mark.thorough
@each_dtype
def test_a_function_is_not_less_exact_than_what_is_written(dtype: torch.dtype, seed: int) -> None:
    a, b = points(dtype, seed)
    wrong: list[str] = []
    for k, (written, meant) in enumerate(COMPUTED):
        ours = computed(lambda *some, k=k: every()(*some)[k], a, b)
        theirs, wanted = computed(as_written(written), a, b), Exact(meant)
        for place, at in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
            for order, (value, size) in enumerate(wanted.at(*at)):
                # What is left of 1 - tanh² has the error of 1, of what is written as well.
                whole = size + (order > 0 and "tanh" in meant)
                unit = ulp(torch.tensor(whole, dtype=torch.float64), dtype).item()
                mine, other = (abs(v[order][place].item() - value) for v in (ours, theirs))
                near = mine <= 8 * unit or mine <= 2 * other or isnan(other)
                if abs(value) <= torch.finfo(dtype).max and not near:
                    wrong.append(f"{written} at {at}, {order}: {mine / unit:.3g}, {other / unit}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.compiler
@each_dtype
def test_at_the_ends_a_function_is_what_is_written_unless_that_overflows(
    dtype: torch.dtype,
) -> None:
    a, b = ends(dtype)
    wrong: list[str] = []
    for k, (written, meant) in enumerate(COMPUTED):
        ours = computed(lambda *some, k=k: every()(*some)[k], a, b)
        theirs = computed(as_written(f"{written} + 0*b"), a, b)
        smooth = computed(as_written(f"{meant} + 0*b"), a, b)
        for order, (mine, other, own) in enumerate(zip(ours, theirs, smooth, strict=True)):
            # The other functions of the operator have a gradient too, which is NaN at NaN; where a
            # sum of kinks has none, at 0, the function has one.
            there = ~(a.isnan() | b.isnan()) if order else torch.ones_like(a, dtype=torch.bool)
            same = mine.isclose(other, equal_nan=True) | (mine.isclose(own) & (a == 0))
            bad = there & ~same & (other.isfinite() | mine.isnan())
            wrong += [
                f"{written} at {a[p]}, {b[p]}, {order}: {mine[p]}, {other[p]}"
                for p in bad.nonzero().flatten().tolist()
            ]
    assert not wrong, "\n".join(wrong)
