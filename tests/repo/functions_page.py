"""Prints docs/functions.md from the table of functions: `python tests/repo/functions_page.py`."""

from __future__ import annotations

from pathlib import Path

from pullback.define.math.functions import ALIASES, CONSTANTS, HIDDEN, TABLE, FunctionRow
from pullback.define.math.spellings import SPELLINGS

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
HEAD = """# Functions of formulas

Written by `python tests/repo/functions_page.py` from the table that everything else comes from,
`define/math/functions.py`. In derivatives `grad` is the gradient that arrives and `result` the
value; `where` selects, so nothing from the other branch remains. A function that is made of others
has their derivatives.

| function | derivative by each parameter, or what it is made of |
|---|---|
"""
WHOLE = """`int(c)` is 1 where a condition c holds, else 0, and `float(n)` makes a condition or a
whole number real. There is no `int` of a real number (PB135): `trunc(x)` stays real. Integers have
64 bits; sums, products and powers wrap around, as PyTorch's do, but a constant that does not fit is
refused (PB135). An integer division by zero (`//`, `%`, `fmod`) raises PB136 on the CPU, as in
PyTorch (`ZeroDivisionError`), also in a branch that `where` does not take: let `where` choose the
divisor, `a // where(b != 0, b, 1)`. On a GPU and in an ONNX model nothing is raised: the result is
0 in a compiled loop and in the model, and undefined in PyTorch's own operations on a GPU."""
TIES = """
## Kinks and ties

Where the one-sided derivatives differ, the derivative is that of PyTorch's function of the same
name. So at 0 `max(x, 0)`, which is `torch.maximum`, passes half of the gradient on,
`clamp(x, min=0)` all of it, and `relu(x)` nothing; `where(x > 0, x, 0)` passes nothing either.

| formula | at | gradients |
|---|---|---|
"""
AMONG = """
In [index notation](index-notation.md) `max[k](…)` and `min[k](…)` give the whole gradient to the
first of several equal elements, as `torch.max(x, dim)` does; `torch.amax` shares it among them.
"""
SPELLED = """
## Functions that are written by others

These are recognised wherever they stand, with any expressions for `a` and `b`, and the operands of
sums, products, maxima and minima in any order; what is computed, differentiated and shown is the
function ([why](decisions/spellings-are-functions.md)). It is at least as exact: `log1p(exp(x))` is
x where x is 100, not infinite, and its gradient is 1, not NaN.

| written | is |
|---|---|
"""
HALF = """| `0.5*a*(1 + erf(a/sqrt(2)))`, the half and the root written in any way | `gelu(a)` |
"""
# A formula, the same in PyTorch, where it has a kink, and the gradients there.
KINKS: tuple[tuple[str, str, dict[str, float], tuple[float, ...]], ...] = (
    ("relu(x)", "torch.relu(x)", {"x": 0}, (0,)),
    ("max(x, z)", "torch.maximum(x, z)", {"x": 0, "z": 0}, (0.5, 0.5)),
    ("min(x, z)", "torch.minimum(x, z)", {"x": 0, "z": 0}, (0.5, 0.5)),
    ("fmax(x, z)", "torch.fmax(x, z)", {"x": 0, "z": 0}, (1, 0)),
    ("fmin(x, z)", "torch.fmin(x, z)", {"x": 0, "z": 0}, (1, 0)),
    ("clamp(x, z, 1)", "torch.clamp(x, z, one)", {"x": 0, "z": 0}, (1, 0)),
    ("clamp(x, 0, z)", "torch.clamp(x, 0*one, z)", {"x": 1, "z": 1}, (1, 0)),
    ("clamp(x, min=0)", "x.clamp(min=0)", {"x": 0}, (1,)),
    ("clamp(x, max=0)", "x.clamp(max=0)", {"x": 0}, (1,)),
    ("abs(x)", "torch.abs(x)", {"x": 0}, (0,)),
    ("hardtanh(x)", "functional.hardtanh(x)", {"x": 1}, (0,)),
    ("relu6(x)", "functional.relu6(x)", {"x": 6}, (0,)),
    ("leaky_relu(x)", "functional.leaky_relu(x)", {"x": 0}, (0.01,)),
    ("elu(x, 2.0)", "functional.elu(x, 2.0)", {"x": 0}, (2,)),
    ("hardsigmoid(x)", "functional.hardsigmoid(x)", {"x": 3}, (0,)),
    ("hardswish(x)", "functional.hardswish(x)", {"x": 3}, (1,)),
    ("hardswish(x)", "functional.hardswish(x)", {"x": -3}, (0,)),
    ("hardshrink(x)", "functional.hardshrink(x)", {"x": 0.5}, (0,)),
    ("softshrink(x)", "functional.softshrink(x)", {"x": 0.5}, (0,)),
    ("threshold(x, 0, 5)", "functional.threshold(x, 0, 5)", {"x": 0}, (0,)),
    ("x % z", "torch.remainder(x, z)", {"x": 4, "z": 2}, (1, -2)),
)


def page() -> str:
    """Return the page."""
    rows = [row(function) for name, function in TABLE.items() if name not in HIDDEN]
    others = {alias: name for alias, name in sorted(ALIASES.items()) if name not in HIDDEN}
    aliases = ", ".join(f"`{alias}` is `{name}`" for alias, name in others.items())
    constants = ", ".join(f"`{name}`" for name in CONSTANTS)
    return (
        HEAD
        + "\n".join(rows)
        + '\n\n`gelu(x, approximate="tanh")` and `softplus(x, beta)` are as in PyTorch. '
        + f"Constants: {constants}.\n\n{WHOLE}\n\nOther names: {aliases}.\n"
        + TIES
        + "\n".join(kink(text, at, gradients) for text, _, at, gradients in KINKS)
        + f"\n{AMONG}"
        + SPELLED
        + "".join(f"| `{w}` | `{m}` |\n" for w, m in SPELLINGS if m != "gelu(a)")
        + HALF
    )


def kink(text: str, at: dict[str, float], gradients: tuple[float, ...]) -> str:
    """Return the row of a kink."""
    place = ", ".join(f"{name} = {value:g}" for name, value in at.items())
    return f"| `{text}` | {place} | {', '.join(f'{gradient:g}' for gradient in gradients)} |"


def row(function: FunctionRow) -> str:
    """Return a function's row."""
    defaults: list[float | None] = [
        *[None] * (len(function.parameters) - len(function.defaults)),
        *function.defaults,
    ]
    parameters = ", ".join(
        name if default is None else f"{name}={default:g}"
        for name, default in zip(function.parameters, defaults, strict=True)
    )
    said = function.defined or "; ".join(rule or "0" for rule in function.vjp)
    word = "is " if function.defined else ""
    return f"| `{function.name}({parameters})` | {word}`{said}` |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
