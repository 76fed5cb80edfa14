"""The selective scan of Mamba, whose state of d × n numbers is a part of the formula and no output.

Its steps depend on the input through `softplus(delta + bias)`, the part whose backward has been
wrong in hand-written kernels. Source: A. Gu and T. Dao, "Mamba" (2023); `loop` is the reference
that is published with it, `selective_scan_ref`, in PyTorch's words.
"""

import torch
from against import compare, minimise
from torch import Tensor, nn
from torch.nn import functional

import pullback as pb

selective_scan = pb.operator(
    "recurrences::selective_scan(u[b, d, l], delta[b, d, l], A[d, n], B[b, n, l], C[b, n, l], D[d],"
    " bias[d]) -> y[b, d, l] = dt[b, d, l] = softplus(delta[b, d, l] + bias[d]);"
    " x[b, d, l, n] = exp(dt[b, d, l]*A[d, n])*pad(x[b, d, l - 1, n])"
    " + dt[b, d, l]*B[b, n, l]*u[b, d, l];"
    " y = sum[n](x[b, d, l, n]*C[b, n, l]) + u*D"
)


def loop(  # noqa: PLR0913, PLR0917  (the published parameters)
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, bias: Tensor
) -> Tensor:
    """The published reference."""
    delta = functional.softplus(delta + bias[:, None])
    decay = torch.exp(torch.einsum("bdl,dn->bdln", delta, a))
    added = torch.einsum("bdl,bnl,bdl->bdln", delta, b, u)
    x, ys = torch.zeros_like(decay[:, :, 0]), list[Tensor]()
    for k in range(u.shape[2]):
        x = decay[:, :, k] * x + added[:, :, k]
        ys.append(torch.einsum("bdn,bn->bd", x, c[:, :, k]))
    return torch.stack(ys, 2) + u * d[:, None]


class Remember(nn.Module):
    """One layer that reads pairs (number, mark)."""

    def __init__(self, d: int = 24, n: int = 4) -> None:
        super().__init__()
        self.inner = nn.Linear(2, d)
        self.parts = nn.Linear(2, d + 2 * n)
        self.a = nn.Parameter(torch.arange(1.0, n + 1).log().repeat(d, 1))
        self.skip = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.full((d,), -1.0))
        self.out = nn.Linear(d, 1)

    def forward(self, pairs: Tensor) -> Tensor:
        d, n = self.a.shape
        u = self.inner(pairs).transpose(1, 2)
        delta, b, c = self.parts(pairs).transpose(1, 2).split([d, n, n], 1)
        y = selective_scan(u, delta, -self.a.exp(), b, c, self.skip, self.bias)
        return self.out(y[:, :, -1])[:, 0]


def main() -> dict[str, float]:
    """Compare with the reference; learn to remember the number that is marked."""
    torch.manual_seed(0)
    shapes = {
        "u": (2, 24, 20),
        "delta": (2, 24, 20),
        "A": (24, 4),
        "B": (2, 4, 20),
        "C": (2, 4, 20),
    }
    shapes |= {"D": (24,), "bias": (24,)}
    tensors = {n: torch.randn(s, dtype=torch.float64) for n, s in shapes.items()}
    tensors["A"] = -tensors["A"].exp()
    apart = compare(selective_scan, loop, tensors)
    numbers, marks = torch.randn(2, 64, 20, dtype=torch.float64)
    marks.zero_()
    place = torch.randint(0, 20, (64,))
    marks[torch.arange(64), place] = 1
    pairs, wanted = torch.stack([numbers, marks], -1), numbers[torch.arange(64), place]
    model = Remember().double()
    losses = minimise(
        lambda: functional.mse_loss(model(pairs), wanted),
        list(model.parameters()),
        steps=60,
        lr=0.03,
    )
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
