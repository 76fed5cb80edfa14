"""Learn 2x₀ + 3x₁ + 4 from one random point a step, then evaluate at (3, 2)."""

import torch
from my_linear import MyLinear, linear_f
from torch import Tensor, nn
from torch.autograd import gradcheck


def check() -> bool:
    """Check the gradients against finite differences, before any training."""
    shapes = ((5, 2), (1, 2), (1,))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    return gradcheck(linear_f, inputs)


def target(x: Tensor) -> Tensor:
    """Return 2x₀ + 3x₁ + 4, of shape (n, 1)."""
    return 2 * x[:, :1] + 3 * x[:, 1:] + 4


def train(model: nn.Module, *, steps: int = 300) -> list[float]:
    """Return the loss of every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    loss_of = nn.MSELoss()
    losses: list[float] = []
    for _ in range(steps):
        x = torch.rand(1, 2, dtype=torch.float64)
        loss = loss_of(model(x), target(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(seed: int = 0) -> dict[str, float]:
    """Check, train, evaluate; return the figures printed."""
    torch.manual_seed(seed)
    print(f"gradients: {'right' if check() else 'WRONG'}")
    model = MyLinear(2, 1)
    losses = train(model)
    x = torch.tensor([[3.0, 2.0]], dtype=torch.float64)
    figures = {
        "first loss": losses[0],
        "last loss": losses[-1],
        "w0": model.weight[0, 0].item(),
        "w1": model.weight[0, 1].item(),
        "bias": model.bias.item(),
        "y(3, 2)": model(x).item(),
        "wanted": target(x).item(),
    }
    for name, value in figures.items():
        print(f"{name:10} {value:10.6f}")
    return figures


if __name__ == "__main__":
    main()
