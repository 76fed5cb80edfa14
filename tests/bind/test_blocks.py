"""Long reductions by blocks: what they compute is what PyTorch computes of all at once."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import pullback as pb
from pullback.bind.dense import blocks, evaluate, panels, slices
from pullback.bind.loops import block_loops
from pullback.bind.loops.nests import NoLoops
from pullback.bind.math import choose, passing, samples
from pullback.define import shape
from pullback.define.math import derived as derivatives
from pullback.define.math import extents
from pullback.define.math.formula import Formula
from pullback.define.math.passes import Unfit
from pullback.define.math.passing import Passing, make_passing
from pullback.define.math.statistics import keep_statistics
from pullback.define.math.tiles import Pair
from tests.define.indexed import FORMULAS
from tests.define.indexed import SIZES as FORMULA_SIZES
from tests.define.long_reductions import (
    ATTENTION,
    LINES,
    POSITIONS,
    QKV,
    READING,
    SCORES,
    SIZES,
)
from tests.define.test_passes import every_pair, formula, pairs_of
from tests.telling import telling

CPU = torch.device("cpu")
Sides = tuple[int, int]
SIDES: Sequence[Sides] = ((1, 1), (3, 3), (4, 2), (100, 100))
# One of each kind: of scores, of what is added to them, of statistics, of what is read of them.
TWICE = (
    *("plain", "window", "soft-capping", "relative bias", "bias by data", "grouped heads"),
    *("no maximum", "Gaussian", "cross-entropy", "both ways", "greatest of the row before"),
    *("variance", "greatest difference", "row at a place", "weights too"),
)


@pytest.fixture(autouse=True)
def by_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loops: `test_looped_blocks.py` has them."""
    monkeypatch.setattr(block_loops, "can_compile", lambda _: False)


def in_passes(indexed: Formula, pairs: set[Pair]) -> Passing | None:
    """Return all outputs in passes; None if there is nothing to do by blocks."""
    ordered = sorted(pairs, key=sorted)
    try:
        found = make_passing(indexed, indexed.nodes, ordered, [True] * len(indexed.nodes))
    except Unfit:
        return None
    return found if found.sweeps else None


def sizes_of(indexed: Formula, tensors: Mapping[str, object]) -> dict[str, shape.Size]:
    shapes = {n: tuple(v.shape) for n, v in tensors.items() if isinstance(v, Tensor)}
    solved = shape.solve(indexed.line, {t.name: shapes.get(t.name) for t in indexed.line.tensors})
    return extents.sizes_of_call(indexed, extents.with_counts(indexed, solved, tensors))


