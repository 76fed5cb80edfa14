"""A filter of second order, against scipy.signal.lfilter."""

import torch
from against import minimise
from scipy import signal
from torch import Tensor

import pullback as pb

biquad = pb.operator(
    "recurrences::biquad(x[..., t], b[3], a[2]) -> y[..., t] = b[0]*x + b[1]*pad(x[t - 1])"
    " + b[2]*pad(x[t - 2]) - a[0]*pad(y[t - 1]) - a[1]*pad(y[t - 2])"
)


def lfilter(x: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """SciPy's filter, which has no gradient."""
    return torch.as_tensor(signal.lfilter(b.numpy(), [1.0, *a.tolist()], x.numpy()))


def main() -> dict[str, float]:
    """Compare with SciPy, the gradient too; learn a filter from what it does to noise."""
    torch.manual_seed(0)
    b, a = signal.butter(2, 0.3)  # pyright: ignore
    b, a = torch.tensor(b), torch.tensor(a[1:])
    x = torch.randn(2, 48, dtype=torch.float64, requires_grad=True)
    wanted = lfilter(x.detach(), b, a)
    y = biquad(x, b, a)
    # The gradient for x is the same filter, run backwards.
    weights = torch.randn_like(wanted)
    (grad,) = torch.autograd.grad((weights * y).sum(), x)
    backwards = lfilter(weights.flip(-1), b, a).flip(-1)
    apart = max((y - wanted).abs().max().item(), (grad - backwards).abs().max().item())
    print(f"  value and gradient of x     {apart:10.1e} apart from SciPy's")
    found = [torch.tensor(v, dtype=torch.float64) for v in ([1.0, 0.0, 0.0], [0.0, 0.0])]
    found = [each.requires_grad_() for each in found]
    losses = minimise(
        lambda: (biquad(x.detach(), *found) - wanted).square().mean(), found, steps=150, lr=0.05
    )
    for name, true, learnt in zip("ba", (b, a), found, strict=True):
        print(f"  {name} {[round(v, 3) for v in true.tolist()]}")
        print(f"    {[round(v, 3) for v in learnt.tolist()]} learnt")
    return {"apart": apart, **losses}


if __name__ == "__main__":
    main()
