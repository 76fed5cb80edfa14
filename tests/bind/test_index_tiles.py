"""Loops with sums of several rows by several vectors at a time, whatever length the sums have."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest
import torch

import pullback as pb
from pullback.bind.loops import nests
from pullback.bind.loops.nests import Own
from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.define.math.formula import Formula
from pullback.kernels.loops.nest import Nest
from tests.bind.test_index_loops import arguments, expected, sizes_for
from tests.telling import telling
from tests.threads import threads

pytestmark = pytest.mark.compiler

HUBER = "where(abs(x[n, d] - y[m, d]) < 1, (x[n, d] - y[m, d])**2/2, abs(x[n, d] - y[m, d]) - 0.5)"
LINES = {
    "squared": "(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)",
    "absolute": "(x[n, d], y[m, d]) -> z[n, m] = sum[d](abs(x[n, d] - y[m, d]))",
    "greatest": "(x[n, d], y[m, d]) -> z[n, m] = max[d](abs(x[n, d] - y[m, d]))",
    "Huber": f"(x[n, d], y[m, d]) -> z[n, m] = sum[d]({HUBER})",
    "Minkowski": "(x[n, d], y[m, d], p: float) -> z[n, m]"
    " = sum[d]((abs(x[n, d] - y[m, d]) + 0.1)**p)**(1/p)",
    "weighted": "(x[n, d], y[m, d], w[d]) -> z[n, m] = sum[d](w[d]*(x[n, d] - y[m, d])**2)",
    "relative": "(x[n, d], y[m, d]) -> z[n, m]"
    " = sum[d](abs(x[n, d] - y[m, d]))/(1 + sum[d](abs(x[n, d]) + abs(y[m, d])))",
    "chi-square": "(x[n, d], y[m, d]) -> z[n, m]"
    " = sum[d]((x[n, d] - y[m, d])**2/(1 + abs(x[n, d]) + abs(y[m, d])))",
    "in batches": "(x[..., n, d], y[..., m, d]) -> z[..., n, m]"
    " = sum[d](abs(x[..., n, d] - y[..., m, d]))",
    "kernel sum": "(x[n, d], y[m, d], v[m]) -> u[n]"
    " = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2)/size(d))*v[m])",
    "nearest": "(x[n, d], y[m, d]) -> u[n] = min[m](sum[d]((x[n, d] - y[m, d])**2))",
    "smoothed": "(x[n, d], y[m, d], v[m, e]) -> u[n, e]"
    " = sum[m](exp(-sum[d](abs(x[n, d] - y[m, d]))/size(d))*v[m, e])",
}
TELLING = ("squared", "weighted", "kernel sum")
LARGE = {"n": 1000, "m": 1000, "e": 40, "...": 8}


def formulas(name: str) -> tuple[Formula, Formula]:
    """Return a line's formula, and that of its gradients."""
    indexed = notation.parse(parse.parse(f"demo::tiled{LINES[name]}"))
    assert indexed
    backward = derived.backward(indexed)
    assert backward
    return indexed, backward.formula


def tiles_of(indexed: Formula, d: int, dtype: torch.dtype) -> Iterator[Own]:
    """Yield the loops for large tensors that are tiles."""
    sizes = sizes_for(indexed, {**LARGE, "d": d})
    present = frozenset(parameter.name for parameter in indexed.line.parameters)
    for group in nests.group_outputs(indexed, range(len(indexed.nodes)), sizes):
        own = nests.generate(indexed, dtype, group, present, sizes, nests.CpuBackend())
        if isinstance(own, Own) and any(is_tile(step.kernel.nest) for step in own.steps):
            yield own


def is_tile(nest: Nest) -> bool:
    """Return whether a nest has sums of several rows by several vectors at a time."""
    return nest.vectors > 1 and (nest.turns > 1 or (nest.rows > 1 and nest.block > 0))


def compare(own: Own, sizes: Mapping[str, int], dtype: torch.dtype) -> None:
    """Compare tiles with PyTorch in float64."""
    sizes = sizes_for(own.indexed, {**sizes, **own.specialised})
    given = arguments(own.indexed, sizes, dtype, seed=sizes["n"])
    wanted = expected(own.indexed, given, sizes)
    doubles = [torch.float64] * len(own.outputs)
    room = 400 * torch.finfo(dtype).eps
    for k, got in zip(own.outputs, own.run(given, sizes, doubles), strict=True):
        most = float(wanted[k].abs().max())
        torch.testing.assert_close(got, wanted[k], rtol=room, atol=room * (1 + most))