def both_ways(
    found: Passing,
    tensors: Mapping[str, object],
    sides: Sides,
    dtype: torch.dtype = torch.float64,
    *,
    is_half: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each output by blocks, and as a whole."""
    indexed = found.indexed
    arguments = {p.name: tensors.get(p.name) for p in indexed.line.parameters}
    sizes = {name: int(size) for name, size in sizes_of(indexed, arguments).items()}
    wanted = [True] * len(indexed.nodes)
    dtypes = [getattr(torch, o.dtype) if o.dtype else dtype for o in indexed.line.outputs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "size_block", lambda *_: sides)
        got = panels.compute(found, arguments, sizes, wanted, dtypes, CPU, is_half=is_half)
    want = evaluate.evaluate(indexed, arguments, sizes, wanted, dtypes, CPU)
    for each, other in zip(got, want, strict=True):
        assert each is not None
        assert other is not None
        yield each, other


def drawn(indexed: Formula, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Return random inputs; whole numbers are 1, 2, 3 in turn: every row has a column."""
    return {
        spec.name: 1 + torch.arange(math.prod(shape)).reshape(shape) % 3
        if spec.dtype
        else torch.randn(shape, dtype=torch.float64)
        for spec in indexed.line.tensors
        for shape in [[sizes[str(d)] for d in spec.dims]]
    }


def gradients_of(indexed: Formula) -> Formula:
    found = derivatives.backward(indexed)
    assert found
    return found.formula


@pytest.mark.ci(3)
@pytest.mark.parametrize("sides", telling({str(s): s for s in SIDES}, ["(3, 3)"]))
@pytest.mark.parametrize("name", LINES)
def test_a_line_and_its_gradients_agree(name: str, sides: Sides, seed: int) -> None:
    indexed = formula(LINES[name][0])
    for each in (indexed, gradients_of(indexed)) if LINES[name][2] else (indexed,):
        require_agreement(each, sides)


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", telling({n: n for n in LINES if LINES[n][2]}, TWICE))
def test_gradients_of_gradients_agree(name: str, seed: int) -> None:
    require_agreement(gradients_of(gradients_of(formula(LINES[name][0]))), (3, 3))


# What a block needs of all rows and columns, as a number or as a place, in tensors and conditions.
TOTALS = [
    "l[] = s[n, m] = sum[d](q*k); u = max[i, j](s[i, j]); l = u + log(sum[n, m](exp(s[n, m] - u)))",
    "l[] = s[n, m] = sum[d](q*k); l = sum[n, m](exp(s[n, m] - max[i](max[j](s[i, j]))))",
    "l[] = a = argmax[i](sum[j](sum[d](q[i, d]*k[j, d]))); l = sum[n, m](sum[d](q*k*q[a, d]))",
    "l[n] = a = argmax[i](sum[j](exp(sum[d](q[i, d]*k[j, d])))); "
    "l = sum[m](where(n == a, 2, 1)*exp(sum[d](q*k)))",
    "l[n] = a = argmax[i](sum[j](exp(sum[d](q[i, d]*k[j, d])))); "
    "l = sum[m](where(n + m == a, 2, 1)*exp(sum[d](q*k)))",
]


@pytest.mark.parametrize("sides", [(2, 3), (1, 1)])
@pytest.mark.parametrize("output", TOTALS)
def test_a_total_in_a_block_is_that_of_all_rows_and_columns(
    output: str, sides: Sides, seed: int
) -> None:
    """Costs nothing: a block would take its own rows for all."""
    require_tangents(formula(f"totals(q[n, d], k[m, d]) -> {output}"), sides)


@pytest.mark.parametrize("name", telling({n: n for n in LINES if LINES[n][2]}, TWICE))
def test_tangents_agree(name: str, seed: int) -> None:
    require_tangents(formula(LINES[name][0]), (2, 3))


def require_tangents(indexed: Formula, sides: Sides) -> None:
    """Compare a line and its tangent by blocks with both as a whole; not all have blocks."""
    tangents = derivatives.jvp(indexed)
    assert tangents
    for each in (indexed, tangents.formula):
        if in_passes(each, pairs_of(each)):
            require_agreement(each, sides)


def require_agreement(indexed: Formula, sides: Sides) -> None:
    found = in_passes(indexed, pairs_of(indexed))
    assert found
    for got, want in both_ways(found, drawn(indexed, SIZES), sides):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def in_full(
    indexed: Formula, tensors: Mapping[str, object], dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Return all outputs as a whole, by their names."""
    arguments = {p.name: tensors.get(p.name) for p in indexed.line.parameters}
    sizes = {name: int(size) for name, size in sizes_of(indexed, arguments).items()}
    outputs = indexed.line.outputs
    dtypes = [getattr(torch, o.dtype) if o.dtype else dtype for o in outputs]
    values = evaluate.evaluate(indexed, arguments, sizes, [True] * len(outputs), dtypes, CPU)
    return {o.name: v for o, v in zip(outputs, values, strict=True) if v is not None}


def gradients_both_ways(
    indexed: Formula, tensors: Mapping[str, object], sides: Sides
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each gradient from statistics by blocks, and as a whole without statistics."""
    kept = keep_statistics(indexed)
    assert kept
    values = in_full(kept.forward, tensors)
    own = {o.name for o in indexed.line.outputs}
    names = [n for n, value in values.items() if n in own and value.is_floating_point()]
    several = len(names) > 1
    arriving = {
        f"grad_{name}" if several else "grad": torch.randn_like(values[name]) for name in names
    }
    given = {**tensors, **values, **arriving}
    expected = in_full(gradients_of(indexed), given)
    backward = kept.backward.formula
    found = in_passes(backward, pairs_of(backward))
    if found is None:
        return  # from places all is read
    pairs = both_ways(found, given, sides)
    for output, (by_blocks, whole) in zip(backward.line.outputs, pairs, strict=True):
        yield by_blocks, expected[output.name]
        yield whole, expected[output.name]


KEEPING = [name for name in LINES if READING.get(name, 1) is not None]


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", KEEPING)
def test_gradients_from_statistics_agree(name: str, seed: int) -> None:
    indexed = formula(LINES[name][0])
    for got, want in gradients_both_ways(indexed, drawn(indexed, SIZES), (3, 3)):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", telling({n: n for n in KEEPING}, ["padding", "both ways"]))
def test_gradients_from_statistics_of_ties_infinities_and_nan_agree(name: str) -> None:
    indexed = formula(LINES[name][0])
    for case in samples.draw_cases(indexed, torch.float64, {}, frozenset()):
        if 0 in case.sizes.values():
            continue  # such a call is not computed by blocks
        if name == "greatest difference" and case.what.startswith("special"):
            continue  # in a row that NaN is subtracted from, any place may be the greatest
        for got, want in gradients_both_ways(indexed, case.arguments, (4, 3)):
            close = torch.isclose(got, want, rtol=1e-8, atol=1e-8, equal_nan=True)
            assert bool(close.all()), case.what


NAMED = {text.partition("(")[0]: text for text in FORMULAS}
TOLD = ["gauss", "conv2d", "correlate", "attention"]


@pytest.mark.parametrize("text", telling(NAMED, [name for name in TOLD if name in NAMED]))
def test_every_formula_agrees_by_blocks_of_any_of_its_indices(text: str, seed: int) -> None:
    indexed = formula(text)
    inputs = drawn(indexed, FORMULA_SIZES)
    sizes = {name: int(size) for name, size in sizes_of(indexed, inputs).items()}
    for each in (indexed, gradients_of(indexed)):
        if found := in_passes(each, every_pair(each)):
            for got, want in both_ways(found, drawn(each, sizes), (2, 3)):
                torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "name",
    telling({name: name for name in LINES}, ["window", "both ways", "segments"]),
)
def test_ties_infinities_and_nan_are_as_the_line_says(name: str) -> None:
    indexed = formula(LINES[name][0])
    derived = [gradients_of(indexed)] if LINES[name][2] else []
    for each in (indexed, *derived):
        found = in_passes(each, pairs_of(each))
        assert found
        for case in samples.draw_cases(each, torch.float64, {}, frozenset()):
            for got, want in both_ways(found, case.arguments, (4, 3)):
                close = torch.isclose(got, want, rtol=1e-8, atol=1e-8, equal_nan=True)
                assert bool(close.all()), case.what


# --- random statistics of rows


def random_line(draw: random.Random) -> str:
    """Return a line of statistics of rows, each of which may use those before it."""
    rows: list[str] = []
    tiles = ["s[n, m]", "tanh(s[n, m])", "a[n]*s[n, m]", "s[n, m] + b[m]", "s[n, m]**2"]

    def row() -> str:
        return draw.choice([*rows, "a[n]"]) if rows else "a[n]"

    shapes: list[Callable[[str], str]] = [
        lambda t: f"max[m]({t})",
        lambda t: f"max[m]({t} - {row()})",
        lambda t: f"sum[m](exp({t} - {row()}))",
        lambda t: f"sum[m](exp({t} - {row()})*b[m]/(2 + {row()}**2))",
        lambda t: f"sum[m](({t} - {row()})**2)",
        lambda t: f"sum[m](where(m <= n, {t}, 0))",
        lambda t: f"log(1 + sum[m](exp(-abs({t} - {row()}))))",
        lambda t: f"sum[m](exp({t} - 2*{row()} + {row()}))",
    ]
    steps: list[str] = []
    for k in range(draw.randint(1, 5)):
        steps.append(f"r{k}[n] = tanh({draw.choice(shapes)(draw.choice(tiles))})")
        rows.append(f"r{k}[n]")
    last = f"sum[m](exp({draw.choice(tiles)} - {row()})*b[m]) + {' + '.join(rows)}"
    return (
        "f(q[n, d], k[m, d], a[n], b[m]) -> o[n] = s[n, m] = sum[d](q[n, d]*k[m, d]); "
        f"{'; '.join(steps)}; o = {last}"
    )


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in range(1, 20))]
)
def test_random_statistics_of_rows_agree(part: int, seed: int) -> None:
    """Every part draws lines of its own."""
    draw = random.Random(seed + part)
    for _ in range(30 if part else 15):
        text = random_line(draw)
        indexed = formula(text)
        found = in_passes(indexed, pairs_of(indexed))
        assert found, text
        for sides in SIDES:
            inputs = drawn(indexed, SIZES)
            for got, want in both_ways(found, inputs, sides):
                torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9, msg=text)


