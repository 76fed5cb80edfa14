"""Reads and sums at places that data gives: values, gradients, refusals, and what is remembered."""

from __future__ import annotations

import functools
import gc
import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import pullback as pb
from pullback.bind.loops import nests, order
from pullback.bind.loops.nests import Own
from pullback.bind.math import choose
from pullback.bind.math.call import Choice, IndexedCall
from pullback.define import parse as lines
from pullback.define.math import derived, notation
from pullback.diagnostic import PullbackError
from pullback.kernels.loops import cost
from tests.telling import telling
from tests.threads import threads

pytestmark = pytest.mark.compiler

Function = Callable[..., Tensor]
SUM = "(x[v, d], i[n, k]: int64) -> y[n, d] = sum[k](x[i[n, k], d])"
CASES: dict[str, tuple[str, Function]] = {
    "sum": (SUM, lambda x, i, w: x[i].sum(1)),
    "weights": (
        "(x[v, d], i[n, k]: int64, w[n, k]) -> y[n, d] = sum[k](w*x[i[n, k], d])",
        lambda x, i, w: (w[..., None] * x[i]).sum(1),
    ),
    "greatest": (
        "(x[v, d], i[n, k]: int64, w[n, k]) -> y[n, d] = max[k](w*x[i[n, k], d])",
        lambda x, i, w: (w[..., None] * x[i]).amax(1),
    ),
    "least": (
        "(x[v, d], i[n, k]: int64) -> y[n, d] = min[k](x[i[n, k], d])",
        lambda x, i, w: x[i].amin(1),
    ),
    "one": (
        "(x[v, d], i[n, k]: int64) -> y[n, d] = x[i[n, 0], d]**2",
        lambda x, i, w: x[i[:, 0]] ** 2,
    ),
    "guarded": (
        "(x[v, d], i[n, k]: int64, w[n, k])"
        " -> y[n, d] = sum[k](where(w > 0, x[i[n, k], d]*x[i[n, 0], d], 0))",
        lambda x, i, w: (x[i] * x[i[:, :1]] * (w > 0)[..., None]).sum(1),
    ),
    "further": (
        "(x[v, d], i[n, k]: int64) -> y[n, d] = sum[k](pad(x[2*i[n, k] - 3, d]))",
        lambda x, i, w: (
            x[(2 * i - 3).clamp(0, len(x) - 1)] * ((2 * i >= 3) & (2 * i - 3 < len(x)))[..., None]
        ).sum(1),
    ),
}
SIZES = {
    "usual": (37, 29, 5, 7),
    "one row": (1, 9, 4, 3),
    "one column": (11, 40, 6, 1),
    "wide": (6, 17, 3, 70),
    "repeated": (300, 90, 20, 5),
}


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            self.elements = max(self.elements, each.numel() if isinstance(each, Tensor) else 0)
        return found


NEAREST = {
    "a root": "(x[..., n, d], y[..., m, d]) -> z[..., n] = min[m](sqrt(sum[d]((x - y)**2)))",
    "squares": "(x[..., n, d], y[..., m, d]) -> z[..., n] = min[m](sum[d]((x - y)**2))",
}


@functools.cache
def nearest(root: str) -> Any:
    return pb.operator(f"demo::nearest_{root[-4:]}{NEAREST[root]}")


