"""Own loops for index notation: their values, at every edge, against an evaluator in float64."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind import runtime
from pullback.bind.dense import evaluate
from pullback.bind.loops import nests, specialise
from pullback.bind.loops.backends import CpuBackend
from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.loops.own_call import KernelSizing
from pullback.bind.math import choose, passing, ready, samples, tolerance, verified, verify
from pullback.bind.math.call import Choice, call_of
from pullback.bind.memo import Memo
from pullback.define import parse as lines
from pullback.define.math import derived as derivatives
from pullback.define.math import extents, notation
from pullback.define.math.formula import Formula
from pullback.define.math.node import REDUCTIONS, in_order
from pullback.define.operator import Definition
from pullback.kernels.loops import schedule as schedules
from pullback.kernels.loops.scope import RefusedLoops
from tests.define.long_reductions import POSITIONS
from tests.forked import in_fork
from tests.telling import telling
from tests.threads import threads

ROWS = {
    "softmax": "(x[..., n]) -> y[..., n] = exp(x - max[m](x[m]))/sum[k](exp(x[k] - max[m](x[m])))",
    "rownorm": "(x[..., n]) -> y[..., n] = x/sqrt(mean[m](x[m]**2) + 1e-6)",
    "logsumexp": "(x[..., n]) -> y[...] = top = max[n](x); y = top + log(sum[n](exp(x - top)))",
    "layernorm": "(x[..., n], g[n], b[n]) -> y[..., n] = m[...] = mean[k](x[k]);"
    " y = (x - m)/sqrt(mean[k]((x[k] - m)**2) + 1e-5)*g + b",
    "rowmax": "(x[n, m]) -> y[n] = max[m](x[n, m]**2)",
    "chosen": "(x[n, v], label[n]: int64) -> y[n, v] = where(v == label[n], x, 0)*mean[k](x[n, k])",
    "scaled": "(x[n, m], s: float, k: int) -> y[n, m] = x[n, m]*s/(k + size(m)) + sum[j](x[n, j])",
    "total": "(x[n]) -> y[] = sum[n](exp(x[n]))/size(n)",
}
GROUPS = {
    "groupnorm": "(x[k, n, m], g[n]) -> y[k, n, m] = u[k] = mean[a, b](x[k, a, b]);"
    " y = (x - u[k])/sqrt(mean[a, b]((x[k, a, b] - u[k])**2) + 1e-5)*g",
    "centered": "(x[n, m]) -> y[n, m]"
    " = x - mean[a](x[n, a]) - mean[a](x[a, m]) + mean[a, b](x[a, b])",
}
PAIRS = {
    "sqdist": "(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)",
    "gauss": "(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])",
    "pair": "(s[n], t[n]) -> l[]"
    " = sum[i, j](log(1 + exp(-(s[i] - s[j])*(t[i] - t[j]))))/size(n)**2",
    "chamfer": "(x[n, d], y[m, d]) -> z[n] = min[m](sum[d]((x[n, d] - y[m, d])**2))",
    "hausdorff": "(x[n, d], y[m, d]) -> z[n] = min[m](sqrt(sum[d]((x[n, d] - y[m, d])**2)))",
    "hinge": "(s[n]) -> y[n] = sum[m < size(n)](relu(1 - (s[n] - s[m])))",
    "before": "(x[n]) -> y[n] = sum[m < size(n)](where(m <= n, x[m], 0))",
    "outer": "(x[n], y[m]) -> z[n, m] = x[n]*y[m]",
    "counted": "(a[n, m]) -> y[n] = sum[m]((n + 1)*a[n, m])",
}
STENCILS = {
    "correlate": "(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])",
    "laplace": "(u[h, w]) -> y[h, w] = pad(u[h + 1, w]) + pad(u[h - 1, w]) + pad(u[h, w + 1])"
    " + pad(u[h, w - 1]) - 4*u[h, w]",
    "pooled": "(x[..., h, w]) -> y[..., i, j] = max[p < 3, q < 3](x[..., 2*i + p, 2*j + q])",
    "strided": "(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[2*i + p, 3*j + q]*k[p, q])",
    "slope": "(x[n]) -> y[i] = x[i + 1] - x[i]",
    "spread": "(x[n]) -> y[n] = pad(x[2*n - 3])**2",
    "reversed": "(x[n]) -> y[n] = x[size(n) - 1 - n]*2",
    "diagonal": "(a[n, n]) -> y[n] = a[n, n]**2",
}
GATHERS = {
    "bag": "(x[v, d], i[n, k]: int64) -> y[n, d] = sum[k](x[i[n, k], d])",
    "weighted": "(x[v, d], w[n, k], i[n, k]: int64) -> y[n, d]"
    " = sum[k](where(w > 0, w*x[i[n, k], d], 0))",
    "greatest": "(x[v, d], w[n, k], i[n, k]: int64) -> y[n, d] = max[k](w*x[i[n, k], d])",
    "padded": "(x[v, d], i[n, k]: int64) -> y[n, d] = sum[k](pad(x[i[n, k] - 1, d])**2)",
    "picked": "(x[n, v], label[n]: int64) -> y[n] = x[n, label[n]]**2",
    "twice": "(x[v, w], i[n, k]: int64, j[n, k]: int64) -> y[n] = sum[k](x[i[n, k], j[n, k]])",
    "batched": "(x[..., v, d], i[..., n]: int64) -> y[..., n, d] = exp(x[..., i[..., n], d])",
}
FORMULAS = {**ROWS, **GROUPS, **PAIRS, **STENCILS, **GATHERS}
NAMES = {name: name for name in FORMULAS}
# Those with gathers have tests of their own.
each_formula = pytest.mark.parametrize(
    "name", telling(NAMES, {*ROWS, *GROUPS, *PAIRS, *STENCILS, "bag", "twice"} - {"spread"})
)
# Of each family: in one pass and in several, with and without a table, with and without a border.
each_gradient = pytest.mark.parametrize(
    "name",
    telling(
        NAMES,
        (
            *("softmax", "layernorm", "rowmax", "groupnorm", "gauss", "pair"),
            *("laplace", "pooled", "slope", "bag"),
        ),
    ),
)
# Around the lanes of a vector of either type, and its blocks.
EDGES = (1, 2, 7, 8, 9, 15, 16, 17, 33, 65, 129)


def formula(name: str) -> Formula:
    return notation.parse(lines.parse(f"demo::{name}{FORMULAS[name]}"))


def gradient(name: str) -> Formula:
    derived = derivatives.backward(formula(name))
    assert derived
    return derived.formula


def sizes_for(indexed: Formula, dims: Mapping[str, int]) -> dict[str, int]:
    """Return all sizes, those of new indices too."""
    sizes = dict(dims)
    for index, size in indexed.sizes.items():
        found = extents.evaluate_size(size, sizes)
        if found is not None and not index.startswith("~"):
            sizes[index] = found
    return sizes


def arguments(
    indexed: Formula, sizes: Mapping[str, int], dtype: torch.dtype, seed: int = 0
) -> dict[str, object]:
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, object] = {}
    for tensor in indexed.line.tensors:
        shape = [sizes[index.rstrip("'")] for index in tensor.labels]
        if tensor.dtype == "int64":
            most = samples.index_bound(indexed, tensor.name, sizes)
            found[tensor.name] = torch.randint(0, most, shape, generator=generator)
        else:
            found[tensor.name] = torch.randn(shape, generator=generator, dtype=torch.float64).to(
                dtype
            )
    for scalar in indexed.line.scalars:
        found[scalar.name] = 1.5 if scalar.type == "float" else 3
    return found


def find(
    indexed: Formula,
    given: Mapping[str, object],
    sizes: Mapping[str, int],
    dtype: torch.dtype,
    outputs: tuple[int, ...] | None = None,
) -> Own | NoLoops:
    chosen = outputs or tuple(range(len(indexed.nodes)))
    return nests.find(indexed, dtype, chosen, frozenset(given), sizes)


def computed(
    indexed: Formula,
    given: Mapping[str, object],
    sizes: Mapping[str, int],
    dtype: torch.dtype,
) -> dict[int, Tensor]:
    """Return the outputs that have loops, group by group."""
    found: dict[int, Tensor] = {}
    for group in nests.group_outputs(indexed, range(len(indexed.nodes)), sizes):
        own = find(indexed, given, sizes, dtype, group)
        if isinstance(own, Own):
            values = own.run(given, sizes, [dtype] * len(group))
            found |= dict(zip(group, values, strict=True))
    return found


def expected(
    indexed: Formula, given: Mapping[str, object], sizes: Mapping[str, int]
) -> list[Tensor]:
    doubled = {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in given.items()
    }
    outputs = indexed.line.outputs
    found = evaluate.evaluate(
        indexed,
        doubled,
        sizes,
        [True] * len(outputs),
        [torch.float64] * len(outputs),
        torch.device("cpu"),
    )
    return [value for value in found if value is not None]


def require_equal(
    indexed: Formula, dims: Mapping[str, int], dtype: torch.dtype, *, all_of: bool = False
) -> None:
    sizes = sizes_for(indexed, dims)
    given = arguments(indexed, sizes, dtype)
    found = computed(indexed, given, sizes, dtype)
    assert found or not all_of
    want = expected(indexed, given, sizes)
    for k, value in found.items():
        # A sum of n terms of about 1, each within a few ulp.
        tolerance = 400 * torch.finfo(dtype).eps
        torch.testing.assert_close(
            value.double(), want[k], rtol=tolerance, atol=tolerance * (1 + float(most(want[k])))
        )


def most(value: Tensor) -> Tensor:
    return value.abs().max() if value.numel() else torch.zeros(())


def dims_of(size: int, other: int = 5) -> dict[str, int]:
    names = dict.fromkeys(("n", "m", "v", "w"), size)
    return {**names, "d": 3, "k": 5, "p": 1, "q": 1, "h": other, "...": other}


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    "dtype", telling({"float32": torch.float32, "float64": torch.float64}, ["float32"])
)
@each_formula
def test_values_at_the_edges_of_vectors(name: str, dtype: torch.dtype) -> None:
    indexed = formula(name)
    for size in EDGES:
        require_equal(indexed, dims_of(size), dtype, all_of=True)


@pytest.mark.ci(3)
@each_gradient
def test_gradients_at_the_edges_of_vectors(name: str) -> None:
    indexed = gradient(name)
    for size in (1, 7, 8, 17, 33):
        require_equal(indexed, dims_of(size), torch.float64)


LARGE = {
    **dict.fromkeys(("n", "m", "v", "w"), 203),
    **{"d": 3, "k": 6, "p": 3, "q": 2, "h": 150, "...": 131},
}


@pytest.mark.ci(3)
@each_gradient
def test_loops_made_for_their_sizes_and_shared_among_threads(name: str) -> None:
    for indexed in (formula(name), gradient(name)):
        with threads(3):
            require_equal(indexed, LARGE, torch.float32)


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "layernorm", "rownorm"])
def test_many_short_rows_side_by_side(name: str) -> None:
    """Rows that are reduced together do not mix, and those beyond the last one are not written."""
    sizes = {**LARGE, "n": 513, "m": 21, "...": 515, "v": 21}
    for indexed in (formula(name), gradient(name)):
        require_equal(indexed, sizes, torch.float32)


@pytest.mark.parametrize(
    ("name", "empty"),
    [("gauss", "m"), ("gauss", "n"), ("gauss", "d"), ("rownorm", "..."), ("laplace", "h")],
)
def test_empty_dimensions(name: str, empty: str) -> None:
    dims = {**dims_of(9), empty: 0}
    require_equal(formula(name), dims, torch.float64, all_of=True)
    require_equal(gradient(name), dims, torch.float64)


@pytest.mark.parametrize("name", ["softmax", "gauss", "sqdist", "laplace", "layernorm"])
@pytest.mark.parametrize("layout", ["transposed", "every second", "expanded"])
def test_strides(name: str, layout: str) -> None:
    for indexed in (formula(name), gradient(name)):
        sizes = sizes_for(indexed, dims_of(33, other=6))
        given = {
            key: laid(value, layout) if isinstance(value, Tensor) else value
            for key, value in arguments(indexed, sizes, torch.float64).items()
        }
        want = expected(indexed, given, sizes)
        for k, value in computed(indexed, given, sizes, torch.float64).items():
            torch.testing.assert_close(value, want[k])
            assert value.is_contiguous()


def laid(tensor: Tensor, layout: str) -> Tensor:
    match layout:
        case "transposed":
            return tensor.movedim(0, -1).contiguous().movedim(-1, 0)
        case "every second":
            return torch.stack([tensor, tensor], -1)[..., 0]
        case _:
            return tensor[:1].expand(tensor.shape)


def values_of(name: str, dims: Mapping[str, int], **given: Tensor) -> Tensor:
    indexed = formula(name)
    sizes = sizes_for(indexed, dims)
    own = find(indexed, given, sizes, torch.float32)
    assert isinstance(own, Own)
    return own.run(given, sizes, [torch.float32])[0]


def test_maxima_of_nan_are_nan_and_infinities_stay() -> None:
    x = torch.zeros(4, 40)
    x[0, 37], x[1, 3], x[2, 20] = torch.nan, -torch.inf, torch.inf
    torch.testing.assert_close(
        values_of("rowmax", {"n": 4, "m": 40}, x=x), (x**2).amax(1), equal_nan=True
    )
    torch.testing.assert_close(
        values_of("softmax", {"...": 4, "n": 40}, x=x), x.softmax(-1), equal_nan=True
    )


def test_first_of_equal_maxima_gets_the_gradient() -> None:
    indexed = gradient("rowmax")
    x = torch.zeros(3, 100)
    x[0, 70] = x[0, 41] = x[0, 99] = 2
    x[1, 50] = x[1, 17] = torch.nan
    given = {"grad": torch.ones(3), "x": x}
    sizes = {"n": 3, "m": 100}
    found = computed(indexed, given, sizes, torch.float32)[0]
    assert found[0].nonzero().flatten().tolist() == [41]
    assert found[1].isnan().nonzero().flatten().tolist() == [17]
    assert found[2].abs().sum() == 0


def test_what_is_not_selected_is_not_seen() -> None:
    x = torch.ones(50)
    x[40:] = torch.inf
    y = values_of("before", {"n": 50}, x=x)
    assert y[:40].tolist() == list(range(1, 41))
    assert y[40:].isinf().all()


def test_long_sums_are_as_exact_as_those_of_pytorch() -> None:
    x = torch.rand(1_000_000, generator=torch.Generator().manual_seed(0)).log()
    exact = x.double().exp().mean()
    own = abs(values_of("total", {"n": len(x)}, x=x).double() - exact)
    assert own <= abs(x.exp().mean().double() - exact) + 2e-7 * exact
    v = torch.rand(200_000, generator=torch.Generator().manual_seed(1))
    zeros = torch.zeros(1, 1), torch.zeros(len(v), 1)
    total = values_of("gauss", {"n": 1, "m": len(v), "d": 1}, x=zeros[0], y=zeros[1], v=v)
    torch.testing.assert_close(total[0].double(), v.double().sum(), rtol=5e-7, atol=0)


@pytest.mark.parametrize("rows", [1, 66, 129, 300, 4099])
def test_totals_of_rows_that_read_the_rows_around_them(rows: int, seed: int) -> None:
    """The rows side by side are parts of a chunk, and of the last turns some are beyond it."""
    text = "(x[n, d], g[n, d]) -> (y[d], z[n, d])"
    sums = "y = sum[n](g*pad(x[n - 1, d]) + pad(g[n + 2, d])); z = g*pad(x[n - 1, d])"
    indexed = notation.parse(lines.parse(f"demo::around{text} = {sums}"))
    for d in (5, 33):
        sizes = {"n": rows, "d": d}
        given = arguments(indexed, sizes, torch.float32, seed)
        own = find(indexed, given, sizes, torch.float32)
        assert isinstance(own, Own)
        exact = expected(indexed, given, sizes)
        found = own.run(given, sizes, [torch.float32] * 2)
        for place, got in zip(own.outputs, found, strict=True):
            torch.testing.assert_close(got.double(), exact[place], rtol=1e-5, atol=1e-4)


# A sum inside of another one; two outputs; a maximum; sums of all pairs: each in chunks too.
WAYS: dict[str, tuple[str, dict[str, int]]] = {
    "moments": (
        "(x[n, k]) -> y[k] = m[k] = mean[n](x[n, k]); y = m + mean[i]((x[i, k] - m)**2)",
        {"n": 4000, "k": 24},
    ),
    "columns": (
        "(x[n, k]) -> (m[k], s[k]) = m = max[n](x[n, k]); s = sum[i](exp(x[i, k] - m[k]))",
        {"n": 4000, "k": 24},
    ),
    "layernorm": (ROWS["layernorm"], {"...": 24, "n": 4000}),
    "gauss": (PAIRS["gauss"], {"n": 40, "m": 4000, "d": 3}),
    "pair": (PAIRS["pair"], {"n": 700}),
    "averages": (
        "(x[n, d], y[m, d], v[m, e]) -> u[n, e]"
        " = sum[m](exp(-sum[d]((x - y)**2))*v)/sum[m](exp(-sum[d]((x - y)**2)))",
        {"n": 40, "m": 4000, "d": 3, "e": 16},
    ),
}


@pytest.mark.parametrize("name", telling({name: name for name in WAYS}, ["moments"]))
def test_whichever_loops_are_chosen_they_give_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and costs decide, so the loops that are taken nowhere today may be taken tomorrow."""
    text, dims = WAYS[name]
    number, many = 0, 1

    def choose_one(outputs: Any, setting: Any, sizes: Any) -> schedules.Schedule:
        nonlocal many
        ways: dict[str, schedules.Schedule] = {}
        found = schedules.candidates(outputs, setting, sizes)
        before = schedules.hoist(outputs, setting, sizes)
        for candidate in (*found, *before):
            with suppress(RefusedLoops):
                made = candidate.made()
                ways["".join(step.kernel.text for step in made.steps)] = made
        many = max(many, len(ways))
        return [*ways.values()][min(number, len(ways) - 1)]

    monkeypatch.setattr(schedules, "choose_schedule", choose_one)
    chunks: list[int] = []
    indexed = notation.parse(lines.parse(f"demo::way{text}"))
    sizes = sizes_for(indexed, dims)
    given = arguments(indexed, sizes, torch.float32)
    for k, want in enumerate(expected(indexed, given, sizes)):
        number, many = 0, 1
        while number < many:
            monkeypatch.setattr(specialise, "_chosen", Memo[Any, Any]())
            monkeypatch.setattr(nests, "_found", Memo[Any, Any]())
            own = find(indexed, given, sizes, torch.float32, (k,))
            assert isinstance(own, Own)
            [value] = own.run(given, sizes, [torch.float32])
            torch.testing.assert_close(value.double(), want, rtol=1e-5, atol=1e-5)
            chunks += [KernelSizing(each, own, sizes).chunks for each in own.plan.kernels]
            number += 1
    assert max(chunks) > 1


