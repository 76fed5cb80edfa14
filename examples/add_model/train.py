"""Train a² + b² to zero: PyTorch squares, your kernel adds. Runs on the GPU if there is one.

Each step multiplies a and b by 1 - 2·0.01, so every 25 epochs the loss shrinks by 0.98⁵⁰ = 0.36417.
"""

import torch
from add2 import add2
from torch import Tensor, nn


class AddModel(nn.Module):
    """A model without input: its parameters are all there is."""

    def __init__(self, n: int = 1024) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(n))
        self.b = nn.Parameter(torch.randn(n))

    def forward(self) -> Tensor:
        return add2(self.a**2, self.b**2)


def train(model: nn.Module, *, epochs: int = 500, every: int = 25) -> dict[int, float]:
    """Minimise the sum of the model's output; return the losses printed, by epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    printed: dict[int, float] = {}
    for epoch in range(epochs):
        loss = model().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % every == 0:
            printed[epoch] = loss.item()
            print(f"epoch {epoch:3d}   loss {loss.item():8.3f}")
    return printed


def main(seed: int = 0) -> dict[int, float]:
    """Train on the device at hand."""
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"training on {device}")
    return train(AddModel().to(device))


if __name__ == "__main__":
    main()
