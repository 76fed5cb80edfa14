"""MyReLU: clamps at 0, and masks the gradient where the input is negative."""

import pullback as pb

my_relu_backward = pb.operator(
    "examples::my_relu_backward(grad[...], x[...]) -> grad_x[...]",
    cpu=pb.source("my_relu.cpp", call="my_relu_backward(grad_x, grad, x, numel(x))"),
    backward={"grad": "examples::my_relu_backward(grad_grad_x, x)", "x": None},
)
my_relu = pb.operator(
    "examples::my_relu(x[...]) -> y[...]",
    cpu=pb.source("my_relu.cpp", call="my_relu(y, x, numel(x))"),
    backward="examples::my_relu_backward",
)
