"""What the operators are: one line each, their kernels, their derivatives."""

import pullback as pb
import torch

# A kernel in C++. Its derivative is a formula, of which the loops and the second derivative follow;
# it names y and not x, so y alone is kept from forward to backward.
softplus = pb.operator(
    "my_operators::softplus(x[...], beta: float = 1.0) -> y[...]",
    cpu=pb.source("softplus.cpp", call="softplus(y, x, beta, numel(x))"),
    backward={"x": "grad * -expm1(-beta * y)"},
    reference=lambda x, beta=1.0: torch.log1p(torch.exp(beta * x)) / beta,
)

# A formula: its kernels, for the CPU and for GPUs, and all derivatives follow.
swish = pb.operator("my_operators::swish(x[...], beta: float = 1.0) -> y[...] = x*sigmoid(beta*x)")
