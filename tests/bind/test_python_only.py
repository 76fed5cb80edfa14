"""Without a C++ compiler operators in Python still work, through torch.library."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind import python_only, runtime
from pullback.kernels import toolchain
from tests.fresh import python

pytestmark = pytest.mark.filterwarnings("ignore::pullback.bind.python_only.PythonOnlyNotice")
fresh = itertools.count()


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> runtime.Runtime:
        raise toolchain.CompilerMissing.error("no C++ compiler can be used")

    monkeypatch.setattr(runtime, "load", refuse)


def cube() -> pb.Operator:
    def backward(grad_y: Tensor, grad_dx: Tensor | None, x: Tensor, dx: Tensor) -> Tensor:
        gradient = grad_y * dx
        return gradient if grad_dx is None else gradient + grad_dx * 6 * x

    return pb.operator(
        f"python_only::cube{next(fresh)}(x[...]) -> (y[...], dx[...])",
        python=lambda x: (x**3, 3 * x**2),
        backward=backward,
    )


def product() -> pb.Operator:
    return pb.operator(
        f"python_only::product{next(fresh)}(x[...], y[...]) -> z[...]",
        python=lambda x, y: (x * y).numpy(),
        backward={"x": "aten::mul.Tensor(grad, y)", "y": "aten::mul.Tensor(grad, x)"},
    )


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_derivatives_of_every_form_are_right(seed: int) -> None:
    assert torch.autograd.gradcheck(cube(), (doubles(4),))
    assert torch.autograd.gradgradcheck(cube(), (doubles(4),))
    assert torch.autograd.gradcheck(product(), (doubles(4), doubles(4)))
    assert torch.autograd.gradgradcheck(product(), (doubles(4), doubles(4)))


def test_a_named_backward_computes_what_is_needed(seed: int) -> None:
    seen: list[list[bool]] = []

    def pull(grad: Tensor, x: Tensor, y: Tensor, output_mask: list[bool]) -> tuple[object, object]:
        seen.append(output_mask)
        return grad * y, grad * x

    number = next(fresh)
    pb.operator(
        f"python_only::pull{number}(grad[...], x[...], y[...]) -> (grad_x[...], grad_y[...])",
        python=pull,
    )
    times = pb.operator(
        f"python_only::times{number}(x[...], y[...]) -> z[...]",
        python=lambda x, y: x * y,
        backward=f"python_only::pull{number}",
    )
    x, y = doubles(3), doubles(3)
    (gradient,) = torch.autograd.grad(times(x, y.detach()).sum(), x)
    assert torch.equal(gradient, y)
    assert seen == [[True, False]]


def test_a_derivative_reads_a_default_that_the_caller_left_out(seed: int) -> None:
    scale = pb.operator(
        f"python_only::scale{next(fresh)}(x[...], beta: float = 2.0, bias[n]?) -> y[...]",
        python=lambda x, beta, bias: x * beta,
        backward=lambda grad, beta: (grad * beta, None),
    )
    x = doubles(3)
    for call, beta in ((scale(x), 2.0), (scale(x, 3.0), 3.0), (scale(x, 3.0, x.detach()), 3.0)):
        (gradient,) = torch.autograd.grad(call.sum(), x)
        assert gradient.tolist() == [beta] * 3


@pytest.mark.parametrize("shapes", [((3, 1), (4,)), ((2, 3, 4), (4,)), ((1,), (5, 1))])
def test_gradients_are_summed_back_over_the_batch(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], seed: int
) -> None:
    assert torch.autograd.gradcheck(product(), tuple(doubles(*shape) for shape in shapes))


def test_dimensions_between_others_are_summed_too(seed: int) -> None:
    outer = pb.operator(
        f"python_only::outer{next(fresh)}(x[n, ..., m], y[...]) -> z[n, ..., m]",
        python=lambda x, y: x[:, None] * y[..., None],
        backward=lambda grad, x, y: (grad * y[..., None], (grad * x[:, None]).sum((0, -1))),
    )
    assert torch.autograd.gradcheck(outer, (doubles(2, 1, 3), doubles(4, 5)))


def test_a_backward_inside_of_autocast_keeps_its_dtypes(seed: int) -> None:
    matmul = pb.operator(
        f"python_only::matmul{next(fresh)}(x[n, m], y[m, k]) -> z[n, k]",
        python=lambda x, y: x @ y,
        backward={"x": "aten::mm(grad, aten::t(y))", "y": None},
    )
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2)
    with torch.autocast("cpu"):
        (gradient,) = torch.autograd.grad(matmul(x, y).sum(), x)
    assert gradient.dtype == torch.float32


def test_forward_mode_raises_and_is_not_zero(seed: int) -> None:
    x = doubles(4)
    with pytest.raises(pb.PullbackError, match="no-forward-mode"):
        torch.func.jvp(lambda x: cube()(x)[0], (x,), (x,))


@pytest.mark.parametrize(
    ("backward", "name"),
    [
        (None, "no-derivative"),
        (lambda grad: grad.sum(0), "gradient-shape"),
        (lambda grad: grad.expand(2, *grad.shape), "gradient-shape"),
        (lambda grad: grad.float(), "gradient-dtype"),
        (lambda grad: (grad, grad), "wrong-number"),
    ],
)
def test_a_faulty_backward_is_caught(
    backward: Callable[..., object] | None, name: str, seed: int
) -> None:
    faulty = pb.operator(
        f"python_only::faulty{next(fresh)}(x[n, m]) -> y[n, m]",
        python=lambda x: x + 1,
        backward=backward,
    )
    with pytest.raises(pb.PullbackError, match=name):
        faulty(doubles(3, 3)).sum().backward()


def test_it_is_one_node_under_compile(seed: int) -> None:
    x, times = doubles(3), product()
    call = torch.compile(lambda x: times(x, x).sum(), fullgraph=True, backend="aot_eager")
    (gradient,) = torch.autograd.grad(call(x), x)
    assert torch.allclose(gradient, 2 * x)


def test_a_notice_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(python_only.PythonOnlyNotice, match="no C\\+\\+ compiler"):
        product()


def test_a_compiled_kernel_needs_the_compiler() -> None:
    with pytest.raises(pb.PullbackError, match="compiler-missing"):
        pb.operator(
            "python_only::compiled(x[n]) -> y[n]",
            cpu=pb.source("void f(float* y);", call="f(y)"),
        )


def test_a_machine_without_a_compiler_runs_python_operators(tmp_path: Path) -> None:
    program = """
import numpy as np, torch, pullback as pb
sine = pb.operator(
    "demo::sine(x[...]) -> y[...]",
    python=lambda x: np.sin(x.numpy()),
    backward={"x": "aten::mul.Tensor(grad, aten::cos(x))"},
)
x = torch.randn(5, dtype=torch.float64, requires_grad=True)
assert torch.autograd.gradcheck(sine, (x,))
"""
    nothing = {"PATH": "/nonexistent", "CXX": "", "CUDACXX": "", "CUDA_HOME": ""}
    cache = str(tmp_path)
    done = python("-W", "ignore", "-c", program, folder=tmp_path, PULLBACK_CACHE=cache, **nothing)
    assert done.returncode == 0, done.stderr


def test_no_warning_is_given_where_the_runtime_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(product()(torch.ones(2), torch.ones(2)), torch.ones(2))
