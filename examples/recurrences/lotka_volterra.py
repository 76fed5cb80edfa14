"""Hunters and prey: two coupled equations by the midpoint rule, fitted to what was counted.

x' = a x - b x y, y' = c x y - d y, in the logarithms of x and y, which stay positive so.
"""

import torch
from against import compare, minimise
from scipy import integrate
from torch import Tensor

import pullback as pb

# `u` and `w` are the logarithms half a step on.
populations = pb.operator(
    "recurrences::lotka_volterra(p[4], start[2], h: float, steps: int)"
    " -> (x[t < steps], y[t < steps]) ="
    " u[t] = x[t - 1] + h/2*(p[0] - p[1]*exp(y[t - 1]));"
    " w[t] = y[t - 1] + h/2*(p[2]*exp(x[t - 1]) - p[3]);"
    " x = x[t - 1] + h*(p[0] - p[1]*exp(w[t])); x[-1] = start[0];"
    " y = y[t - 1] + h*(p[2]*exp(u[t]) - p[3]); y[-1] = start[1]"
)


def loop(p: Tensor, start: Tensor, steps: int, h: float) -> Tensor:
    """The same, step by step."""
    x, y = start
    found = list[Tensor]()
    for _ in range(steps):
        u = x + h / 2 * (p[0] - p[1] * y.exp())
        w = y + h / 2 * (p[2] * x.exp() - p[3])
        x, y = x + h * (p[0] - p[1] * w.exp()), y + h * (p[2] * u.exp() - p[3])
        found.append(torch.stack([x, y]))
    return torch.stack(found, 1)


def main() -> dict[str, float]:
    """Compare with the loop and with SciPy's solution; find the four rates."""
    h, steps = 0.2, 50
    true = torch.tensor([0.9, 0.5, 0.4, 0.7], dtype=torch.float64)
    start = torch.tensor([0.5, 0.0], dtype=torch.float64)

    def own(p: Tensor, start: Tensor) -> Tensor:
        return torch.stack(populations(p, start, h, steps))

    apart = compare(own, lambda p, s: loop(p, s, steps, h), {"p": true, "start": start})
    a, b, c, d = true.tolist()
    solved = integrate.solve_ivp(
        lambda _, v: (v[0] * (a - b * v[1]), v[1] * (c * v[0] - d)),
        (0, steps * h),
        start.exp(),
        t_eval=[(k + 1) * h for k in range(steps)],
        rtol=1e-9,
    )
    counted = torch.as_tensor(solved.y)
    off = (own(true, start).exp() / counted - 1).abs().max().item()
    print(f"  {100 * off:.2f} % from SciPy's solution at most, by steps of {h}")
    logs = torch.full((4,), -0.5, dtype=torch.float64, requires_grad=True)
    losses = minimise(
        lambda: (own(logs.exp(), start) - counted.log()).square().mean(), [logs], steps=120, lr=0.05
    )
    print(f"  rates {[round(v, 2) for v in true.tolist()]}", end=", ")
    print(f"found {[round(v, 2) for v in logs.exp().tolist()]}")
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
