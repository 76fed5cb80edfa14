"""Fit y = a + b P₃(c + d x) to sin(x) from -π to π, by plain gradient descent."""

import math

import torch
from legendre3 import legendre3
from torch import Tensor, nn


class Fit(nn.Module):
    """y = a + b P₃(c + d x)."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.0))
        self.b = nn.Parameter(torch.tensor(-1.0))
        self.c = nn.Parameter(torch.tensor(0.0))
        self.d = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.a + self.b * legendre3(self.c + self.d * x)


def train(fit: nn.Module, *, steps: int = 2000, every: int = 100) -> list[float]:
    """Minimise the sum of squares on 2000 points; return the losses printed."""
    like = next(fit.parameters())
    x = torch.linspace(-math.pi, math.pi, 2000, dtype=like.dtype, device=like.device)
    y = torch.sin(x)
    optimizer = torch.optim.SGD(fit.parameters(), lr=5e-6)
    printed: list[float] = []
    for step in range(steps):
        loss = (fit(x) - y).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == every - 1:
            printed.append(loss.item())
            print(f"step {step:4d}   loss {loss.item():8.3f}")
    return printed


def main() -> tuple[list[float], dict[str, float]]:
    """Return the losses printed and the parameters found."""
    fit = Fit()
    losses = train(fit)
    found = {name: parameter.item() for name, parameter in fit.named_parameters()}
    a, b, c, d = (f"{value:.8g}" for value in found.values())
    print(f"y = {a} + {b} P₃({c} + {d} x)")
    return losses, found


if __name__ == "__main__":
    main()
