"""Dimensions that lie side by side wherever they are become one, in a call's loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from pullback.bind.math.call import call_of
from pullback.define import parse
from pullback.define.math import notation
from pullback.define.math.coalesce import coalesce, coalesce_shape
from tests.telling import telling

NORM = (
    "(x[b, c, i, j], w[c], h[c]) -> y[b, c, i, j] = u[c] = mean[n, p, q](x[n, c, p, q]);"
    " y = (x - u[c])/sqrt(mean[n, p, q]((x[n, c, p, q] - u[c])**2) + 1e-5)*w + h"
)
SHARE = "(x[..., i, j], w[i, j]) -> y[..., i, j] = x*w/sum[p, q](x[..., p, q]**2)"
BEFORE = "(x[i, j, ...]) -> y[i, j, ...] = x - mean[p, q](x[p, q, ...])"


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        (NORM, {"i_j": ("i", "j")}),
        (SHARE, {"i_j": ("i", "j")}),
        (BEFORE, {"i_j": ("i", "j")}),
        ("(x[a, b, c, d]) -> y[a, b, c, d] = exp(x[a, b, c, d])", {"a_b_c_d": tuple("abcd")}),
        ("(x[a, b, c]) -> y[a] = sum[b, c](x[a, b, c]**2)", {"b_c": ("b", "c")}),
        ("(x[n, m]) -> y[n, m] = x - max[p, q](x[p, q])", {"n_m": ("n", "m")}),
        # Each of these needs one of the two alone.
        ("(x[n, m], g[m]) -> y[n, m] = x*g", None),
        ("(x[n, m]) -> y[n, m] = x*(n + 1)", None),
        ("(x[n, m]) -> y[n, m] = pad(x[n, m - 1])", None),
        ("(x[n, m]) -> y[n, m] = x/size(m)", None),
        ("(x[n, m]) -> y[m, n] = x[n, m]", None),
        ("(x[n, m]) -> y[n] = mean[m](x[n, m])", None),
        ("(x[n, m]) -> y[n, m] = sum[k](x[n, k]) + sum[k](x[k, m])", None),
        ("(x[n, m]) -> y[n, m] = x - max[p](sum[q](x[p, q]))", None),
        ("(x[n, m]) -> y[n, m] = sum[p, q](exp(x[p, q] - x[p, m]))*x", None),
        ("(x[n, n]) -> y[n] = x[n, n]", None),
        ("(x[n, m], i[k, n]: int64) -> y[k, n, m] = x[i[k, n], m]", None),
        ("(x[t, d]) -> h[t, d] = pad(h[t - 1, d]) + x", None),
    ],
)
def test_what_is_used_together_alone(text: str, merged: dict[str, tuple[str, ...]] | None) -> None:
    found = coalesce(notation.parse(parse.parse(f"demo::sides{text}")))
    assert (found and dict(found.merged)) == merged


def test_shapes_with_batch_dimensions() -> None:
    for text, shape, want in (
        (SHARE, (2, 3, 4, 5), (2, 3, 20)),
        (BEFORE, (4, 5, 2, 3), (20, 2, 3)),
    ):
        indexed = notation.parse(parse.parse(f"demo::shapes{text}"))
        found = coalesce(indexed)
        assert found
        assert coalesce_shape(found, indexed.line.tensors[0], shape) == want


def share(x: Tensor, w: Tensor) -> Tensor:
    return x * w / (x**2).sum((-1, -2), keepdim=True)


def batch_norm(x: Tensor, w: Tensor, h: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, w, h, training=True)


CALLS: dict[str, tuple[str, Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "norm": (NORM, batch_norm, [(20, 30, 7, 60), (30,), (30,)]),
    "share": (SHARE, share, [(2, 50, 41, 90), (41, 90)]),
    "before": (BEFORE, lambda x: x - x.mean((0, 1)), [(41, 90, 2, 50)]),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "turned": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every second": lambda x: x.repeat_interleave(2, 0)[::2],
    "expanded": lambda x: x[:1].expand(x.shape),
}


@pytest.mark.ci(2)
@pytest.mark.parametrize("first", ["contiguous", "turned"])
@pytest.mark.parametrize("name", telling({name: name for name in CALLS}, ["norm", "before"]))
def test_calls_of_any_layout_give_pytorchs_values(name: str, first: str, seed: int) -> None:
    """Whichever layout came first: it decides which loops there are."""
    text, peer, shapes = CALLS[name]
    op = pb.operator(f"test::sides_{name}_{first}{text}")
    x, *others = (torch.randn(shape) for shape in shapes)
    call = call_of(op.kind.definition, (x, *others))
    assert call.coalesced is not call
    assert call.lies_coalesced
    for layout in dict.fromkeys([first, *LAYOUTS]):
        own = LAYOUTS[layout](x)
        given = [leaf.detach().requires_grad_() for leaf in (own, *others)]
        exact = [leaf.detach().double().requires_grad_() for leaf in given]
        value, want = op(*given), peer(*exact)
        grad = LAYOUTS[layout](torch.randn(value.shape))
        pairs = [(value, want)]
        pairs += zip(
            torch.autograd.grad(value, given, grad),
            torch.autograd.grad(want, exact, grad.double()),
            strict=True,
        )
        for got, wanted in pairs:
            scale = float(wanted.detach().abs().max())
            torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4 * (1 + scale))