# --- blocks that are left out


def count_blocks(found: Passing, tensors: Mapping[str, object]) -> int:
    """Return how many blocks of 8 x 8 are computed."""
    count = itertools.count()
    update = blocks.Blocks.update

    def counted(*given: object) -> None:
        next(count)
        update(*given)  # pyright: ignore

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks.Blocks, "update", counted)
        for got, want in both_ways(found, tensors, (8, 8)):
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9, equal_nan=True)
    return next(count)


LONG = {**SIZES, "n": 64, "m": 64}
# Of 64 blocks for the values, and 128 for the gradients in two passes.
COMPUTED = {"plain": (64, 128), "causal": (36, 72), "alibi": (36, 72), "window": (15, 30)}


@pytest.mark.parametrize("name", COMPUTED)
def test_blocks_in_which_nothing_is_selected_are_left_out(name: str, seed: int) -> None:
    indexed = formula(LINES[name][0])
    for each, expected in zip((indexed, gradients_of(indexed)), COMPUTED[name], strict=True):
        found = in_passes(each, pairs_of(each))
        assert found
        assert count_blocks(found, drawn(each, LONG)) == expected


def test_a_sum_that_a_block_adds_nothing_to_has_the_newer_maximum(seed: int) -> None:
    """It is left out of no block that has a newer maximum, which the sum is exchanged for."""
    indexed = formula(
        "f(q[n, d], k[m, d], v[m, e]) -> (o[n, e], z[n]) = s[n, m] = sum[d](q[n, d]*k[m, d]); "
        "p[n, m] = exp(s[n, m] - max[r](s[n, r])); "
        "o = sum[m](where(m < 3, p[n, m]*v[m, e], 0)); z = sum[m](p[n, m])"
    )
    found = in_passes(indexed, pairs_of(indexed))
    assert found
    for got, want in both_ways(found, drawn(indexed, SIZES), (3, 3)):
        torch.testing.assert_close(got, want)


