"""Blocks by products of matrices and generated loops: what they compute is what PyTorch does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.dense import blocks, looped_pass, matrices, parts
from pullback.bind.loops import passes
from pullback.bind.loops.block_loops import BlockLoops
from pullback.bind.math import samples
from pullback.define.math import derived as derivatives
from pullback.define.math.formula import Formula
from tests.bind.test_blocks import (
    CPU,
    KINDS,
    TOTALS,
    Sides,
    both_ways,
    by_pytorch,
    drawn,
    everything_by_blocks,
    gradients_of,
    in_passes,
    random_line,
    require_places,
)
from tests.define.long_reductions import LINES, SIZES
from tests.define.test_passes import formula, pairs_of
from tests.telling import telling
from tests.threads import threads

__all__ = ["by_pytorch", "everything_by_blocks"]  # fixtures


@pytest.fixture(autouse=True)
def loops_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For every pass of a test, whether loops computed it."""
    found: list[bool] = []
    run = blocks.Blocks.run_loops

    def counted(*given: object) -> bool:
        found.append(run(*given))  # pyright: ignore
        return found[-1]

    monkeypatch.setattr(blocks.Blocks, "run_loops", counted)
    yield found
    assert found


def orders(name: str, gradients: int = 1) -> list[Formula]:
    """Return a line, and its gradients up to some order."""
    found = [formula(LINES[name][0])]
    for _ in range(gradients if LINES[name][2] else 0):
        found.append(gradients_of(found[-1]))
    return found


def require_agreement(
    indexed: Formula, tensors: Mapping[str, Tensor], sides: Sides, tolerance: float = 1e-10
) -> None:
    found = in_passes(indexed, pairs_of(indexed))
    assert found
    dtype = next(t.dtype for t in tensors.values() if t.is_floating_point())
    for got, want in both_ways(found, tensors, sides, dtype):
        torch.testing.assert_close(
            got, want, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False
        )


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    "name", telling({n: n for n in LINES}, ["causal", "both ways", "bias", "distances"])
)
def test_a_line_and_its_gradients_agree(
    name: str, loops_run: list[bool], seed: int, request: pytest.FixtureRequest
) -> None:
    is_thorough = request.node.get_closest_marker("thorough") is not None
    for indexed in orders(name, 2 if is_thorough else 1):
        for sides in ((1, 1), (3, 3), (4, 2), (100, 100)):
            require_agreement(indexed, drawn(indexed, {**SIZES, "n": 7, "m": 9}), sides)
    if not is_thorough:
        assert all(loops_run)


@pytest.mark.parametrize("output", TOTALS[:-1])  # of the last one there are no blocks
def test_a_total_in_a_tangent_is_that_of_all_rows_and_columns(output: str, seed: int) -> None:
    """Costs a compilation each: places of maxima were those in a block."""
    tangents = derivatives.jvp(formula(f"totals(q[n, d], k[m, d]) -> {output}"))
    assert tangents
    require_agreement(tangents.formula, drawn(tangents.formula, SIZES), (2, 3))


@pytest.mark.parametrize("name", telling({n: n for n in LINES}, ["window"]))
def test_ties_infinities_and_nan_are_as_the_line_says(name: str) -> None:
    for indexed in orders(name):
        for case in samples.draw_cases(indexed, torch.float64, {}, frozenset()):
            tensors = {k: v for k, v in case.arguments.items() if isinstance(v, Tensor)}
            require_agreement(indexed, tensors, (4, 3), 1e-8)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("kind", telling({kind: kind for kind in KINDS}, ["ties", "nan"]))