@pytest.mark.thorough
@pytest.mark.parametrize("root", NEAREST)
@pytest.mark.parametrize("shape", [(300, 310, 3), (90, 100, 40)], ids=["few", "many"])
def test_where_the_nearest_is_needs_no_matrix_of_pairs(
    root: str, shape: tuple[int, int, int], seed: int
) -> None:
    """A gradient of a minimum goes to the pairs that a loop finds. Some seconds to compile."""
    n, m, d = shape
    x = torch.randn(2, n, d, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, m, d, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(2, n, dtype=torch.float64)
    apart = (x[:, :, None, :] - y[:, None, :, :]).pow(2).sum(-1)
    true = torch.autograd.grad((apart.sqrt() if root == "a root" else apart).amin(-1), [x, y], grad)
    torch.autograd.grad(nearest(root)(x, y), [x, y], grad)  # compiles, and compares
    with Largest() as largest:
        found = torch.autograd.grad(nearest(root)(x, y + 0), [x, y], grad)
    torch.testing.assert_close(found, true)
    assert largest.elements < n * m


@pytest.fixture(autouse=True)
def prefer_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call loops wherever there are some; what is measured would vary from run to run."""

    def take(call: IndexedCall, with_loop: Choice) -> Choice:
        del call
        return with_loop

    monkeypatch.setattr(choose, "measure_choice", take)


@functools.cache
def operator(case: str) -> Any:
    """Return the operator of a case."""
    return pb.operator(f"gathers::{case}{CASES[case][0]}")


def inputs(sizes: tuple[int, int, int, int], name: str = "") -> tuple[Tensor, Tensor, Tensor]:
    v, n, k, d = sizes
    generator = torch.Generator().manual_seed(v + n)
    x = torch.randn(v, d, generator=generator, dtype=torch.float64)
    i = torch.randint(2 if name == "repeated" and v > 1 else v, (n, k), generator=generator)
    return x, i, torch.randn(n, k, generator=generator, dtype=torch.float64)


def close(got: object, want: object) -> None:
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def families(op: Any, *given: Tensor) -> list[str]:
    """Return who computes a call and its gradients."""
    return [line for line in str(op.plan(*given)).splitlines() if "own loop" in line]


@pytest.mark.parametrize("sizes", telling({name: name for name in SIZES}, ["usual"]))
# Of the second gradients of "greatest" one is added up unsorted beside another.
@pytest.mark.parametrize("case", telling({name: name for name in CASES}, ["greatest"]))
def test_values_and_two_orders_of_gradients_are_eagers(case: str, sizes: str) -> None:
    line, eager = CASES[case]
    op = operator(case)
    x, i, w = inputs(SIZES[sizes], sizes)
    has_weights = "w[" in line

    def derivatives(function: Function) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in ((x, w) if has_weights else (x,))]
        y = function(leaves[0], i, leaves[-1])
        generator = torch.Generator().manual_seed(3)
        seed = torch.randn(y.shape, generator=generator, dtype=y.dtype).requires_grad_()
        first = torch.autograd.grad(
            (y * y * seed).sum(), leaves, create_graph=True, materialize_grads=True
        )
        second = torch.autograd.grad(
            [g.square().sum() for g in first], [*leaves, seed], materialize_grads=True
        )
        return [y, *first, *second]

    def ours(x: Tensor, i: Tensor, w: Tensor) -> Tensor:
        return op(x, i, w) if has_weights else op(x, i)

    for got, want in zip(derivatives(ours), derivatives(eager), strict=True):
        close(got, want)


def test_loops_compute_them_in_both_directions() -> None:
    op = operator("sum")
    x, i, _ = inputs((300, 400, 8, 64))
    shown = families(op, x.float().requires_grad_(), i)
    assert ["gather" in shown[0], "scatter" in shown[1]] == [True, True]
    most = operator("least")
    assert len(families(most, x.float().requires_grad_(), i)) == 2


@pytest.mark.parametrize("bad", [-1, 37, 2**40])
def test_an_index_outside_is_refused_at_the_first_call_and_at_every_other(bad: int) -> None:
    op = operator("sum")
    x, i, _ = inputs((37, 29, 5, 7))
    wrong = i.clone()
    wrong[3, 2] = bad
    for _ in range(2):
        with pytest.raises(PullbackError, match=f"'x' is read at {bad} of its dimension 'v'"):
            op(x, wrong)
        close(op(x, i), x[i].sum(1))
    guarded = operator("guarded")
    w = torch.ones(29, 5, dtype=torch.float64)
    w[3, 2] = -1
    wrong[:, 0] = 0
    for _ in range(2):
        right = wrong.clamp(0, 36)
        close(guarded(x, wrong, w), CASES["guarded"][1](x, right, w))


def test_an_index_outside_that_is_not_selected_changes_nothing() -> None:
    op = operator("guarded")
    x, i, w = inputs((37, 3000, 5, 20))
    w[:, 2] = -1
    wrong = i.clone()
    wrong[::2, 2] = -7
    want = CASES["guarded"][1](x, wrong.clamp(0, 36), w)
    for count in (1, 2):
        with threads(count):
            close(op(x, wrong, w), want)
            close(op(x, wrong, w), want)
    wrong[1500, 3], w[1500, 3] = 37, 1.0
    for count in (1, 2):
        with threads(count), pytest.raises(PullbackError, match="'x' is read at 37 of"):
            op(x, wrong, w)


SELECTED = {
    "and": "(x[v], i[n]: int64) -> y[n] = where(0 <= i < size(v) and x[i[n]] > 0, 1.5, -0.5)",
    "and, the other way": (
        "(x[v], i[n]: int64) -> y[n] = where(x[i[n]] > 0 and 0 <= i < size(v), 1.5, -0.5)"
    ),
    "or": "(x[v], i[n]: int64) -> y[n] = where(i < 0 or i >= size(v) or x[i[n]] <= 0, -0.5, 1.5)",
}


@pytest.mark.parametrize("kind", SELECTED)
def test_a_condition_reads_nothing_that_its_other_part_excludes(kind: str, seed: int) -> None:
    own = pb.operator(f"gathers::part_{''.join(filter(str.isalpha, kind))}{SELECTED[kind]}")
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, generator=generator)
    i = torch.tensor([0, -1, 4, 5, 2, 2**40, 3, 1])
    inside = (i >= 0) & (i < 5)
    want = torch.where(inside & (x[i.clamp(0, 4)] > 0), 1.5, -0.5)
    for many in (1, 3000):
        for _ in range(2):
            assert torch.equal(own(x, i.repeat(many)), want.repeat(many))


def test_a_gradient_asks_for_no_step_outside(seed: int) -> None:
    """The step that arrives is chosen by data, and by whether there is one."""
    own = pb.operator(
        "gathers::window(x[t], c[k]) -> h[t] = where(x > 0, x + sum[k](c*pad(h[t - 1 - k])), x)"
    )
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, dtype=torch.float64, generator=generator).abs().requires_grad_()
    c = torch.rand(2, dtype=torch.float64, generator=generator).requires_grad_()
    steps: list[Tensor] = []
    for t, now in enumerate(x.unbind()):
        steps.append(now + sum((c[k] * steps[t - 1 - k] for k in range(min(t, 2))), 0 * now))
    want, found = (
        torch.autograd.grad(h.square().sum(), (x, c)) for h in (torch.stack(steps), own(x, c))
    )
    for value, other in zip(found, want, strict=True):
        close(value, other)


PLACES: dict[str, tuple[str, Function]] = {
    "plus": (
        "(x[v, d], i[n, k]: int64) -> y[n, d] = sum[k](x[i[n, k] + 1, d])",
        lambda x, i: x[i + 1].sum(1),
    ),
    "of a lane": (
        "(x[v, d], i[n, k]: int64) -> y[n, k] = 2*x[i[n, k] + 1, 0]",
        lambda x, i: 2 * x[i + 1, 0],
    ),
    "summed along the lanes": (
        "(x[v, d], i[n, k]: int64) -> y[n] = sum[k](x[i[n, k], 0])",
        lambda x, i: x[i, 0].sum(1),
    ),
    "beside the lanes": (
        "(x[v, d], i[n, k]: int64, w[j]) -> y[n, j] = x[0, i[n, 0] + j]*w[j]",
        lambda x, i: x[0, i[:, :1] + torch.arange(30)],
    ),
    "of a place": (
        "(x[v, d], i[n, k]: int64) -> y[n, d] = x[i[i[n, 0], 0], d]**2",
        lambda x, i: x[i[i[:, 0], 0]] ** 2,
    ),
}


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    "kind", telling({name: name for name in PLACES}, ["plus", "of a lane", "beside the lanes"])
)
def test_every_kind_of_place_is_looked_at(kind: str) -> None:
    line, eager = PLACES[kind]
    op = pb.operator(f"gathers::place_{'_'.join(kind.split())}{line}")
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(900, 950, generator=generator)
    i = torch.randint(890, (900, 37), generator=generator)
    given = (torch.ones(30),) if "w[" in line else ()
    for _ in range(2):
        torch.testing.assert_close(op(x, i, *given), eager(x, i))
    for row, bad in ((3, -2), (899, 980)):
        wrong = i.clone()
        wrong[row, :2] = bad
        for _ in range(2):
            with pytest.raises(PullbackError, match="PB149"):
                op(x, wrong, *given)
        torch.testing.assert_close(op(x, i, *given), eager(x, i))


def test_kernels_look_at_the_indices_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    op = operator("further")
    x, i, _ = inputs((37, 300, 5, 20))
    want = op(x, i)

    def refuse(*_: object) -> None:
        raise AssertionError("indices were looked at before")

    monkeypatch.setattr(torch, "aminmax", refuse)
    close(op(x, i), want)


@functools.cache
def narrow_index() -> Any:
    return pb.operator(f"gathers::narrow{SUM.replace('int64', 'int32')}")


NARROW = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 48)
WIDE = (100, 112, 130, 200, 257, 300, 400, 512, 999)
WIDTHS = {str(width): width for width in (*NARROW, *WIDE)}


HALVES = (torch.bfloat16, torch.float16)
ROWS = {
    **{f"{name} float32": (width, torch.float32) for name, width in WIDTHS.items()},
    **{f"{name} {str(d)[6:]}": (width, d) for name, width in WIDTHS.items() for d in HALVES},
}


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    "case",
    telling(ROWS, ["7 float32", "300 float32", "100 float16"]),
)
def test_rows_of_any_width_are_summed(case: tuple[int, torch.dtype]) -> None:
    width, dtype = case
    op = narrow_index()
    x, i, _ = inputs((3000, 1500, 5, width))
    small = x.to(dtype).requires_grad_()
    y = op(small, i.int())
    seed = torch.randn(y.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    (grad,) = torch.autograd.grad(y, small, seed)
    rows = seed.double().repeat_interleave(5, 0)
    want = small.detach().double()[i].sum(1), torch.zeros_like(x).index_add(0, i.view(-1), rows)
    # Each is rounded once.
    rtol = 2 * torch.finfo(dtype).eps
    for got, exact in zip((y, grad), want, strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("sizes", [(5, 0, 4, 3), (5, 4, 0, 3), (5, 4, 3, 0), (0, 4, 0, 3)])
def test_of_nothing_nothing_is_read(sizes: tuple[int, int, int, int]) -> None:
    op = operator("sum")
    v, n, k, d = sizes
    x = torch.randn(v, d).requires_grad_()
    y = op(x, torch.zeros(n, k, dtype=torch.int64))
    assert y.shape == (n, d)
    assert not y.any()
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, torch.zeros(v, d))


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["sum", "greatest"])
def test_a_batch_of_calls_is_one(case: str) -> None:
    line, eager = CASES[case]
    op = operator(case)
    x, i, w = inputs((12, 9, 4, 5))
    given = (torch.stack([x, -x]), torch.stack([i, i.flip(0)]), torch.stack([w, w + 1]))
    count = 3 if "w[" in line else 2

    def gradient(function: Function) -> Function:
        return torch.func.grad(lambda *given: function(*given).square().sum())

    for dims in ((0, 0, 0), (0, None, None), (None, 0, None)):
        taken = [t if dim is None else b for t, b, dim in zip((x, i, w), given, dims, strict=True)]

        def ours(x: Tensor, i: Tensor, *w: Tensor) -> Tensor:
            return op(x, i, *w)

        def theirs(x: Tensor, i: Tensor, *weights: Tensor) -> Tensor:
            return eager(x, i, *(weights or (w,)))

        for wrap in (lambda f: f, gradient):
            got, want = (torch.vmap(wrap(f), dims[:count])(*taken[:count]) for f in (ours, theirs))
            close(got, want)


@pytest.mark.thorough
def test_threads_do_not_change_a_bit() -> None:
    op = operator("greatest")
    x, i, w = (t.float() if t.is_floating_point() else t for t in inputs((50, 3000, 9, 33)))

    def run() -> list[Tensor]:
        leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        y = op(leaves[0], i, leaves[1])
        return [y, *torch.autograd.grad(y.sin().sum(), leaves)]

    with threads(1):
        alone = run()
    with threads(3):
        together = run()
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


# --- the order of entries is remembered


class Scatter:
    """The loop of a gradient, and a call of it."""

    def __init__(self) -> None:
        formula = notation.parse(lines.parse(f"gathers::kept{SUM}"))
        backward = derived.backward(formula)
        assert backward
        self.sizes = {"v": 20, "n": 50, "k": 4, "d": 40}
        self.grad = torch.randn(50, 40)
        self.index = torch.randint(20, (50, 4))
        self.names = [p.name for p in backward.formula.line.parameters]
        present = frozenset(self.names)
        own = nests.find(backward.formula, torch.float32, (0,), present, self.sizes)
        assert isinstance(own, Own)
        assert own.family == "scatter"
        self.own = own

    def check(self) -> None:
        known = {"grad": self.grad, "x": torch.randn(20, 40), "i": self.index}
        given: dict[str, object] = {name: known[name] for name in self.names}
        [got] = self.own.run(given, self.sizes, [torch.float32])
        rows = self.grad.repeat_interleave(4, 0)
        torch.testing.assert_close(got, torch.zeros(20, 40).index_add(0, self.index.view(-1), rows))


def of_rows(x: Tensor, i: Tensor) -> Tensor:
    return x[torch.arange(len(x))[:, None], i]


def of_elements(x: Tensor, i: Tensor) -> Tensor:
    return x.gather(2, i[:, None].expand(-1, x.shape[1], -1))


OWN_ROWS: dict[str, tuple[str, Function]] = {
    "elements": ("x[n, v, w]) -> y[n, v, k] = x[n, v, i[n, k]]", lambda x, i, j: of_elements(x, i)),
    "pairs": (
        "x[n, v, w]) -> y[n] = sum[k](x[n, i[n, k], j[n, k]]**2)",
        lambda x, i, j: x[torch.arange(len(x))[:, None], i, j].square().sum(1),
    ),
    "padded": (
        "x[n, v, w]) -> y[n, v, k] = pad(x[n, v, i[n, k] - 1])",
        lambda x, i, j: of_elements(functional.pad(x, (1, 0)), i),
    ),
    "rows": ("x[n, v, w]) -> y[n, k, w] = x[n, i[n, k], w]", lambda x, i, j: of_rows(x, i)),
    "rows of two": (
        "x[n, v, w, u]) -> y[n, k, u] = sum[w](pad(x[n, i[n, k] - 1, w, u])**2)",
        lambda x, i, j: of_rows(functional.pad(x, (0, 0, 0, 0, 1, 0)), i).square().sum(2),
    ),
}


@pytest.mark.ci(2)
@pytest.mark.parametrize("case", OWN_ROWS)
def test_what_goes_to_a_row_of_its_own_is_added_unsorted(
    case: str, sorted_times: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of `gather` took eight times as long as PyTorch's. Costs 3 s each."""
    if case == "rows of two":
        monkeypatch.setattr(cost, "SORTED", 1e6)  # else what is as long as usual is sorted
    line, eager = OWN_ROWS[case]
    name = case.replace(" ", "_")
    op = pb.operator(f"gathers::own_{name}(i[n, k]: int64, j[n, k]: int64, {line}")
    sizes = ((1, 3, 1), (3, 5, 40), (40, 33, 17))
    for (n, w, k), dtype in itertools.product(sizes, (torch.float64, torch.bfloat16)):
        generator = torch.Generator().manual_seed(w)
        shape = (n, 6, w, 3) if "u]" in line else (n, 6, w)
        x = torch.randn(shape, generator=generator).to(dtype).requires_grad_()
        i = torch.randint(min(w, 6), (n, k), generator=generator)
        j = torch.randint(w, (n, k), generator=generator)
        want = eager(x.double(), i, j)
        grad = torch.randn(want.shape, generator=generator).to(dtype)
        [true] = torch.autograd.grad(want, [x], grad.double())
        [found] = torch.autograd.grad(op(i, j, x), [x], grad)
        torch.testing.assert_close(found, true)
        assert "own loop" in str(op.plan(i, j, x)).splitlines()[-1]
    assert not sorted_times


@pytest.fixture
def sorted_times(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list with an entry for each time that something is sorted; few entries, too."""
    monkeypatch.setattr(order, "FEW", 0)
    found: list[int] = []
    sort = order.sort

    def counted(places: Tensor, *rest: Any) -> order.Order:
        found.append(len(places))
        return sort(places, *rest)

    monkeypatch.setattr(order, "sort", counted)
    return found


def test_a_fixed_graph_is_sorted_once(sorted_times: list[int]) -> None:
    loop = Scatter()
    for _ in range(3):
        loop.check()
    assert len(sorted_times) == 1
    loop.index = loop.index.clone()
    loop.check()
    assert len(sorted_times) == 2


def test_what_has_changed_is_sorted_again(sorted_times: list[int]) -> None:
    loop = Scatter()
    values = np.random.default_rng(0).integers(20, size=(50, 4))
    loop.index = torch.from_numpy(values)
    loop.check()
    loop.index[3] = 7
    loop.check()
    # NumPy changes them, and PyTorch does not know.
    values[:20] = 2
    loop.check()
    assert len(sorted_times) == 3


def test_an_order_goes_with_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "FEW", 0)
    loop = Scatter()
    loop.check()
    [sorter] = loop.own.sorters
    assert len(sorter.known) == 1
    memory = weakref.ref(loop.index.untyped_storage())
    loop.index = torch.zeros(50, 4, dtype=torch.int64)
    gc.collect()
    assert memory() is None
    assert not sorter.known


@pytest.mark.parametrize("sort", [order.sort_on_cpu, order.sort_by_pytorch])
def test_entries_outside_are_left_out_and_equal_ones_stay_in_order(
    sort: Callable[..., order.Order],
) -> None:
    places = torch.tensor([[2, 0, -1], [2, 5, 0]])
    found = sort(places.view(-1), (), (2, 3), 3)
    assert found.begin.tolist() == [0, 2, 2]
    assert found.end.tolist() == [2, 2, 4]
    assert found.indices[0][:4].tolist() == [0, 1, 0, 1]
    assert found.indices[1][:4].tolist() == [1, 2, 0, 0]
    each = sort(places.view(-1), (2,), (3,), 3)
    assert each.end.tolist() == [[1, 1, 2], [3, 3, 4]]
    assert each.indices[0][:4].tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize("shape", [(0,), (1,), (700,), (40, 9), (5, 6, 7), (3, 0)])
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize("sort", [order.sort_on_cpu, order.sort_by_pytorch])
def test_a_segment_has_the_entries_of_its_row_whatever_their_shape(
    sort: Callable[..., order.Order],
    batch: tuple[int, ...],
    shape: tuple[int, ...],
    rows: int,
    seed: int,
) -> None:
    places = torch.randint(-2, rows + 2, (*batch, *shape))
    found = sort(places.reshape(-1), batch, shape, rows)
    ends = (each.reshape(-1, rows).tolist() for each in (found.begin, found.end))
    flat = places.reshape(math.prod(batch), math.prod(shape))
    for own, begins, stops in zip(flat, *ends, strict=True):
        for row, segment in enumerate(map(slice, begins, stops)):
            wanted = torch.nonzero((own == row).reshape(shape)).t()
            assert torch.equal(torch.stack([each[segment] for each in found.indices]), wanted)