def test_no_chunk_of_a_sum_computes_a_whole_one() -> None:
    """A mean over all rows was computed by each of 32 chunks of what reads it: 8 ms for 2."""
    text = "(x[b, c, s], v[b, c, s]) -> (y[c], z[c])"
    sums = "u[c] = mean[n, p](x[n, c, p]); y = sum[b, s](v*(x - u[c])); z = sum[b, s](v)"
    indexed = notation.parse(lines.parse(f"demo::column_means{text} = {sums}"))
    sizes = sizes_for(indexed, {"b": 1000, "c": 7, "s": 102})
    given = arguments(indexed, sizes, torch.float64)
    own = find(indexed, given, sizes, torch.float64)
    assert isinstance(own, Own)
    whole = 0
    for kernel in own.plan.kernels:
        nest = kernel.step.kernel.nest
        many = KernelSizing(kernel, own, sizes).chunks if nest.over else 1
        # A sum that is split is itself among them.
        nodes = in_order(
            a for o in nest.outputs for a in (o.node.args if nest.is_split else [o.node])
        )
        own_size = [n for n in nodes if n.op in REDUCTIONS and n.size == nest.over_size]
        whole += many * any(nest.over not in n.free for n in own_size)
    assert whole <= 1
    for got, want in zip(
        own.run(given, sizes, [torch.float64] * 2), expected(indexed, given, sizes), strict=True
    ):
        torch.testing.assert_close(got.double(), want)


