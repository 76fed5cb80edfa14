"""Faults that the catalogue does not list, as authors write them: without annotations."""

# ruff: noqa: ANN001, ANN002, ANN202, ANN204, ANN205
# pyright: basic

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function

from tests.verify.case import Made, d
from tests.verify.catalogue.row import row


@row("embedding_dup", "stands twice")
def embedding_dup(right: bool) -> Made:
    class Emb(Function):
        @staticmethod
        def forward(ctx, table, idx):
            ctx.save_for_backward(idx)
            ctx.n = table.shape
            return table[idx]

        @staticmethod
        def backward(ctx, g):
            (idx,) = ctx.saved_tensors
            out = g.new_zeros(ctx.n)
            if right:
                out.index_put_((idx,), g, accumulate=True)
            else:
                out[idx] = g
            return out, None

    return Emb, (d(6, 3), torch.tensor([0, 2, 5, 1]))


@row("cumsum", "revers", "flip", "cumsum")
def cumsum(right: bool) -> Made:
    class Cumsum(Function):
        @staticmethod
        def forward(ctx, x):
            return x.cumsum(-1)

        @staticmethod
        def backward(ctx, g):
            return g.flip(-1).cumsum(-1).flip(-1) if right else g.cumsum(-1)

    return Cumsum, (d(3, 5),)


