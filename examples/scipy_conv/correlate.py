"""SciPy's `correlate2d` as an operator, its backward in SciPy too; and the one that is wrong.

The wrong backward circulates in a tutorial whose author never verified it. Its shapes are right, so
a network trains with it, to somewhere else.
"""

from collections.abc import Callable

import numpy as np
import torch
from scipy.signal import convolve2d, correlate2d
from torch import Tensor, nn
from torch.autograd import gradcheck

import pullback as pb

Arrays = tuple[np.ndarray, np.ndarray]


def correlate_backward_in_scipy(grad: Tensor, x: Tensor, k: Tensor) -> Arrays:
    """Return the gradients for x and k."""
    return (
        convolve2d(grad.numpy(), k.numpy(), mode="full"),
        correlate2d(x.numpy(), grad.numpy(), mode="valid"),
    )


def circulating_backward_in_scipy(grad: Tensor, x: Tensor, k: Tensor) -> Arrays:
    """Return what circulates: k transposed where it is not, a flip where none belongs."""
    return (
        convolve2d(grad.numpy(), k.T.numpy(), mode="full"),
        convolve2d(x.numpy(), grad.numpy(), mode="valid"),
    )


def correlate_in_scipy(x: Tensor, k: Tensor) -> np.ndarray:
    """Slide k over x."""
    return correlate2d(x.numpy(), k.numpy(), mode="valid")


def double_backward(
    grad_grad_x: Tensor, grad_grad_k: Tensor, grad: Tensor, x: Tensor, k: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for grad, x and k: the same two operators once more."""
    grad_x, grad_k = correlate_backward(grad, grad_grad_x, grad_grad_k)
    return correlate(grad_grad_x, k) + correlate(x, grad_grad_k), grad_x, grad_k


correlate_backward = pb.operator(
    "examples::correlate_backward(grad[r, s], x[h, w], k[p, q]) -> (grad_x[h, w], grad_k[p, q])",
    python=correlate_backward_in_scipy,
    backward=double_backward,
)
correlate = pb.operator(
    "examples::correlate(x[h, w], k[p, q]) -> y[h - p + 1, w - q + 1]",
    python=correlate_in_scipy,
    backward="examples::correlate_backward",
)

circulating_backward = pb.operator(
    "examples::circulating_backward(grad[r, s], x[h, w], k[p, q]) -> (grad_x[h, w], grad_k[p, q])",
    python=circulating_backward_in_scipy,
)
circulating = pb.operator(
    "examples::circulating(x[h, w], k[p, q]) -> y[h - p + 1, w - q + 1]",
    python=correlate_in_scipy,
    backward="examples::circulating_backward",
)


class ScipyConv2d(nn.Module):
    """One trainable filter."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(height, width))

    def forward(self, x: Tensor) -> Tensor:
        return correlate(x, self.filter)


def agrees(function: Callable[[Tensor], Tensor], at: Tensor) -> bool:
    """Return whether a function's gradient is what finite differences say."""
    return gradcheck(function, (at.clone().requires_grad_(),), raise_exception=False)


def judge(operator: pb.Operator, x: Tensor, k: Tensor) -> dict[str, bool]:
    """Say of each gradient whether it is right."""
    return {
        "x": agrees(lambda x: operator(x, k), x),
        "k": agrees(lambda k: operator(x, k), k),
    }


def main(seed: int = 0) -> dict[str, dict[str, bool]]:
    """Filter a 10 x 10 image, then judge both backwards."""
    torch.manual_seed(seed)
    module = ScipyConv2d(3, 3)
    x = torch.randn(10, 10, requires_grad=True)
    y = module(x)
    y.backward(torch.randn_like(y))
    print(f"image {tuple(x.shape)}, filter {tuple(module.filter.shape)}, output {tuple(y.shape)}")
    print(f"gradient of the filter:\n{module.filter.grad}\n")

    inputs = torch.randn(10, 10, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    figures = {
        "correlate": judge(correlate, *inputs),
        "circulating": judge(circulating, *inputs),
    }
    for name, verdicts in figures.items():
        for tensor, right in verdicts.items():
            print(f"{name:12} gradient of {tensor}: {'right' if right else 'WRONG'}")
    return figures


if __name__ == "__main__":
    main()
