"""ONNX's column of the table of functions: each function of formulas in ONNX's own operators.

A function is one operator of ONNX, or a text in the language of formulas, of functions that are.
ONNX Runtime has several operators for float32 alone, so float64 has texts for those as well.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from pullback.define.math import build, node, spellings, statements
from pullback.define.math.functions import TABLE
from pullback.define.math.node import Node
from pullback.deploy.onnx import special

# One operator, in every precision.
NATIVE: Mapping[str, str] = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "abs": "Abs"},
    **{"exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "tanh": "Tanh"},
    **{"floor": "Floor", "ceil": "Ceil", "round": "Round", "maximum": "Max", "minimum": "Min"},
    **{"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal"},
    **{"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not"},
    "stop": "Identity",
}
# One operator for real numbers; whole numbers have a text.
REAL: Mapping[str, str] = {
    **{"pow": "Pow", "fmod": "Mod", "relu": "Relu", "isnan": "IsNaN", "isinf": "IsInf"},
}
# One operator that ONNX Runtime, or many of its versions, has for float32 but not for float64.
SINGLE: Mapping[str, str] = {
    **{"cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh"},
    **{"cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf"},
}
# Texts that need float64 inside, whatever the operands are.
IN_DOUBLE = ("erfc", "erfinv", "lgamma", "digamma", "polygamma")
# Division of whole numbers towards zero, of which the divisor is neither 0 nor -1.
QUOTIENT = "quotient"

TEXTS: Mapping[str, str] = {
    "ne": "not (x == y)",
    "isfinite": "abs(x) < inf",
    "signbit": "(x < 0) or ((x == 0) and (1 / x < 0))",
    # Exponentials and logarithms. W. Kahan's way to keep the digits of a difference with 1.
    "exp2": "pow(2, x)",
    "expm1": "u = exp(x); rise = u - 1; "
    "where(abs(x) >= 1, rise, where(u == 1, x, rise * (x / log(u))))",
    "log1p": "u = 1 + x; where((u == 1) or (u == inf), x, log(u) * (x / (u - 1)))",
    "log2": "log(x) * 1.4426950408889634",
    "log10": "log(x) * 0.4342944819032518",
    "logaddexp": "maximum(x, y) + log1p(exp(-where(x == y, 0.0, abs(x - y))))",
    "logaddexp2": "maximum(x, y)"
    " + log1p(exp2(-where(x == y, 0.0, abs(x - y)))) * 1.4426950408889634",
    "xlogy": "where((x == 0) and (y == y), 0.0, x * log(y))",
    "xlog1py": "where((x == 0) and (y == y), 0.0, x * log1p(y))",
    "logit": "log(x / (1 - x))",
    "rsqrt": "1 / sqrt(x)",
    "hypot": "long = maximum(abs(x), abs(y)); short = minimum(abs(x), abs(y)); "
    "ratio = short / where(long == 0, 1.0, long); "
    "where(isinf(x) or isinf(y), inf, long * sqrt(1 + ratio * ratio))",
    # Trigonometric and hyperbolic functions.
    "cos": "half = sin(x / 2); 1 - 2 * half * half",
    "tan": "sin(x) / cos(x)",
    "asin": "atan(x / sqrt((1 - x) * (1 + x)))",
    "acos": "2 * atan(sqrt((1 - x) / (1 + x)))",
    "atan": special.ATAN,
    "atan2": "ratio = where(abs(x) == abs(y), where(x == 0, 0.0, 1.0), abs(x) / abs(y)); "
    "turn = atan(ratio); "
    "copysign(where(signbit(y), 3.141592653589793 - turn, turn), x)",
    # In halves: the square of exp(x / 2) overflows where the result does.
    "sinh": "half = exp(abs(x) / 2); rise = expm1(abs(x)); "
    "copysign(where(abs(x) > 20, half / 2 * half, (rise + rise / (rise + 1)) / 2), x)",
    "cosh": "half = exp(abs(x) / 2); half / 2 * half + 0.5 / half / half",
    "asinh": "a = abs(x); small = log1p(a + a * (a / (1 + sqrt(a * a + 1)))); "
    "copysign(where(a > 1e8, log(a) + 0.6931471805599453, small), x)",
    "acosh": "t = x - 1; where(x > 1e8, log(x) + 0.6931471805599453, log1p(t + sqrt(t * (t + 2))))",
    "atanh": "a = abs(x); copysign(log1p(2 * a / (1 - a)) / 2, x)",
    "sinc": "whole = round(x); sine = sin(pi * (x - whole)); half = whole * 0.5; "
    "turned = where(half == round(half), sine, -sine); where(x == 0, 1.0, turned / (pi * x))",
    # Special functions.
    "erf": "a = abs(x); where(a <= 0.46875, " + special.ERF_NEAR + ", copysign(1 - erfc(a), x))",
    "erfc": special.ERFC,
    "erfinv": special.ERFINV,
    "lgamma": special.LGAMMA,
    "digamma": special.DIGAMMA,
    # Steps and pieces.
    "sign": "where(x > 0, 1.0, where(x < 0, -1.0, 0.0))",
    "trunc": "where(x < 0, ceil(x), floor(x))",
    "frac": "x - trunc(x)",
    "copysign": "where(signbit(y), -abs(x), abs(x))",
    "fmax": "where((x >= y) or isnan(y), x, y)",
    "fmin": "where((x <= y) or isnan(y), x, y)",
    "clamp": "minimum(maximum(x, min), max)",
    "remainder": "rest = fmod(x, y); "
    "where((rest != 0) and logical_xor(rest < 0, y < 0), rest + y, rest)",
    "floor_divide": "rest = fmod(x, y); ratio = x / y; exact = (x - rest) / y; "
    "quotient = where((rest != 0) and logical_xor(rest < 0, y < 0), exact - 1, exact); "
    "down = floor(quotient); nearest = where(quotient - down > 0.5, down + 1, down); "
    "where(y == 0, ratio, where(quotient == 0, copysign(0.0, ratio), nearest))",
    # Activations; exp(-|x|) cannot overflow.
    "sigmoid": "small = exp(-abs(x)); where(x < 0, small, 1.0) / (1 + small)",
    "softplus": "maximum(x, 0) + log1p(exp(-abs(x)))",
    "log_sigmoid": "minimum(x, 0) - log1p(exp(-abs(x)))",
    "gelu": "0.5 * x * (1 + erf(x * 0.7071067811865476))",
    "tanh_softplus": "u = exp(minimum(x, 20)); n = u * u + u * 2; n / (n + 2)",
}
# Where float64 does better with another text than float32.
DOUBLE: Mapping[str, str] = {"gelu": "0.5 * x * erfc(x * -0.7071067811865476)"}

# Of whole numbers. Dividing by 0 gives 0, as in the kernels; `q` is the quotient towards zero.
WHOLE: Mapping[str, str] = {
    "isnan": "not (x == x)",
    "isinf": "not (x == x)",
    "isfinite": "x == x",
    "signbit": "x < 0",
    "relu": "where(x < 0, 0, x)",
    "sign": "where(x > 0, 1, where(x < 0, -1, 0))",
    "fmod": "where(y == 0, 0, x - q * y)",
    "remainder": "rest = where(y == 0, 0, x - q * y); "
    "where((rest != 0) and logical_xor(rest < 0, y < 0), rest + y, rest)",
    "floor_divide": "rest = x - q * y; "
    "where((y != 0) and (rest != 0) and logical_xor(rest < 0, y < 0), q - 1, q)",
}


def has(op: str) -> bool:
    """Return whether a function is translated here; the nodes of index notation are not."""
    return op in TABLE or op == QUOTIENT


def operator_of(node: Node, *, double: bool) -> tuple[str, dict[str, int]] | None:
    """Return ONNX's operator for a function, and its options; None if the function has a text."""
    whole = any(arg.type == "int" for arg in node.args)
    if node.op == "whole":
        return "Cast", {"to": ir.DataType.INT64}
    if node.op == QUOTIENT:
        return "Div", {}
    if node.op == "where" and node.type != "bool":
        return "Where", {}
    name = NATIVE.get(node.op)
    if not whole:
        name = name or REAL.get(node.op) or (None if double else SINGLE.get(node.op))
    return None if name is None else (name, {"fmod": 1} if name == "Mod" else {})


