"""SciPy's `correlate2d` in a Function with a trainable filter; and the backward that is wrong.

The wrong backward circulates: its shapes are right, so a network trains with it, to somewhere else.
"""

from collections.abc import Callable

import torch
from scipy.signal import convolve2d, correlate2d
from torch import Tensor, nn
from torch.autograd import Function, gradcheck

import pullback as pb

# The Functions are as their tutorial writes them, without annotations.
# ruff: noqa: ANN001, ANN205
# pyright: basic


class ScipyConv2dFunction(Function):
    @staticmethod
    def forward(ctx, input, filter):
        # detach so we can cast to NumPy
        input, filter = input.detach(), filter.detach()
        result = correlate2d(input.numpy(), filter.numpy(), mode="valid")
        ctx.save_for_backward(input, filter)
        return torch.as_tensor(result, dtype=input.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.detach()
        input, filter = ctx.saved_tensors
        grad_input = convolve2d(grad_output.numpy(), filter.numpy(), mode="full")
        grad_filter = correlate2d(input.numpy(), grad_output.numpy(), mode="valid")
        return grad_output.new_tensor(grad_input), grad_output.new_tensor(grad_filter)


class CirculatingFunction(ScipyConv2dFunction):
    """The backward that its author never verified."""

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.detach()
        input, filter = ctx.saved_tensors
        grad_input = convolve2d(grad_output.numpy(), filter.t().numpy(), mode="full")
        grad_filter = convolve2d(input.numpy(), grad_output.numpy(), mode="valid")
        return grad_output.new_tensor(grad_input), grad_output.new_tensor(grad_filter)


scipy_conv = pb.operator(
    "functions::scipy_conv(input[h, w], filter[p, q]) -> output[h - p + 1, w - q + 1]",
    function=ScipyConv2dFunction,
)
circulating = pb.operator(
    "functions::circulating(input[h, w], filter[p, q]) -> output[h - p + 1, w - q + 1]",
    function=CirculatingFunction,
)


class ScipyConv2d(nn.Module):
    def __init__(self, filter_width: int, filter_height: int) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(filter_width, filter_height))

    def forward(self, input: Tensor) -> Tensor:
        return scipy_conv(input, self.filter)


def agrees(function: Callable[[Tensor], Tensor], at: Tensor) -> bool:
    """Return whether a function's gradient is what finite differences say."""
    return gradcheck(function, (at.clone().requires_grad_(),), raise_exception=False)


def main(seed: int = 0) -> dict[str, dict[str, bool]]:
    """Filter a 10 x 10 image, then judge both backwards."""
    torch.manual_seed(seed)
    module = ScipyConv2d(3, 3)
    input = torch.randn(10, 10, requires_grad=True)
    output = module(input)
    output.backward(torch.randn(8, 8))
    print("Filter and output from the module:", list(module.parameters()), output)
    print("Gradient of the filter:", module.filter.grad)

    image, kernel = torch.randn(10, 10, dtype=torch.double), torch.randn(3, 3, dtype=torch.double)
    figures = {}
    for name, conv in (("right", scipy_conv), ("circulating", circulating)):
        figures[name] = {
            "input": agrees(lambda image, conv=conv: conv(image, kernel), image),
            "filter": agrees(lambda kernel, conv=conv: conv(image, kernel), kernel),
        }
        print(f"Are the gradients of the {name} backward correct: {figures[name]}")
    return figures


if __name__ == "__main__":
    main()