def test_a_dimension_may_have_the_name_of_what_the_loops_count() -> None:
    x = torch.rand(3000, 7, generator=torch.Generator().manual_seed(0))
    indexed = notation.parse(
        lines.parse("demo::columns(x[chunks, n]) -> y[n] = sum[chunks](exp(x[chunks, n]))")
    )
    sizes = {"chunks": 3000, "n": 7}
    own = find(indexed, {"x": x}, sizes, torch.float32)
    assert isinstance(own, Own)
    assert len(own.steps) == 2
    torch.testing.assert_close(own.run({"x": x}, sizes, [torch.float32])[0], x.exp().sum(0))


def test_the_same_values_whatever_the_number_of_threads() -> None:
    indexed = formula("pair")
    sizes = {**sizes_for(indexed, {"n": 700}), "i": 700, "j": 700}
    given = arguments(indexed, sizes, torch.float32)
    own = find(indexed, given, sizes, torch.float32)
    assert isinstance(own, Own)
    alone = own.run(given, sizes, [torch.float32])[0]
    with threads(3):
        together = own.run(given, sizes, [torch.float32])[0]
    assert torch.equal(together, alone)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(x[n, i], w[o, i]) -> y[n, o] = sum[i](x[n, i]*w[o, i])", "contraction"),
        (
            "(q[s, e], k[t, e], v[t, d]) -> o[s, d] = sum[t](exp(sum[e](q[s, e]*k[t, e]))*v[t, d])",
            "contraction",
        ),
        # The gradient of a recurrence's matrix: there is no step before the first one.
        ("(h[t, e], p[t, d]) -> w[d, e] = sum[t](p[t, d]*pad(h[t - 1, e]))", "contraction"),
    ],
)
def test_what_is_of_no_family_is_refused(text: str, reason: str) -> None:
    indexed = notation.parse(lines.parse(f"demo::refused{text}"))
    sizes = dict.fromkeys("nioveksdt", 64)
    given = frozenset(tensor.name for tensor in indexed.line.tensors)
    refusal = nests.find(indexed, torch.float32, (0,), given, sizes)
    assert isinstance(refusal, NoLoops)
    assert re.search(reason, refusal.reason)


