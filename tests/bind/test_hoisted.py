"""What many rows share is computed once, by a kernel of its own: statistics of several indices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from pullback.bind.loops import nests
from pullback.bind.loops.backends import Backend, CpuBackend, LibraryBackend
from pullback.bind.loops.nests import Own
from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.kernels.loops.hoisted import SHARED
from tests.bind.test_index_loops import arguments, expected, sizes_for
from tests.telling import telling


def plain_batch_norm(x: Tensor, g: Tensor, h: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, g, h, training=True)


def less_mean_of_part(x: Tensor, n: Tensor) -> Tensor:
    inside = (torch.arange(x.shape[1]) < n[:, None])[:, :, None]
    total = torch.where(inside, x, 0).sum((1, 2), keepdim=True)
    return torch.where(inside, x - total / (n[:, None, None] * x.shape[2]), 0)


def of_blocks(x: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    blocks = functional.pad(x, (0, -x.shape[1] % 24)).unflatten(1, (-1, 24))
    return (blocks / reduce(blocks)[:, :, None]).flatten(1)[:, : x.shape[1]]


def nearest_other(x: Tensor) -> Tensor:
    apart = (x[:, None] - x).square().sum(2)
    return apart.masked_fill(torch.eye(len(x), dtype=torch.bool), torch.inf).min(1).values


BLOCKS: list[list[tuple[int, ...]]] = [[(b, n)] for b, n in ((3, 7), (5, 24), (30, 333), (2, 9000))]
# A line, PyTorch's own for it, and the shapes of calls: of one element, odd, longer than vectors.
LINES: dict[str, tuple[str, Callable[..., Tensor], list[list[tuple[int, ...]]]]] = {
    "group norm": (
        "(x[b, g, c, s], w[g, c], h[g, c]) -> y[b, g, c, s]"
        " = u[b, g] = mean[p, q](x[b, g, p, q]);"
        " y = (x - u[b, g])/sqrt(mean[p, q]((x[b, g, p, q] - u[b, g])**2) + 1e-5)*w + h",
        lambda x, w, h: functional.group_norm(
            x.flatten(1, 2), x.shape[1], w.flatten(), h.flatten()
        ).view(x.shape),
        [
            [(b, g, c, s), (g, c), (g, c)]
            for b, g, c, s in ((2, 1, 2, 1), (3, 5, 2, 7), (20, 4, 8, 129), (300, 2, 18, 33))
        ],
    ),
    "batch norm": (
        "(x[b, c, s], g[c], h[c]) -> y[b, c, s] = u[c] = mean[p, q](x[p, c, q]);"
        " y = (x - u[c])/sqrt(mean[p, q]((x[p, c, q] - u[c])**2) + 1e-5)*g + h",
        plain_batch_norm,
        [
            [(b, c, s), (c,), (c,)]
            for b, c, s in ((1, 1, 2), (7, 3, 5), (16, 70, 40), (330, 17, 31), (2, 2, 70_000))
        ],
    ),
    "center": (
        "(x[n, m]) -> y[n, m] = x - mean[k](x[n, k]) - mean[k](x[k, m]) + mean[p, q](x[p, q])",
        lambda x: x - x.mean(1, keepdim=True) - x.mean(0) + x.mean(),
        [[(n, m)] for n, m in ((1, 1), (5, 4), (400, 331), (3, 40_000))],
    ),
    "mean of a part": (
        "(x[b, t, d], n[b]: int64) -> y[b, t, d]"
        " = u[b] = sum[k, e](where(k < n[b], x[b, k, e], 0))/(n[b]*size(d));"
        " y = where(t < n[b], x - u[b], 0)",
        less_mean_of_part,
        [[(b, t, d), (b,)] for b, t, d in ((1, 3, 1), (30, 50, 17), (5, 2000, 9))],
    ),
    # What elements of one block share depends on n by a quotient alone.
    "root mean square of blocks": (
        "(x[b, n]) -> y[b, n]"
        " = s[b, m < (size(n) + 23)//24] = sqrt(sum[p < 24](pad(x[b, 24*m + p])**2)/24 + 1e-3);"
        " y = x/s[b, n//24]",
        lambda x: of_blocks(x, lambda blocks: torch.sqrt(blocks.square().mean(2) + 1e-3)),
        BLOCKS,
    ),
    "greatest of blocks": (
        "(x[b, n]) -> y[b, n]"
        " = s[b, m < (size(n) + 23)//24] = 1e-3 + max[p < 24](abs(pad(x[b, 24*m + p])));"
        " y = x/s[b, n//24]",
        lambda x: of_blocks(x, lambda blocks: blocks.abs().amax(2) + 1e-3),
        BLOCKS,
    ),
    # To which rows its gradient adds is sorted before anything is computed.
    "nearest other": (
        "(x[n, d]) -> u[n] = min[m](where(m == n, inf, sum[d]((x[n, d] - x[m, d])**2)))",
        nearest_other,
        [[(n, d)] for n, d in ((2, 1), (40, 17), (59, 17))],
    ),
}


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    "name",
    telling(
        {name: name for name in LINES},
        ["group norm", "mean of a part", "greatest of blocks", "nearest other"],
    ),
)
def test_values_and_gradients_are_those_of_pytorch(name: str, seed: int) -> None:
    line, peer, calls = LINES[name]
    op = pb.operator(f"test::hoisted_{name.replace(' ', '_')}{line}")
    for shapes in calls:
        given = [torch.randn(shape).requires_grad_() for shape in shapes]
        if ": int64" in line:
            given[1] = torch.randint(1, shapes[0][1] + 1, shapes[1])
        exact = [
            leaf.detach().double().requires_grad_() if leaf.is_floating_point() else leaf
            for leaf in given
        ]
        value, want = op(*given), peer(*exact)
        grad = torch.randn(value.shape)
        pairs = [(value, want)]
        leaves = [[leaf for leaf in each if leaf.requires_grad] for each in (given, exact)]
        pairs += zip(
            torch.autograd.grad(value, leaves[0], grad),
            torch.autograd.grad(want, leaves[1], grad.double()),
            strict=True,
        )
        for own, theirs in pairs:
            scale = float(theirs.detach().abs().max())
            torch.testing.assert_close(own.double(), theirs, rtol=1e-4, atol=1e-4 * (1 + scale))


def find(text: str, backend: Backend, **dims: int) -> tuple[Own, set[str], float]:
    """Return the loops of a line, what is computed before, and how far the values are off."""
    indexed = notation.parse(parse.parse(f"demo::hoisted{text}"))
    sizes = sizes_for(indexed, dims)
    given = arguments(indexed, sizes, torch.float32)
    own = nests.find(indexed, torch.float32, (0,), frozenset(given), sizes, backend)
    assert isinstance(own, Own), own
    [value] = own.run(given, sizes, [torch.float32])
    [want] = expected(indexed, given, sizes)
    made = {
        output.name
        for step in own.steps
        for output in step.kernel.nest.outputs
        if output.name.startswith(SHARED)
    }
    return own, made, float((value - want).abs().max())


@pytest.mark.parametrize("name", ["group norm", "batch norm", "center", "greatest of blocks"])
def test_loops_do_little_more_than_the_needed_work(name: str) -> None:
    """A statistic that were computed in each row would be computed hundreds of times."""
    sizes = {"b": 64, "g": 4, "c": 50, "s": 300, "n": 900, "m": 700}
    own, made, _ = find(LINES[name][0], CpuBackend(), **sizes)
    assert made
    elements = 1
    for label in own.indexed.line.outputs[0].labels:
        elements *= sizes[label]
    assert own.work({**sizes, **sizes_for(own.indexed, sizes)}) < 60 * elements


@pytest.mark.parametrize(("c", "s"), [(16, 8), (12, 16), (13, 9), (300, 9)])
def test_short_rows_are_summed_a_vector_at_a_time_as_they_lie(c: int, s: int) -> None:
    """Written out, each of their elements filled a vector; or they were copied first.

    Both took up to five times as long as PyTorch's group norm.
    """
    own, made, off = find(LINES["group norm"][0], CpuBackend(), b=200, g=8, c=c, s=s)
    assert off < 1e-4
    found = [step.kernel.nest for step in own.steps]
    assert {nest.lane for nest in found if made & {o.name for o in nest.outputs}} == {None}
    filled = s / own.target.lanes
    assert own.work({"b": 200, "g": 8, "c": c, "s": s}) < 50 / filled * 200 * 8 * c * s


@pytest.mark.parametrize(("b", "n"), [(50, 2000), (64, 1000), (30, 3000), (120, 900)])
def test_a_sum_of_columns_is_computed_once_for_few_rows_too(b: int, n: int) -> None:
    """It was computed for each block of 4 of 50 rows: three times as long as PyTorch's softmax."""
    text = "(y[b, n], g[b, n]) -> x[b, n] = y*(g - sum[m](y[m, n]*g[m, n]))"
    own, _, off = find(text, CpuBackend(), b=b, n=n)
    assert off < 1e-4
    assert own.work({"b": b, "n": n}) < 24 * b * n


