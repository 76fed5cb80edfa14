"""What the functions of formulas should give: PyTorch's in double, and mpmath's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

Exact = Callable[..., Any]


def fmod(a: Tensor, b: Tensor) -> Tensor:
    """C's. PyTorch's vectorised one is NaN where a/b is large."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.fmod(a.numpy(), b.numpy()))


def remainder(a: Tensor, b: Tensor) -> Tensor:
    rest = fmod(a, b)
    return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def floor_divide(a: Tensor, b: Tensor) -> Tensor:
    """PyTorch's `div_floor_floating`, on C's fmod."""
    rest = fmod(a, b)
    quotient = (a - rest) / b - ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)
    down = quotient.floor()
    nearest = torch.where(quotient - down > 0.5, down + 1, down)
    zero = torch.copysign(torch.zeros_like(a), a / b)
    return torch.where(b == 0, a / b, torch.where(quotient == 0, zero, nearest))


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * torch.special.erfc(-x * 0.70710678118654752440)


def softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def tanh_softplus(x: Tensor) -> Tensor:
    return torch.tanh(softplus(x))


def sinc(x: Tensor) -> Tensor:
    """PyTorch's of the same sine's argument from -1/2 to 1/2: its own rounds πx."""
    whole = x.round()
    sign = torch.where((whole / 2).frac() == 0, 1.0, -1.0).to(x.dtype)
    ratio = torch.where(x == 0, 1, (x - whole) / x)
    return sign * torch.sinc(x - whole) * ratio


TORCH: dict[str, Callable[..., Tensor]] = {
    "fmod": fmod,
    "remainder": remainder,
    "floor_divide": floor_divide,
    "gelu": gelu,
    "sigmoid_alone": torch.sigmoid,
    "expm1_beside_exp": torch.expm1,
    "sigmoid_of_minus": lambda x: torch.sigmoid(-x),
    "softplus": softplus,
    "log_sigmoid": functional.logsigmoid,
    "tanh_softplus": tanh_softplus,
    "sinc": sinc,
    "powi<3>": lambda x: x * x * x,
    "powi<-2>": lambda x: 1 / (x * x),
    "powi<0>": torch.ones_like,
    **{f"polygamma{n}": partial(torch.polygamma, n) for n in range(5)},
}


def in_torch(function: str) -> Callable[..., Tensor]:
    return TORCH.get(function) or getattr(torch, function, None) or getattr(torch.special, function)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def log_sigmoid(x: Any) -> Any:
    return -mpmath.log1p(mpmath.exp(-x))


def normal(x: Any) -> Any:
    """Return x Φ(x)."""
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2


NAMED_ALIKE = """\
exp expm1 log log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
erf erfc erfinv digamma sqrt atan2 hypot"""

EXACT: dict[str, Exact] = {
    **{name: getattr(mpmath, name) for name in NAMED_ALIKE.split()},
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    **dict.fromkeys(("sigmoid", "sigmoid_alone"), sigmoid),
    "sigmoid_of_minus": lambda x: sigmoid(-x),
    "expm1_beside_exp": mpmath.expm1,
    "softplus": lambda x: -log_sigmoid(-x),
    "log_sigmoid": log_sigmoid,
    "tanh_softplus": lambda x: mpmath.tanh(-log_sigmoid(-x)),
    "sinc": lambda x: mpmath.sinpi(x) / (mpmath.pi * x) if x else mpmath.mpf(1),
    "gelu": normal,
    "powi<3>": lambda x: x**3,
    "powi<-2>": lambda x: 1 / x**2,
    "pow": lambda x, y: x**y,
    "logaddexp": lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
    "logaddexp2": lambda x, y: mpmath.log(mpmath.mpf(2) ** x + mpmath.mpf(2) ** y, 2),
    "xlogy": lambda x, y: x * mpmath.log(y),
    "xlog1py": lambda x, y: x * mpmath.log1p(y),
    **{f"polygamma{n}": partial(mpmath.psi, n) for n in range(5)},
}


def shifted(n: int, x: Any) -> tuple[Any, ...]:
    """What ψ⁽ⁿ⁾ is summed from: at 10 and beyond for n = 0, and its terms next to 0."""
    nearest = abs(x - mpmath.nint(x)) if x < 0.5 else x
    return (mpmath.log(10), 1 / nearest) if n == 0 else (mpmath.factorial(n) / nearest ** (n + 1),)


# A sum whose terms cancel is as exact as its terms are.
TERMS: dict[str, Exact] = {
    "digamma": partial(shifted, 0),
    "logaddexp": lambda x, y: (x, y),
    "logaddexp2": lambda x, y: (x, y),
    "lgamma": lambda x: (1 if x < 0 else 0,),
    **{f"polygamma{n}": partial(shifted, n) for n in range(5)},
}


def exact(function: str, *x: float) -> tuple[Any, Any] | None:
    """Return the value and the largest of its terms; None where there is no real value."""
    with mpmath.workdps(50):
        arguments = [mpmath.mpf(one) for one in x]
        try:
            value = EXACT[function](*arguments)
            terms = TERMS[function](*arguments) if function in TERMS else ()
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        if isinstance(value, mpmath.mpc) or not mpmath.isfinite(value):
            return None
        return value, max([abs(value), *(abs(term) for term in terms)])