@pytest.mark.parametrize("rows", [3, 40])
def test_a_nest_that_needs_a_chunk_before_there_is_one_is_passed_over(rows: int) -> None:
    indexed = notation.parse(
        lines.parse(
            "demo::spread(x[k, n]) -> y[k, n] = "
            "(x - mean[m](x[k, m]))/sqrt(mean[m]((x[k, m] - mean[l](x[k, l]))**2) + 1e-5)"
        )
    )
    sizes = {"k": rows, "n": 12_000}
    x = torch.randn(rows, 12_000, generator=torch.Generator().manual_seed(0))
    own = find(indexed, {"x": x}, sizes, torch.float32)
    assert isinstance(own, Own)
    (y,) = own.run({"x": x}, sizes, [torch.float32])
    wanted = torch.nn.functional.layer_norm(x, (12_000,))
    torch.testing.assert_close(y, wanted, rtol=1e-5, atol=1e-5)


HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("name", telling(NAMES, ("softmax", "gauss")))
@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_is_read_and_rounded_once(name: str, dtype: str) -> None:
    indexed = formula(name)
    sizes = sizes_for(
        indexed, {**dict.fromkeys("nmhwv", 37), "d": 3, "k": 5, "p": 2, "q": 3, "...": 4}
    )
    sizes |= {
        index: 5 for tensor in indexed.line.tensors for index in tensor.labels if index == "v"
    }
    given = arguments(indexed, sizes, HALVES[dtype])
    own = find(indexed, given, sizes, HALVES[dtype])
    assert isinstance(own, Own)
    read = {operand.dtype for operand in own.plan.inputs}
    assert dtype in read
    assert "float32" not in read
    for got, exact in zip(
        own.run(given, sizes, [HALVES[dtype]] * len(indexed.nodes)),
        expected(indexed, given, sizes),
        strict=True,
    ):
        rounded = exact.to(HALVES[dtype])
        assert got.dtype == HALVES[dtype]
        # Of a value between two halves, another rounding of the last bit of float32 may decide.
        eps = torch.finfo(HALVES[dtype]).eps
        torch.testing.assert_close(got, rounded, rtol=eps, atol=eps * 1e-3)