@pytest.mark.parametrize("d", [17, 33])
def test_where_the_nearest_point_is_a_row_computes_once(d: int) -> None:
    """A loop over the columns of a gradient would look for it in each vector of columns."""
    line = "(x[n, d], y[m, d]) -> u[n] = min[m](sum[d]((x - y)**2))"
    found = derived.backward(notation.parse(parse.parse(f"demo::nearest{line}")))
    assert found
    sizes = sizes_for(found.formula, {"n": 277, "m": 819, "d": d})
    present = frozenset(parameter.name for parameter in found.formula.line.parameters)
    own = nests.find(found.formula, torch.float32, (0,), present, sizes, CpuBackend())
    assert isinstance(own, Own), own
    made = [output for step in own.steps for output in step.kernel.nest.outputs]
    assert [output.dtype for output in made if output.name.startswith(SHARED)] == ["int64"]
    assert own.work(sizes) < 5 * 277 * 819 * d


@pytest.mark.parametrize("rows", [1, 40])
def test_what_a_condition_guards_is_not_read_where_it_does_not_hold(rows: int) -> None:
    """The mean of the batch before the first one would be read in front of the tensor."""
    text = (
        "(x[n, m, k]) -> y[n, m, k]"
        " = where(n > 0, x - mean[p, q](x[n - 1, p, q]), x)*mean[p, q](x[n, p, q])"
    )
    _, made, off = find(text, LibraryBackend(), n=rows, m=30, k=50)
    assert len(made) == (rows > 1)
    assert off < 1e-4


