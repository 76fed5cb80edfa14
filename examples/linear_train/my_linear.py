"""MyLinear: the kernels of ../linear, under a line of its own that demands a bias."""

import torch
from torch import Tensor, nn

import pullback as pb

linear_f_backward = pb.operator(
    "examples::linear_f_backward(grad[n, o], x[n, i], weight[o, i])"
    " -> (grad_x[n, i], grad_weight[o, i], grad_bias[o])",
    cpu=pb.source(
        "../linear/linear.cpp",
        call="linear_backward(grad_x, grad_weight, grad_bias, grad, x, weight, n, i, o)",
    ),
)
linear_f = pb.operator(
    "examples::linear_f(x[n, i], weight[o, i], bias[o]) -> y[n, o]",
    cpu=pb.source("../linear/linear.cpp", call="linear(y, x, weight, bias, n, i, o)"),
    backward="examples::linear_f_backward",
)


class MyLinear(nn.Module):
    """A layer in float64, its parameters drawn uniformly from ±1/√inputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=torch.float64))
        self.bias = nn.Parameter(torch.empty(outputs, dtype=torch.float64))
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return linear_f(x, self.weight, self.bias)