def test_conditions_by_data_leave_blocks_out_too(seed: int) -> None:
    indexed = formula(LINES["segments"][0])
    found = in_passes(indexed, pairs_of(indexed))
    assert found
    segments = torch.arange(64) // 16
    inputs = {**drawn(indexed, LONG), "a": segments, "b": segments}
    assert count_blocks(found, inputs) == 16
    padded = formula(LINES["padding"][0])
    found = in_passes(padded, pairs_of(padded))
    assert found
    assert count_blocks(found, {**drawn(padded, LONG), "t": torch.full([64], 9)}) == 16


def test_conditions_on_a_number_that_is_given_leave_blocks_out_too(seed: int) -> None:
    line = LINES["padding"][0].replace("t[n]: int64", "t: int").replace("t[n]", "t")
    padded = formula(line)
    found = in_passes(padded, pairs_of(padded))
    assert found
    for end, expected in ((64, 64), (9, 16), (8, 8)):
        assert count_blocks(found, {**drawn(padded, LONG), "t": end}) == expected


def test_no_block_is_left_out_that_would_give_nan(seed: int) -> None:
    # exp(-inf) is 0, and 0 times infinity is NaN: also where nothing is selected.
    indexed = formula(LINES["causal"][0])
    found = in_passes(indexed, pairs_of(indexed))
    assert found
    inputs = drawn(indexed, LONG)
    inputs["v"][60, 1] = torch.inf
    # All of them, and all once more since a sum is not finite.
    assert count_blocks(found, inputs) == 64 + 64


def test_a_row_without_a_key_is_computed_again_alone(seed: int) -> None:
    indexed = formula(LINES["padding"][0])
    found = in_passes(indexed, pairs_of(indexed))
    assert found
    lengths = torch.full([64], 64)
    lengths[3] = 0
    assert count_blocks(found, {**drawn(indexed, LONG), "t": lengths}) == 64 + 8


# --- calls


