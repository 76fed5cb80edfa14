"""Train relu(x w1) w2 on random numbers: with MyReLU, and with PyTorch's from the same seed.

The two part in the last digits. Where the input is exactly 0, which happens in float32, MyReLU lets
the gradient through, as `torch.clamp` does, and `torch.relu` does not; in float64 they are equal.
"""

from collections.abc import Callable

import torch
from my_relu import my_relu
from torch import Tensor


def train(
    relu: Callable[[Tensor], Tensor],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    steps: int = 500,
    every: int = 100,
) -> list[float]:
    """Return the losses of every hundredth step."""
    torch.manual_seed(seed)
    x, y = torch.randn(64, 1000, dtype=dtype), torch.randn(64, 10, dtype=dtype)
    w1 = torch.randn(1000, 100, dtype=dtype, requires_grad=True)
    w2 = torch.randn(100, 10, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.SGD([w1, w2], lr=1e-6)
    losses: list[float] = []
    for step in range(steps):
        loss = (relu(x @ w1) @ w2 - y).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == every - 1:
            losses.append(loss.item())
    return losses


def main(seed: int = 0) -> dict[str, list[float]]:
    """Train both networks and print them side by side."""
    figures = {"my_relu": train(my_relu, seed=seed), "torch.relu": train(torch.relu, seed=seed)}
    print("step      my_relu   torch.relu")
    for index, (ours, theirs) in enumerate(zip(*figures.values(), strict=True)):
        print(f"{100 * index + 99:4d} {ours:12.6g} {theirs:12.6g}")
    return figures


if __name__ == "__main__":
    main()
