"""The wave equation by leapfrog, and the speed of its medium from what a few places recorded.

This is how seismic inversion works, in one dimension. Stable where the Courant number is below 1.
"""

import torch
from against import compare, minimise
from torch import Tensor

import pullback as pb

leapfrog = pb.operator(
    "recurrences::leapfrog(u0[x], c[x], steps: int) -> u[t < steps, x] ="
    " 2*u[t - 1, x] - u[t - 2, x]"
    " + c**2*(pad(u[t - 1, x + 1]) - 2*u[t - 1, x] + pad(u[t - 1, x - 1])); u[t < 0, x] = u0"
)


def loop(u0: Tensor, c: Tensor, steps: int) -> Tensor:
    """The same, whole rows at a time."""
    before, u, found = u0, u0, list[Tensor]()
    for _ in range(steps):
        wide = torch.nn.functional.pad(u, (1, 1))
        before, u = u, 2 * u - before + c**2 * (wide[2:] - 2 * u + wide[:-2])
        found.append(u)
    return torch.stack(found)


def main() -> dict[str, float]:
    """Compare with the loop; find where the medium is slow."""
    places = torch.arange(40.0, dtype=torch.float64)
    u0 = torch.exp(-(places - 12).square() / 6)
    true = 0.8 - 0.3 * torch.exp(-(places - 26).square() / 12)
    apart = compare(
        lambda u, c: leapfrog(u, c, 60), lambda u, c: loop(u, c, 60), {"u0": u0, "c": true}
    )
    recorders = [4, 20, 36]
    recorded = loop(u0, true, 60)[:, recorders]
    logits = torch.full((40,), 1.4, dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        u = leapfrog(u0, logits.sigmoid(), 60)
        return (u[:, recorders] - recorded).square().mean()

    losses = minimise(loss, [logits], steps=80, lr=0.1)
    for name, speed in (("true", true), ("found", logits.detach().sigmoid())):
        shown = "".join("#@%*+=-:. "[min(9, max(0, int(20 * (v - 0.4))))] for v in speed)
        print(f"  {name:6}|{shown}|")
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
