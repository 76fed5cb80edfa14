"""Gradients that a forward computes itself: they are those of a backward, and cost fewer products.

What is compared with is PyTorch's operations, and the gradient that reads nothing kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid
from torch.utils.checkpoint import checkpoint

import pullback as pb
from pullback.bind.dense import panels, parts
from pullback.define.math.passing import Passing
from tests.bind.test_blocks import by_pytorch, everything_by_blocks
from tests.telling import telling
from tests.threads import threads

__all__ = ["by_pytorch", "everything_by_blocks"]  # fixtures

Computed = list[tuple[str, ...]]


@pytest.fixture(autouse=True)
def computed(
    monkeypatch: pytest.MonkeyPatch, by_pytorch: None, everything_by_blocks: None
) -> Computed:
    """The outputs of each formula that is computed by blocks; a panel has one row of these."""
    monkeypatch.setattr(parts, "WITH_LOOPS", {(16, 32): 1.0})
    monkeypatch.setattr(panels, "PANEL", 0)
    found: Computed = []
    compute = panels.compute

    def noted(passing: Passing, *given: object, **how: object) -> list[Tensor | None]:
        outputs = zip(passing.indexed.line.outputs, given[2], strict=True)  # pyright: ignore
        found.append(tuple(output.name for output, wanted in outputs if wanted))
        return compute(passing, *given, **how)  # pyright: ignore

    monkeypatch.setattr(panels, "compute", noted)
    return found


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every formula whose passes take turns, whether they did to the end."""
    found: list[bool] = []
    run = panels.ByPanels.run_panels

    def noted(self: panels.ByPanels) -> bool:
        found.append(run(self))
        return found[-1]

    monkeypatch.setattr(panels.ByPanels, "run_panels", noted)
    return found


SCORES = "(x[n, d], w[v, d]{more}, t[n]: int64) -> l[] = s[n, v] = {own}; z[n] = max[v](s[n, v]); "
LOSS = "z[n] + log(sum[v](exp(s[n, v] - z[n]))) - s[n, t[n]]"
PRODUCT = "sum[d](x[n, d]*w[v, d])"
MEAN = SCORES.format(more="", own=PRODUCT) + f"l = mean[n]({LOSS})"
LINES: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "mean": (MEAN, lambda x, w, t: cross_entropy(x @ w.T, t)),
    "mean without what is ignored": (
        SCORES.format(more="", own=PRODUCT).replace("s[n, t[n]]", "s[n, max(t[n], 0)]")
        + "i[n] = where(t[n] >= 0, 1, 0); l = sum[n](where(t[n] >= 0, z[n] + "
        "log(sum[v](exp(s[n, v] - z[n]))) - s[n, max(t[n], 0)], 0))/sum[n](i[n])",
        lambda x, w, t: cross_entropy(x @ w.T, t, ignore_index=-1),
    ),
    "bias and smoothing": (
        SCORES.format(more=", b[v]", own=f"{PRODUCT} + b[v]")
        + f"l = sum[n](0.9*({LOSS}) + 0.1*(z[n] + log(sum[v](exp(s[n, v] - z[n]))) "
        "- mean[v](s[n, v])))",
        lambda x, w, b, t: cross_entropy(x @ w.T + b, t, reduction="sum", label_smoothing=0.1),
    ),
    "capped": (
        SCORES.format(more="", own=f"5*tanh({PRODUCT}/5)") + f"l = mean[n]({LOSS})",
        lambda x, w, t: cross_entropy(5 * torch.tanh(x @ w.T / 5), t),
    ),
    "weights of words": (
        SCORES.format(more=", b[v]", own=PRODUCT) + f"l = sum[n](b[t[n]]*({LOSS}))",
        lambda x, w, b, t: (b[t] * cross_entropy(x @ w.T, t, reduction="none")).sum(),
    ),
    "sigmoid": (
        f"(x[n, d], w[v, d], t[n]: int64) -> l[] = s[n, v] = {PRODUCT}; "
        "l = mean[n](sum[v](log(sigmoid(where(v == t[n], s[n, v], -s[n, v])))))",
        lambda x, w, t: (
            logsigmoid(x @ w.T * (2 * torch.nn.functional.one_hot(t, len(w)) - 1)).sum(1).mean()
        ),
    ),
}
SIZES = ((40, 5, 70), (17, 3, 33), (1, 4, 40), (50, 1, 2), (33, 16, 64))
numbers = itertools.count()


def operator(line: str) -> pb.Operator:
    return pb.operator(f"pbunit::f{next(numbers)}{line}")


