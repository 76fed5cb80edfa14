"""T7: SciPy in forward and backward, and the backward that circulates, which is wrong.

Its author never verified it. The filter is transposed where it should not be (`convolve2d` turns it
by itself), and the filter's gradient is a convolution where it should be a correlation.
"""

import numpy as np
import torch
from scipy.signal import convolve2d, correlate2d
from torch import Tensor

import pullback as pb

LINE = "input[h, w], filter[p, q]"
BACKWARD = f"grad[i, j], {LINE}) -> (grad_input[h, w], grad_filter[p, q])"


def correlate(input: Tensor, filter: Tensor) -> np.ndarray:
    """Return the valid part of the correlation."""
    return correlate2d(input.numpy(), filter.numpy(), mode="valid")


def pull(grad: Tensor, input: Tensor, filter: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients."""
    return (
        convolve2d(grad.numpy(), filter.numpy(), mode="full"),
        correlate2d(input.numpy(), grad.numpy(), mode="valid"),
    )


def pull_wrongly(grad: Tensor, input: Tensor, filter: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients as they circulate."""
    return (
        convolve2d(grad.numpy(), filter.numpy().T, mode="full"),
        convolve2d(input.numpy(), grad.numpy(), mode="valid"),
    )


pb.operator(f"examples::scipy_conv2d_backward({BACKWARD}", python=pull)
scipy_conv2d = pb.operator(
    f"examples::scipy_conv2d({LINE}) -> output[h - p + 1, w - q + 1]",
    python=correlate,
    backward="examples::scipy_conv2d_backward",
)

pb.operator(f"examples::circulating_conv2d_backward({BACKWARD}", python=pull_wrongly)
circulating_conv2d = pb.operator(
    f"examples::circulating_conv2d({LINE}) -> output[h - p + 1, w - q + 1]",
    python=correlate,
    backward="examples::circulating_conv2d_backward",
)


class ScipyConv2d(torch.nn.Module):
    """One trainable filter."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.filter = torch.nn.Parameter(torch.randn(height, width))

    def forward(self, input: Tensor) -> Tensor:
        return scipy_conv2d(input, self.filter)


def main() -> tuple[bool, bool]:
    """Check both backwards; return whether the right one passes and the wrong one does."""
    module = ScipyConv2d(3, 3)
    print(f"10x10 with 3x3 gives {tuple(module(torch.randn(10, 10)).shape)}")
    inputs = tuple(
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((10, 10), (3, 3))
    )
    right, wrong = (
        torch.autograd.gradcheck(operator, inputs, raise_exception=False)
        for operator in (scipy_conv2d, circulating_conv2d)
    )
    print(f"the right backward passes: {right}; the circulating one: {wrong}")
    return right, wrong


if __name__ == "__main__":
    main()
