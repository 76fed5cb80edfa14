"""At which values formulas' functions are tried, and how far off they may be."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import torch
from torch import Tensor
from vector_library import BINARY, POLYGAMMA, Library

SINGLE, DOUBLE = torch.float32, torch.float64
IN_DOUBLES = {"erfinv", "digamma", *POLYGAMMA}

# In ulps, where it is more than the library promises: the errors of the steps, added. A rounding
# counts 1/2, and an error double where the next step can leave its binade.
STEPS = {
    "rsqrt": 1.5,
    "powi<3>": 1.5,
    "powi<-2>": 1.5,
    "sigmoid": 3,
    "sigmoid_alone": 3,
    "sigmoid_of_minus": 3,
    "softplus": 3,
    "log_sigmoid": 3,
    "tanh_softplus": 4,
    "sinc": 4,
    "logaddexp": 3,
    "logaddexp2": 3,
    "xlogy": 2.5,
    "xlog1py": 2.5,
    "gelu": 4,
    "erfinv": 4,
    "digamma": 12,  # ten steps lead to its series
    **{name: 4 + int(name[-1]) for name in POLYGAMMA},  # a rounding for each factor of a power
    "polygamma0": 12,
    # libmvec's, for SLEEF's end too early; and SLEEF's u15
    "asinh": 1.6,
    "acosh": 1.6,
    "erfc": 1.5,
}
# SLEEF's, and so PyTorch's, overflow from here on.
ENDS = {
    "sinh": {SINGLE: 88.0, DOUBLE: 709.0},
    "cosh": {SINGLE: 88.0, DOUBLE: 709.0},
    "lgamma": {SINGLE: 4e36, DOUBLE: 2e305},
}


def promise(library: Library, function: str) -> float:
    if library.compute is SINGLE and function in IN_DOUBLES:
        return 1
    # SLEEF's u10 is a hair more than 1 where it returns a small x itself; glibc's libm is 2.
    least = 2 if library.width.name == "sse" else 1.01
    return max(library.ulp, least, STEPS.get(function, 1))


def arity(function: str) -> int:
    return 2 if function in BINARY else 1


def values(dtype: torch.dtype, count: int) -> Tensor:
    """Return values of every size: all bits random, and where the functions bend."""
    bits = torch.randint(-(2**31), 2**31, (4 * count,))
    everything = (bits * 2**32 + bits.flip(0)).view(DOUBLE)
    if dtype is SINGLE:
        everything = bits.to(torch.int32).view(SINGLE)
    ranges = [(-1, 1), (-12, 12), (-110, 110), (0.99, 1.01), (-800, 800)]
    parts = [torch.empty(count, dtype=dtype).uniform_(*bounds) for bounds in ranges]
    drawn = torch.cat([everything, *parts])
    return drawn[torch.randperm(len(drawn))]


def domain(library: Library, function: str, x: Tensor) -> Tensor:
    """Leave out where SLEEF ends, where the reference takes too long, where steps overflow."""
    info = torch.finfo(x.dtype)
    end = ENDS.get(function, {}).get(library.compute)
    if end is not None:
        return x[(x.abs() < end) | ~x.isfinite()]
    if function in POLYGAMMA:
        return x[(x > -50) & (x < 1e6)]
    if function == "powi<-2>":
        return x[(x.abs() > info.tiny**0.4) & (x.abs() < info.max**0.4)]
    # SLEEF's log1p loses the last bit of denormal numbers.
    return x[(x == 0) | ~(x.abs() < info.tiny)] if function == "xlog1py" else x


def spacing(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return one ulp of `dtype` at each double."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(x)[1].to(DOUBLE).clamp(min=math.log2(info.tiny) + 1)
    return torch.ldexp(torch.full_like(x, info.eps / 2), exponent)


def largest_error(got: Tensor, expected: Tensor, scale: Tensor) -> Tensor:
    """Return the error of float32's results in its ulps; 0 where both are one NaN or infinity."""
    same = (got == expected.to(SINGLE)) | (got.isnan() & expected.isnan())
    error = (got.to(DOUBLE) - expected).abs() / spacing(scale, SINGLE)
    return torch.where(same & ~error.isfinite(), 0.0, error.nan_to_num(math.inf, math.inf))


def in_ulps(got: float, value: Any, scale: Any) -> float:
    exponent = max(math.frexp(float(scale))[1] - 53, -1074)
    return float(abs(mpmath.mpf(got) - value) / mpmath.ldexp(1, exponent))


def every_pair(x: Tensor, count: int) -> list[Tensor]:
    """Return all ways to choose `count` of x, as columns."""
    columns = torch.cartesian_prod(*[x] * count).reshape(-1, count).T
    return [column.contiguous() for column in columns]


def special(dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    denormal = info.tiny * info.eps
    sizes = [0, 0.3, 0.5, 0.7, 1, 1.5, 2, 2.5, 3, 4, 10, 100, 1000, 1e30, math.inf, info.max]
    sizes += [info.tiny, denormal, 8 * denormal, 1 - info.eps / 2, 1 + info.eps]
    x = torch.tensor([math.nan, *sizes], dtype=dtype)
    return torch.cat([x, -x])


def integers() -> Tensor:
    ends = [0, 1, 2, 3, 7, 40, 2**31, 2**62, 2**63 - 1]
    return torch.tensor([*ends, *(-end for end in ends), -(2**63)])


def stored(dtype: torch.dtype, count: int) -> Tensor:
    if dtype is torch.bool:
        return torch.rand(count) < 0.5
    if dtype.is_floating_point:
        return torch.randn(count).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, (count,), dtype=dtype)