def inputs(
    name: str, size: Sequence[int] = SIZES[0], dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    n, d, v = size
    given = [torch.randn(n, d, dtype=dtype), torch.randn(v, d, dtype=dtype)]
    given += [torch.randn(v, dtype=dtype)] if ", b[v]" in LINES[name][0] else []
    leaves = [t.requires_grad_() for t in given]
    labels = torch.randint(0, v, (n,))
    if "ignored" in name:
        labels[1::3] = -1
    return [*leaves, labels]


def gradients(
    value: Tensor, leaves: Sequence[Tensor], grad: float = 1.0, *, recorded: bool = False
) -> list[Tensor]:
    """Return gradients; one that is recorded itself reads nothing that was kept."""
    upstream = torch.full_like(value, grad)
    found = torch.autograd.grad(value, leaves, upstream, retain_graph=True, create_graph=recorded)
    return [each.detach() for each in found]


def real(given: Sequence[Tensor]) -> list[Tensor]:
    return [each for each in given if each.is_floating_point()]


@pytest.mark.parametrize(
    "name", telling({n: n for n in LINES}, ["mean without what is ignored", "bias and smoothing"])
)
def test_value_and_gradients_are_torchs(name: str, computed: Computed, seed: int) -> None:
    """Of any sizes, and all that is computed by blocks is computed by the forward."""
    line, eager = LINES[name]
    op = operator(line)
    for size in SIZES:
        given = inputs(name, size)
        computed.clear()
        found, expected = op(*given), eager(*given)
        torch.testing.assert_close(found, expected)
        for grad in (1.0, -2.5):
            pair = (gradients(value, real(given), grad) for value in (found, expected))
            torch.testing.assert_close(*pair)
        if size == SIZES[0]:
            assert computed == [("l", *(f"unit_grad_{k}" for k in "xwb"[: len(real(given))]))]


def test_only_what_is_wanted_is_computed(computed: Computed, seed: int) -> None:
    """What has no gradient takes no product, and a call that is not recorded none for gradients."""
    op = operator(MEAN)
    given = inputs("mean")
    expected = gradients(LINES["mean"][1](*given), given[:2])
    for wanted in ([0], [1], [0, 1], [1], [0]):
        leaves = [given[k].detach().requires_grad_(k in wanted) for k in range(2)]
        computed.clear()
        found = gradients(op(*leaves, given[2]), [leaves[k] for k in wanted])
        assert computed == [("l", *(f"unit_grad_{'xw'[k]}" for k in wanted))]
        torch.testing.assert_close(found, [expected[k] for k in wanted])
    found = op(*given)
    torch.testing.assert_close(torch.autograd.grad(found, given[0])[0], expected[0])
    computed.clear()
    with torch.no_grad():
        assert torch.equal(op(*given), found)
    assert computed == [("l",)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_half_precision(dtype: torch.dtype, computed: Computed, seed: int) -> None:
    """Those for a gradient of 1 may be below the least float16, for which losses are scaled."""
    op = operator(MEAN)
    given = inputs("mean", dtype=dtype)
    exact = [t.detach().double().requires_grad_() for t in given[:2]]
    expected = gradients(LINES["mean"][1](*exact, given[2]), exact, 1e4)
    found = gradients(op(*given), given[:2], 1e4)
    is_kept = computed[0][1:] == ("unit_grad_x", "unit_grad_w")
    assert is_kept == (dtype == torch.bfloat16)
    for got, want in zip(found, expected, strict=True):
        assert (got.double() - want).norm() < 2**-7 * want.norm()


GRADS = (0.0, math.inf, -math.inf, math.nan, 1e-300, 1e300)


BROKEN = {"nothing": None, "inf": math.inf, "-inf": -math.inf, "nan": math.nan, "large": 1e200}


@pytest.mark.parametrize("broken", telling(BROKEN, ["nothing", "inf"]))
@pytest.mark.parametrize("name", ["mean without what is ignored"])
def test_what_is_not_finite_is_as_in_a_backward(name: str, broken: float | None, seed: int) -> None:
    """0 times infinity is where the line has it, whatever arrives and whatever is given."""
    op = operator(LINES[name][0])
    x, w, t = inputs(name)
    if broken is not None:
        x.data[1, 0], w.data[3, 1] = broken, broken
    found = op(x, w, t)
    for grad in GRADS:
        pair = (gradients(found, [x, w], grad, recorded=own) for own in (False, True))
        torch.testing.assert_close(*pair, equal_nan=True)


@pytest.mark.thorough
def test_other_derivatives_are_right(seed: int) -> None:
    """Those that are recorded themselves, forward mode and `vmap` read nothing kept."""
    line, eager = LINES["bias and smoothing"]
    op = operator(line)
    x, w, b, t = inputs("bias and smoothing", (4, 2, 5))
    assert torch.autograd.gradcheck(lambda *own: op(*own, t), (x, w, b))
    assert torch.autograd.gradgradcheck(lambda *own: op(*own, t), (x, w, b))
    many = torch.stack([x, x.flip(0)]).detach()
    own = [each.detach() for each in (w, b)]
    tangent = torch.randn_like(x)
    for way in (
        lambda f: torch.func.jvp(lambda x: f(x, *own, t), (x.detach(),), (tangent,)),
        lambda f: torch.vmap(torch.func.grad(lambda x: f(x, *own, t)))(many),
        lambda f: torch.func.hessian(lambda x: f(x, *own, t))(x.detach()),
    ):
        torch.testing.assert_close(way(op), way(eager))


def test_a_graph_that_is_run_again_gives_the_same(seed: int) -> None:
    """Also where the gradients of the first time were changed in place."""
    op, given = operator(MEAN), inputs("mean")
    found = op(*given)
    first = gradients(found, given[:2])
    kept = [each.clone() for each in first]
    for each in first:
        each.zero_()
    torch.testing.assert_close(gradients(found, given[:2]), kept, rtol=0, atol=0)


def test_a_checkpoint_computes_it_again(seed: int) -> None:
    op, (x, w, t) = operator(MEAN), inputs("mean")

    def loss(x: Tensor) -> Tensor:
        return op(x * 2, w, t)

    again = checkpoint(loss, x, use_reentrant=False)
    pair = (gradients(value, [x, w]) for value in (again, loss(x)))
    torch.testing.assert_close(*pair)


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_what_was_changed_in_place_is_refused(changed: int, seed: int) -> None:
    """Though the gradients are there: the same program runs with few rows and with many."""
    op, given = operator(MEAN), inputs("mean")
    found = op(*given)
    with torch.no_grad():
        given[changed].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(found, given[:2])


def test_a_label_outside_is_refused(seed: int) -> None:
    op, (x, w, t) = operator(MEAN), inputs("mean")
    t[3] = len(w)
    with pytest.raises(pb.PullbackError, match="PB149"):
        op(x, w, t)
    t[3] = 0
    op(x, w, t)


def test_of_no_rows_gradients_are_those_of_a_backward(seed: int) -> None:
    op, (x, w, t) = operator(MEAN), inputs("mean")
    op(x, w, t)  # others are computed by blocks
    x = x[:0].detach().requires_grad_()
    found = op(x, w, t[:0])
    assert found.isnan()
    pair = (gradients(found, [x, w], recorded=own) for own in (False, True))
    torch.testing.assert_close(*pair, equal_nan=True)


def test_bits_are_the_same_for_any_number_of_threads(seed: int) -> None:
    """Though panels have more rows where there are more threads."""
    op, given = operator(MEAN), inputs("mean", (150, 8, 100), torch.float32)
    results: list[list[Tensor]] = []
    for many in (1, 2, 3):
        with threads(many):
            found = op(*given)
            results.append([found.detach(), *gradients(found, given[:2])])
    for others in results[1:]:
        assert all(map(torch.equal, results[0], others))


def test_the_plan_says_so(seed: int) -> None:
    op, given = operator(MEAN), inputs("mean")
    plan = op.plan(*given)
    assert plan.kept == ("unit_grad_x", "unit_grad_w")
    [step] = [step for step in plan.steps if "unit_grad_x" in step.outputs]
    assert "2 passes, 3 products" in step.reason


@pytest.mark.parametrize("name", ["bias and smoothing"])
def test_passes_take_turns_for_other_gradients_too(
    name: str, held: list[bool], computed: Computed, seed: int
) -> None:
    """Of several dtypes nothing is kept, and the gradient computes scores once, not twice."""
    line, eager = LINES[name]
    op, given = (
        operator(line.replace(", b[v]", ", b[v]: float32")),
        inputs(name, dtype=torch.bfloat16),
    )
    given[2] = given[2].detach().float().requires_grad_()
    found = op(*given)
    pair = [gradients(own, real(given)) for own in (found, eager(*given))]
    assert held == [True]
    assert ("l",) in computed
    torch.testing.assert_close(*pair, rtol=0.1, atol=0.1)


def test_passes_that_did_not_end_are_run_whole(held: list[bool], seed: int) -> None:
    """A row without a finite score has what the line says."""
    op, given = operator(MEAN), inputs("mean")
    given[0].data[2] = math.inf
    value = op(*given)
    assert held == [False]
    expected = LINES["mean"][1](*given)
    torch.testing.assert_close(value, expected, equal_nan=True)