def test_a_matrix_that_nobody_gave_is_not_put_into_memory() -> None:
    """All columns of the result share the weights, which are 16 times as many as what is read."""
    text = (
        "(x[n, d], y[m, d], v[m, e]) -> u[n, e]"
        " = sum[m](exp(-sum[d](abs(x[n, d] - y[m, d])))*v[m, e])"
    )
    indexed = notation.parse(parse.parse(f"demo::weights{text}"))
    sizes = {"n": 1000, "m": 1000, "d": 3, "e": 40}
    own = nests.find(indexed, torch.float32, (0,), frozenset("xyv"), sizes)
    made = own.steps if isinstance(own, Own) else ()
    assert not any(
        len(output.indices) == 2 and output.name.startswith(SHARED)
        for step in made
        for output in step.kernel.nest.outputs
    )


@pytest.mark.parametrize("shape", [(3, 50, 40), (300, 300, 3)])
def test_scatters_that_need_one_another_have_an_order_each(
    shape: tuple[int, int, int], seed: int
) -> None:
    """The places of a maximum, in the gradients of gradients. Costs 5 s each."""
    n, m, d = shape
    operator = pb.operator(
        f"hoisted::weighted{n}(q[n, d], k[m, d], w[m]) -> a[n] ="
        " s[n, m] = sum[d]((q[n, d] - k[m, d])**2)*w[m]; a = max[m](s[n, m])"
    )
    leaves = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in ((n, d), (m, d), (m,))]
    totals: list[Tensor] = []
    for f in (operator, lambda q, k, w: ((q[:, None] - k).square().sum(-1) * w).amax(1)):
        first = torch.autograd.grad(f(*leaves).sin().sum(), leaves, create_graph=True)
        totals.append(sum((g.sin().sum() for g in first), torch.zeros(())))
    found, wanted = (torch.autograd.grad(total, leaves) for total in totals)
    torch.testing.assert_close(found, wanted)
