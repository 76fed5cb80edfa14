"""Prints docs/functions.md from the table of functions: `python tests/repo/functions_page.py`."""

from __future__ import annotations

from pathlib import Path

from pullback.define.formula.functions import ALIASES, CONSTANTS, HIDDEN, TABLE, Function

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
HEAD = """# Functions of formulas

Written by `python tests/repo/functions_page.py` from the table that everything else comes from,
`define/formula/functions.py`. In derivatives `grad` is what arrives and `result` the value;
`where` selects, so that nothing of the other branch is left. A function that others make up has
their derivatives.

| function | derivative by each parameter, or what it is made of |
|---|---|
"""
WHOLE = """Whole numbers have 64 bits; sums, products and powers wrap around, as PyTorch's do, but a
constant that does not fit is refused (PB135). One divided by zero (`//`, `%`, `fmod`) raises PB136
on the CPU, as PyTorch does (`ZeroDivisionError`), also in a branch that `where` does not take:
let it choose the divisor, `a // where(b != 0, b, 1)`. On a GPU and in a model for ONNX nothing is
raised: the result is 0 in a compiled loop and in the model, anything in PyTorch's own on a GPU."""


def page() -> str:
    """Return the page."""
    rows = [row(function) for name, function in TABLE.items() if name not in HIDDEN]
    aliases = ", ".join(f"`{alias}` is `{name}`" for alias, name in sorted(ALIASES.items()))
    constants = ", ".join(f"`{name}`" for name in CONSTANTS)
    return (
        HEAD
        + "\n".join(rows)
        + '\n\n`gelu(x, approximate="tanh")` and `softplus(x, beta)` are as in PyTorch. '
        + f"Constants: {constants}.\n\n{WHOLE}\n\nOther names: {aliases}.\n"
    )


def row(function: Function) -> str:
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
