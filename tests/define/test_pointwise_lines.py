"""A pointwise line is index notation in which no index is written: it says the same with them."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pullback import PullbackError
from pullback.define.line import Line
from pullback.define.math import derived, notation
from pullback.define.math.functions import TABLE, FunctionRow, find_function
from pullback.define.parse import parse
from tests.bind.formula_lines import CASES
from tests.bind.test_bad_formulas import NO_MATHEMATICS, OF_ONE_TENSOR
from tests.define.dense import Dense
from tests.define.test_formula_language import calls
from tests.telling import examples


class Written(ast.NodeTransformer):
    """Writes the indices of tensors behind their names."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def visit_Name(self, node: ast.Name) -> ast.AST:
        indices = {tensor.name: tensor.labels for tensor in self.line.tensors}.get(node.id)
        if not indices:
            return node
        return ast.parse(f"{node.id}[{', '.join(indices)}]", mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(arg) for arg in node.args]
        return node


def with_indices(line: Line) -> Line | None:
    """Return a line with all indices written; None if one cannot be, `n'` and 3."""
    assert line.formula
    labels = {label for tensor in line.tensors for label in tensor.labels} - {"..."}
    if not all(map(str.isidentifier, labels)):
        return None
    rows = (row.strip() for row in line.formula.split(";") if row.strip())
    texts = [ast.unparse(Written(line).visit(ast.parse(row))) for row in rows]
    return replace(line, formula="; ".join(texts))


def require_same(text: str) -> None:
    """Read a line with its indices and without."""
    line = parse(text)
    made = notation.parse(line)
    assert made.pointwise
    written = with_indices(line)
    if written is not None:
        found = notation.parse(written)
        assert found.nodes == made.nodes
        assert found.pointwise == ("[" not in str(written.formula))


def is_divided_by_zero(text: str) -> bool:
    """A line drawn may have a divisor that is 0; nothing else about it is refused."""
    try:
        notation.parse(parse(text))
    except PullbackError as refused:
        if refused.finding.code != "PB136":
            raise
        return True
    return False


def require_refused(text: str, code: str) -> None:
    """Read a line with its indices, which is refused as it is without."""
    written = with_indices(parse(text))
    if written is not None:
        with pytest.raises(PullbackError) as caught:
            notation.parse(written)
        assert caught.value.finding.code == code


@pytest.mark.parametrize("name", CASES)
def test_lines_say_the_same_with_their_indices(name: str) -> None:
    require_same(f"demo::f{CASES[name][0]}")


@pytest.mark.parametrize("text", calls())
def test_every_function_is_the_same_of_elements(text: str) -> None:
    inputs = "x[..., n], y[n], w[...], m[n]: bool, flag: bool"
    test = TABLE[text.partition("(")[0]].kind in ("test", "logic")
    require_same(f"demo::f({inputs}) -> r[..., n]{': bool' if test else ''} = {text}")


SUMS = ["a bias", "a factor for each row", "an outer product", "permuted", "a square"]


@pytest.mark.parametrize("name", SUMS)
def test_nodes_of_a_gradient_are_its_elements_summed(name: str, seed: int) -> None:
    line, reference, _ = CASES[name]
    made = notation.parse(parse(f"demo::f{line}"))
    found = derived.backward(made)
    assert found
    sizes = {"n": 3, "m": 4, "...": 2}
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        tensor.name: torch.randn(
            [sizes[label.rstrip("'")] for label in tensor.labels],
            generator=generator,
            dtype=torch.float64,
        ).requires_grad_()
        for tensor in made.line.tensors
    }
    value: Tensor = reference(*tensors.values())
    grad = torch.randn_like(value)
    wanted = torch.autograd.grad(value, list(tensors.values()), grad)
    given = {**tensors, "grad": grad, made.line.outputs[0].name: value}
    dense = Dense({name: tensor.detach() for name, tensor in given.items()}, sizes)
    outputs = found.formula.line.outputs
    for output, node, gradient in zip(outputs, found.formula.nodes, wanted, strict=True):
        torch.testing.assert_close(dense(node, output.labels), gradient)


# --- at random

INPUTS = [
    ("x[..., n], b[n], c[...], k[..., n]: int64, m[n]: bool, s: float, j: int, q: bool", "..., n"),
    ("x[a, d], b[d], c[a], k[a]: int32, m[a, d]: bool, s: float, j: int, q: bool", "d, a"),
    ("x[...], b[...], c[...]?, k[...]: int64, m[...]: bool, s: float, j: int, q: bool", "..."),
    ("x[n, 3], b[3], c[n], k[n]: uint8, m[3]: bool, s: float, j: int, q: bool", "n, 3"),
    ("x[n, n], b[n, n], c[n, n], k[n, n]: int64, m[n, n]: bool, s: float, j: int, q: bool", "n, n"),
]
REAL = [
    row
    for row in TABLE.values()
    if find_function(row.name) and row.kind == "real" and row.name != "polygamma"
]
LEAVES = {
    "real": ["x", "b", "c", "s", "0.5", "pi", "e"],
    "int": ["k", "j", "2*k", "j - 1"],
    "bool": ["m", "q", "x > 0", "k == j", "0 <= k < 5", "k != 2"],
}
SIGNS = {"real": "+-*/", "int": ["+", "-", "*", "//", "%"], "bool": ["and", "or"]}


