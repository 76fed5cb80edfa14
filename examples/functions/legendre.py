"""Fit y = a + b P₃(c + d x) to sin(x), with P₃ and its derivative in a Function."""

import math

import torch
from torch.autograd import Function

import pullback as pb

# The Function and the loop are as their tutorial writes them, without annotations.
# ruff: noqa: ANN001, ANN205
# pyright: basic, reportOperatorIssue=false


class LegendrePolynomial3(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


P3 = pb.operator("functions::legendre3(input[...]) -> output[...]", function=LegendrePolynomial3)


def main(dtype: torch.dtype = torch.float) -> tuple[list[float], dict[str, float]]:
    """Return the losses printed and the parameters found."""
    x = torch.linspace(-math.pi, math.pi, 2000, dtype=dtype)
    y = torch.sin(x)

    # The weights should not be too far from the right ones, or the training does not converge.
    a = torch.full((), 0.0, dtype=dtype, requires_grad=True)
    b = torch.full((), -1.0, dtype=dtype, requires_grad=True)
    c = torch.full((), 0.0, dtype=dtype, requires_grad=True)
    d = torch.full((), 0.3, dtype=dtype, requires_grad=True)

    learning_rate = 5e-6
    losses = []
    for t in range(2000):
        y_pred = a + b * P3(c + d * x)

        loss = (y_pred - y).pow(2).sum()
        if t % 100 == 99:
            losses.append(loss.item())
            print(t, loss.item())

        loss.backward()

        with torch.no_grad():
            a -= learning_rate * a.grad
            b -= learning_rate * b.grad
            c -= learning_rate * c.grad
            d -= learning_rate * d.grad

            # Zero the gradients after updating the weights.
            a.grad = None
            b.grad = None
            c.grad = None
            d.grad = None

    print(f"Result: y = {a.item()} + {b.item()} * P3({c.item()} + {d.item()} x)")
    return losses, {"a": a.item(), "b": b.item(), "c": c.item(), "d": d.item()}


if __name__ == "__main__":
    main()
