"""x³ with the 3x² that its backward needs: saved, so it has to be an output to be differentiated.

A value that is computed in the forward and saved for the backward depends on the input. Autograd
only knows that if it is an output; kept aside, double backward would miss a term.
"""

import torch
from torch import Tensor

import pullback as pb


def cube_backward(grad_y: Tensor | None, grad_dx: Tensor | None, x: Tensor, dx: Tensor) -> Tensor:
    """Return the gradient for x, of those outputs that were used."""
    gradient = torch.zeros_like(x) if grad_y is None else grad_y * dx
    return gradient if grad_dx is None else gradient + grad_dx * 6 * x


cube_operator = pb.operator(
    "examples::cube(x[...]) -> (y[...], dx[...])",
    cpu=pb.source("cube.cpp", call="cube(y, dx, x, numel(x))"),
    backward=cube_backward,
)


def cube(x: Tensor) -> Tensor:
    """Return x³ alone."""
    return cube_operator(x)[0]


def main() -> dict[str, list[float]]:
    """Differentiate x³ at 1, 2, 3 until nothing is left."""
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    value = cube(x)
    figures = {"x³": value.tolist()}
    for name in ("3x²", "6x", "6"):
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        figures[name] = value.tolist()
    for name, values in figures.items():
        print(f"{name:4}{values}")
    return figures


if __name__ == "__main__":
    main()