def test_places_of_maxima_are_torchs(kind: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(blocks, "size_block", lambda *_: (4, 5))
    line = LINES["places both ways"][0].removeprefix("f")
    require_places(pb.operator(f"pbloops::{kind}{line}"), kind, torch.float32)


@pytest.mark.parametrize("dtype", telling({"64": torch.float64, "32": torch.float32}, ["32"]))
@pytest.mark.parametrize("name", ["causal", "grouped heads", "distances"])
def test_vectors_and_edges_of_blocks(name: str, dtype: torch.dtype, seed: int) -> None:
    # Four vectors at a time, single ones, and a part of one; of blocks, a part of the last.
    sizes = {**SIZES, "n": 90, "m": 167, "d": 21, "e": 33}
    for indexed in orders(name):
        tensors = {
            k: v.to(dtype) if v.is_floating_point() else v for k, v in drawn(indexed, sizes).items()
        }
        require_agreement(indexed, tensors, (32, 96), 1e-10 if dtype == torch.float64 else 2e-4)


def turned(value: Tensor) -> Tensor:
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def apart(value: Tensor) -> Tensor:
    return value.repeat_interleave(2, -1)[..., ::2]


def expanded(value: Tensor) -> Tensor:
    return value[..., :1, :].expand(value.shape)


@pytest.mark.parametrize("layout", [turned, apart, expanded])
def test_tensors_of_any_layout(layout: Callable[[Tensor], Tensor], seed: int) -> None:
    for indexed in orders("bias"):
        tensors = {k: layout(v) for k, v in drawn(indexed, SIZES).items()}
        require_agreement(indexed, tensors, (3, 4))


def test_factors_that_have_only_columns_are_one_matrix(loops_run: list[bool], seed: int) -> None:
    """Else the sum is no product of matrices, and each block's loop adds it up."""
    scores = "sum[d](q[n, d]*k[m, d]*exp(c[m, d]))"
    indexed = formula(
        f"f(q[n, d], k[m, d], c[m, d], v[m, e]) -> o[n, e] = s[n, m] = {scores}; "
        "p[n, m] = exp(s[n, m] - max[r](s[n, r])); "
        "o = sum[m](p[n, m]*v[m, e])/sum[m](p[n, m])"
    )
    passing = in_passes(indexed, pairs_of(indexed))
    assert passing
    ((sweep,),) = passing.sweeps
    assert sweep.looped_anywhere
    assert len(sweep.looped_anywhere.products) == 1
    for each in (indexed, gradients_of(indexed)):
        require_agreement(each, drawn(each, {**SIZES, "n": 7, "m": 9}), (3, 4))
    assert all(loops_run)


@pytest.mark.parametrize(
    ("of_rows", "of_columns"),
    [("a", "a"), ("z", "z"), ("b, z", "b, z"), ("b, z", "b"), ("b, z", "z")],
)
def test_batches_with_names_have_loops(
    of_rows: str, of_columns: str, loops_run: list[bool], seed: int
) -> None:
    """What a block writes lies with its rows or columns last, whatever names come before."""
    n, c = f"{of_rows}, n", f"{of_columns}, m"
    indexed = formula(
        f"f(q[{n}, d], k[{c}, d], v[{c}, e]) -> o[{n}, e] = "
        f"s[{n}, m] = sum[d](q[{n}, d]*k[{c}, d]); "
        f"p[{n}, m] = exp(s[{n}, m] - max[r](s[{n}, r])); "
        f"o = sum[m](p[{n}, m]*v[{c}, e])/sum[m](p[{n}, m])"
    )
    for each in (indexed, gradients_of(indexed)):
        sizes = {**SIZES, "n": 7, "m": 9, "a": 3, "b": 2, "z": 3}
        require_agreement(each, drawn(each, sizes), (3, 4))
    assert all(loops_run)


def test_batches_that_broadcast(seed: int) -> None:
    text = LINES["grouped heads"][0]
    tensors = {
        "q": torch.randn(3, 1, 2, 3, 7, 4, dtype=torch.float64),
        "k": torch.randn(2, 2, 9, 4, dtype=torch.float64),
        "v": torch.randn(1, 2, 2, 9, 5, dtype=torch.float64),
    }
    require_agreement(formula(text), tensors, (3, 4))


@pytest.mark.parametrize("places", [13, 5])
def test_a_relative_bias_is_read_where_it_is(places: int, loops_run: list[bool], seed: int) -> None:
    text = LINES["relative bias"][0].replace("+ 3", "+ 6")
    indexed = formula(text)
    require_agreement(indexed, drawn(indexed, {**SIZES, "c": places}), (3, 2))
    # What is outside of it is 0, which only PyTorch's operations put there.
    assert loops_run == [places == 13]


def test_more_rows_of_blocks_than_sums_of_diagonals(seed: int) -> None:
    """Rows of blocks share the sums that their diagonals are added to, 64 of them."""
    for indexed in orders("relative bias of each head"):
        sizes = {**SIZES, "n": 70, "m": 9, "c": 78}
        require_agreement(indexed, drawn(indexed, sizes), (1, 4))


BITS = ("causal", "both ways", "relative bias of each head", "clamped bias", "distances")


@pytest.mark.parametrize("name", telling({n: n for n in BITS}, ["both ways", "clamped bias"]))
def test_results_have_the_same_bits_for_any_number_of_threads(name: str, seed: int) -> None:
    for indexed in orders(name):
        found = in_passes(indexed, pairs_of(indexed))
        assert found
        drawn_once = drawn(indexed, {**SIZES, "n": 130, "m": 150, "d": 8, "e": 8, "c": 300})
        tensors = {k: v.float() for k, v in drawn_once.items()}
        results: list[list[Tensor]] = []
        for many in (1, 2, 3):
            with threads(many):
                results.append([got for got, _ in both_ways(found, tensors, (16, 32))])
        for others in results[1:]:
            assert all(map(torch.equal, results[0], others))


multiplies_halves = pytest.mark.skipif(
    not matrices.multiplies(torch.bfloat16, CPU),
    reason="this processor has no products of bfloat16",
)


@pytest.fixture
def halves_run(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each pass in single precision, whether matrices were multiplied in bfloat16."""
    found: list[bool] = []
    run = passes.BlockPass.run

    def noted(self: passes.BlockPass, loops: BlockLoops) -> None:
        run(self, loops)
        if self.compute == torch.float32:
            found.append(self.wide is not None)

    monkeypatch.setattr(passes.BlockPass, "run", noted)
    return found


def in_halves(
    indexed: Formula, tensors: Mapping[str, Tensor], sides: Sides
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each output by blocks that multiply in bfloat16, and computed in double of the same."""
    found = in_passes(indexed, pairs_of(indexed))
    assert found
    rounded = {k: v.bfloat16() if v.is_floating_point() else v for k, v in tensors.items()}
    exact = {k: v.double() if v.is_floating_point() else v for k, v in rounded.items()}
    got = both_ways(found, rounded, sides, torch.bfloat16, is_half=True)
    yield from zip(
        (one for one, _ in got), (two for _, two in both_ways(found, exact, sides)), strict=True
    )


# Whose blocks no loop computes here, in single precision neither.
UNFIT = ("greatest of the row before",)


@multiplies_halves
@pytest.mark.parametrize("many", [0, 10**6], ids=["turned", "as they are"])
@pytest.mark.parametrize(
    "name", telling({n: n for n in LINES}, ["bias", "both ways", "grouped heads"])
)
def test_matrices_of_bfloat16_are_multiplied_as_they_are(
    name: str, many: int, halves_run: list[bool], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What is rounded is rounded once or twice; of odd sizes half a pair is left."""
    monkeypatch.setattr(looped_pass, "MANY_ROWS", many)
    sizes = {**SIZES, "n": 90, "m": 167, "d": 21, "e": 33}
    for indexed in orders(name):
        for sides in ((32, 96), (3, 5)):
            for got, exact in in_halves(indexed, drawn(indexed, sizes), sides):
                if exact.is_floating_point():
                    assert (got.double() - exact).norm() <= 2**-7 * exact.norm().clamp(min=1e-3)
                elif name != "place after a sum":  # many are equal in single precision
                    assert (got == exact).double().mean() > 0.98
    assert all(halves_run) or name in UNFIT


@multiplies_halves
@pytest.mark.parametrize("layout", [turned, apart, expanded])
@pytest.mark.parametrize("width", [8, 7])
def test_tensors_of_any_layout_in_bfloat16(
    layout: Callable[[Tensor], Tensor], width: int, halves_run: list[bool], seed: int
) -> None:
    for indexed in orders("bias"):
        sizes = {**SIZES, "d": width, "e": width}
        tensors = {k: layout(v) for k, v in drawn(indexed, sizes).items()}
        for got, exact in in_halves(indexed, tensors, (3, 4)):
            assert (got.double() - exact).norm() <= 2**-7 * exact.norm()
    assert all(halves_run)


@multiplies_halves
def test_bfloat16_has_the_same_bits_for_any_number_of_threads(
    halves_run: list[bool], seed: int
) -> None:
    for indexed in (each for name in ("both ways", "causal") for each in orders(name)):
        tensors = drawn(indexed, {**SIZES, "n": 130, "m": 150, "d": 8, "e": 8})
        results: list[list[Tensor]] = []
        for many in (1, 2, 3):
            with threads(many):
                results.append([got for got, _ in in_halves(indexed, tensors, (16, 32))])
        assert all(all(map(torch.equal, results[0], others)) for others in results[1:])
    assert all(halves_run)


@multiplies_halves
@pytest.mark.parametrize("wide", ["q", "k"])
def test_tensors_with_more_digits_keep_them(wide: str, halves_run: list[bool], seed: int) -> None:
    """Scores of large queries or keys in float32 would be others if these were rounded."""
    for indexed in orders("bias"):
        found = in_passes(indexed, pairs_of(indexed))
        assert found
        tensors = {
            name: 16 * tensor.float() if name == wide else tensor.bfloat16()
            for name, tensor in drawn(indexed, {**SIZES, "n": 60, "m": 70}).items()
        }
        exact = {name: tensor.double() for name, tensor in tensors.items()}
        pairs = zip(
            both_ways(found, tensors, (32, 32), torch.bfloat16, is_half=True),
            both_ways(found, exact, (32, 32)),
            strict=True,
        )
        for (got, _), (want, _) in pairs:
            assert (got.double() - want).norm() <= 2**-7 * want.norm()
    assert all(halves_run)


@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("has_products", [True, False])
def test_calls_in_half_precision_are_no_further_off_than_torchs(
    dtype: torch.dtype, *, has_products: bool, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With a processor's products of bfloat16, and where it has none."""
    if not has_products:
        monkeypatch.setattr(matrices, "has_products_of_bfloat16", lambda: False)
    line = LINES["soft-capping"][0].removeprefix("f")
    name = f"pbloops::half_{has_products}_{str(dtype)[6:]}"
    operator = pb.operator(name + line)
    q, k, v = (torch.randn(n, 40).to(dtype).requires_grad_() for n in (300, 500, 500))

    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(5 * torch.tanh(q @ k.T / 5), -1) @ v

    def found(function: Callable[..., Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        value = function(*given)
        weights = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape)
        return [value, *torch.autograd.grad(value, given, weights)]

    exact = found(eager, [t.detach().double().requires_grad_() for t in (q, k, v)])
    for got, theirs, want in zip(
        found(operator, (q, k, v)), found(eager, (q, k, v)), exact, strict=True
    ):
        errors = [(each.double() - want).norm() for each in (got, theirs)]
        assert got.dtype == dtype
        assert errors[0] <= 1.7 * errors[1], errors


@pytest.mark.parametrize("layout", [turned, apart])
@pytest.mark.parametrize("by_onednn", [True, False])
def test_products_of_large_blocks_by_either_library(
    *,
    by_onednn: bool,
    layout: Callable[[Tensor], Tensor],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """What either multiplies is the same for any number of threads, where rows have gaps too."""
    monkeypatch.setattr(matrices, "is_onednn_faster", lambda: by_onednn)
    for indexed in orders("bias"):
        found = in_passes(indexed, pairs_of(indexed))
        assert found
        exact = drawn(indexed, {**SIZES, "n": 300, "m": 1100, "d": 64, "e": 70})
        tensors = {k: layout(v.float()) for k, v in exact.items()}
        results: list[list[Tensor]] = []
        for many in (1, 2, 3):
            with threads(many):
                by_blocks = both_ways(found, tensors, (256, 512), torch.float32)
                results.append([got for got, _ in by_blocks])
        for others in results[1:]:
            assert all(map(torch.equal, results[0], others))
        wanted = both_ways(found, {k: v.double() for k, v in tensors.items()}, (256, 512))
        for got, (_, want) in zip(results[0], wanted, strict=True):
            torch.testing.assert_close(got, want.float(), rtol=1e-4, atol=1e-4)


def test_blocks_are_smaller_where_more_of_them_are_left_out(loops_run: list[bool]) -> None:
    window = formula(LINES["window"][0].replace("n - m < 3", "n - m < 256"))
    found: dict[str, Sides] = {}
    for name, indexed in {"plain": formula(LINES["plain"][0]), "window": window}.items():
        passing = in_passes(indexed, pairs_of(indexed))
        assert passing
        ((sweep,),) = passing.sweeps
        found[name] = parts.choose_sides(sweep, (4096, 4096), (("n", 4096), ("m", 4096)))
    assert found == {"plain": (256, 512), "window": (128, 256)}
    loops_run.append(True)  # nothing is computed here


@pytest.mark.parametrize("total", ["mean[i](c[i]**2)", "max[i](abs(c[i]))"])
def test_a_total_in_a_block_is_that_of_all_rows(
    total: str, loops_run: list[bool], seed: int
) -> None:
    """And not of the rows of the block, as the count of a mean without what is masked."""
    weight = f"exp(sum[e](q[n, e]*k[m, e]) - {total})"
    line = f"f(q[n, d], k[m, d], c[n]) -> y[m, d] = sum[n]({weight}*q[n, d])"
    indexed = formula(line)
    tensors = drawn(indexed, {**SIZES, "n": 70, "m": 45, "d": 3})
    require_agreement(indexed, tensors, (16, 32))
    assert all(loops_run)


@pytest.mark.usefixtures("by_pytorch")
@pytest.mark.parametrize("long", [70, pytest.param(600, marks=pytest.mark.thorough)])
def test_blocks_are_not_taken_of_long_vectors(long: int, loops_run: list[bool]) -> None:
    """Scores would be computed as a whole for blocks of points and their features."""
    given = [torch.randn(s, requires_grad=True) for s in ((1200, long), (1100, long), (1100, 5))]
    op = pb.operator(f"pblooped::distances{long}{LINES['distances'][0].removeprefix('f')}")
    shown = str(op.plan(*given))
    assert shown.count("blocks of 256 x 512 with own loops, 1 pass") == 2
    loops_run.append(True)  # nothing is computed here


@pytest.mark.thorough
def test_random_statistics_of_rows_agree(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        indexed = formula(random_line(draw))
        for sides in ((1, 1), (3, 3), (4, 2)):
            require_agreement(indexed, drawn(indexed, SIZES), sides, 1e-9)


def read_diagonals(bias: Tensor, rows: int, columns: int) -> Tensor:
    """Return `pad(b[n - m + 2])`."""
    places = torch.arange(rows)[:, None] - torch.arange(columns) + 2
    inside = (places >= 0) & (places < len(bias))
    return torch.where(inside, bias[places.clamp(0, len(bias) - 1)], 0.0)


# What one gradient needs lacks indices that others have, or is computed for an other one alone.
ALONE: dict[str, tuple[str, Callable[..., Tensor], Sequence[tuple[int, ...]]]] = {
    "a batch without dimensions": (
        "(q[..., n, d], k[..., m, d], b[p]) -> y[...] = "
        "s[n, m] = sum[d](q[n, d]*k[m, d]) + pad(b[n - m + 2]); y = sum[n, m](tanh(s[n, m])**2)",
        lambda q, k, b: (q @ k.T + read_diagonals(b, 9, 7)).tanh().square().sum(),
        ((9, 3), (7, 3), (5,)),
    ),
    "places of a maximum": (
        "(q[n, d], k[n], b[p]) -> y[n] = s[n, m < size(n)] = "
        "sum[d](maximum(q[n, d], q[m, d])) + k[m] + pad(b[n - m + 2]); "
        "y = max[m < size(n)](s[n, m])",
        lambda q, k, b: (
            (torch.maximum(q[:, None], q).sum(-1) + k + read_diagonals(b, 9, 9)).max(1).values
        ),
        ((9, 3), (9,), (5,)),
    ),
}


@pytest.mark.ci(2)
@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("kind", ALONE)
def test_a_gradient_may_be_asked_for_alone(kind: str, seed: int) -> None:
    line, reference, shapes = ALONE[kind]
    own = pb.operator(f"pbblocks::alone_{''.join(filter(str.isalpha, kind))}{line}")
    given = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    for k in range(3):
        leaves = [t.clone().requires_grad_(k == at) for at, t in enumerate(given)]
        wanted, found = reference(*leaves), own(*leaves)
        torch.testing.assert_close(found, wanted)
        gradients = (torch.autograd.grad(y.sin().sum(), leaves[k])[0] for y in (found, wanted))
        torch.testing.assert_close(*gradients)


SCORES = "t[n, m] = -sum[d]((q[n, d] - k[m, d])**2)*h[m]; top[n] = max[m](t[n, m])"
DISTANT: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "log of a sum": (
        "(q[n, d], k[m, d], h[m]) -> y[n] = "
        f"{SCORES}; y = top[n] + log(sum[m](exp(t[n, m] - top[n])))",
        lambda q, k, h: torch.logsumexp(-(q[:, None] - k).square().sum(-1) * h, 1),
    ),
    "mean of values": (
        f"(q[n, d], k[m, d], h[m]) -> y[n, d] = {SCORES}; p[n, m] = exp(t[n, m] - top[n]); "
        "y = sum[m](p[n, m]*k[m, d])/sum[m](p[n, m])",
        lambda q, k, h: torch.softmax(-(q[:, None] - k).square().sum(-1) * h, 1) @ k,
    ),
}


@pytest.mark.ci(2)
@pytest.mark.usefixtures("by_pytorch", "everything_by_blocks")
@pytest.mark.parametrize("sizes", [(3, 9, 7), (1, 9, 3), (4, 40, 20), (16, 50, 30), (9, 5, 2)])
@pytest.mark.parametrize("kind", DISTANT)
def test_second_derivatives_where_features_are_more_than_rows(
    kind: str, sizes: tuple[int, int, int], seed: int
) -> None:
    """Their pairs are columns and features. Costs 5 s each."""
    line, reference = DISTANT[kind]
    n, m, d = sizes
    own = pb.operator(f"pbblocks::distant_{kind[:3]}{'_'.join(map(str, sizes))}{line}")
    leaves = [
        torch.randn(shape, dtype=torch.float64).mul(0.3).requires_grad_()
        for shape in ((n, d), (m, d), (m,))
    ]
    first = [
        torch.autograd.grad(f(*leaves).sin().sum(), leaves, create_graph=True)
        for f in (own, reference)
    ]
    for asked in ([0], [1], [2], [0, 1, 2]):
        totals = (sum((g[k].square().sum() for k in asked), torch.zeros(())) for g in first)
        found, wanted = (torch.autograd.grad(t, leaves, retain_graph=True) for t in totals)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
