"""An operator whose derivative is an operator too, and a model that fits it to data."""

import torch

import pullback as pb

legendre3_backward = pb.operator(
    "tour::legendre3_backward(grad[...], x[...]) -> grad_x[...]",
    cpu=pb.source("legendre3.cpp", call="legendre3_backward(grad_x, grad, x, numel(x))"),
)
legendre3 = pb.operator(
    "tour::legendre3(x[...]) -> y[...]",
    cpu=pb.source("legendre3.cpp", call="legendre3(y, x, numel(x))"),
    backward="tour::legendre3_backward",
)


class Fit(torch.nn.Module):
    """y = a + b P₃(c + d x)."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.0))
        self.b = torch.nn.Parameter(torch.tensor(-1.0))
        self.c = torch.nn.Parameter(torch.tensor(0.0))
        self.d = torch.nn.Parameter(torch.tensor(0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the fit's values, shaped like x."""
        return self.a + self.b * legendre3(self.c + self.d * x)
