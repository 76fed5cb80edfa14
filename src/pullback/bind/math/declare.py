"""`@pb.formula`: a formula written as a Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pullback.bind.declare import is_foreign, is_name
from pullback.bind.kinds.formula import Pointwise
from pullback.bind.operator import Operator
from pullback.bind.register import foreign_operator, register
from pullback.bind.validate import WrongDeclaration, accuracy_of, validate
from pullback.define.line import Line
from pullback.define.math import formula as formulas
from pullback.define.math import notation, trace
from pullback.define.math.language import FormulaOutputs
from pullback.define.operator import Accuracy, Autocast, Definition
from pullback.define.parse import parse


def formula(
    line: str, *, autocast: Autocast = "as_is", accuracy: Accuracy = "4ulp"
) -> Callable[[Callable[..., Any]], Operator]:
    """Make an operator from a Python function that uses PyTorch's functions, element by element.

    The function is called once, with symbols: what it does to them is the formula, and the kernels
    and the derivatives of every order come from that.

    ```python
    @pb.formula("demo::swish")
    def swish(x, beta: float = 1.0):
        return x * torch.sigmoid(beta * x)
    ```

    Args:
        line: a whole line without `= formula`; or the name alone, "demo::swish". Then a parameter
            that is annotated float, int or bool, or has such a default, is a scalar, and any other
            a tensor `x[...]`; a function that returns a tuple or dictionary has several outputs.
        autocast: as for `pb.operator`.
        accuracy: as for `pb.operator`.

    Returns:
        A decorator that returns the operator.

    Raises:
        PullbackError: PB101 to PB109, the line is wrong; PB13x, the function is no formula; PB3xx,
            it cannot be registered.
    """
    if not isinstance(line, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongDeclaration.error(
            "@pb.formula stands without the operator's name", help='@pb.formula("demo::name")'
        )

    def make(function: Callable[..., Any]) -> Operator:
        declared = trace.line_of(line, function) if is_name(line) else parse(line)
        if declared.formula is not None:
            raise WrongDeclaration.error(
                f"{declared.qualname}: the line has a formula, and the function is another one",
                help="leave out '= ...', or the function",
            )
        names = formulas.names_of(declared.parameters, declared.qualname)
        nodes, keys = trace.trace_function(function, names, declared.qualname)
        if is_name(line):
            declared = _name_outputs(declared, keys or _number_names(len(nodes)))
        if len(nodes) != len(declared.outputs):
            raise FormulaOutputs.error(
                f"{declared.qualname}: the function returns {len(nodes)} values, "
                f"the line says {len(declared.outputs)}"
            )
        made = formulas.of_nodes(declared, nodes, accuracy_of(declared.qualname, accuracy))
        made = replace(made, line=replace(declared, formula=notation.format_formula(made)))
        definition = Definition(
            line=made.line,
            formula=made,
            reference=function,
            autocast=autocast,
        )
        if is_foreign(declared):
            raise foreign_operator(declared.qualname)
        validate(definition)
        return register(Pointwise(definition))

    return make


def _number_names(count: int) -> list[str]:
    return ["output"] if count == 1 else [f"output{place}" for place in range(count)]


def _name_outputs(line: Line, names: list[str]) -> Line:
    (output,) = line.outputs
    return replace(line, outputs=tuple(replace(output, name=name) for name in names))