def test_a_whole_output_of_doubles_is_computed_in_double() -> None:
    text = "(x[n, m]) -> k[n]: int64 = argmax[m](x[n, m])"
    definition = Definition(line=lines.parse(f"demo::where{text}"), formula=None)
    indexed = notation.parse(definition.line)
    x = torch.zeros(3, 40, dtype=torch.float64)
    x[:, 7], x[:, 3] = 2.0, 2.0 - 1e-12
    call = call_of(replace(definition, formula=indexed), [x])
    own = nests.find(indexed, call.dtype, (0,), call.present, call.sizes)
    assert isinstance(own, Own)
    assert own.target.compute == "double"
    assert own.run({"x": x}, call.sizes, [torch.int64])[0].tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("names", "family"),
    [(ROWS, "row reduction"), (PAIRS, "pairwise sum"), (STENCILS, "stencil"), (GATHERS, "gather")],
)
def test_families(names: Mapping[str, str], family: str) -> None:
    for name in names:
        if name in ("softmax", "rownorm", "sqdist", "gauss", "correlate", "laplace", "bag"):
            indexed = formula(name)
            sizes = sizes_for(indexed, LARGE)
            own = find(indexed, arguments(indexed, sizes, torch.float32), sizes, torch.float32)
            assert isinstance(own, Own)
            assert own.family == family


def test_modelled_work_grows_with_the_sizes() -> None:
    indexed = formula("gauss")
    sizes = sizes_for(indexed, {"n": 1000, "m": 1000, "d": 3})
    own = find(indexed, arguments(indexed, sizes, torch.float32), sizes, torch.float32)
    assert isinstance(own, Own)
    assert own.specialised == {"d": 3}
    assert own.work({**sizes, "m": 2000}) == pytest.approx(2 * own.work(sizes), rel=0.01)


def test_a_size_that_follows_from_others_is_no_choice_of_a_loop() -> None:
    line = "demo::f(x[b, h], k[o, p]) -> y[b, o, i] = sum[p](x[b, 2*i + 3*p]*k[o, p])"
    derived = derivatives.backward(notation.parse(lines.parse(line)))
    assert derived is not None
    sizes = {"b": 200, "h": 37, "o": 400, "p": 3, "i": 16, "...": 1}
    present = frozenset(tensor.name for tensor in derived.formula.line.tensors)
    for place in range(len(derived.formula.nodes)):
        own = nests.find(derived.formula, torch.float32, (place,), present, sizes)
        if isinstance(own, Own):
            assert "i" not in own.specialised


def test_sizes_that_are_alike_have_the_same_loops() -> None:
    indexed, given = formula("gauss"), frozenset({"x", "y", "v"})
    some, other, more = (
        nests.find(indexed, torch.float32, (0,), given, {"n": n, "m": 1000, "d": 3})
        for n in (700, 1000, 1500)
    )
    assert some is other
    assert some is not more


# --- what is ready before a call


@pytest.mark.parametrize("name", ["softmax", "scaled", "rowmax", "total", "laplace"])
def test_what_is_ready_gives_the_same(name: str) -> None:
    indexed = formula(name)
    definition = Definition(line=indexed.line, formula=indexed)
    sizes = sizes_for(indexed, {"...": 6, "n": 40, "m": 21, "d": 3, "h": 9, "w": 20})
    named = arguments(indexed, sizes, torch.float32)
    call = call_of(definition, tuple(named.values()))
    own = find(indexed, named, call.sizes, torch.float32)
    assert isinstance(own, Own)
    made = ready.make_ready(call, [Choice(outputs=(0,), own=own, reason="", takes_own=True)])
    assert made
    found = made.run(tuple(named.values()))
    assert found
    want = own.run(call.flat, call.sizes, [torch.float32])[0].reshape(call.outputs.shapes[0])
    torch.testing.assert_close(found[0], want, rtol=0, atol=0)
    tensors = [value for value in named.values() if isinstance(value, Tensor)]
    if tensors[0].dim() > 1:
        turned = tensors[0].mT.contiguous().mT
        others = [value for value in named.values() if value is not tensors[0]]
        assert made.run((turned, *others)) is None


