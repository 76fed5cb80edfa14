"""Generalized advantage estimation, which runs backwards in time.

Source: J. Schulman et al., "High-dimensional continuous control using generalized advantage
estimation" (2016). The task is the random walk of R. Sutton and A. Barto, "Reinforcement Learning"
(2018), example 6.2: the value of state s of n is (s + 1)/(n + 1).
"""

import torch
from against import compare
from torch import Tensor

import pullback as pb

# `v` is what comes next: the value of the next time, and after the last one that of `end`.
gae = pb.operator(
    "recurrences::gae(reward[..., t], value[..., t], end[...], going[..., t], g: float, lam: float)"
    " -> a[..., t] = v = where(t == size(t) - 1, end, pad(value[..., t + 1]));"
    " a = reward + g*going*v - value + g*lam*going*pad(a[..., t + 1])"
)


def loop(  # noqa: PLR0913, PLR0917  (the operator's parameters)
    reward: Tensor, value: Tensor, end: Tensor, going: Tensor, g: float, lam: float
) -> Tensor:
    """The loop that programs for reinforcement learning have."""
    following, a, found = end, torch.zeros_like(end), list[Tensor]()
    for t in range(reward.shape[-1] - 1, -1, -1):
        delta = reward[..., t] + g * going[..., t] * following - value[..., t]
        a = delta + g * lam * going[..., t] * a
        following = value[..., t]
        found.insert(0, a)
    return torch.stack(found, -1)


def walk(states: int, steps: int, walkers: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return where random walkers are at each time, what they get, and whether they go on."""
    place = torch.full((walkers,), states // 2)
    places, rewards, going = [place], list[Tensor](), list[Tensor]()
    for _ in range(steps):
        place = place + torch.randint(0, 2, (walkers,)) * 2 - 1
        rewards.append((place == states).double())
        going.append(((place >= 0) & (place < states)).double())
        place = torch.where(going[-1] > 0, place, states // 2)
        places.append(place)
    return torch.stack(places, 1), torch.stack(rewards, 1), torch.stack(going, 1)


def main() -> dict[str, float]:
    """Compare with the loop; learn the values of a random walk's states."""
    torch.manual_seed(0)
    tensors = {n: torch.randn(3, 12, dtype=torch.float64) for n in ("reward", "value", "going")}
    tensors["going"] = (tensors["going"] > -1).double()
    ordered = {n: tensors[n] for n in ("reward", "value")}
    ordered |= {"end": torch.randn(3, dtype=torch.float64), "going": tensors["going"]}
    apart = compare(lambda *t: gae(*t, 0.9, 0.8), lambda *t: loop(*t, g=0.9, lam=0.8), ordered)
    states = 5
    wanted = torch.arange(1, states + 1) / (states + 1.0)
    table, off = torch.full((states,), 0.5, dtype=torch.float64), list[float]()
    for k in range(40):
        places, reward, going = walk(states, 24, 64)
        values = table[places]
        a = gae(reward, values[:, :-1], values[:, -1], going, 1.0, 0.9)
        # Each state moves towards the mean of what its visits promised.
        visits = torch.bincount(places[:, :-1].flatten(), minlength=states)
        table = table.index_add(
            0,
            places[:, :-1].flatten(),
            a.flatten() * (0.9 if k < 10 else 0.1) / visits[places[:, :-1]].flatten(),
        )
        off.append((table - wanted).abs().max().item())
    for s in range(states):
        print(f"  state {s}: value {wanted[s]:.3f}, learnt {table[s]:.3f}")
    return {"apart": apart, "first": off[0], "last": off[-1]}


if __name__ == "__main__":
    main()