@pytest.fixture
def by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loops: so small contractions have them."""

    def none(*_: object) -> NoLoops:
        return NoLoops(reason="a test")

    monkeypatch.setattr(choose, "find_candidate", none)


@pytest.fixture
def everything_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "LARGE", 0)
    monkeypatch.setattr(slices, "MOST_BYTES", 0)
    monkeypatch.setattr(slices, "MOST_TIMES", 0)
    monkeypatch.setattr(blocks, "LEAST", 2)
    monkeypatch.setattr(blocks, "ELEMENTS", {"cpu": 24})
    monkeypatch.setattr(passing, "find_fused", lambda *_: None)


names = itertools.count()


def operator(name: str) -> pb.Operator:
    return pb.operator(f"pbblocks::f{next(names)}{LINES[name][0].removeprefix('f')}")


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.T, -1) @ v


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_a_call_and_its_gradients_are_torchs(seed: int) -> None:
    op = operator("plain")
    shapes = ((9, 3), (11, 3), (11, 4))
    leaves = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    assert "by blocks" in str(op.plan(*leaves))
    found, expected = op(*leaves), attention(*leaves)
    torch.testing.assert_close(found, expected)
    for _ in range(2):
        found, expected = (
            torch.cat(
                [g.flatten() for g in torch.autograd.grad(y.sin().sum(), leaves, create_graph=True)]
            )
            for y in (found, expected)
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_dimensions_need_no_name_of_their_own(seed: int) -> None:
    """What is computed for all rows reads tensors with a number for a size, or one twice."""
    op = pb.operator(
        "blocks::pull(x[n, 3], w[n, n]) -> f[n] = r[i, j] = 1/(1 + sum[d]((x[i, d] - x[j, d])**2));"
        " f[i] = sum[j](r[i, j]*(1 + tanh(w[i, i] + sum[d](x[j, d]**2))))"
    )
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    assert "by blocks" in str(op.plan(x, w))
    near = 1 / (1 + (x[:, None] - x).square().sum(-1))
    expected = (near * (1 + (w.diagonal()[:, None] + x.square().sum(-1)).tanh())).sum(-1)
    results: list[tuple[Tensor, ...]] = []
    for value in (op(x, w), expected):
        first = torch.autograd.grad(value.sin().sum(), (x, w))
        results.append((value, *first))
    torch.testing.assert_close(*results)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("batch", [pytest.param((), marks=pytest.mark.thorough), (2, 2)])
def test_a_sum_over_the_batch_is_over_any_number_of_dimensions(
    batch: tuple[int, ...], seed: int
) -> None:
    """That of a weight's gradient: what blocks compute before has the batch's dimensions."""
    op = pb.operator(
        f"blocks::gate{len(batch)}(x[..., n, d], u[d], s[..., e]: int64) -> y[..., n] = "
        "l[..., e] = tanh(sum[d](x[s[e], d]*u[d])); y = sum[e](where(s[e] == n, l[e]**2, 0))"
    )
    x = torch.randn(*batch, 3, 2, dtype=torch.float64, requires_grad=True)
    u = torch.randn(2, dtype=torch.float64, requires_grad=True)
    s = torch.randint(3, (*batch, 5))
    read = torch.nn.functional.one_hot(s, 3).double()
    expected = ((read @ x @ u).tanh().square()[..., None] * read).sum(-2)
    results: list[tuple[Tensor, ...]] = []
    for value in (op(x, u, s), expected):
        first = torch.autograd.grad(value.sin().sum(), (x, u), create_graph=True)
        second = torch.autograd.grad([g.square().sum() for g in first], (x, u))
        results.append((value, *first, *second))
    torch.testing.assert_close(*results)


PLACES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "n - m + size(m) - 1": lambda n, m: n - m + m.numel() - 1,
    "m - n + size(n) - 1": lambda n, m: m - n + n.numel() - 1,
    "n + m": lambda n, m: n + m,
    "2*n - m + size(m)": lambda n, m: 2 * n - m + m.numel(),
    "clamp(n - m, -2, 3) + 2": lambda n, m: (n - m).clamp(-2, 3) + 2,
}


@pytest.mark.parametrize("place", telling({p: p for p in PLACES}, ["n - m + size(m) - 1"]))
@pytest.mark.usefixtures("by_pytorch")
def test_a_bias_at_a_place_has_torchs_gradients(
    place: str, seed: int, request: pytest.FixtureRequest
) -> None:
    """As a whole and by blocks: the gradient is a sum over diagonals."""
    line = f"{QKV}, b[c]) -> o[n, e] = s[n, m] = {SCORES} + pad(b[{place}]); {ATTENTION}"
    op = pb.operator(f"pbblocks::f{next(names)}{line}")
    for rows, columns in ((9, 8), (1, 7), (11, 6)):
        if rows < 9:
            request.getfixturevalue("everything_by_blocks")
        at = PLACES[place](torch.arange(rows)[:, None], torch.arange(columns))
        shapes = ((rows, 3), (columns, 3), (columns, 2), (int(at.max()) + 2,))
        q, k, v, b = leaves = [
            torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes
        ]
        found, expected = op(*leaves), torch.softmax(q @ k.T + b[at], -1) @ v
        torch.testing.assert_close(found, expected)
        pairs = zip(*(grad(y.sin().sum(), leaves) for y in (found, expected)), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("by_blocks", [False, True])
@pytest.mark.usefixtures("by_pytorch")
def test_a_bias_of_two_dimensional_positions_has_torchs_gradients(
    by_blocks: bool, seed: int, request: pytest.FixtureRequest
) -> None:
    if by_blocks:
        request.getfixturevalue("everything_by_blocks")
    op = pb.operator(f"pbblocks::f{next(names)}{POSITIONS.removeprefix('f')}")
    shapes = ((4, 3, 2), (3, 4, 2), (3, 4, 3), (7, 6))
    q, k, v, b = leaves = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    down = torch.arange(4)[:, None] - torch.arange(3) + 2
    across = torch.arange(3)[:, None] - torch.arange(4) + 3
    bias = b[down[:, None, :, None], across[None, :, None, :]]
    weights = (torch.einsum("hwd,ujd->hwuj", q, k) + bias).flatten(2).softmax(-1)
    found, expected = op(*leaves), weights @ v.flatten(0, 1)
    torch.testing.assert_close(found, expected)
    pairs = zip(*(grad(y.sin().sum(), leaves) for y in (found, expected)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def inputs_of_attention(*, recorded: bool = True) -> list[Tensor]:
    shapes = ((9, 3), (11, 3), (11, 4))
    return [torch.randn(s, dtype=torch.float64, requires_grad=recorded) for s in shapes]


@contextmanager
def called() -> Generator[list[str]]:
    """Note the formulas that are computed by blocks."""
    names: list[str] = []
    compute = panels.compute

    def noted(passing: Passing, *given: object, **how: object) -> list[Tensor | None]:
        names.append(passing.indexed.line.name.partition("_")[2] or "values")
        return compute(passing, *given, **how)  # pyright: ignore

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "compute", noted)
        yield names


def endings(names: Sequence[str]) -> list[str]:
    """Return what is behind the operator's own name."""
    return [name.lstrip("_").partition("_")[2] or name for name in names]


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_a_recorded_call_keeps_statistics_for_its_first_derivative(seed: int) -> None:
    op, leaves = operator("plain"), inputs_of_attention()
    with called() as names:
        found = op(*leaves)
        grad = torch.randn_like(found)
        plain = torch.autograd.grad(found, leaves, grad, retain_graph=True)
        again = torch.autograd.grad(found, leaves, grad, retain_graph=True)
        recorded = torch.autograd.grad(found, leaves, grad, create_graph=True)
    assert endings(names) == ["forward", "forward_grad", "forward_grad", "grad"]
    with torch.no_grad():
        assert torch.equal(op(*leaves), found)
    expected = torch.autograd.grad(attention(*leaves), leaves, grad)
    for each in (plain, again, recorded):
        torch.testing.assert_close(each, expected)
    assert isinstance(found, Tensor)
    assert found.grad_fn
    assert len(leaves) == len(found.grad_fn.next_functions)


