"""Soft dynamic time warping: a cost of aligning two series, over fronts of a table.

Source: M. Cuturi and M. Blondel, "Soft-DTW: a differentiable loss function for time-series" (2017).
The values for (0, 1, 2) and (0, 2, 3, 1) are those of the package pysdtw.
"""

import torch
from against import compare, minimise
from torch import Tensor

import pullback as pb

soft_dtw = pb.operator(
    "recurrences::soft_dtw(D[..., i, j], g: float) -> R[..., i, j] ="
    " D - g*logaddexp(-R[i - 1, j - 1]/g, logaddexp(-R[i - 1, j]/g, -R[i, j - 1]/g));"
    " R[-1, -1] = 0; R[-1, j] = inf; R[i, -1] = inf"
)


def squared(x: Tensor, y: Tensor) -> Tensor:
    """Return the squared distances of two series."""
    return (x[..., :, None] - y[..., None, :]).square()


def loop(distances: Tensor, g: float) -> Tensor:
    """The table cell by cell."""
    rows, columns = distances.shape
    inf = distances.new_tensor(torch.inf)
    found = {(-1, -1): distances.new_zeros(())}
    for i in range(rows):
        for j in range(columns):
            places = ((i - 1, j - 1), (i - 1, j), (i, j - 1))
            before = [found[place] for place in places if place in found]
            found[i, j] = distances[i, j] - g * torch.logsumexp(-torch.stack(before) / g, 0)
        found.pop((-1, -1), inf)
    return torch.stack([torch.stack([found[i, j] for j in range(columns)]) for i in range(rows)])


def main() -> dict[str, float]:
    """Compare with the loop and with pysdtw; find the mean of bumps at different times."""
    one, other = torch.tensor([0.0, 1, 2]).double(), torch.tensor([0.0, 2, 3, 1]).double()
    apart = compare(lambda d: soft_dtw(d, 0.1), lambda d: loop(d, 0.1), {"D": squared(one, other)})
    for g, theirs in ((1.0, 1.6237516862223615), (0.1, 2.890135744517001)):
        value = soft_dtw(squared(one, other), g)[-1, -1].item()
        print(f"  g = {g}: {value:.13f}, pysdtw {theirs:.13f}")
        apart = max(apart, abs(value - theirs) / theirs)
    times = torch.arange(12.0)
    bumps = torch.stack([torch.exp(-(times - at).square() / 4) for at in (3.0, 5.0, 8.0)])
    mean = bumps.mean(0).requires_grad_()

    def loss() -> Tensor:
        return soft_dtw(squared(mean, bumps), 0.05)[:, -1, -1].mean()

    losses = minimise(loss, [mean], steps=30, lr=0.1)
    for name, row in (("mean of each time", bumps.mean(0)), ("mean by soft-DTW", mean.detach())):
        print(f"  {name:18}", "".join(" .:-=+*#%@"[int(9 * v.clamp(0, 1))] for v in row))
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