# --- divisions by what stays the same


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_reciprocal_leaves_no_range_out(dtype: torch.dtype) -> None:
    text = "(x[n, m], s[n]) -> y[n, m] = x[n, m]/s[n]"
    indexed = notation.parse(lines.parse(f"demo::quotient{text}"))
    info = torch.finfo(dtype)
    numbers = [0.0, -0.0, 1.0, 3.0, -7.0, info.tiny, info.tiny / 64, info.max, torch.inf, torch.nan]
    s = torch.tensor([*numbers, *(-n for n in numbers), 2.0**-110, 2.0**110], dtype=dtype)
    x = torch.cat([s, torch.linspace(0.1, 10, 11, dtype=dtype)]).expand(len(s), -1)
    sizes = {"n": len(s), "m": x.shape[1]}
    own = find(indexed, {"x": x, "s": s}, sizes, dtype)
    assert isinstance(own, Own)
    assert "Divisor" in "".join(step.kernel.text for step in own.steps)
    got = own.run({"x": x, "s": s}, sizes, [dtype])[0]
    exact = x / s[:, None]
    torch.testing.assert_close(
        got, exact, rtol=3 * info.eps, atol=info.smallest_normal * info.eps, equal_nan=True
    )


def test_what_has_an_edge_is_divided() -> None:
    text = "(x[n, m]) -> y[n, m] = acos(x[n, m]/max[k](x[n, k]))"
    indexed = notation.parse(lines.parse(f"demo::edge{text}"))
    x = torch.rand(200, 40, generator=torch.Generator().manual_seed(0))
    sizes = {"n": 200, "m": 40}
    own = find(indexed, {"x": x}, sizes, torch.float32)
    assert isinstance(own, Own)
    assert "Divisor" not in "".join(step.kernel.text for step in own.steps)
    assert not own.run({"x": x}, sizes, [torch.float32])[0].isnan().any()


# --- what was compared before

COMPARES = """
import pullback as pb
from pullback.bind.math import verify
seen = []
compare = verify.compare
verify.compare = lambda own, present: (seen.append(own.indexed.line.name), compare(own, present))
scaled = pb.operator("demo::{name}(x[..., n]) -> y[..., n] = {text}")
print(sorted(seen))
"""


def test_what_has_agreed_is_not_compared_by_another_process(tmp_path: Path) -> None:
    # A cache that knows nothing but the runtime, which takes half a minute to compile.
    known = runtime.compile_runtime().parent
    shutil.copytree(known, tmp_path / known.name)

    def seen(text: str) -> str:
        program = COMPARES.format(name="halved", text=text)
        ended = in_fork(lambda: exec(program, {}), folder=tmp_path, PULLBACK_CACHE=str(tmp_path))
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    text = "x[n]/sum[m](x[m]**2)"
    assert seen(text) == "['_halved_grad', 'halved']"
    assert seen(text) == "[]"
    assert seen("x[n]/sum[m](x[m]**4)") == "['_halved_grad', 'halved']"


def test_what_was_compared_is_known_by_all_that_it_depends_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    indexed = formula("softmax")
    names = {verified.digest(verified.serialize_formula(indexed))}
    names.add(verified.digest(verified.serialize_formula(gradient("softmax"))))
    names.add(verified.digest(verified.serialize_formula(replace(indexed, accuracy=1))))
    monkeypatch.setattr(verified, "version", lambda: "another")
    names.add(verified.digest(verified.serialize_formula(indexed)))
    assert len(names) == 4


# A loop of its second derivative is to stand before one whose index has the same name.
BIASED = (
    "demo::biased(q[n, d], k[n, d], b[n]) -> o[n] ="
    " s[n, m] = where(m <= n, sum[d](q[n, d]*k[m, d]) + b[n - m], -inf);"
    " o = log(sum[m](exp(s[n, m])))"
)


@pytest.mark.parametrize("text", [POSITIONS, "f(x[n], y[m]) -> a[n] = sum[m](exp(x[n]*y[m]))"])
def test_a_definition_has_no_loops_for_the_sizes_of_its_comparison(text: str) -> None:
    """Those would be written out, and serve no call; products of matrices have none at all."""
    found = list(verify.loops_of(notation.parse(lines.parse(f"test::{text}"))))
    assert bool(found) == (text != POSITIONS)
    assert not any(own.specialised for own, _ in found)


def test_loops_of_second_derivatives_are_written_for_each_output() -> None:
    """What loops cannot compute has none, with a reason: no line ends in an error of ours."""
    indexed = notation.parse(lines.parse(BIASED))
    for _ in range(2):
        derived = derivatives.backward(indexed)
        assert derived
        indexed = derived.formula
    sizes = sizes_for(indexed, dict.fromkeys(indexed.line.dimensions, 17))
    present = frozenset(parameter.name for parameter in indexed.line.parameters)
    for place in range(len(indexed.nodes)):
        own = nests.generate(indexed, torch.float64, (place,), present, sizes, CpuBackend())
        assert isinstance(own, Own | NoLoops)


@pytest.mark.thorough
def test_second_derivatives_of_a_biased_matrix_are_those_of_autograd(seed: int) -> None:
    def reference(q: Tensor, k: Tensor, b: Tensor) -> Tensor:
        back = torch.arange(len(q))[:, None] - torch.arange(len(q))
        scores = torch.where(back >= 0, q @ k.T + b[back.clamp(0)], -torch.inf)
        return scores.logsumexp(1)

    torch.manual_seed(seed)
    leaves = [torch.randn(*shape, dtype=torch.float64) for shape in ((17, 3), (17, 3), (17,))]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    found: list[tuple[Tensor, ...]] = []
    for call in (pb.operator(BIASED), reference):
        first = torch.autograd.grad(call(*leaves).square().sum(), leaves, create_graph=True)
        total = torch.stack([own.square().sum() for own in first]).sum()
        found.append(torch.autograd.grad(total, leaves))
    torch.testing.assert_close(*found)


