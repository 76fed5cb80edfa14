"""The table of functions: one row says what a function is, everywhere.

A row gives the name (PyTorch's), the parameters, how it is written in C++ and CUDA (the functions
of `csrc/formula/` if nothing else is said), how PyTorch evaluates it, and its derivative in the
language itself, with the words of PyTorch's `derivatives.yaml`: `grad` arrives, `result` is the
value. A derivative is linear in `grad`, so it serves forward mode as well. It picks by `where` and
never by a product, which would make NaN of zero times infinity. Kinks are PyTorch's: relu'(0) = 0.

A function that others make up is `defined` by them, and is gone once it is parsed.

Sources of derivatives: PyTorch's tools/autograd/derivatives.yaml; M. Abramowitz and I. Stegun,
Handbook of Mathematical Functions (1964), chapters 4, 6 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What a function takes and gives: real numbers; whole numbers too, which stay whole; conditions.
Kind = Literal["real", "number", "test", "logic", "where"]
ARITHMETIC, ROOT, SERIES = 1, 4, 100  # work, in multiplications


@dataclass(frozen=True, kw_only=True)
class FunctionRow:
    """One row.

    Attributes:
        name: as users write it, or the word for an operator: "add".
        parameters: their names; `defaults` are those of the last ones.
        kind: of numbers that it takes and gives.
        vjp: for each parameter the gradient, or None where it is zero.
        told: an expression of the derivative in the parameters, and the same in `result`, used if
            that is saved anyway: with less work and, as in PyTorch, with less precision.
        shown: what the derivative computes, and how people write it, for `op.derivative()`.
        defined: the same in other functions of the table, in place of all that follows.
        code: C++ and CUDA, with the parameters in braces.
        torch: where PyTorch has it: "special.xlog1py" is `torch.special.xlog1py`.
        work: about how many multiplications it costs.
    """

    name: str
    parameters: tuple[str, ...]
    defaults: tuple[float, ...] = ()
    kind: Kind = "real"
    vjp: tuple[str | None, ...] = ()
    told: tuple[str, str] | None = None
    shown: tuple[str, str] | None = None
    defined: str | None = None
    code: str = ""
    torch: str = ""
    work: int = 10


TABLE: dict[str, FunctionRow] = {}


def row(  # noqa: PLR0913  (the columns)
    signature: str,
    *vjp: str | None,
    kind: Kind = "real",
    told: tuple[str, str] | None = None,
    shown: tuple[str, str] | None = None,
    defined: str | None = None,
    code: str | None = None,
    torch: str | None = None,
    work: int = 10,
) -> None:
    """Add a row, with a signature such as "elu(x, alpha=1)"."""
    name, _, inside = signature.rstrip(")").partition("(")
    words = [word.strip().partition("=") for word in inside.split(",")]
    parameters = tuple(word for word, _, _ in words)
    TABLE[name] = FunctionRow(
        name=name,
        parameters=parameters,
        defaults=tuple(float(value) for _, _, value in words if value),
        kind=kind,
        vjp=vjp or (None,) * len(parameters),
        told=told,
        shown=shown,
        defined=defined,
        code=code or f"{name}({', '.join(f'{{{p}}}' for p in parameters)})",
        torch=torch or name,
        work=work,
    )


# Arithmetic, by operators.
row("add(x, y)", "grad", "grad", kind="number", code="({x} + {y})", work=1)
row("sub(x, y)", "grad", "-grad", kind="number", code="({x} - {y})", work=1)
row("mul(x, y)", "grad * y", "grad * x", kind="number", code="({x} * {y})", work=1)
row("div(x, y)", "grad / y", "-grad * (result / y)", code="({x} / {y})", work=ROOT)
row("neg(x)", "-grad", kind="number", code="(-{x})", work=1)
row(
    "pow(x, y)",
    "where(y == 0, 0, grad * (y * x**(y - 1)))",
    "where((x == 0) and (y >= 0), 0, grad * (result * log(x)))",
    kind="number",
    work=20,
)
# `n` is a number that the node carries.
row("powi(x)", "grad * (n * x**(n - 1))", kind="number", code="powi<{n}>({x})", work=2)
row("remainder(x, y)", "grad", "-grad * floor_divide(x, y)", kind="number", work=ROOT)
row("floor_divide(x, y)", kind="number", work=ROOT)
# Told from the remainder: x / y itself may be rounded up to the next whole number.
row("fmod(x, y)", "grad", "-grad * round((x - result) / y)", kind="number", work=ROOT)
row("square(x)", defined="x**2")
row("reciprocal(x)", defined="1 / x")
row("true_divide(x, y)", defined="x / y")

# Conditions. `real` and `int` make numbers of them: True is 1.
row("lt(x, y)", kind="test", work=1)
row("le(x, y)", kind="test", work=1)
row("gt(x, y)", kind="test", work=1)
row("ge(x, y)", kind="test", work=1)
row("eq(x, y)", kind="test", work=1)
row("ne(x, y)", kind="test", work=1)
row("isnan(x)", kind="test", work=1)
row("isinf(x)", kind="test", work=1)
row("isfinite(x)", kind="test", work=1)
row("signbit(x)", kind="test", work=1)
row("logical_and(x, y)", kind="logic", work=1)
row("logical_or(x, y)", kind="logic", work=1)
row("logical_xor(x, y)", kind="logic", work=1)
row("logical_not(x)", kind="logic", work=1)
row(
    "where(condition, x, y)",
    *(None, "where(condition, grad, 0)", "where(condition, 0, grad)"),
    kind="where",
    work=1,
)
row("real(x)", "grad", work=1)
row("whole(x)", kind="number", work=1)

# Exponentials and logarithms.
row("exp(x)", "grad * result")
row("exp2(x)", "grad * (result * 0.6931471805599453)")
row("expm1(x)", "grad * exp(x)", told=("exp(x)", "result + 1"))
row("log(x)", "grad / x")
row("log2(x)", "grad / (x * 0.6931471805599453)")
row("log10(x)", "grad / (x * 2.302585092994046)")
row("log1p(x)", "grad / (x + 1)")
# Of two equal infinities, as of two impossible paths, each has half of the gradient, and not NaN.
# Both gradients, and the value, have the exponential of one distance, which is differentiated too.
DISTANCE = "where(x == y and abs(x) == inf, 0.0, x - y)"
row(
    "logaddexp(x, y)",
    f"grad * sigmoid({DISTANCE})",
    f"grad * sigmoid(-{DISTANCE})",
    work=20,
)
row(
    "logaddexp2(x, y)",
    f"grad / (1 + exp2(-{DISTANCE}))",
    f"grad / (1 + exp2({DISTANCE}))",
    work=20,
)
row(
    "xlogy(x, y)",
    "where((x == 0) and (y <= 0), 0, grad * log(y))",
    "grad * (x / y)",
)
row(
    "xlog1py(x, y)",
    "where((x == 0) and (y <= -1), 0, grad * log1p(y))",
    "grad * (x / (y + 1))",
    torch="special.xlog1py",
)
row("logit(x)", "where((x < 0) or (x > 1), nan, grad / (x * (1 - x)))")
row("sqrt(x)", "grad / (2 * result)", work=ROOT)
row("rsqrt(x)", "-0.5 * (grad * result**3)", work=ROOT)
row("hypot(x, y)", "grad * (x / result)", "grad * (y / result)")

# Trigonometric and hyperbolic functions.
row("sin(x)", "grad * cos(x)")
row("cos(x)", "grad * -sin(x)")
row("tan(x)", "grad * (1 + result**2)")
row("asin(x)", "grad * rsqrt(1 - x**2)")
row("acos(x)", "grad * -rsqrt(1 - x**2)")
row("atan(x)", "grad / (x**2 + 1)")
ORIGIN = "where(x**2 + y**2 == 0, 0, grad * ({} / (x**2 + y**2)))"
row("atan2(x, y)", ORIGIN.format("y"), ORIGIN.format("-x"), work=15)
row("sinh(x)", "grad * cosh(x)")
row("cosh(x)", "grad * sinh(x)")
row("tanh(x)", "grad * (1 - result**2)")
row("asinh(x)", "grad * rsqrt(x**2 + 1)")
row("acosh(x)", "grad * rsqrt(x**2 - 1)")
row("atanh(x)", "grad / (1 - x**2)")
# Near 0, where the difference below loses its digits, this is the series, to a double's last bit.
SINC = "x * (pi**2 / -3 + x**2 * (pi**4 / 30 + x**2 * (pi**6 / -840 + x**2 * (pi**8 / 45360))))"
row(
    "sinc(x)",
    f"where(abs(x) < 0.03, grad * ({SINC}),"
    " grad * ((pi * x * cos(pi * x) - sin(pi * x)) / (pi * x * x)))",
)
row("deg2rad(x)", defined="x * (pi / 180)")
row("rad2deg(x)", defined="x * (180 / pi)")

# Special functions.
row("erf(x)", "1.1283791670955126 * exp(-x**2) * grad")
row("erfc(x)", "-1.1283791670955126 * exp(-x**2) * grad")
row("erfinv(x)", "0.8862269254527579 * exp(result**2) * grad", work=30)
row("lgamma(x)", "grad * digamma(x)", work=30)
row("digamma(x)", "grad * polygamma(1, x)", work=SERIES)
row(
    "polygamma(n, x)",
    *(None, "grad * polygamma(n + 1, x)"),
    code="polygamma({n}, {x})",
    work=SERIES,
)

# Steps and pieces.
row("abs(x)", "grad * sign(x)", kind="number", work=1)
row("sign(x)", kind="number", work=1)
row("floor(x)", kind="number", work=1)
row("ceil(x)", kind="number", work=1)
row("round(x)", kind="number", work=1)
row("trunc(x)", kind="number", work=1)
row("frac(x)", "grad", work=2)
# The value without a gradient: `soft + stop(hard - soft)` is hard, and differentiated as soft.
row("stop(x)", kind="number", code="({x})", torch="detach", work=1)
row("copysign(x, y)", "where(x == 0, 0, grad * copysign(1, x) * copysign(1, y))", None, work=1)
row("heaviside(x, y)", defined="where(x == 0, y, real(x > 0))")
MOST = "where(x == y, grad / 2, where({}, 0, grad))"
row("maximum(x, y)", MOST.format("x < y"), MOST.format("y < x"), kind="number", work=1)
row("minimum(x, y)", MOST.format("x > y"), MOST.format("y > x"), kind="number", work=1)
FIRST = "(x {} y) or isnan(y)"
for name, sign in (("fmax", ">="), ("fmin", "<=")):
    first = FIRST.format(sign)
    row(f"{name}(x, y)", f"where({first}, grad, 0)", f"where({first}, 0, grad)", work=1)
row("clamp_min(x, min)", defined="clamp(x, min, inf)")
row("clamp_max(x, max)", defined="clamp(x, -inf, max)")
row(
    "clamp(x, min=-inf, max=inf)",
    "where((x >= min) and (x <= max), grad, 0)",
    "where((min < max) and (x < min), grad, 0)",
    "where((x > max) or (max < min), grad, 0)",
    code="minimum(maximum({x}, {min}), {max})",
    kind="number",
    work=2,
)
row(
    "lerp(x, y, weight)",
    defined="where(abs(weight) < 0.5, x + weight * (y - x), y - (y - x) * (1 - weight))",
)

# Activations.
# Not of exp(-abs(x)): a kink at 0 would make the third derivative 0 there.
SLOPE = "sigmoid(x) * sigmoid(-x)"
TWICE = (SLOPE, "(1 - result) * result")
row("sigmoid(x)", f"grad * ({SLOPE})", told=TWICE, shown=TWICE)
row("log_sigmoid(x)", "grad * sigmoid(-x)", torch="nn.functional.logsigmoid", work=20)
row("softplus(x)", "grad * sigmoid(x)", work=20)
row("softplus_beta(x, beta)", defined="softplus(x * beta) / beta")
row("relu(x)", "where(result <= 0, 0, grad)", kind="number", work=1)
GELU_SLOPE = "0.5 * erfc(x * -0.7071067811865476) + x * (exp(x**2 / -2) * 0.3989422804014327)"
row(
    "gelu(x)",
    f"grad * ({GELU_SLOPE})",
    torch="nn.functional.gelu",
    work=20,
)
# 0.5*x*(1 + tanh(u)) by x*sigmoid(2*u), in which nothing cancels where x is below 0.
row("gelu_tanh(x)", defined="x * sigmoid(1.5957691216057308 * (x + 0.044715 * x**3))")
row("silu(x)", defined="x * sigmoid(x)")
row("mish(x)", defined="x * tanh_softplus(x)")
# tanh(softplus(x)) is n / (n + 2) for e = exp(x), n = e*(e + 2): one exponential instead of three.
E = "exp(where(x > 20, 20, x))"
RISE = f"4 * {E} * ({E} + 1) / ({E} * ({E} + 2) + 2)**2"
row(
    "tanh_softplus(x)",
    f"where(x > 20, 0, grad * ({RISE}))",
    shown=(RISE, "(1 - result**2) * sigmoid(x)"),
)
row("softsign(x)", defined="x / (1 + abs(x))")
row("tanhshrink(x)", defined="x - tanh(x)")
row("elu(x, alpha=1)", defined="where(x > 0, x, alpha * expm1(x))")
row(
    "selu(x)",
    defined="1.0507009873554805 * where(x > 0, x, 1.6732632423543772 * expm1(x))",
)
row("celu(x, alpha=1)", defined="where(x > 0, x, alpha * expm1(x / alpha))")
row("leaky_relu(x, negative_slope=0.01)", defined="where(x > 0, x, x * negative_slope)")
row("relu6(x)", defined="hardtanh(x, 0, 6)")
row(
    "hardtanh(x, min_val=-1, max_val=1)",
    defined="where(x <= min_val, min_val, where(x >= max_val, max_val, x))",
)
row("hardsigmoid(x)", defined="where(x <= -3, 0, where(x >= 3, 1, x / 6 + 0.5))")
row("hardswish(x)", defined="where(x <= -3, 0, where(x >= 3, x, x * (x / 6 + 0.5)))")
row("hardshrink(x, lambd=0.5)", defined="where((x >= -lambd) and (x <= lambd), 0, x)")
row(
    "softshrink(x, lambd=0.5)",
    # In this order, NaN stays NaN.
    defined="where((x >= -lambd) and (x <= lambd), 0, where(x > 0, x - lambd, x + lambd))",
)
row("threshold(x, threshold, value)", defined="where(x <= threshold, value, x)")

# PyTorch's other names for the same functions.
ALIASES = {
    **{"absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin"},
    **{"arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh"},
    **{"clip": "clamp", "divide": "div", "expit": "sigmoid", "fix": "trunc", "greater": "gt"},
    **{"greater_equal": "ge", "less": "lt", "less_equal": "le", "logsigmoid": "log_sigmoid"},
    **{"multiply": "mul", "negative": "neg", "not_equal": "ne", "sgn": "sign"},
    **{"detach": "stop", "subtract": "sub", "max": "maximum", "min": "minimum"},
    **{"float": "real", "int": "whole"},
}
# Rows that the language makes itself; users cannot write them.
HIDDEN = ("powi", "real", "whole", "softplus_beta", "gelu_tanh", "tanh_softplus")
# The functions that divide, and by which parameter.
DIVISORS = {
    **{"div": 1, "true_divide": 1, "remainder": 1, "floor_divide": 1, "fmod": 1, "reciprocal": 0},
}
CONSTANTS = {
    **{"pi": 3.141592653589793, "e": 2.718281828459045, "inf": float("inf")},
    **{"nan": float("nan")},
}


def find_function(name: str) -> FunctionRow | None:
    """Return the function that a user means by a name."""
    return None if name in HIDDEN else TABLE.get(ALIASES.get(name, name))


def known_names() -> list[str]:
    """Return every name of a function that users may write."""
    return [name for name in (*TABLE, *ALIASES) if name not in HIDDEN]
