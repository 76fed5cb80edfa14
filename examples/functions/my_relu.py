"""Train relu(x w1) w2 on random numbers, with MyReLU as a Function."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function

import pullback as pb

# The Function and the loop are as their tutorial writes them, without annotations.
# ruff: noqa: ANN001, ANN205
# pyright: basic, reportOperatorIssue=false, reportOptionalMemberAccess=false


class MyReLU(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


my_relu = pb.operator("functions::my_relu(input[...]) -> output[...]", function=MyReLU)


def train(relu: Callable[[Tensor], Tensor], seed: int = 0) -> list[float]:
    """Return the losses printed."""
    torch.manual_seed(seed)
    # N is batch size; D_in is input dimension; H is hidden dimension; D_out is output dimension.
    N, D_in, H, D_out = 64, 1000, 100, 10  # noqa: N806  (the tutorial's names)

    x = torch.randn(N, D_in)
    y = torch.randn(N, D_out)
    w1 = torch.randn(D_in, H, requires_grad=True)
    w2 = torch.randn(H, D_out, requires_grad=True)

    learning_rate = 1e-6
    losses = []
    for t in range(500):
        y_pred = relu(x.mm(w1)).mm(w2)

        loss = (y_pred - y).pow(2).sum()
        if t % 100 == 99:
            losses.append(loss.item())
            print(t, loss.item())

        loss.backward()

        with torch.no_grad():
            w1 -= learning_rate * w1.grad
            w2 -= learning_rate * w2.grad

            # Zero the gradients after updating the weights.
            w1.grad.zero_()
            w2.grad.zero_()
    return losses


def main() -> list[float]:
    """Train with the operator."""
    return train(my_relu)


if __name__ == "__main__":
    main()