def test_infinities_that_cancel_in_another_order_are_no_difference() -> None:
    infinite, nan = torch.tensor([torch.inf, 1.0]), torch.tensor([torch.nan, 1.0])
    for got, want in ((infinite, nan), (nan, infinite)):
        assert tolerance.describe_difference(got, want, want.double())
        assert tolerance.describe_difference(got, want, want.double(), has_sums=True) is None
    assert tolerance.describe_difference(infinite, -infinite, -infinite.double(), has_sums=True)
    assert tolerance.describe_difference(nan, torch.ones(2), torch.ones(2).double(), has_sums=True)


@pytest.mark.parametrize("weights", [lambda t: t.softmax(1), lambda t: (t - t.amax(1)).exp()])
def test_a_sum_may_be_added_up_anew_wherever_it_is_read(
    weights: Callable[[Tensor], Tensor],
) -> None:
    """The greatest weight is then 1 but for the roundings of what is in its exponent; costs 0 s.

    A mixture of Gaussians was refused as a fault of a loop's, whose maximum had lanes along another
    index than the rest.
    """
    x = torch.full((1, 40), 5.0, dtype=torch.float64)
    y = torch.tensor([[0.0, 4.0]], dtype=torch.float64).expand(40, 2)
    [noise] = tolerance.measure_noises(lambda: [weights(x @ y)])
    assert 20 < noise < 10000  # 40*5*4 = 800, times what is drawn
    [noise] = tolerance.measure_noises(lambda: [weights(800 * y[:1])])
    assert noise < 10
    total = (x @ y).add_(1)
    [noise] = tolerance.measure_noises(lambda: [total + (x @ y).mul_(2)])
    assert noise < 10000


NESTED = [[*map({"0": "sum", "1": "max"}.__getitem__, f"{k:04b}")] for k in range(16)]


@pytest.mark.parametrize(
    "ops",
    telling(
        {" of ".join(ops): ops for ops in NESTED},
        ["sum of max of sum of max"],
    ),
)
def test_sums_and_maxima_within_each_other(ops: list[str], seed: int) -> None:
    """Of sums the lanes may be joined after all loops, of a sum of maxima they hold the same.

    A Chamfer distance of several clouds was 16 times as large. Costs 1 s of the compiler each.
    """
    body = "abs(x[a, b, c, d] - y[b, e, d])"
    for op, index in zip(reversed(ops), "decb", strict=True):
        body = f"{op}[{index}]({body})"
    line = f"(x[a, b, c, d], y[b, e, d]) -> (u[a]!, v[]!) = u = {body}; v = {ops[0]}[a]({body})"
    op = pb.operator(f"test::loops_nested_{'_'.join(ops)}{line}")
    x, y = torch.randn(7, 5, 6, 19), torch.randn(5, 9, 19)
    values = [(x[:, :, :, None] - y[:, None]).double().abs()]
    for name in (*reversed(ops), ops[0]):
        values.append(values[-1].sum(-1) if name == "sum" else values[-1].amax(-1))
    for got, want in zip(op(x, y), values[-2:], strict=True):
        torch.testing.assert_close(got, want.float(), rtol=1e-4, atol=1e-4)


BESIDE = (
    "(w[d], x[n, d]) -> (s[d], y[n, d], m[n]) = m[n] = mean[k](x[n, k]); y = w*(x - m[n]); "
    "s = sum[n](x[n, d]*(x[n, d] - m[n])/(1 + m[n]**2))"
)


def test_outputs_of_rows_and_sums_over_rows_share_a_loop(seed: int) -> None:
    """In whichever order the line has them, for any sizes, with the same bits for all threads."""
    op = pb.operator(f"test::loops_beside{BESIDE}")
    for n, d in ((131, 67), (70, 7)):
        x, w = torch.randn(n, d), torch.randn(d)
        with torch.no_grad():
            assert len(choose.choose_executors(call_of(op.definition, (w, x)))) < 3
        found = op(w, x)
        mean = x.double().mean(1, keepdim=True)
        about = x.double() - mean
        expected = (x * about / (1 + mean**2)).sum(0), w * about, mean[:, 0]
        for own, value in zip(found, expected, strict=True):
            torch.testing.assert_close(own, value.float(), rtol=1e-4, atol=1e-4)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        assert all(map(torch.equal, op(w, x), found))
        torch.set_num_threads(threads)


# Each has four gradients, of a second each.
@pytest.mark.ci
@pytest.mark.parametrize("many", [pytest.param(3, marks=pytest.mark.thorough), 13])
def test_small_sums_within_sums_are_compiled_in_time(many: int, seed: int) -> None:
    """Sums over few places are written out; of four, of 13 places each, that takes minutes.

    Costs a second of the compiler.
    """
    line = "(a[i], b[j], c[k], d[l]) -> y[] = sum[i, j, k, l](sin(a[i]*b[j] + c[k]*d[l]))"
    op = pb.operator(f"test::loops_within_{many}{line}")
    a, b, c, d = given = [torch.randn(many, dtype=torch.float64) for _ in range(4)]
    expected = torch.sin((a[:, None] * b)[:, :, None, None] + c[:, None] * d).sum()
    before = time.process_time() + sum(os.times()[2:4])
    torch.testing.assert_close(op(*given), expected)
    assert time.process_time() + sum(os.times()[2:4]) - before < 20
    [choice] = choose.choose_executors(call_of(op.definition, tuple(given)))
    assert choice.own is not None


