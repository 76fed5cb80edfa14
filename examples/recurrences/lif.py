"""A leaky integrate-and-fire neuron, trained by a surrogate gradient.

A spike is 0 or 1, whose derivative is 0. `soft + stop(hard - soft)` has the value of the spike and
the derivative of a sigmoid. Source: E. Neftci et al., "Surrogate gradient learning in spiking
neural networks" (2019).
"""

import torch
from against import compare, minimise
from torch import Tensor
from torch.nn import functional

import pullback as pb

lif = pb.operator(
    "recurrences::lif(i[..., t, n], r[n]) -> (s[..., t, n], v[..., t, n]) ="
    " v = r*pad(v[t - 1, n]) + i - pad(s[t - 1, n]); soft = sigmoid(5*(v - 1));"
    " s = soft + stop(float(v > 1) - soft)"
)


def loop(i: Tensor, r: Tensor) -> Tensor:
    """The same with `detach`."""
    v = s = torch.zeros_like(i[..., 0, :])
    spikes = list[Tensor]()
    for each in i.unbind(-2):
        v = r * v + each - s
        soft = torch.sigmoid(5 * (v - 1))
        s = soft + ((v > 1).to(v.dtype) - soft).detach()
        spikes.append(s)
    return torch.stack(spikes, -2)


def main() -> dict[str, float]:
    """Compare with the loop; learn in which order two inputs fire, from their spikes."""
    torch.manual_seed(0)
    current = torch.randn(2, 12, 3, dtype=torch.float64) + 0.5
    decay = torch.tensor([0.5, 0.8, 0.9], dtype=torch.float64)
    apart = compare(lambda i, r: lif(i, r)[0], loop, {"i": current, "r": decay})
    # Two inputs fire once each; the class is which one was first.
    order = torch.stack([torch.randperm(16)[:2] for _ in range(64)])
    spikes = functional.one_hot(order, 16).float().transpose(1, 2)
    wanted = (order[:, 0] < order[:, 1]).long()
    first = (torch.randn(2, 24) + 0.3).requires_grad_()
    last = (torch.randn(24, 2) / 5).requires_grad_()
    leak = torch.full((24,), 2.0, requires_grad=True)

    def loss() -> Tensor:
        fired, _ = lif(spikes @ first, leak.sigmoid())
        return functional.cross_entropy(fired.sum(1) @ last, wanted)

    losses = minimise(loss, [first, last, leak], steps=60, lr=0.05)
    fired, _ = lif(spikes @ first, leak.sigmoid())
    right = ((fired.sum(1) @ last).argmax(1) == wanted).float().mean().item()
    print(f"  {100 * right:.0f} % right; 24 neurons fired {int(fired[0].sum())} times, row 0:")
    for neuron in fired[0].T[:4]:
        print("   ", "".join(".|"[int(s > 0.5)] for s in neuron))
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
