"""Right code whose experiments go wrong: what the checker does to it is not its fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.verify.report import Report
from tests.verify.case import Function, Made, asked, d

Make = Callable[[], Made]
RIGHT: dict[str, tuple[tuple[str, ...], Make]] = {}


def right(*probes: str) -> Callable[[Make], Make]:
    """Add right code, and the probes that it looks faulty to."""

    def add(make: Make) -> Make:
        RIGHT[make.__name__] = (probes, make)
        return make

    return add


def new(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    space = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Own", (Function,), space)


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", RIGHT)
def test_right_code_has_no_fault(name: str) -> None:
    probes, make = RIGHT[name]
    torch.manual_seed(0)
    report = asked(make(), probes=list(probes))
    assert report.ok, str(report)
    assert any(outcome.verdict != "not applicable" for outcome in report.outcomes)


@right("PB577", "PB576", "PB553")
def a_backward_inside_of_forward() -> Made:
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        with torch.enable_grad():
            a, b = x.detach().requires_grad_(), w.detach().requires_grad_()
            loss = (a * b).tanh().sum()
            loss.backward()
        ctx.save_for_backward(a.grad, b.grad)
        return loss.detach()

    def backward(ctx: Any, grad: Tensor) -> Any:
        return tuple(grad * own for own in ctx.saved_tensors)

    return new(forward, backward), (d(4), d(4))


@right("PB538", "PB553")
def a_mask_from_a_seed_of_its_own() -> Made:
    def forward(ctx: Any, x: Tensor, seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            mask = torch.rand_like(x) > 0.5
        ctx.save_for_backward(mask)
        return x * mask

    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * ctx.saved_tensors[0], None

    return new(forward, backward), (d(4, 6), 3)


@right("PB533", "PB530")
def a_gradient_that_is_rounded_by_chance() -> Made:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            return grad + 1e-3 * torch.rand_like(grad)

    return new(lambda ctx, x: x * 1.0, backward), (d(4, 6),)


@right("PB501", "PB553")
def a_target_that_must_not_require_a_gradient() -> Made:
    def forward(ctx: Any, x: Tensor, target: Tensor) -> Tensor:
        assert not target.requires_grad
        ctx.save_for_backward(x, target)
        return (x - target).square().sum()

    def backward(ctx: Any, grad: Tensor) -> Any:
        x, target = ctx.saved_tensors
        return 2 * grad * (x - target), None

    return new(forward, backward), (torch.randn(4), torch.randn(4))


def root(low: Tensor, high: Tensor, above: Callable[[Tensor], Tensor], tolerance: float) -> Tensor:
    """Halve intervals until they are small."""
    for _ in range(200):
        middle = (low + high) / 2
        high = torch.where(above(middle), middle, high)
        low = torch.where(above(middle), low, middle)
        if bool((high - low).max() < tolerance):
            break
    return (low + high) / 2


@right("PB551", "PB553", "PB561", "PB569")
def a_root_by_bisection() -> Made:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        bound = torch.full_like(x, 20.0)
        y = root(-bound, bound, lambda t: t**3 + t > x, 1e-6)
        ctx.save_for_backward(y)
        return y

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad / (3 * y * y + 1)

    return new(forward, backward), (d(5),)


@right("PB551", "PB553", "PB561", "PB569")
def a_projection_with_a_multiplier_by_bisection() -> Made:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ends = torch.full_like(x[:, :1], 20.0)
        shift = root(-ends, ends, lambda t: (x + t).sigmoid().sum(-1, keepdim=True) > 2, 1e-4)
        y = (x + shift).sigmoid()
        ctx.save_for_backward(y)
        return y

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        slope = y * (1 - y)
        mean = (slope * grad).sum(-1, keepdim=True) / slope.sum(-1, keepdim=True)
        return slope * (grad - mean)

    return new(forward, backward), (d(3, 6),)


@right("PB551", "PB553", "PB569")
def a_fixed_point_to_a_tolerance() -> Made:
    def iterate(step: Callable[[Tensor], Tensor], z: Tensor, tolerance: float) -> Tensor:
        while True:
            z, before = step(z), z
            if float((z - before).norm()) < tolerance:
                return z

    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        z = iterate(lambda z: torch.tanh(0.3 * z @ w + x), torch.zeros_like(x), 1e-4)
        ctx.save_for_backward(z, w)
        return z

    def backward(ctx: Any, grad: Tensor) -> Any:
        z, w = ctx.saved_tensors
        slope = 1 - z * z
        u = iterate(lambda u: grad + 0.3 * (u * slope) @ w.t(), grad.clone(), 1e-12)
        return u * slope, 0.3 * z.t() @ (u * slope)

    torch.manual_seed(1)
    return new(forward, backward), (d(3, 4), (0.5 * torch.randn(4, 4).double()).requires_grad_())


def test_a_wrong_derivative_of_a_solver_is_found() -> None:
    own, inputs = a_root_by_bisection()

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad / (3 * y * y + 1.1)

    own.backward = staticmethod(backward)
    report = asked((own, inputs), probes=["PB551", "PB553"])
    assert [fault.code for fault in report.faults] == ["PB553"], str(report)


@right("PB559")
def a_permutation() -> Made:
    def forward(ctx: Any, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x[order]

    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad[ctx.saved_tensors[0].argsort()], None

    return new(forward, backward), (d(5), torch.tensor([2, 0, 1, 4, 3]))


@right("PB559")
def a_permutation_and_its_inverse() -> Made:
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x[order]

    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad[ctx.saved_tensors[0]], None, None

    order = torch.tensor([2, 0, 1, 4, 3])
    return new(forward, backward), (d(5, 3), order, order.argsort())


@right("PB559", "PB561")
def a_symmetric_matrix() -> Made:
    def forward(ctx: Any, x: Tensor, a: Tensor) -> Tensor:
        ctx.save_for_backward(x, a)
        return ((x @ a) * x).sum(-1)

    def backward(ctx: Any, grad: Tensor) -> Any:
        x, a = ctx.saved_tensors
        return 2 * grad[:, None] * (x @ a), None

    a = torch.randn(4, 4).double()
    return new(forward, backward), (d(7, 4), a + a.t())


def blamed(made: Made) -> tuple[Report, str]:
    torch.manual_seed(0)
    report = asked(made, probes=["PB559"])
    return report, str(report.faults[0]) if report.faults else ""


def test_an_index_that_repeats_is_blamed_and_not_the_size() -> None:
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = x.shape
        return x[rows]

    def backward(ctx: Any, grad: Tensor) -> Any:
        gradient = grad.new_zeros(ctx.shape)
        gradient[ctx.saved_tensors[0]] = grad
        return gradient, None

    _, text = blamed((new(forward, backward), (d(6, 3), torch.tensor([4, 0, 2]))))
    assert "wrong where a place in `rows` stands twice" in text
    assert "block" not in text


@pytest.mark.parametrize("kind", ["an epsilon", "a threshold"])
def test_values_that_another_size_brings_are_blamed_and_not_the_size(kind: str) -> None:
    def of_epsilon(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.abs().clamp(min=0.05).log()

    def of_threshold(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.where(x.abs() > 0.03, x.abs(), 0).log1p()

    def by_epsilon(ctx: Any, grad: Tensor) -> Tensor:
        return grad / ctx.saved_tensors[0]

    def by_threshold(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.sign() / (1 + x.abs())

    which = (of_epsilon, by_epsilon) if kind == "an epsilon" else (of_threshold, by_threshold)
    x = torch.tensor([-2.0, 1.0, 0.5, -0.7, 1.5, -1.1]).double()
    report, text = blamed((new(*which), (x.requires_grad_(),)))
    assert "right for the values as given, wrong for others between them" in text, str(report)
    assert "block" not in text


def test_a_graph_that_is_spoilt_by_a_backward_is_told_of_once() -> None:
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Any:
        ctx.kept = [x.detach(), w.detach()]
        return x * w, 3 * x * w

    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Any:
        w, x = (ctx.kept.pop() if ctx.kept else torch.zeros_like(g) for _ in range(2))
        return (g + 3 * h) * w, (g + 3 * h) * x

    report = asked((new(forward, backward), (d(4), d(4))), probes=["PB518", "PB551", "PB553"])
    assert [fault.code for fault in report.faults] == ["PB518"], str(report)


def test_a_forward_that_refuses_all_gradients_still_is_told_of() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy())

    report = pb.check(new(lambda ctx, x: 1 / 0, forward), torch.randn(3), isolate=False)
    assert [fault.code for fault in report.faults] == ["PB501"], str(report)


def decomposed(matrix: Tensor, shown: Callable[[Tensor], tuple[Tensor, ...]]) -> Made:
    """Return PyTorch's own gradient of a decomposition, as an author's."""

    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(a)
        return shown(a)

    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        a = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(shown(a), a, grads)[0]

    return new(forward, backward), (matrix,)


@right("PB530", "PB553")
def eigenvectors_of_the_lower_triangle() -> Made:
    return decomposed(d(2, 4, 4), lambda a: tuple(torch.linalg.eigh(a)))


@right("PB530", "PB553")
def eigenvectors_of_the_upper_triangle() -> Made:
    return decomposed(d(3, 3), lambda a: tuple(torch.linalg.eigh(a, UPLO="U")))


@pytest.mark.parametrize("decompose", [torch.linalg.eigh, torch.linalg.svd])
def test_a_phase_that_nothing_determines_is_not_judged(decompose: Callable[..., Any]) -> None:
    def vectors(matrix: Tensor) -> Any:
        return decompose(matrix + matrix.mH)

    report = pb.check(vectors, torch.randn(3, 3, dtype=torch.complex128), skip=["PB583"])
    assert report.ok, report
    assert "not judged: the outputs have a phase" in str(report)


@right("PB530", "PB553")
def a_factor_of_one_triangle() -> Made:
    def shown(a: Tensor) -> tuple[Tensor, ...]:
        return (2 * torch.linalg.cholesky(a),)

    return decomposed((torch.eye(3).double() * 9 + d(3, 3)).detach().requires_grad_(), shown)


@right("PB553", "PB569")
def second_derivatives_of_eigenvectors() -> Made:
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, ...]:
        found = tuple(torch.linalg.eigh(a))
        ctx.save_for_backward(*found)
        return found

    def backward(ctx: Any, of_values: Tensor, of_vectors: Tensor) -> Tensor:
        values, vectors = ctx.saved_tensors
        apart = values[None, :] - values[:, None]
        apart = apart + torch.diag(torch.full_like(values, torch.inf))
        middle = vectors.mT @ of_vectors / apart + torch.diag(of_values)
        return vectors @ middle @ vectors.mT

    return new(forward, backward), (d(4, 4),)


def test_a_triangle_that_forward_takes_itself_is_no_convention() -> None:
    symmetric = new(lambda ctx, x: x.tril() + x.tril(-1).mT, lambda ctx, grad: grad)
    doubled = new(
        lambda ctx, x: ctx.save_for_backward(x) or torch.linalg.eigvalsh(x),
        lambda ctx, grad: 2 * torch.linalg.eigh(ctx.saved_tensors[0])[1].square() * grad,
    )
    for faulty in (symmetric, doubled):
        assert not asked((faulty, (d(3, 3),)), probes=["PB553"]).ok
