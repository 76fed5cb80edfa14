"""What the tests of formulas are crossed with: functions, special values, exact values, bounds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pullback.define.math.node import NUMBER, Node, in_order

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
FINE = (torch.float64, torch.float32)
# The table's names of what PyTorch has under another one.
ELSEWHERE: dict[str, str] = {
    **{"xlog1py": "special.xlog1py", "log_sigmoid": "nn.functional.logsigmoid"},
    **dict.fromkeys(("gelu", "silu", "mish", "softsign", "tanhshrink"), "nn.functional.{}"),
    **dict.fromkeys(("elu", "selu", "celu", "leaky_relu", "relu6"), "nn.functional.{}"),
    **dict.fromkeys(("hardtanh", "hardsigmoid", "hardswish", "hardshrink"), "nn.functional.{}"),
    **{"softshrink": "nn.functional.{}"},
}


def of_torch(name: str) -> Callable[..., Tensor]:
    found: Any = torch
    for word in ELSEWHERE.get(name, name).format(name).split("."):
        found = getattr(found, word)
    return found


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function of the language, as a formula of tensors `x`, `y` and `w`.

    Attributes:
        name: of the test.
        text: the formula, with the tensors in braces: "lerp({x}, {y}, {w})".
        torch: the same in PyTorch.
        row: its name in the table.
        inputs: how many tensors.
        orders: how many derivatives are compared.
        absolute: from this order on there is an x - tanh(x) or 1 - tanh(x)², so what tanh loses is
            an absolute error, however little is left of x or 1.
        divides: its derivative takes two numbers near 1 apart and divides by x, in PyTorch as well.
        pattern: the orders where NaN, inf and 0 stand elsewhere than in PyTorch, and the reason.
    """

    name: str
    text: str
    torch: Callable[..., Tensor]
    row: str
    inputs: int = 1
    orders: int = 2
    absolute: int = 3
    divides: bool = False
    pattern: Mapping[int, str] = field(default_factory=dict[int, str])


def call(
    name: str,
    arguments: str = "{x}",
    torch: Callable[..., Tensor] | None = None,
    *,
    orders: int = 2,
    absolute: int = 3,
    divides: bool = False,
    pattern: Mapping[int, str] | None = None,
) -> Function:
    return Function(
        name=name if arguments in ("{x}", "{x}, {y}") else f"{name}({arguments})",
        text=f"{name}({arguments})",
        torch=torch or of_torch(name),
        row=name,
        inputs=sum(f"{{{letter}}}" in arguments for letter in "xyw"),
        orders=orders,
        absolute=absolute,
        divides=divides,
        pattern=pattern or {},
    )


def written(name: str, text: str, torch: Callable[..., Tensor], row: str) -> Function:
    inputs = sum(f"{{{letter}}}" in text for letter in "xyw")
    return Function(name=name, text=text, torch=torch, row=row, inputs=inputs)


def softplus(x: Tensor, beta: float = 1) -> Tensor:
    """PyTorch's own is linear beyond 20, where it is still 2e-9 more than x."""
    return torch.logaddexp(x * beta, torch.zeros_like(x)) / beta


POLES = "PyTorch's poles are large numbers, as sin(pi x) is not quite 0; at -inf it has one more"
INFINITE = "PyTorch's is inf - inf or 0*inf"
ZEROS = "which of 0 and -0 is the greater one depends on PyTorch's dtype"
CANCELS = "the parts of the sum that cancel are rounded"
ROUNDED = "PyTorch's y - 1 is rounded, so an odd power may be an even one"
UNDERFLOW = "PyTorch's is 0 where x² + y² is 0 by underflow"
HALF = "PyTorch's -inf**0.5 is inf or NaN by dtype"
RIGHT = "PyTorch's is NaN where the quotient overflows, and the rest is exactly 0"
KINK = "at the kink PyTorch's second derivative is 0, which is that of neither side"
FUSED = "the sign of a zero depends on whether PyTorch's product is fused with the sum"

