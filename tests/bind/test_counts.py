"""Int scalars that say how far an index runs, against loops in Python under autograd."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError
from pullback.bind.loops import scans
from pullback.bind.math.execute import Executor
from pullback.bind.operator import Operator
from pullback.kernels import compile as compilation

DOUBLE = torch.float64
Inputs = tuple[Tensor, ...]


def stacked(steps: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(steps) if steps else like.new_zeros(0, *like.shape)


def heat(u0: Tensor, k: Tensor, steps: int) -> Tensor:
    found, u = list[Tensor](), u0
    for _ in range(steps):
        zero = u[:1] * 0
        left, right = torch.cat([zero, u[:-1]]), torch.cat([u[1:], zero])
        u = u + k * (right - 2 * u + left)
        found.append(u)
    return stacked(found, u0)


def leapfrog(q0: Tensor, p0: Tensor, steps: int) -> Tensor:
    q, p, found = q0, p0, list[Tensor]()
    for _ in range(steps + 1):
        p = p - 0.1 * torch.sin(q)
        q = q + 0.1 * p
        found.append(q * p)
    return stacked(found, q0)


def powers(x: Tensor, order: int) -> Tensor:
    return torch.stack([(1 + x**2) ** (k - order) for k in range(2 * order + 1)], -1)


def lags(x: Tensor, w: Tensor, lags: int) -> Tensor:
    total = torch.zeros_like(x)
    for k in range(min(lags, len(x))):
        total = total + torch.cat([x.new_zeros(k), x[: len(x) - k]])
    return total * w


def waves(x: Tensor, w: Tensor, n: int) -> Tensor:
    return sum((torch.tanh(x * j) * w * n for j in range(n)), torch.zeros_like(x))


def drawn(*sizes: int) -> Callable[[], Inputs]:
    def draw() -> Inputs:
        generator = torch.Generator().manual_seed(3)
        return tuple(torch.rand(n, dtype=DOUBLE, generator=generator) for n in sizes)

    return draw


# A line; the same in Python; the inputs.
CASES: dict[str, tuple[Callable[..., Tensor], Callable[[], Inputs]]] = {
    "heat(u0[x], k[x], steps: int) -> u[t < steps, x] = u[t - 1, x]"
    " + k*(pad(u[t - 1, x + 1]) - 2*u[t - 1, x] + pad(u[t - 1, x - 1])); u[-1, x] = u0": (
        heat,
        drawn(4, 4),
    ),
    "leapfrog(q0[b], p0[b], steps: int) -> y[t < steps + 1, b] ="
    " q[t < steps + 1, b] = q[t - 1, b] + 0.1*p[t, b]; q[-1, b] = q0;"
    " p[t < steps + 1, b] = p[t - 1, b] - 0.1*sin(q[t - 1, b]); p[-1, b] = p0; y = q*p": (
        leapfrog,
        drawn(3, 3),
    ),
    "powers(x[n], order: int) -> y[n, k < 2*order + 1] = (1 + x**2)**(k - order)": (
        powers,
        drawn(3),
    ),
    "lags(x[t], w[t], lags: int) -> y[t] = sum[k < lags](pad(x[t - k]))*w": (lags, drawn(5, 5)),
    "parts(x[i], w[i], n: int) -> y[i] = wave[i, j < n] = tanh(x*j);"
    " y = n*sum[j < n](wave[i, j])*w": (
        waves,
        drawn(4, 4),
    ),
}


@pytest.fixture(scope="module")
def operators() -> dict[str, Operator]:
    return {text: pb.operator(f"counts::{text}") for text in CASES}


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_values_and_derivatives_are_those_of_a_loop_in_python(
    operators: dict[str, Operator], text: str, count: int
) -> None:
    own, (theirs, draw) = operators[text], CASES[text]
    given = draw()
    found, wanted = own(*given, count), theirs(*given, count)
    torch.testing.assert_close(found, wanted)
    assert own(*(t.to("meta") for t in given), count).shape == wanted.shape
    weights = torch.rand(wanted.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))

    def twice(function: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in given]
        value = (function(*leaves, count) * weights).sum() + sum(0 * leaf.sum() for leaf in leaves)
        first = torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)
        squares = sum((g**2).sum() for g in first) + sum(0 * leaf.sum() for leaf in leaves)
        return [*first, *torch.autograd.grad(squares, leaves, materialize_grads=True)]

    for one, other in zip(twice(own), twice(theirs), strict=True):
        torch.testing.assert_close(one, other)
    tangents = tuple(torch.ones_like(t) for t in given)
    pushed = [
        torch.func.jvp(lambda *leaves, f=f: f(*leaves, count), given, tangents)[1]
        for f in (own, theirs)
    ]
    torch.testing.assert_close(*pushed)
    several = torch.stack([given[0], given[0] * 0.5])
    batched = torch.func.vmap(lambda first: own(first, *given[1:], count))(several)
    torch.testing.assert_close(
        batched, torch.stack([theirs(t, *given[1:], count) for t in several])
    )


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("order", ["backward", "jvp", "second"])
def test_derivatives_take_the_number_and_read_back(
    operators: dict[str, Operator], text: str, order: str
) -> None:
    from pullback.define.math import derived, notation  # noqa: PLC0415

    formula = operators[text].kind.formula
    made = derived.jvp(formula) if order == "jvp" else derived.backward(formula)
    if order == "second" and made is not None:
        made = derived.backward(made.formula)
    assert made is not None
    assert formula.counts == made.formula.counts
    given = {n: s for n, s in made.formula.sizes.items() if n in made.formula.line.dimensions}
    line = made.formula.line
    read = notation.parse(
        type(line)(
            namespace=line.namespace,
            name=line.name,
            parameters=line.parameters,
            outputs=line.outputs,
            formula=notation.format_formula(made.formula),
        ),
        sizes=given,
        trusted=True,
    )
    assert (read.nodes, read.groups) == (made.formula.nodes, made.formula.groups)
