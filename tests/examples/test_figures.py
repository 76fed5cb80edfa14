"""Every example prints the figures of its tutorial."""

from __future__ import annotations

import runpy
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*/*.py"))

pytestmark = [
    pytest.mark.compiler,
    # Two examples share the operators of linear/, and each run defines them.
    pytest.mark.filterwarnings("ignore::pullback.bind.register.RedefinitionNotice"),
]


def example(name: str) -> dict[str, Any]:
    """Return the names of an example's file, run as an import."""
    sys.modules.pop("linear.linear", None)
    return runpy.run_path(str(EXAMPLES / name))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_runs_as_it_stands(
    path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    sys.modules.pop("linear.linear", None)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_t1_the_loss_shrinks_by_the_same_factor_in_every_25_epochs(seed: int) -> None:
    losses = example("add_model/train.py")["main"]()
    # A step multiplies both parameters by 1 - 2·0.01; 25 steps, squared.
    ratios = [later / earlier for earlier, later in pairwise(losses)]
    assert ratios == pytest.approx([0.98**50] * 19, rel=1e-5)


def test_t1_prints_the_tutorials_figures_from_its_first_loss(seed: int) -> None:
    losses = example("add_model/train.py")["main"]()
    tutorial = [1996.658, 727.122, 264.796, 96.431, 35.117, 12.789, 4.657, 1.696, 0.618]
    tutorial += [0.225, 0.082, 0.030, 0.011, 0.004]
    # The first depends on the draw alone, and all others on the first.
    scaled = [loss * tutorial[0] / losses[0] for loss in losses[: len(tutorial)]]
    assert scaled == pytest.approx(tutorial, abs=0.0005, rel=1e-5)


def test_t2_the_gradients_are_9a2_and_minus_2b() -> None:
    assert example("gradients/gradients.py")["main"]() == ([36.0, 81.0], [-12.0, -8.0])


def test_t3_the_gradients_pass_with_and_without_bias(seed: int) -> None:
    assert example("linear/linear.py")["main"]()


def test_t3_the_module_trains_as_pytorchs_own(seed: int) -> None:
    names = example("linear/linear.py")
    ours = names["Linear"](5, 3)
    theirs = torch.nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(7, 5)
    for module in (ours, theirs):
        module(x).square().sum().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad, rtol=1e-5, atol=1e-5)
    assert names["Linear"](5, 3, bias=False)(x).shape == (7, 3)


def test_t4_the_gradient_is_the_constant() -> None:
    assert example("mul_constant/mul_constant.py")["main"]() == [5.0, 5.0]


def test_t5_second_derivatives_are_right(seed: int) -> None:
    names = example("cube/cube.py")
    assert names["main"]()
    x = torch.tensor([2.0], requires_grad=True)
    (first,) = torch.autograd.grad(names["cube"](x), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert (first.item(), second.item()) == (12.0, 12.0)


def test_t6_reproduces_every_printed_loss_and_the_coefficients() -> None:
    losses, found = example("legendre/train.py")["main"]()
    tutorial = [209.958, 144.660, 100.702, 71.035, 50.979, 37.403, 28.207, 21.973, 17.746, 14.878]
    tutorial += [12.932, 11.611, 10.714, 10.105, 9.692, 9.411, 9.221, 9.091, 9.003, 8.944]
    # Half a unit of the last digit printed, and what float32 sums in another order may differ by.
    assert losses == pytest.approx(tutorial, abs=0.0005, rel=1e-5)
    a, b, c, d = found
    assert (b, d) == pytest.approx((-2.2085268, 0.2554861), rel=1e-6)
    assert abs(a) < 1e-7
    assert abs(c) < 1e-7


def test_t7_the_right_backward_passes_and_the_circulating_one_does_not(seed: int) -> None:
    assert example("scipy_conv/scipy_conv.py")["main"]() == (True, False)


def test_t8_the_graph_names_operators_lines_and_what_is_saved() -> None:
    text = example("module_graph/module_graph.py")["main"]()
    assert text.count("examples::linear (pullback)") == 2
    assert "module_graph.py:28 in forward: return self.out(hidden).mean()" in text
    assert "saved weight (4, 3) float32, 48 B, the memory of hidden.weight" in text
    assert "hidden.bias: parameter (4,) float32" in text


class MyReLU(torch.autograd.Function):
    """As the tutorial writes it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        gradient = grads[0].clone()
        gradient[x < 0] = 0
        return gradient


def test_t9_trains_bit_for_bit_as_the_tutorials_function() -> None:
    main = example("relu_network/train.py")["main"]
    assert main() == main(MyReLU.apply)


def test_t10_trains_as_with_pytorchs_linear() -> None:
    main = example("linear_train/train.py")["main"]
    losses, value = main()
    expected_losses, expected = main(torch.nn.functional.linear)
    # Float64 throughout: only the order of two-term sums differs.
    assert losses == pytest.approx(expected_losses, rel=1e-9, abs=1e-12)
    assert value == pytest.approx(expected, rel=1e-10)
    assert value == pytest.approx(16, abs=0.2)


def test_a_cuda_kernel_of_an_example_is_chosen_by_the_device(seed: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    add2 = example("add_model/train.py")["add2"]
    a, b = (torch.randn(5000, device="cuda") for _ in range(2))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        total: Tensor = add2(a, b)
    stream.synchronize()
    assert torch.equal(total, a + b)
