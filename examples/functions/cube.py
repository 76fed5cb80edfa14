"""x³ with the 3x² that its backward needs as a second output, so that double backward is right."""

import torch
from torch import Tensor
from torch.autograd import Function

import pullback as pb

# The Function is as its tutorial writes it, without annotations.
# ruff: noqa: ANN001, ANN205
# pyright: basic


class MyCube(Function):
    @staticmethod
    def forward(x):
        # We wish to save dx for backward. In order to do so, it must be returned as an output.
        dx = 3 * x**2
        result = x**3
        return result, dx

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        _result, dx = output
        ctx.save_for_backward(x, dx)

    @staticmethod
    def backward(ctx, grad_output, grad_dx):
        x, dx = ctx.saved_tensors
        # For higher-order gradients, we must add the gradient contribution of dx.
        return grad_output * dx + grad_dx * 6 * x


cube_operator = pb.operator("functions::cube(x[...]) -> (result[...], dx[...])", function=MyCube)


def my_cube(x: Tensor) -> Tensor:
    """Wrap MyCube, so that it is clearer what the output is."""
    result, _dx = cube_operator(x)
    return result


def main() -> dict[str, list[float]]:
    """Differentiate x³ at 1, 2, 3 until nothing is left."""
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    value = my_cube(x)
    figures = {"x³": value.tolist()}
    for name in ("3x²", "6x", "6"):
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        figures[name] = value.tolist()
    for name, values in figures.items():
        print(f"{name:4}{values}")
    return figures


if __name__ == "__main__":
    main()