@row("first_batch", "from index 1 on")
def first_batch(right: bool) -> Made:
    class Lin(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g @ w.mT, (x.mT @ g).sum(0) if right else (x.mT @ g)[0]

    return Lin, (d(3, 2, 4), d(4, 5))


@row("wrong_mean", "factor", "batch", "mean")
def wrong_mean(right: bool) -> Made:
    class Loss(Function):
        @staticmethod
        def forward(ctx, x, t):
            ctx.save_for_backward(x, t)
            return ((x - t) ** 2).mean()

        @staticmethod
        def backward(ctx, g):
            x, t = ctx.saved_tensors
            r = 2 * (x - t) * g / (x.numel() if right else x.shape[0])
            return r, -r

    return Loss, (d(3, 4), d(3, 4))


@row("eps_place", "an epsilon")
def eps_place(right: bool) -> Made:
    class LN(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            m = x.mean(-1, keepdim=True)
            v = ((x - m) ** 2).mean(-1, keepdim=True)
            return (x - m) / (v + 1e-5).sqrt()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            m = x.mean(-1, keepdim=True)
            v = ((x - m) ** 2).mean(-1, keepdim=True)
            s = (v + 1e-5).sqrt() if right else v.sqrt() + 1e-5
            y = (x - m) / s
            return (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)) / s

    return LN, (d(3, 8),)


@row("leaky_neg", "wrong for `x` <=")
def leaky_neg(right: bool) -> Made:
    class Leaky(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x > 0, x, 0.1 * x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return torch.where(x > 0, g, (0.1 if right else 0.01) * g)

    return Leaky, (d(10),)


@row("abs_positive_only", "right for x >")
def abs_positive_only(right: bool) -> Made:
    class Abs(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.abs() * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * (x.abs() if right else x)

    return Abs, (torch.rand(6, dtype=torch.float64).add(0.1).requires_grad_(),)


@row("squeeze", "wrong at size 1")
def squeeze(right: bool) -> Made:
    class Mean(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return (x * w).sum(-1)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            gw = g[..., None] * x
            gw = gw.sum(0) if right else (gw.sum(0) if x.shape[0] > 1 else gw.squeeze() * 2)
            return g[..., None] * w, gw

    return Mean, (d(3, 4), d(4))


@row("complex_abs", "conj()")
def complex_abs(right: bool) -> Made:
    class Abs2(Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z.real**2 + z.imag**2

        @staticmethod
        def backward(ctx, g):
            (z,) = ctx.saved_tensors
            return 2 * g * (z if right else z.conj())

    return Abs2, (torch.randn(4, dtype=torch.complex128, requires_grad=True),)


@row("ste", "straight", "zero", "constant")
def ste(right: bool) -> Made:
    class Round(Function):
        @staticmethod
        def forward(ctx, x):
            return x.round() if not right else x.clone()

        @staticmethod
        def backward(ctx, g):
            return g.clone()

    return Round, (d(6),)


cache: dict[tuple[int, ...], Tensor] = {}


@row("stale_cache", "second call", "cache", "state", "class", "call")
def stale_cache(right: bool) -> Made:
    cache.clear()

    class Sq(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            k = tuple(x.shape)
            if right:
                ctx.k = 2 * x.detach()
            elif k not in cache:
                cache[k] = 2 * x.detach()
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (ctx.k if right else cache[tuple(x.shape)])

    return Sq, (d(5),)


@row("only_first_grad", "first", "element")
def only_first_grad(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g if right else 2 * g.flatten()[0].expand(g.shape).clone()

    return Double, (d(5),)


@row("shifted", "roll", "shift", "axis", "off by")
def shifted(right: bool) -> Made:
    class Diff(Function):
        @staticmethod
        def forward(ctx, x):
            return x.roll(1, -1) * 3

        @staticmethod
        def backward(ctx, g):
            return 3 * g.roll(-1, -1) if right else 3 * g.roll(1, -1)

    return Diff, (d(2, 6),)


@row("conv_flipped", "flip", "kernel")
def conv_flipped(right: bool) -> Made:
    class Conv(Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x, k)
            return torch.nn.functional.conv1d(x[None, None], k[None, None])[0, 0]

        @staticmethod
        def backward(ctx, g):
            x, k = ctx.saved_tensors
            kk = k.flip(0) if right else k
            gx = torch.nn.functional.conv1d(g[None, None], kk[None, None], padding=len(k) - 1)[0, 0]
            gk = torch.nn.functional.conv1d(x[None, None], g[None, None])[0, 0]
            return gx, gk

    return Conv, (d(9), d(3))


@row("returns_saved", "alias", "saved", "memory")
def returns_saved(right: bool) -> Made:
    class Lin(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return (x * w).sum()

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return (g * w, g * x) if right else (w.mul(g), x.view_as(x) if float(g) == 1 else g * x)

    return Lin, (d(5), d(5))


@row("needs_order", "frozen")
def needs_order(right: bool) -> Made:
    class Lin(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            outs = []
            if ctx.needs_input_grad[0]:
                outs.append(g * w)
            elif right:
                outs.append(None)
            if ctx.needs_input_grad[1]:
                outs.append(g * x)
            elif right:
                outs.append(None)
            if not right:
                while len(outs) < 2:
                    outs.append(None)
            return tuple(outs)

    return Lin, (d(5), d(5))


@row("numpy_kernel", "factor", "constant")
def numpy_kernel(right: bool) -> Made:
    class Np(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(np.tanh(x.detach().numpy()))

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            t = np.tanh(x.numpy())
            return torch.from_numpy(g.numpy() * (1 - t * t) * (1 if right else 1.5))

    return Np, (d(4, 3),)


@row("wrong_bf16_path", "float32", "half", "bfloat16", "dtype")
def wrong_bf16_path(right: bool) -> Made:
    class Mul(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            if x.dtype == torch.bfloat16 and not right:
                return g * w, g * x * 2
            return g * w, g * x

    return Mul, (torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True))


@row("offset", "nonzero", "zero grad", "affine", "linear")
def offset(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g if right else 2 * g + 1e-3

    return Double, (d(5),)


@row("shared_buffer", "buffer", "state", "in place", "second call", "changed")
def shared_buffer(right: bool) -> Made:
    buf = torch.empty(5, dtype=torch.float64)

    class Sq(Function):
        @staticmethod
        def forward(ctx, x):
            b = buf if not right else torch.empty(5, dtype=torch.float64)
            if x.numel() != 5:
                b = torch.empty_like(x)
            torch.mul(x.detach(), 2, out=b)
            ctx.b = b
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * ctx.b

    return Sq, (d(5),)


@row("in_module", "module", "weight", "factor", "sign")
def in_module(right: bool) -> Made:
    class Sw(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * (s + x * s * (1 - s)) if right else g * s

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4).double()

        def forward(self, x):
            return Sw.apply(self.linear(x)).sum(-1)

    return M(), (d(3, 4),)


@row("relu_grad_by_sign", "the sign of `x`")
def relu_grad_by_sign(right: bool) -> Made:
    class Pool(Function):
        @staticmethod
        def forward(ctx, x):
            v, i = x.view(-1, 2).max(-1)
            ctx.save_for_backward(i)
            ctx.n = x.numel()
            return v

        @staticmethod
        def backward(ctx, g):
            (i,) = ctx.saved_tensors
            out = g.new_zeros(ctx.n // 2, 2)
            out[torch.arange(len(i)), i if right else 1 - i] = g
            return out.view(-1)

    return Pool, (d(8),)


@row("option_int", "scalar", "size", "k", "option")
def option_int(right: bool) -> Made:
    class Pow(Function):
        @staticmethod
        def forward(ctx, x, k=2):
            ctx.save_for_backward(x)
            ctx.k = k
            return x**k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (ctx.k if right else 2) * x ** (ctx.k - 1), None

    return Pow, (d(4), 2)


@row("option_bool", "bias", "flag", "option", "None")
def option_bool(right: bool) -> Made:
    class Lin(Function):
        @staticmethod
        def forward(ctx, x, w, average=False):
            ctx.save_for_backward(x, w)
            ctx.average = average
            y = (x * w).sum(-1)
            return y / x.shape[-1] if average else y

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            g = g[..., None]
            if ctx.average and right:
                g = g / x.shape[-1]
            return g * w, (g * x).sum(0), None

    return Lin, (d(3, 4), d(4), False)


@row("div_zero_mask", "NaN", "inf", "0")
def div_zero_mask(right: bool) -> Made:
    class Safe(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x == 0, torch.ones_like(x), x.sin() / x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            r = (x * x.cos() - x.sin()) / x**2
            if right:
                r = torch.where(x.abs() < 1e-4, -x / 3, r)
            return g * r

    return Safe, (d(5),)


@row("overflow", "overflow", "large", "inf", "NaN")
def overflow(right: bool) -> Made:
    class Lse(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.logsumexp(x, -1)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if right:
                return g[..., None] * x.softmax(-1)
            e = x.exp()
            return g[..., None] * e / e.sum(-1, keepdim=True)

    return Lse, (d(3, 4),)


@row("quadratic_form", "the gradient of `x`")
def quadratic_form(right: bool) -> Made:
    """Along x itself the faulty one is right; x is what a user's own seed 0 gives."""

    class Quadratic(Function):
        @staticmethod
        def forward(ctx, x, a):
            ctx.save_for_backward(x, a)
            return x @ a @ x

        @staticmethod
        def backward(ctx, g):
            x, a = ctx.saved_tensors
            return g * ((a + a.mT) @ x if right else 2 * a @ x), g * torch.outer(x, x)

    return Quadratic, (d(5), d(5, 5))


@row("part_returned", "a view of the input", level="advice")
def part_returned(right: bool) -> Made:
    class Turned(Function):
        @staticmethod
        def forward(ctx, x):
            return x.t().clone() if right else x.t()

        @staticmethod
        def backward(ctx, g):
            return g.t()

    return Turned, (d(3, 2),)


@row("zeros_for_unused", "zeros rather than None", level="advice")
def zeros_for_unused(right: bool) -> Made:
    class Heads(Function):
        @staticmethod
        def forward(ctx, x, v, w):
            ctx.set_materialize_grads(not right)
            ctx.save_for_backward(x, v, w)
            return x @ v, x @ w

        @staticmethod
        def backward(ctx, a, b):
            x, v, w = ctx.saved_tensors
            parts = [g @ m.t() for g, m in ((a, v), (b, w)) if g is not None]
            return (
                sum(parts) if parts else None,
                None if a is None else x.t() @ a,
                None if b is None else x.t() @ b,
            )

    return Heads, (d(3, 3), d(3, 3), d(3, 3))


@row("asks_the_gradient", "branches on the values of the gradient", level="advice")
def asks_the_gradient(right: bool) -> Made:
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            if not right and g.abs().max().item() == 0:
                return torch.zeros_like(y)
            return g * y

    return Exp, (d(2, 3),)


@row("conjugate_of_a_real_example", "right for real numbers", level="advice")
def conjugate_of_a_real_example(right: bool) -> Made:
    class Bilinear(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return torch.einsum("bi,io->bo", x, w)

        @staticmethod
        def backward(ctx, g):
            x, w = (t.conj() if right else t for t in ctx.saved_tensors)
            return torch.einsum("bo,io->bi", g, w), torch.einsum("bi,bo->io", x, g)

    return Bilinear, (d(2, 3), torch.randn(3, 4).double())


@row("hidden_beside_an_input", "may be constants", level="advice")
def hidden_beside_an_input(right: bool) -> Made:
    class Filters(Function):
        @staticmethod
        def forward(ctx, x, *taps):
            taps = taps if right else taps[0]
            ctx.save_for_backward(*taps)
            return sum(tap * x.roll(i) for i, tap in enumerate(taps))

        @staticmethod
        def backward(ctx, g):
            x = sum(tap * g.roll(-i) for i, tap in enumerate(ctx.saved_tensors))
            return x, *([None] * (2 if right else 1))

    taps = [torch.tensor(0.5).double(), torch.tensor(2.0).double()]
    return Filters, (d(5), *taps) if right else (d(5), tuple(taps))
