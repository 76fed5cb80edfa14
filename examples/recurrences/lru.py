"""A linear recurrent unit: h[t] = a*h[t - 1] + sqrt(1 - a²)*x[t], with a decay for each channel.

Source: A. Orvieto et al., "Resurrecting recurrent neural networks for long sequences" (2023), with
real decays.
"""

import torch
from against import compare, minimise
from torch import Tensor

import pullback as pb

lru = pb.operator(
    "recurrences::lru(a[d], x[..., t, d]) -> h[..., t, d] = a*pad(h[t - 1, d]) + sqrt(1 - a*a)*x"
)


def loop(a: Tensor, x: Tensor) -> Tensor:
    """The same as people write it."""
    h, found = torch.zeros_like(x[..., 0, :]), list[Tensor]()
    for each in x.unbind(-2):
        h = a * h + (1 - a * a).sqrt() * each
        found.append(h)
    return torch.stack(found, -2)


def main() -> dict[str, float]:
    """Compare with the loop; learn the decays of a unit from what it did."""
    torch.manual_seed(0)
    x = torch.randn(2, 24, 3, dtype=torch.float64)
    decays = torch.tensor([0.5, 0.8, 0.95], dtype=torch.float64)
    apart = compare(lru, loop, {"a": decays, "x": x})
    wanted = loop(decays, x)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    losses = minimise(
        lambda: (lru(logits.sigmoid(), x) - wanted).square().mean(), [logits], steps=60, lr=0.15
    )
    found = logits.sigmoid().tolist()
    for true, learnt in zip(decays.tolist(), found, strict=True):
        print(f"  decay {true:.2f}, learnt {learnt:.3f}")
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
