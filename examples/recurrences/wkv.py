"""RWKV's wkv, a weighted mean of the past whose weights decay, without overflow.

`o` is the greatest exponent so far, and `p` and `q` are the sums divided by exp(o). The result does
not depend on `o`, so `stop` leaves it out of the derivative. Source: B. Peng et al., "RWKV" (2023).
"""

import torch
from against import compare, minimise
from torch import Tensor

import pullback as pb

wkv = pb.operator(
    "recurrences::wkv(w[c], u[c], k[..., t, c], v[..., t, c]) -> y[..., t, c] ="
    " o[t, c] = stop(max(o[t - 1, c] - w, k)); o[-1, c] = -inf;"
    " p[t, c] = exp(o[t - 1, c] - w - o[t, c])*pad(p[t - 1, c]) + exp(k - o[t, c])*v;"
    " q[t, c] = exp(o[t - 1, c] - w - o[t, c])*pad(q[t - 1, c]) + exp(k - o[t, c]);"
    " m = stop(max(o[t - 1, c], u + k)); before = exp(o[t - 1, c] - m); now = exp(u + k - m);"
    " y = (before*pad(p[t - 1, c]) + now*v)/(before*pad(q[t - 1, c]) + now)"
)


def mean(w: Tensor, u: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The definition, a softmax over all earlier times for each time."""
    found: list[Tensor] = []
    for t in range(k.shape[-2]):
        ages = torch.arange(t - 1, -1, -1, dtype=k.dtype)[:, None]
        exponents = torch.cat([k[..., :t, :] - ages * w, u + k[..., t : t + 1, :]], -2)
        found.append((exponents.softmax(-2) * v[..., : t + 1, :]).sum(-2))
    return torch.stack(found, -2)


def main() -> dict[str, float]:
    """Compare with the definition, with exponents beyond what exp can hold; learn the decays."""
    torch.manual_seed(0)
    w, u = (torch.rand(3, dtype=torch.float64) for _ in range(2))
    k, v = (torch.randn(2, 20, 3, dtype=torch.float64) for _ in range(2))
    apart = compare(wkv, mean, {"w": w, "u": u, "k": k, "v": v})
    print("  exponents of some thousands:")
    apart = max(apart, compare(wkv, mean, {"w": w, "u": u, "k": 1000 * k, "v": v}))
    wanted = mean(w, u, k, v)
    decay = torch.full((3,), -2.0, dtype=torch.float64, requires_grad=True)
    bonus = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    losses = minimise(
        lambda: (wkv(decay.exp(), bonus, k, v) - wanted).square().mean(),
        [decay, bonus],
        steps=60,
        lr=0.2,
    )
    for true, learnt in zip(w.tolist(), decay.exp().tolist(), strict=True):
        print(f"  decay {true:.3f}, learnt {learnt:.3f}")
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
