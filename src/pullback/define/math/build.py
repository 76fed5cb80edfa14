"""A function and its operands -> a node, with types converted and exact simplifications made.

Simplifying keeps every value, NaN, infinities and the sign of zero included: `x*1` is x, but `x*0`
is not 0 and `x + 0` is not x. What spells a function of the table becomes it (`spellings.py`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence

from pullback.define.math import grammar, show, spellings
from pullback.define.math.functions import ALIASES, TABLE, FunctionRow
from pullback.define.math.index import is_counted
from pullback.define.math.node import (
    INDEX,
    NUMBER,
    READ,
    Node,
    Type,
    in_order,
    index,
    is_number,
    make,
    number,
    place_of,
    quotient,
)

# A power with a whole exponent up to this is a product; beyond, it is the library's.
MOST_PRODUCT = 32


class Misfit(Exception):  # noqa: N818  (it becomes a PullbackError where the text is known)
    """Operands that a function does not take."""


def apply(name: str, *args: Node) -> Node:
    """Return the node of a function of the table.

    Raises:
        Misfit: a condition where a number is needed, or the other way round.
    """
    function = TABLE[ALIASES.get(name, name)]
    assert len(args) == len(function.parameters), name
    if function.defined is not None:
        return evaluate(function.defined, dict(zip(function.parameters, args, strict=True)))
    operands, type = fit_operands(function, args)
    return simplify(function, operands, type)


def powi(base: Node, exponent: int) -> Node:
    """Return `base` to a known whole power."""
    if exponent == 0:
        return number(1) if base.type == "int" else number(1.0)
    if exponent == 1:
        return base
    if base.op == "neg" and exponent % 2 == 0:
        return powi(base.args[0], exponent)
    if base.op == NUMBER:
        folded = fold("pow", [base, number(exponent)], base.type)
        if folded is not None:
            return folded
    return _recognised(make("powi", (base,), exponent, base.type, NONE))


def rebuild(node: Node, args: tuple[Node, ...]) -> Node:
    """Return a node with other operands of the same types."""
    if node.op == "powi":
        assert isinstance(node.data, int)
        return powi(args[0], node.data)
    return apply(node.op, *args)


NONE: frozenset[str] = frozenset()


def evaluate(text: str, names: Mapping[str, Node]) -> Node:
    """Return an expression of the table, evaluated for some operands."""
    return grammar.evaluate_text(text, names, apply)


def fit_operands(function: FunctionRow, args: Sequence[Node]) -> tuple[tuple[Node, ...], Type]:
    """Return the operands converted to the types that a function takes, and its value's type."""
    match function.kind:
        case "real":
            if function.name == "polygamma":
                require_order(args[0])
                return (args[0], to_real(args[1])), "real"
            return tuple(map(to_real, args)), "real"
        case "number" | "test":
            if function.name == "clamp" and args[0].type == "int":
                args = [args[0], *map(to_whole_bound, args[1:])]
            is_real = function.name != "whole" and any(arg.type == "real" for arg in args)
            common = "real" if is_real else "int"
            operands = tuple(to_real(arg) if common == "real" else to_whole(arg) for arg in args)
            return operands, common if function.kind == "number" else "bool"
        case "logic":
            for arg in args:
                require_condition(arg, function)
            return tuple(args), "bool"
        case "where":
            require_condition(args[0], function)
            types = {arg.type for arg in args[1:]}
            if types == {"bool"}:
                return tuple(args), "bool"
            convert, type = (to_real, "real") if "real" in types else (to_whole, "int")
            return (args[0], convert(args[1]), convert(args[2])), type


def to_whole_bound(bound: Node) -> Node:
    """Return a bound of whole numbers: in place of infinity, the last that fits in 64 bits."""
    if bound.op != NUMBER or math.isfinite(bound.number):
        return bound
    return number(2**63 - 1 if bound.number > 0 else -(2**63))


def require_condition(node: Node, function: FunctionRow) -> None:
    """Stop at a number where a condition is needed."""
    if node.type != "bool":
        word, shown = function.name.removeprefix("logical_"), show.format_node(node)
        # An index of a part has no name of the user's; and a part is a number, whatever is in it.
        cure = f"write {shown} != 0" if "@" not in shown else "compare it, as with != 0"
        raise Misfit(f"'{word}' takes conditions, and this is a number: {cure}")


def require_order(node: Node) -> None:
    """Stop unless the order of a polygamma function is one whole number for all elements."""
    varies = any(leaf.op == READ for leaf in in_order([node]))
    if node.type != "int" or varies or (node.op == NUMBER and node.number < 0):
        raise Misfit("the order of polygamma(n, x) is a whole number from 0, or an int scalar")


def to_real(node: Node) -> Node:
    """Return a node as a real number."""
    if node.type == "real":
        return node
    return (
        number(float(node.number))
        if node.op == NUMBER
        else make("real", (node,), None, "real", NONE)
    )


def to_whole(node: Node) -> Node:
    """Return a condition as 0 or 1; a whole number as it is."""
    if node.type == "real":
        raise Misfit(
            "int(...) converts a condition to a number; for a real number, write trunc(...)"
        )
    if node.type == "int":
        return node
    return (
        number(int(node.number)) if node.op == NUMBER else make("whole", (node,), None, "int", NONE)
    )


