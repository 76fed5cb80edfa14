"""y = x Wᵀ (+ b), with a backward that computes only the gradients that are needed."""

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

import pullback as pb


def double_backward(  # noqa: PLR0913, PLR0917  (what arrives and the inputs, each by its name)
    grad_grad_input: Tensor,
    grad_grad_weight: Tensor,
    grad_grad_bias: Tensor | None,
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for grad, input and weight: the same two operators once more."""
    of_input = linear_operator(grad_grad_input, weight)
    of_weight_and_bias = linear_operator(input, grad_grad_weight, grad_grad_bias)
    grad_input, grad_weight, _ = linear_backward(grad, grad_grad_input, grad_grad_weight)
    return of_input + of_weight_and_bias, grad_input, grad_weight


linear_backward = pb.operator(
    "examples::linear_backward(grad[n, o], input[n, i], weight[o, i])"
    " -> (grad_input[n, i], grad_weight[o, i], grad_bias[o])",
    cpu=pb.source(
        "linear.cpp",
        call="linear_backward(grad_input, grad_weight, grad_bias, grad, input, weight, n, i, o)",
    ),
    backward=double_backward,
)
linear_operator = pb.operator(
    "examples::linear(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
    cpu=pb.source("linear.cpp", call="linear(output, input, weight, bias, n, i, o)"),
    backward="examples::linear_backward",
)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input · weightᵀ + bias, of shape (n, o)."""
    return linear_operator(input, weight, bias)


class Linear(nn.Module):
    """The same as a layer, with parameters drawn uniformly from ±0.1."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-0.1, 0.1))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-0.1, 0.1)) if bias else None

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def main(seed: int = 0) -> dict[str, bool]:
    """Check the gradients against finite differences, with a bias and without."""
    torch.manual_seed(seed)
    x = torch.randn(20, 20, dtype=torch.float64, requires_grad=True)
    w = torch.randn(30, 20, dtype=torch.float64, requires_grad=True)
    b = torch.randn(30, dtype=torch.float64, requires_grad=True)
    layer = Linear(20, 30).double()
    small = [tensor[:3, :3].detach().requires_grad_() for tensor in (x, w)]
    figures = {
        "function": gradcheck(linear, (x, w)),
        "function with a bias": gradcheck(linear, (x, w, b)),
        "module": gradcheck(layer, (x,)),
        "second derivatives": gradgradcheck(linear, small),
    }
    for name, right in figures.items():
        print(f"gradients of the {name}: {'right' if right else 'WRONG'}")
    return figures


if __name__ == "__main__":
    main()