UNARY = [
    *map(call, ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logit")),
    *map(call, ("sqrt", "rsqrt", "square", "reciprocal", "abs", "sign", "frac")),
    call("stop", torch=torch.detach, orders=1),
    *(call(name, orders=1) for name in ("floor", "ceil", "round", "trunc")),
    *map(call, ("sin", "cos", "tan", "asin", "acos", "atan")),
    *map(call, ("sinh", "cosh", "asinh", "acosh", "atanh")),
    *map(call, ("deg2rad", "rad2deg", "erf", "erfc", "erfinv")),
    *map(call, ("neg", "log_sigmoid", "relu")),
    call("gelu", pattern={0: INFINITE}),
    *map(call, ("silu", "softsign")),
    *(call(name, absolute=1) for name in ("tanh", "mish", "sigmoid")),
    call("tanhshrink", absolute=0),
    call("sinc", divides=True),
    *(call(name, pattern={2: KINK}) for name in ("elu", "selu", "celu")),
    *map(call, ("leaky_relu", "hardtanh")),
    call("relu6", pattern={0: ZEROS}),
    *map(call, ("hardshrink", "softshrink")),
    call("hardswish", pattern={0: INFINITE}),
    call("lgamma", pattern={2: POLES}),
    call("digamma", pattern={1: POLES, 2: POLES}),
    call("softplus", torch=softplus),
    call("softplus", "{x}, 2.5", functools.partial(softplus, beta=2.5)),
    call("softplus_beta", "{x}, 0.5", functools.partial(softplus, beta=0.5)),
    call("gelu_tanh", torch=functools.partial(functional.gelu, approximate="tanh"), absolute=1),
    call("elu", "{x}, alpha=0.5", functools.partial(functional.elu, alpha=0.5), pattern={2: KINK}),
    call("celu", "{x}, alpha=2", functools.partial(functional.celu, alpha=2.0), pattern={2: KINK}),
    call("leaky_relu", "{x}, 0.2", functools.partial(functional.leaky_relu, negative_slope=0.2)),
    call("hardtanh", "{x}, -3, 0.5", lambda x: functional.hardtanh(x, -3.0, 0.5)),
    call("hardshrink", "{x}, lambd=1", lambda x: functional.hardshrink(x, 1.0)),
    call("softshrink", "{x}, lambd=3", lambda x: functional.softshrink(x, 3.0)),
    call("threshold", "{x}, 0.5, -3", lambda x: functional.threshold(x, 0.5, -3.0)),
    call("clamp", "{x}, -1, 3", lambda x: x.clamp(-1, 3)),
    call("clamp_min", "{x}, 0.5", lambda x: x.clamp_min(0.5)),
    call("clamp_max", "{x}, 0.5", lambda x: x.clamp_max(0.5)),
    call("hardsigmoid", orders=1),
    call(
        "polygamma",
        "1, {x}",
        lambda x: torch.polygamma(1, x),
        orders=1,
        pattern={0: POLES, 1: POLES},
    ),
    call(
        "polygamma",
        "2, {x}",
        lambda x: torch.polygamma(2, x),
        orders=1,
        pattern={0: POLES, 1: POLES},
    ),
    written("cube", "{x}**3", lambda x: x**3, "powi"),
    written("fifth", "{x}**-5", lambda x: x**-5.0, "powi"),
    written("power of a half", "{x}**0.5", torch.sqrt, "pow"),
    call("pow", "{x}, 2.5", lambda x: x**2.5, pattern={2: HALF}),
    written("2 to the power", "2**{x}", lambda x: 2**x, "pow"),
    written("float of a condition", "float({x} > 0.5)", lambda x: (x > 0.5).to(x.dtype), "real"),
]
BINARY = [
    *(call(name, "{x}, {y}") for name in ("add", "sub", "mul", "div", "true_divide")),
    *(call(name, "{x}, {y}") for name in ("hypot", "copysign")),
    call("pow", "{x}, {y}", pattern={1: ROUNDED, 2: ROUNDED}),
    call("atan2", "{x}, {y}", pattern={1: UNDERFLOW}),
    *(call(name, "{x}, {y}", pattern={2: CANCELS}) for name in ("logaddexp", "logaddexp2")),
    *(call(name, "{x}, {y}") for name in ("xlogy", "xlog1py")),
    *(call(name, "{x}, {y}") for name in ("maximum", "minimum")),
    *(call(name, "{x}, {y}", pattern={0: ZEROS}) for name in ("fmax", "fmin")),
    call("remainder", "{x}, {y}", pattern={0: RIGHT}),
    call("fmod", "{x}, {y}", pattern={0: RIGHT}),
    call("floor_divide", "{x}, {y}", orders=0),
    call(
        "heaviside",
        "{x}, {y}",
        lambda x, y: torch.where(x == 0, y, (x > 0).to(x.dtype)),
        orders=1,
    ),
    written(
        "where", "where({x} > {y}, {x}, 3*{y})", lambda x, y: torch.where(x > y, x, 3 * y), "where"
    ),
]
TERNARY = [
    call("lerp", "{x}, {y}, {w}", pattern={0: FUSED}),
    call("clamp", "{x}, {y}, {w}"),
]
TESTS: dict[str, Callable[..., Tensor]] = {
    **{f"{name}(x, y)": of_torch(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{f"{name}(x)": of_torch(name) for name in ("isnan", "isinf", "isfinite", "signbit")},
    "logical_and(x > 0, y > 0)": lambda x, y: (x > 0) & (y > 0),
    "logical_or(x > 0, y > 0)": lambda x, y: (x > 0) | (y > 0),
    "logical_xor(x > 0, y > 0)": lambda x, y: (x > 0) ^ (y > 0),
    "logical_not(x > 0)": lambda x, y: ~(x > 0),
    "where(x > 0, y > 0, x < y)": lambda x, y: torch.where(x > 0, y > 0, x < y),
}
EVERY = [*UNARY, *BINARY, *TERNARY]
BY_NAME = {function.name: function for function in EVERY}
assert len(BY_NAME) == len(EVERY)


def grouped() -> list[tuple[Function, ...]]:
    """The functions as they share an operator: at most 63 parameters in its second derivative."""
    groups: list[tuple[Function, ...]] = []
    for members, size in ((UNARY, 13), (BINARY, 8), (TERNARY, 2)):
        ordered = sorted(members, key=lambda function: function.orders)
        groups += [tuple(ordered[k : k + size]) for k in range(0, len(ordered), size)]
    return groups


# --- where functions are evaluated

KINKS = (1.0, 0.5, 3.0, 6.0, 20.0, 30.0, 1e4, 1e-8)


def special(dtype: torch.dtype) -> list[float]:
    """The values where a function may go wrong."""
    info = torch.finfo(dtype)
    least = float(info.smallest_normal) * float(info.eps)
    sizes = (0.0, *KINKS, least, float(info.smallest_normal), float(info.max), math.inf)
    return [sign * size for size in sizes for sign in (1.0, -1.0)] + [math.nan]


def usual(dtype: torch.dtype, count: int, seed: int) -> Tensor:
    """Random values of many sizes, near 1 as well, sorted."""
    source = np.random.default_rng(seed)
    part = count // 4
    signs = source.choice([-1.0, 1.0], part)
    values = [
        signs * 2.0 ** source.uniform(-14, 4, part),
        source.uniform(-1, 1, part),
        source.uniform(-6, 6, part),
        signs * (1 + source.uniform(-0.05, 0.05, part)),
    ]
    return torch.as_tensor(np.sort(np.concatenate(values))).to(dtype)


RANDOM = 120  # points beside the special ones


@functools.cache
def points(dtype: torch.dtype, inputs: int) -> tuple[Tensor, ...]:
    """Arguments: special values, or each of them with each, then random ones."""
    values = special(dtype)
    if inputs == 1:
        return (
            torch.cat(
                [torch.tensor(values, dtype=torch.float64).to(dtype), usual(dtype, RANDOM, 1)]
            ),
        )
    few = [v for v in values if abs(v) not in (6.0, 20.0, 30.0, 1e-8)]
    if inputs == 3:
        few = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, math.inf, -math.inf, math.nan]
    table = torch.tensor(list(itertools.product(few, repeat=inputs)), dtype=torch.float64)
    source = torch.Generator().manual_seed(0)
    mixed = [
        usual(dtype, RANDOM, k)[torch.randperm(RANDOM, generator=source)] for k in range(inputs)
    ]
    return tuple(torch.cat([table[:, k].to(dtype), mixed[k]]) for k in range(inputs))


# --- exact values: nodes in mpmath


def _pow(x: Any, y: Any) -> Any:
    return mpmath.mpf(1) if y == 0 else x**y


def of_fraction(value: Fraction) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


EXACT: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "pow": _pow,
    "remainder": lambda x, y: of_fraction(Fraction(float(x)) % Fraction(float(y))),
    "fmod": lambda x, y: (
        mpmath.sign(x) * of_fraction(Fraction(abs(float(x))) % Fraction(abs(float(y))))
    ),
    "floor_divide": lambda x, y: mpmath.floor(x / y),
    **{"lt": lambda x, y: x < y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y},
    **{"ge": lambda x, y: x >= y, "eq": lambda x, y: x == y, "ne": lambda x, y: x != y},
    "isnan": mpmath.isnan,
    "logical_and": lambda x, y: x and y,
    "logical_or": lambda x, y: x or y,
    "logical_not": lambda x: not x,
    "where": lambda c, x, y: x if c else y,
    "real": mpmath.mpf,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    **{"abs": abs, "stop": mpmath.mpf},
    "frac": lambda x: x - int(x),
    "trunc": lambda x: mpmath.mpf(int(x)),
    "round": mpmath.nint,
    "copysign": lambda x, y: abs(x) if y >= 0 else -abs(x),
    **{"maximum": max, "minimum": min, "fmax": max, "fmin": min},
    "clamp": lambda x, low, high: min(max(x, low), high),
    "logaddexp": lambda x, y: max(x, y) + mpmath.log1p(mpmath.exp(-abs(x - y))),
    "logaddexp2": lambda x, y: max(x, y) + mpmath.log1p(2 ** -abs(x - y)) / mpmath.log(2),
    "xlogy": lambda x, y: x * mpmath.log(y) if x else mpmath.mpf(0),
    "xlog1py": lambda x, y: x * mpmath.log1p(y) if x else mpmath.mpf(0),
    "sinc": mpmath.sincpi,
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "polygamma": lambda n, x: mpmath.polygamma(int(n), x) if abs(x) < 40 else mpmath.nan,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log_sigmoid": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "logit": lambda x: mpmath.log(x / (1 - x)),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "elu": lambda x, alpha: x if x > 0 else alpha * mpmath.expm1(x),
    "tanh_softplus": lambda x: mpmath.tanh(mpmath.log(1 + mpmath.exp(x))),
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "whole": int,
}
DIGITS = 60


def exact(node: Node, values: Mapping[str, float]) -> float:
    """The value of an expression, rounded once; NaN where it is not real."""
    with mpmath.workdps(DIGITS):
        try:
            made: dict[Node, Any] = {}
            for part in in_order([node]):
                made[part] = _exact(part, [made[arg] for arg in part.args], values)
            value = made[node]
            return float(value) if mpmath.im(value) == 0 else math.nan
        except (ArithmeticError, ValueError, TypeError):
            return math.nan


def _exact(node: Node, args: Sequence[Any], values: Mapping[str, float]) -> Any:
    if node.op == NUMBER:
        return node.data if node.type != "real" else constant(float(node.number))
    if not node.args:
        return mpmath.mpf(values[node.name])
    if node.op == "powi":
        return args[0] ** int(node.data)  # pyright: ignore[reportArgumentType]
    function = EXACT.get(node.op) or getattr(mpmath, node.op)
    return function(*args)


# The numbers of the table that stand for irrational ones.
CONSTANTS: dict[float, Callable[[], Any]] = {
    math.pi: lambda: +mpmath.pi,
    0.6931471805599453: lambda: mpmath.log(2),
    2.302585092994046: lambda: mpmath.log(10),
    1.1283791670955126: lambda: 2 / mpmath.sqrt(mpmath.pi),
    0.8862269254527579: lambda: mpmath.sqrt(mpmath.pi) / 2,
    0.7071067811865476: lambda: 1 / mpmath.sqrt(2),
    0.3989422804014327: lambda: 1 / mpmath.sqrt(2 * mpmath.pi),
    0.7978845608028654: lambda: mpmath.sqrt(2 / mpmath.pi),
}


def constant(value: float) -> Any:
    """A number of the table as what it stands for."""
    for rounded, exactly in CONSTANTS.items():
        if abs(value) == rounded:
            return exactly() * (1 if value > 0 else -1)
    return mpmath.mpf(value)


# --- bounds


def ulp(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance of a dtype's numbers at some values, in float64."""
    info = torch.finfo(dtype)
    size = value.double().abs().clamp(float(info.smallest_normal), float(info.max))
    return torch.exp2((size.frexp().exponent - 1).double()) * float(info.eps)


def near(errors: Tensor, reach: int = 6) -> Tensor:
    """The largest of the errors nearby, of sorted points."""
    padded = functional.pad(errors[None, None], (reach, reach))
    return functional.max_pool1d(padded, 2 * reach + 1, 1)[0, 0]