def require_places(op: pb.Operator, kind: str, dtype: torch.dtype) -> None:
    """Compare maxima and their places, over rows and columns, with PyTorch's: every bit."""
    for rows, columns in ((9, 14), (1, 13), (12, 1)):
        x = torch.randint(-1, 2, (rows, 3)).to(dtype)
        y = torch.randint(-1, 2, (columns, 3)).to(dtype)
        if kind == "nan":
            x[rows // 2], y[columns // 2, 0] = math.nan, math.nan
        elif kind == "nothing":
            x, y = torch.full_like(x, -math.inf), y.abs() + 1
        elif kind == "infinite":
            x[0, 0] = math.inf
        scores = x.float() @ y.float().T
        expected = scores.amax(1).to(dtype), scores.argmax(1), scores.argmax(0)
        torch.testing.assert_close(op(x, y), expected, rtol=0, atol=0, equal_nan=True)


KINDS = ("ties", "nan", "nothing", "infinite")


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_places_of_maxima_are_torchs(kind: str, dtype: torch.dtype, seed: int) -> None:
    require_places(operator("places both ways"), kind, dtype)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_a_recorded_maximum_keeps_its_places(seed: int) -> None:
    """Its gradients then have no products of matrices."""
    op, (q, k, _) = operator("greatest"), inputs_of_attention()
    with called() as names:
        found, expected = op(q, k), (q @ k.T).amax(1)
        grad = torch.randn_like(expected)
        pairs = [torch.autograd.grad(y, (q, k), grad) for y in (found, expected)]
    assert endings(names) == ["forward"]
    torch.testing.assert_close(*pairs)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("value", ["max[m](s[n, m])", "exp(max[m](s[n, m]))"])
def test_a_place_that_is_returned_is_not_kept_again(value: str, seed: int) -> None:
    """The gradients read the output, in reverse and in forward mode, and under `vmap`."""
    line = "(q[n, d], k[m, d]) -> (a[n], i[n]: int64) = s[n, m] = sum[d](q[n, d]*k[m, d]); "
    op = pb.operator(f"pbblocks::f{next(names)}{line}a = {value}; i = argmax[m](s[n, m])")
    q, k, _ = inputs_of_attention()
    kept: list[Tensor] = []
    with saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        a, i = op(q, k)
    assert [t.data_ptr() for t in kept if t.dtype == torch.int64] == [i.data_ptr()]

    def wanted(q: Tensor, k: Tensor) -> Tensor:
        greatest = (q @ k.T).amax(1)
        return greatest.exp() if value.startswith("exp") else greatest

    def found(q: Tensor, k: Tensor) -> Tensor:
        return op(q, k)[0]

    pairs = [torch.autograd.grad(y.sin().sum(), (q, k)) for y in (a, wanted(q, k))]
    torch.testing.assert_close(*pairs)
    q, k = q.detach(), k.detach()
    many = torch.stack([q, q.flip(0)])
    tangents = (torch.randn_like(q), torch.randn_like(k))
    for way in (
        lambda f: torch.func.jvp(f, (q, k), tangents),
        lambda f: torch.vmap(torch.func.grad(lambda q: f(q, k).sin().sum()))(many),
        lambda f: torch.func.hessian(lambda q: f(q, k).sin().sum())(q[:3]),
    ):
        torch.testing.assert_close(way(found), way(wanted))


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_whole_numbers_have_maxima_and_places(seed: int) -> None:
    line = "(x[n, d], y[m, d]) -> (a[n]: int64, i[n]: int64) = t[n, m] = "
    line += "int(sum[d](x[n, d]*y[m, d]) > 1); a = max[m](t[n, m]); i = argmax[m](t[n, m])"
    x, y = torch.randn(9, 3), torch.randn(14, 3)
    with called() as found:
        a, i = pb.operator(f"pbblocks::f{next(names)}{line}")(x, y)
    assert found
    scores = (x @ y.T > 1).long()
    assert torch.equal(a, scores.amax(1))
    assert torch.equal(i, scores.argmax(1))


MEANS = {
    "mean of both ways": lambda q, k, t: t * q @ k.T,
    "mean of probabilities": lambda q, k: q @ k.T,
}


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_over_rows_keeps_statistics_of_rows(name: str, seed: int) -> None:
    op = operator(name)
    q, k, t = (torch.randn(s, dtype=torch.float64).requires_grad_() for s in ((9, 3), (9, 3), ()))
    leaves = [q, k, t][: len(op.definition.line.tensors)]
    with called() as names:
        found = op(*leaves)
        gradients = torch.autograd.grad(found, leaves)
    assert endings(names) == ["forward", "forward_grad"]
    scores = MEANS[name](*leaves)
    own, right = torch.arange(9), torch.nn.functional.cross_entropy
    expected = right(scores, own) + right(scores.T, own)
    if name == "mean of probabilities":
        expected = -expected
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, leaves))


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("name", telling({n: n for n in LINES}, ["both ways"]))
def test_gradcheck_of_both_orders(name: str, seed: int) -> None:
    if LINES[name][2] is None:
        pytest.skip("it has no gradients")
    indexed, op = formula(LINES[name][0]), operator(name)
    given = drawn(indexed, {**SIZES, "n": 3, "m": 4, "d": 2, "e": 2, "...": 1, "g": 1})
    leaves = [given[t.name].requires_grad_(t.dtype is None) for t in indexed.line.tensors]
    assert torch.autograd.gradcheck(op, leaves)
    assert torch.autograd.gradgradcheck(op, leaves)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_statistics_under_transforms_and_tracers(seed: int) -> None:
    op, leaves = operator("plain"), inputs_of_attention()
    q, k, v = (leaf.detach() for leaf in leaves)

    def loss(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *given: function(*given).sin().sum()

    for transform in (
        lambda f: torch.func.grad(f, (0, 1, 2))(q, k, v),
        lambda f: torch.func.hessian(f)(q, k, v),
        lambda f: torch.func.vmap(torch.func.grad(f), (0, None, None))(torch.stack([q, -q]), k, v),
    ):
        torch.testing.assert_close(transform(loss(op)), transform(loss(attention)))
    expected = torch.autograd.grad(loss(attention)(*leaves), leaves)
    traced = torch.compile(loss(op), backend="aot_eager", fullgraph=True)
    for way in (traced, lambda *given: checkpoint(loss(op), *given, use_reentrant=False)):
        torch.testing.assert_close(torch.autograd.grad(way(*leaves), leaves), expected)
    kept: list[torch.Size] = []
    with saved_tensors_hooks(lambda t: (kept.append(t.shape), t.clone())[1], lambda t: t):
        value = op(*leaves)
    assert torch.Size([9]) in kept
    torch.testing.assert_close(torch.autograd.grad(value.sin().sum(), leaves), expected)
    # Many gradients at once.
    value, whole = op(*leaves), attention(*leaves)
    several = torch.randn(3, 9, 4, dtype=torch.float64)
    torch.testing.assert_close(
        *(torch.autograd.grad(y, leaves, several, is_grads_batched=True) for y in (value, whole))
    )


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype, seed: int) -> None:
    op = operator("plain")
    inputs = [torch.randn(s).to(dtype) for s in ((9, 3), (11, 3), (11, 4))]
    expected = attention(*(t.float() for t in inputs)).to(dtype)
    torch.testing.assert_close(op(*inputs), expected)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_gradients_that_nobody_asks_for_are_not_computed(seed: int) -> None:
    op = operator("plain")
    q, k, v = (torch.randn(s, dtype=torch.float64) for s in ((9, 3), (11, 3), (11, 4)))
    (found,) = torch.autograd.grad(op(q, k, v.requires_grad_()).sum(), [v])
    torch.testing.assert_close(found, torch.softmax(q @ k.T, -1).sum(0)[:, None].expand(11, 4))


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_a_place_outside_is_refused(seed: int) -> None:
    op = operator("cross-entropy")
    x, w = torch.randn(9, 3), torch.randn(11, 3)
    with pytest.raises(pb.PullbackError, match="PB149"):
        op(x, w, torch.full([9], 11))
    expected = torch.nn.functional.cross_entropy(x @ w.T, torch.full([9], 10), reduction="none")
    torch.testing.assert_close(op(x, w, torch.full([9], 10)), expected)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
