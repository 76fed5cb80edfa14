"""The Legendre polynomial P₃, with its derivative in C++ too."""

from torch import Tensor

import pullback as pb


def double_backward(grad_grad_x: Tensor, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients for grad and x, of the first and the second derivative."""
    return legendre3_backward(grad_grad_x, x), 15 * grad_grad_x * grad * x


legendre3_backward = pb.operator(
    "examples::legendre3_backward(grad[...], x[...]) -> grad_x[...]",
    cpu=pb.source("legendre3.cpp", call="legendre3_backward(grad_x, grad, x, numel(x))"),
    backward=double_backward,
)
legendre3 = pb.operator(
    "examples::legendre3(x[...]) -> y[...]",
    cpu=pb.source("legendre3.cpp", call="legendre3(y, x, numel(x))"),
    backward="examples::legendre3_backward",
)