def expand(node: Node, *, double: bool) -> Node:
    """Write a function in other functions; repeated, this ends at operators of ONNX."""
    function = TABLE.get(node.op)
    assert function, node.op
    names = dict(zip(function.parameters, node.args, strict=True))
    if node.op == "powi":
        assert isinstance(node.data, int)
        return expand_product(node.args[0], node.data)
    if node.op == "where":
        return read_text("(condition and x) or ((not condition) and y)", names)
    if node.op == "polygamma":
        return read_text(special.polygamma(int(node.args[0].number)), names)
    if node.op == "pow" and node.type == "int":
        return whole_power(*node.args)
    if node.type == "int" or any(arg.type == "int" for arg in node.args):
        text = WHOLE.get(node.op) or TEXTS[node.op]
        return read_text(text, {**names, "q": quotient(*node.args)} if "q" in text else names)
    text = (double and DOUBLE.get(node.op)) or TEXTS[node.op]
    return build.to_real(read_text(text, names)) if node.type == "real" else read_text(text, names)


def read_text(text: str, names: Mapping[str, Node]) -> Node:
    """Return the node of a text."""
    with spellings.literally():
        (node,) = statements.nodes_of(text, names, ("result",), "ONNX's table of functions")
    return node


def expand_product(base: Node, exponent: int) -> Node:
    """Return a power as products, by squaring."""
    if exponent < 0:
        return build.apply("div", node.number(1.0), expand_product(base, -exponent))
    if exponent == 1:
        return base
    half = expand_product(base, exponent // 2)
    square = build.apply("mul", half, half)
    return build.apply("mul", square, base) if exponent % 2 else square


def quotient(dividend: Node, divisor: Node) -> Node:
    """Return a quotient of whole numbers towards zero; 0 where the divisor is 0.

    A runtime may end the process at the smallest number divided by -1.
    """
    names = {"x": dividend, "y": divisor}
    safe = read_text("where((y == 0) or (y == -1), 1, y)", names)
    q = node.make(QUOTIENT, (dividend, safe), None, "int", frozenset())
    return read_text("where(y == 0, 0, where(y == -1, -x, q))", {**names, "q": q})


def whole_power(base: Node, exponent: Node) -> Node:
    """Return a power of whole numbers by squaring; beyond 64 only the parity matters.

    ONNX Runtime's own goes through float64, which has too few digits.
    """
    names = {"x": base, "n": exponent}
    left, power, square = (
        read_text("where(n > 65, 64 + (n - n // 2 * 2), n)", names),
        node.number(1),
        base,
    )
    for _ in range(7):
        half = node.make(QUOTIENT, (left, node.number(2)), None, "int", frozenset())
        step = {"left": left, "half": half, "p": power, "s": square}
        power, square = (
            read_text("where(left - 2 * half == 1, p * s, p)", step),
            read_text("s * s", step),
        )
        left = half
    names["p"] = power
    inverse = "where(abs(x) == 1, where(n == n // 2 * 2, 1, x), 0)"
    return read_text(f"where(n < 0, {inverse}, p)", names)