def test_under_vmap_and_in_forward_mode(seed: int) -> None:
    op = operator("plain")
    q, k, v = (torch.randn(s, dtype=torch.float64) for s in ((9, 3), (11, 3), (11, 4)))
    many = torch.randn(2, 9, 3, dtype=torch.float64)
    batched = torch.func.vmap(op, in_dims=(0, None, None))(many, k, v)
    torch.testing.assert_close(batched, torch.stack([attention(each, k, v) for each in many]))
    found, expected = (torch.func.jvp(f, (q, k, v), (k[:9], k, v)) for f in (op, attention))
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("by_pytorch")
def test_small_calls_are_computed_as_a_whole() -> None:
    op = operator("plain")
    assert "by blocks" not in str(op.plan(*(torch.randn(s) for s in ((90, 3), (110, 3), (110, 4)))))


@pytest.mark.usefixtures("by_pytorch")
def test_what_would_not_fit_the_bound_is_computed_by_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The clock is not asked.
    monkeypatch.setattr(choose, "measure_seconds", None)
    monkeypatch.setattr(passing, "find_fused", lambda *_: None)
    op = operator("plain")
    q, k, v = (torch.randn(4224, 2) for _ in range(3))
    shown = str(op.plan(q, k, v))
    assert "blocks of 256 x 512, 1 pass, 2 products; 0.1 MB held, not a " in shown
    torch.testing.assert_close(op(q, k, v)[:5], attention(q[:5], k, v))


