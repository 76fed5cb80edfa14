"""Learn 2x₀ + 3x₁ + 4 with a linear layer whose Function has a `symbolic`, then evaluate at (3, 2).

pullback keeps the Function, and with it the `symbolic` that says how it is exported.
"""

import math

import torch
from torch import Tensor, nn
from torch.autograd import Function, gradcheck

import pullback as pb

# The Function is as its tutorial writes it, without annotations.
# ruff: noqa: ANN001, ANN205
# pyright: basic


class LinearF(Function):
    @staticmethod
    def forward(ctx, input, weight, bias):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, _bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias

    @staticmethod
    def symbolic(g, input, weight, bias):
        return g.op("MYLINEAR", input, weight, bias)


linear_f = pb.operator(
    "functions::linear_f(input[n, i], weight[o, i], bias[o]) -> output[n, o]", function=LinearF
)


class MyLinear(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=torch.float64))
        self.bias = nn.Parameter(torch.empty(out_features, dtype=torch.float64))
        bound = 1 / math.sqrt(in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return linear_f(input, self.weight, self.bias)


def check() -> bool:
    """Check the gradients against finite differences, before any training."""
    shapes = ((5, 2), (1, 2), (1,))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    return gradcheck(linear_f, inputs)


def train(model: nn.Module) -> list[float]:
    """Return the loss of every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    criterion = nn.MSELoss()
    losses = []
    for _ in range(300):
        x = torch.rand(1, 2, dtype=torch.float64)
        target = 2 * x[:, :1] + 3 * x[:, 1:] + 4

        optimizer.zero_grad()
        loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(seed: int = 0) -> dict[str, float]:
    """Check, train, evaluate; return the figures printed."""
    torch.manual_seed(seed)
    print("gradcheck:", check())
    model = MyLinear(2, 1)
    losses = train(model)
    at = torch.tensor([[3.0, 2.0]], dtype=torch.float64)
    figures = {"first loss": losses[0], "last loss": losses[-1], "y(3, 2)": model(at).item()}
    for name, value in figures.items():
        print(f"{name:10} {value:10.6f}")
    return figures


if __name__ == "__main__":
    main()