def simplify(function: FunctionRow, args: tuple[Node, ...], type: Type) -> Node:
    """Return the node, or a simpler one that has the same value for all operands."""
    name = function.name
    if name in ("real", "whole"):
        return args[0]
    if name == "pow" and (product := expand_power(*args)):
        return product
    if name == "pow" and type == "int" and is_negative(args[1]):
        exponent = show.format_node(args[1])
        raise Misfit(
            f"a whole number to a negative power is not whole: write float(...)**{exponent}"
        )
    if all(arg.op == NUMBER for arg in args) and (folded := fold(name, args, type)):
        return folded
    if (
        type == "int"
        and name in ("add", "sub", "neg", "mul", "floor_divide", "remainder")
        and (place := fold_affine(name, args))
    ):
        return place
    simple = SIMPLER[name](*args) if name in SIMPLER else None
    return simple or _recognised(make(name, args, None, type, NONE))


def _recognised(node: Node) -> Node:
    """Return the function that a node spells; the node itself if it spells none."""
    found = spellings.recognise(node)
    return node if found is None else evaluate(*found)


def fold_affine(name: str, args: Sequence[Node]) -> Node | None:
    """Return a sum or a multiple of indices as one affine index; None for anything else."""
    if all(arg.op != INDEX for arg in args):
        return None
    if name == "mul" and all(arg.op != NUMBER for arg in args):
        return None
    if name in ("floor_divide", "remainder"):
        return fold_quotient(name, *args)
    place = place_of(make(name, tuple(args), None, "int", NONE))
    if not all(map(fits, (place.constant, *(factor for _, factor in place.terms)))):
        raise Misfit(TOO_LARGE)
    return index(place)


def fold_quotient(name: str, dividend: Node, divisor: Node) -> Node | None:
    """Return an index that is divided by a number, or what is left; None if data is, or by data."""
    if dividend.op != INDEX or divisor.op != NUMBER or divisor.number <= 0:
        return None
    [place], by = dividend.places, int(divisor.number)
    if not is_counted(place):
        return None
    whole = quotient(place, by)
    return index(whole if name == "floor_divide" else place - whole * by)


TOO_LARGE = "this whole number does not fit in 64 bits; write it as a real one: 2.0**80"


def fits(value: float) -> bool:
    """Return whether a whole number fits in 64 bits."""
    return -(2**63) <= value < 2**63


def is_negative(node: Node) -> bool:
    """Return whether a node is a number below zero."""
    return node.op == NUMBER and node.number < 0


def expand_power(base: Node, exponent: Node) -> Node | None:
    """Return a power with a known exponent as PyTorch computes it, by products and roots."""
    if exponent.op != NUMBER:
        return None
    value = exponent.number
    if base.type == "int" and base.op == NUMBER and value < 0:
        base = to_real(base)
    if base.type == "int":
        return powi(base, int(value)) if 0 <= value <= MOST_PRODUCT else None
    if value == 0.5:
        return apply("sqrt", base)
    if value == -0.5:
        return apply("rsqrt", base)
    if math.isfinite(value) and value == int(value) and abs(value) <= MOST_PRODUCT:
        return powi(base, int(value))
    return None


def fold(name: str, args: Sequence[Node], type: Type) -> Node | None:
    """Return the value of a function of numbers; None where Python cannot compute it."""
    if name not in FOLDED:
        return None
    try:
        value = FOLDED[name](*(arg.data for arg in args))
    except (ArithmeticError, ValueError, TypeError):
        return None
    if not isinstance(value, int | float):
        return None  # such as a complex root
    if type == "int" and not fits(value):
        raise Misfit(TOO_LARGE)
    return number(bool(value) if type == "bool" else int(value) if type == "int" else float(value))


def _pow(base: float, exponent: float) -> object:
    """Return a power; infinity in place of a whole one that is far too large for 64 bits."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 63:
        return math.inf
    return base**exponent


FOLDED: dict[str, Callable[..., object]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv},
    **{"neg": operator.neg, "pow": _pow, "lt": operator.lt, "le": operator.le},
    **{"gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne},
    **{"sqrt": math.sqrt, "exp": math.exp, "log": math.log, "abs": abs},
    **{"logical_not": operator.not_},
}


def _minus(node: Node) -> Node | None:
    return node.args[0] if node.op == "neg" else None


def _mul(x: Node, y: Node) -> Node | None:
    for one, other in ((x, y), (y, x)):
        if is_number(one, 1):
            return other
        if is_number(one, -1) and other.type == "real":
            return apply("neg", other)
        if inner := _minus(one):
            return apply(
                "neg", apply("mul", inner, other) if one is x else apply("mul", other, inner)
            )
    return None


def _div(x: Node, y: Node) -> Node | None:
    if is_number(y, 1):
        return x
    if inner := _minus(x):
        return apply("neg", apply("div", inner, y))
    return None


def _add(x: Node, y: Node) -> Node | None:
    if inner := _minus(y):
        return apply("sub", x, inner)
    if inner := _minus(x):
        return apply("sub", y, inner)
    return None


def _sub(x: Node, y: Node) -> Node | None:
    if is_number(y, 0):
        return x
    if inner := _minus(y):
        return apply("add", x, inner)
    return None


def _where(condition: Node, x: Node, y: Node) -> Node | None:
    if condition.op == NUMBER:
        return x if condition.number else y
    return x if x is y else None


def _tanh(x: Node) -> Node | None:
    return apply("tanh_softplus", x.args[0]) if x.op == "softplus" else None


def _whole_already(x: Node) -> Node | None:
    return x if x.type == "int" else None


def _stop(x: Node) -> Node | None:
    return x if x.op in (NUMBER, "stop") or x.type != "real" else None


SIMPLER: Mapping[str, Callable[..., Node | None]] = {
    **{"mul": _mul, "div": _div, "add": _add, "sub": _sub, "neg": _minus, "where": _where},
    **{"tanh": _tanh, "stop": _stop},
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), _whole_already),
}
