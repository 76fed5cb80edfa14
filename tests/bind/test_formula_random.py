"""Random formulas against autograd of the same expression, both made of one tree."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from formulas import softplus
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import pullback as pb
from pullback.bind.dense import elements
from pullback.define.math import notation
from pullback.define.operator import Definition
from pullback.define.parse import parse
from tests.telling import examples

pytestmark = pytest.mark.compiler
numbers = itertools.count()


@dataclass(frozen=True)
class Random:
    """A smooth formula of x, y and w that is defined everywhere, and the same in PyTorch."""

    text: str
    run: Callable[..., Tensor]

    def __repr__(self) -> str:
        return self.text

    @staticmethod
    def inputs() -> list[Tensor]:
        source = torch.Generator().manual_seed(3)
        return [
            torch.randn(7, generator=source, dtype=torch.float64).requires_grad_() for _ in "xyw"
        ]

    def evaluated(self, *some: Tensor) -> Tensor:
        """What `bind/dense/elements.py` makes of it."""
        line = parse(f"demo::random(x[...], y[...], w[...]) -> z[...] = {self.text}")
        definition = Definition(line=line, formula=notation.parse(line))
        result = elements.kernel_of(definition)(*some)
        assert isinstance(result, Tensor)
        return result

    def assert_agrees(self, operator: Callable[..., Tensor]) -> None:
        some = self.inputs()
        found, wanted = operator(*some), self.run(*some) + 0 * sum(some)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        pairs = [
            torch.autograd.grad(value.sum(), some, allow_unused=True, materialize_grads=True)
            if value.requires_grad
            else [torch.zeros_like(s) for s in some]
            for value in (found, wanted)
        ]
        torch.testing.assert_close(list(pairs[0]), list(pairs[1]), rtol=1e-7, atol=1e-7)


def _leaf(name: str) -> Random:
    return Random(name, lambda x, y, w: {"x": x, "y": y, "w": w}[name])


def _number(value: float) -> Random:
    return Random(f"({value!r})", lambda x, y, w: torch.full_like(x, value))


def _one(pattern: str, of: Callable[[Tensor], Tensor], inner: Random) -> Random:
    return Random(pattern.format(inner.text), lambda *some: of(inner.run(*some)))


def _two(pattern: str, of: Callable[[Tensor, Tensor], Tensor], a: Random, b: Random) -> Random:
    return Random(pattern.format(a.text, b.text), lambda *some: of(a.run(*some), b.run(*some)))


ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "-({})": torch.neg,
    "tanh({})": torch.tanh,
    "sin({})": torch.sin,
    "sigmoid({})": torch.sigmoid,
    "abs({})": torch.abs,
    "exp(-({})**2)": lambda t: torch.exp(-(t**2)),
    "log(1 + ({})**2)": lambda t: torch.log(1 + t**2),
    "sqrt(0.5 + ({})**2)": lambda t: torch.sqrt(0.5 + t**2),
    "softplus({})": softplus,
    "atan({})": torch.atan,
    "relu({})": torch.relu,
    "float({} > 0.25)": lambda t: (t > 0.25).double(),
}
TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "({} + {})": torch.add,
    "({} - {})": torch.sub,
    "({} * {})": torch.mul,
    "({} / (1 + ({})**2))": lambda a, b: a / (1 + b**2),
    "maximum({}, {})": torch.maximum,
    "minimum({}, {})": torch.minimum,
    "where({0} > {1}, {0}, 2*{1})": lambda a, b: torch.where(a > b, a, 2 * b),
    "(1 + ({})**2)**sin({})": lambda a, b: (1 + a**2) ** torch.sin(b),
    "atan2({}, 2 + ({})**2)": lambda a, b: torch.atan2(a, 2 + b**2),
}


def _grown(inner: st.SearchStrategy[Random]) -> st.SearchStrategy[Random]:
    return st.one_of(
        st.tuples(st.sampled_from(list(ONE.items())), inner).map(lambda p: _one(*p[0], p[1])),
        st.tuples(st.sampled_from(list(TWO.items())), inner, inner).map(
            lambda p: _two(*p[0], p[1], p[2])
        ),
    )


_leaves = st.one_of(
    st.sampled_from("xyw").map(_leaf), st.sampled_from([0.5, -1.25, 2.0, 3.0]).map(_number)
)
random_formulas = st.recursive(_leaves, _grown, max_leaves=8)


@settings(max_examples=examples(150, 600))
@given(random_formulas)
def test_any_formula_evaluated_by_pytorch_is_the_same_expression(random: Random) -> None:
    random.assert_agrees(random.evaluated)


@settings(max_examples=examples(6, 40))
@given(random_formulas)
def test_any_compiled_formula_is_the_same_expression(random: Random) -> None:
    name = f"pbrandom::f{next(numbers)}"
    random.assert_agrees(pb.operator(name + f"(x[...], y[...], w[...]) -> z[...] = {random.text}"))
