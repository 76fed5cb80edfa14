"""A gated recurrent unit over time, against torch.nn.GRU.

The products of the input with its matrices need no earlier state: PyTorch computes them at once.
"""

import torch
from against import compare, minimise
from torch import Tensor, nn
from torch.nn import functional

import pullback as pb

cells = pb.operator(
    "recurrences::gru(xr[b, t, j], xz[b, t, j], xn[b, t, j], Ur[j, j], Uz[j, j], Un[j, j], br[j],"
    " bz[j], bn[j]) -> h[b, t, j] ="
    " r[b, t, j] = sigmoid(xr[b, t, j] + sum[k](Ur[j, k]*pad(h[b, t - 1, k])) + br[j]);"
    " z[b, t, j] = sigmoid(xz[b, t, j] + sum[k](Uz[j, k]*pad(h[b, t - 1, k])) + bz[j]);"
    " n[b, t, j] = tanh(xn[b, t, j] + r[b, t, j]*(sum[k](Un[j, k]*pad(h[b, t - 1, k])) + bn[j]));"
    " h = (1 - z[b, t, j])*n[b, t, j] + z[b, t, j]*pad(h[b, t - 1, j])"
)


def gru(x: Tensor, inner: Tensor, state: Tensor, bias: Tensor, state_bias: Tensor) -> Tensor:
    """Return all states; the weights are those of torch.nn.GRU, in its order."""
    given = functional.linear(x, inner, bias).chunk(3, -1)
    return cells(*given, *state.chunk(3), *state_bias.chunk(3))


def theirs(x: Tensor, inner: Tensor, state: Tensor, bias: Tensor, state_bias: Tensor) -> Tensor:
    """The same by torch.nn.GRU."""
    layer = nn.GRU(x.shape[-1], state.shape[1], batch_first=True, dtype=x.dtype)
    weights = dict(zip(dict(layer.named_parameters()), (inner, state, bias, state_bias)))  # noqa: B905
    return torch.func.functional_call(layer, weights, (x,))[0]


def main() -> dict[str, float]:
    """Compare with torch.nn.GRU; learn whether a row of signs had more ups than downs."""
    torch.manual_seed(0)
    shapes = {"x": (2, 6, 3), "weight_ih": (72, 3), "weight_hh": (72, 24)}
    shapes |= {"bias_ih": (72,), "bias_hh": (72,)}
    apart = compare(gru, theirs, {n: torch.randn(s).double() for n, s in shapes.items()})
    signs = torch.randint(0, 2, (64, 9, 1)).double() * 2 - 1
    wanted = (signs.sum((1, 2)) > 0).double()
    sizes = ((72, 1), (72, 24), (72,), (72,), (24,))
    weights = [(torch.randn(size).double() / 5).requires_grad_() for size in sizes]

    def loss() -> Tensor:
        last = gru(signs, *weights[:4])[:, -1] @ weights[4]
        return functional.binary_cross_entropy_with_logits(last, wanted)

    return {"apart": apart, **minimise(loss, weights, steps=40, lr=0.03)}


if __name__ == "__main__":
    main()