@pytest.mark.parametrize("width", telling({str(d): d for d in (1, 2, 7)}, ["1"]))
def test_a_last_dimension_of_few_elements_has_loops(width: int, seed: int) -> None:
    """A difference in time of one or two channels took PyTorch's operations 15 times eager's."""
    op = pb.operator(f"loops::channels{width}(x[t, c]) -> y[t, c] = x[t, c] - pad(x[t - 1, c])")
    x = torch.randn(200_000, width, requires_grad=True)
    assert str(op.plan(x)).count("own loop, stencil") == 2, op.plan(x)
    for layout in (x, x.detach().mT.contiguous().mT.requires_grad_(), x[::3], x[:0]):
        value, seed_of = op(layout), torch.randn(layout.shape)
        want = torch.diff(layout, dim=0, prepend=torch.zeros(1, width))
        torch.testing.assert_close(value, want)
        found, exact = (torch.autograd.grad(each, layout, seed_of)[0] for each in (value, want))
        torch.testing.assert_close(found, exact)


def test_a_loop_that_does_more_than_is_needed_is_timed_where_the_model_is_unsure(seed: int) -> None:
    """Of a few images more PyTorch's operations took them, in three times the loop's time.

    Costs a second.
    """
    op = pb.operator(
        "loops::greatest(x[c, h, w]) -> y[c, i, j] = max[p < 3, q < 3](x[c, 2*i + p, 2*j + q])"
    )
    for count in (100, 600):
        x = torch.randn(count, 25, 32).bfloat16()
        assert "measured" in str(op.plan(x)), op.plan(x)
        assert torch.equal(op(x), torch.nn.functional.max_pool2d(x, 3, 2))


def test_a_way_that_is_far_behind_is_given_up() -> None:
    """The first call of a contrastive loss waited seconds for PyTorch's operations."""

    def forever() -> None:
        one = torch.ones(1)
        while True:
            one = one + 1

    def clock(way: Callable[[], object]) -> float:
        begin = time.perf_counter()
        way()
        return time.perf_counter() - begin

    begin = time.perf_counter()
    found = choose.measure_seconds({"loop": lambda: torch.ones(1), "PyTorch": forever}, clock)
    assert found["loop"] < found["PyTorch"] == float("inf")
    assert time.perf_counter() - begin < 5
    assert "PyTorch given up" in passing.show_seconds(found)


POOLS = {"mean": torch.nn.functional.avg_pool2d, "max": torch.nn.functional.max_pool2d}
STRIDED = ((2, 2), (3, 2), (2, 3), (5, 3))


@pytest.mark.ci(2)
@pytest.mark.parametrize("size", telling({f"{p} by {s}": (p, s) for p, s in STRIDED}, ["3 by 2"]))
@pytest.mark.parametrize("name", POOLS)
def test_a_sum_runs_where_conditions_leave_something(
    name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The gradient of a pool with strides: each element is in few windows, and asked all of them.

    Each took the longer the larger the image was: 64 x 128 x 128 maxima 238 ms, now 11.
    """
    monkeypatch.setattr(CpuBackend, "is_preferred", True)
    wide, step = size
    window = f"{name}[p < {wide}, q < {wide}](x[c, {step}*i + p, {step}*j + q])"
    own = pb.operator(f"demo::pool_{name}{wide}{step}(x[c, h, w]) -> y[c, i, j] = {window}")
    for shape in ((2, 40, 70), (3, 33, 47), (1, 64, 131)):
        x = torch.randn(shape, requires_grad=True)
        assert "own loop" in str(own.plan(x)).rpartition("grad_x")[2]
        expected = POOLS[name](x, *size)
        grad = torch.randn_like(expected)
        torch.testing.assert_close(own(x), expected)
        found, wanted = (torch.autograd.grad(y, x, grad)[0] for y in (own(x), expected))
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("condition", ["0 <= n - m < 9", "-3 <= 2*n - 3*m <= 4", "m == 2*n + 1"])
def test_a_sum_over_a_window_runs_over_the_window(condition: str, seed: int) -> None:
    total = f"sum[m](where({condition}, exp(x[m, d]), 0))"
    parsed = notation.parse(lines.parse(f"demo::window(x[m, d], y[n]) -> u[d, n] = y*{total}"))
    assert parsed
    sizes = {"n": 300, "m": 200, "d": 40}
    present = frozenset({"x", "y"})
    own = nests.generate(parsed, torch.float32, (0,), present, sizes, CpuBackend())
    assert isinstance(own, Own)
    x, y = torch.randn(200, 40), torch.randn(300)
    n, m = torch.arange(300)[:, None], torch.arange(200)
    inside = {
        "0 <= n - m < 9": (n >= m) & (n - m < 9),
        "-3 <= 2*n - 3*m <= 4": (2 * n - 3 * m >= -3) & (2 * n - 3 * m <= 4),
        "m == 2*n + 1": m == 2 * n + 1,
    }[condition]
    expected = (y[:, None] * (inside.double() @ x.double().exp())).T
    [found] = own.run({"x": x, "y": y}, sizes, (torch.float64,))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_operations_of_which_each_needs_the_one_before(seed: int) -> None:
    """They ended in a `RecursionError` of what writes loops, and lines. Costs 4 s."""
    parts, last = list[str](), "x"
    for part in range(3):
        terms = (f"0.{k % 7 + 1}*abs(x - {k + 100 * part})" for k in range(100))
        parts.append(f"t{part}[n, m] = {last} + {' + '.join(terms)}")
        last = f"t{part}[n, m]"
    line = f"(x[n, m]) -> y[n, m] = {'; '.join(parts)}; y = x - mean[k](t2[n, k])"
    x = torch.randn(5, 4).double().requires_grad_()
    total = x
    for k in range(300):
        total = total + (k % 100 % 7 + 1) / 10 * (x - k).abs()
    want = x - total.mean(1, keepdim=True)
    op = pb.operator(f"test::loops_deep{line}")
    torch.testing.assert_close(op(x), want)
    grad = torch.randn_like(want)
    found, theirs = (torch.autograd.grad(value, x, grad) for value in (op(x), want))
    torch.testing.assert_close(found, theirs)