@pytest.mark.usefixtures("by_pytorch")
def test_rows_and_columns_of_one_dimension_are_computed_by_blocks(seed: int) -> None:
    line = "(x[n, d]) -> y[n] = s[n, m] = sum[d](x[n, d]*x[m, d]); w[n] = max[m](s[n, m])"
    op = pb.operator(f"pbblocks::f{next(names)}{line}; y = w[n] + log(sum[m](exp(s[n, m] - w[n])))")
    x = torch.randn(4224, 2, requires_grad=True)
    assert str(op.plan(x)).count("by blocks") == 2
    part = x.detach()[:5]
    torch.testing.assert_close(op(x)[:5], (part @ x.T).logsumexp(1))


@pytest.mark.usefixtures("by_pytorch")
def test_a_plan_says_where_memory_is_saved_and_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MOST_BYTES", 0)
    monkeypatch.setattr(slices, "MOST_TIMES", 0)
    line = LINES["cross-entropy"][0].removeprefix("f").replace("w[m, d], t", "w[m, d]: float32, t")
    assert "float32" in line
    op = pb.operator(f"pbblocks::f{next(names)}{line}")
    targets = torch.zeros(1024, dtype=torch.int64)
    # Of several dtypes no statistics are kept: the gradients compute the scores twice.
    for width, saves in ((8, False), (2048, True)):
        x, w = torch.randn(1024, width, dtype=torch.bfloat16), torch.randn(1024, width)
        shown = str(op.plan(x, w, targets))
        assert shown.count("by blocks") == 2
        assert ("this saves memory, not time" in shown) == saves