def draw(generator: random.Random) -> dict[str, int]:
    """Return sizes around those of tiles, and of blocks of tiles."""
    many = generator.choice((1, 3, 4, 31, 32, 33, 65, 255, 259, 300))
    return {
        "n": many,
        "m": generator.choice((1, 2, 5, 33, 127, 129, 270)),
        "d": generator.randint(1, 70),
        "e": generator.randint(1, 40),
        "...": generator.randint(1, 3),
    }


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("name", telling({name: name for name in LINES}, TELLING))
def test_tiles_have_the_values_of_pytorch(name: str, dtype: torch.dtype, seed: int) -> None:
    generator = random.Random(seed)
    found = [own for each in formulas(name) for own in tiles_of(each, 40, dtype)]
    assert found
    for own in found:
        for _ in range(3):
            compare(own, draw(generator), dtype)
        with threads(3):
            compare(own, {**draw(generator), "n": 300, "m": 259}, dtype)


@pytest.mark.ci(3)
@pytest.mark.parametrize("d", [17, 40, 256])
@pytest.mark.parametrize("name", ["absolute", "squared", "Huber", "kernel sum"])
def test_a_sum_of_any_length_is_a_tile(name: str, d: int) -> None:
    indexed, gradient = formulas(name)
    assert list(tiles_of(indexed, d, torch.float32))
    found = [k for own in tiles_of(gradient, d, torch.float32) for k in own.outputs]
    # Where a gradient is one sum, of vectors along d, others may do for a d of few vectors.
    if name == "kernel sum" or d == 256:
        assert sorted(found) == list(range(len(gradient.nodes)))


@pytest.mark.parametrize("d", [17, 20, 33])
def test_no_sum_of_a_gradient_is_cut_where_its_rows_are_enough(d: int) -> None:
    """Each part of a row costs what it takes to begin it: 503 x 1694 took ten times as long."""
    _, gradient = formulas("weighted")
    sizes = {"n": 503, "m": 1694, "d": d}
    present = frozenset(parameter.name for parameter in gradient.line.parameters)
    for k in (0, 1):
        own = nests.generate(gradient, torch.float32, (k,), present, sizes, nests.CpuBackend())
        assert isinstance(own, Own)
        assert not any(step.kernel.nest.is_split for step in own.steps)


@pytest.mark.parametrize("lines", [3, 8, 15])
def test_rows_that_no_cache_has_are_read_one_after_the_other(lines: int) -> None:
    """Side by side they took twice as long; those of few lines of a cache do not."""
    norm = notation.parse(
        parse.parse("demo::rows(x[b, n]) -> y[b, n] = x[b, n]/sqrt(mean[k](x[b, k]**2))")
    )
    assert norm
    rows: dict[int, int] = {}
    for many in (1000, 200_000):
        sizes = {"b": many, "n": 16 * lines - 1}
        own = nests.generate(norm, torch.float32, (0,), frozenset("x"), sizes, nests.CpuBackend())
        assert isinstance(own, Own)
        rows[many] = own.steps[0].kernel.nest.rows
    assert rows == {1000: 4, 200_000: 4 if lines == 3 else 1}


def test_a_plan_says_that_a_long_sum_has_a_loop_of_its_own() -> None:
    operator = pb.operator(f"demo::tiled_plan{LINES['absolute']}")
    shown = str(operator.plan(torch.randn(500, 40), torch.randn(500, 40)))
    assert shown.count("own loop") == 3


@pytest.mark.thorough
def test_gradients_that_share_an_exponential_share_a_loop(seed: int) -> None:
    """An output that lacks the index of sums that are held is computed by their loop."""
    kernel = pb.operator(f"demo::shared{LINES['kernel sum']}")
    generator = torch.Generator().manual_seed(seed)
    x, y, v = (
        torch.randn(shape, generator=generator).requires_grad_()
        for shape in [(70, 20), (300, 20), (300,)]
    )
    assert "grad_y, grad_v: own loop" in str(kernel.plan(x, y, v))
    grad = torch.randn(70, generator=generator)
    wanted = (-((x[:, None] - y) ** 2).sum(-1) / 20).exp() @ v
    torch.testing.assert_close(
        torch.autograd.grad(kernel(x, y, v), [x, y, v], grad),
        torch.autograd.grad(wanted, [x, y, v], grad),
        rtol=1e-4,
        atol=1e-5,
    )