@st.composite
def lines(draw: st.DrawFn) -> str:
    """A pointwise line: parts with names, several outputs, every kind of value."""
    inputs, dims = draw(st.sampled_from(INPUTS))
    known: dict[str, list[str]] = {kind: list(leaves) for kind, leaves in LEAVES.items()}

    def expression(kind: str, depth: int) -> str:
        def inner(of: str = kind) -> str:
            return expression(of, depth - 1)

        def leaf() -> str:
            return draw(st.sampled_from(known[kind]))

        def two() -> str:
            return f"({inner()} {draw(st.sampled_from(SIGNS[kind]))} {inner()})"

        def one() -> str:
            return f"not {inner()}" if kind == "bool" else f"-{inner()}"

        def where() -> str:
            return f"where({inner('bool')}, {inner()}, {inner()})"

        def called() -> str:
            if kind == "real":
                function: FunctionRow = draw(st.sampled_from(REAL))
                return f"{function.name}({', '.join(inner() for _ in function.parameters)})"
            if kind == "int":
                return f"int({inner('bool')})"
            of = draw(st.sampled_from(["real", "int"]))
            return f"({inner(of)} {draw(st.sampled_from(['<', '<=', '==', '!=']))} {inner(of)})"

        return draw(st.sampled_from([leaf, two, one, where, called]))() if depth else leaf()

    kinds = st.sampled_from(["real", "real", "int", "bool"])
    rows: list[str] = []
    for part in range(draw(st.integers(0, 3))):
        kind = draw(kinds)
        rows.append(f"t{part} = {expression(kind, 2)}")
        known[kind].append(f"t{part}")
    given = [draw(kinds) for _ in range(draw(st.integers(1, 3)))]
    values = [expression(kind, 3) for kind in given]
    dtypes = {"real": "", "int": ": int64", "bool": ": bool"}
    outputs = ", ".join(f"y{k}[{dims}]{dtypes[kind]}" for k, kind in enumerate(given))
    last = draw(st.permutations([f"y{k} = {value}" for k, value in enumerate(values)]))
    rows += [", ".join(values)] if draw(st.booleans()) else last
    return f"demo::f({inputs}) -> ({outputs}) = {'; '.join(rows)}"


@settings(max_examples=examples(150, 1500))
@example("demo::f(x[n]) -> y[n] = div(x, -(0.5 - 0.5))")
@given(lines())
def test_any_line_says_the_same_with_its_indices(text: str) -> None:
    if is_divided_by_zero(text):
        require_refused(text, "PB136")
    else:
        require_same(text)


# --- what is refused


def refusal(text: str) -> tuple[str, str, object, str | None]:
    with pytest.raises(PullbackError) as caught:
        notation.parse(parse(text))
    found = caught.value.finding
    return found.code, found.message, dict(found.evidence).get("at"), found.help


BAD = [text for text, *_ in OF_ONE_TENSOR if text != "x[0]"] + NO_MATHEMATICS


@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text)[:40])
def test_what_is_refused_is_refused_alike_beside_an_index(text: str) -> None:
    alone = refusal(f"demo::f(x[n]) -> y[n] = u = 2*x; {text}")
    assert refusal(f"demo::f(x[n]) -> y[n] = u = 2*x[n]; {text}") == alone


TWO_MEANINGS = {
    "(x[t]) -> y[t] = t = tanh({}); y = t*t": "PB137",
    "(x[e]) -> y[e] = {} + e": "PB146",
}


@pytest.mark.parametrize("text", TWO_MEANINGS)
def test_a_name_may_be_a_dimension_too_where_no_index_is_written(text: str) -> None:
    name = text[3]
    notation.parse(parse(f"demo::f{text.format('x')}"))
    code, *_ = refusal(f"demo::f{text.format(f'x[{name}]')}")
    assert code == TWO_MEANINGS[text]


def test_a_name_that_could_be_read_at_either_of_two_dimensions_is_refused() -> None:
    for inputs in ("x[n, n], b[n]", "b[n], x[n, n]"):
        for value in ("x + b", "t = b + x; y = t", "t = x; y = t*b", "x[n, n]*b"):
            code, message, *_ = refusal(f"demo::f({inputs}) -> y[n, n] = {value}")
            assert code == "PB138"
            assert "b[n]" in message
