"""Bodies of formulas: layouts, dtypes, scalars, derivatives, opsets, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from running import alone, call_of, formula_of, in_pytorch

from pullback.define.line import Scalar
from pullback.define.math import derived, node
from pullback.define.math.formula import Formula
from pullback.define.math.index import at, size
from pullback.deploy.onnx import formulas as bodies
from pullback.deploy.onnx.body import Underivable, text_of
from tests.bind.formula_lines import CASES

# float32 and float64 have one body, float16 and bfloat16 another.
REAL = (
    torch.float32,
    torch.float16,
    pytest.param(torch.float64, marks=pytest.mark.thorough),
    pytest.param(torch.bfloat16, marks=pytest.mark.thorough),
)


def require_same(
    formula: Formula, arguments: Sequence[Any], opset: int = 18, scale: float = 1
) -> None:
    """Hold ONNX Runtime against PyTorch's operations, which round each step as it does."""
    for found, wanted in zip(
        alone(formula, arguments, opset), in_pytorch(formula, arguments), strict=True
    ):
        assert found.dtype == wanted.dtype
        if wanted.is_floating_point():
            eps = scale * torch.finfo(wanted.dtype).eps
            torch.testing.assert_close(found, wanted, rtol=32 * eps, atol=32 * eps)
        else:
            assert torch.equal(found, wanted)


def converted(arguments: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """Return detached arguments, those of float64 in another dtype."""
    return [
        value.detach().to(dtype if value.dtype == torch.float64 else value.dtype)
        if isinstance(value, torch.Tensor)
        else value
        for value in arguments
    ]


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_a_formula_is_pytorchs(case: str, dtype: torch.dtype, seed: int) -> None:
    line, _, draw = CASES[case]
    require_same(formula_of(f"alone::f{line}"), converted(draw(), dtype))


@pytest.mark.parametrize("kind", ["backward", "jvp"])
@pytest.mark.parametrize("case", CASES)
def test_a_derivative_is_pytorchs(case: str, kind: str, seed: int) -> None:
    line, _, draw = CASES[case]
    formula = formula_of(f"alone::f{line}")
    found = (derived.backward if kind == "backward" else derived.jvp)(formula)
    if found is None:
        pytest.skip("it has none")
    given_for = dict(zip((p.name for p in formula.line.parameters), draw(), strict=False))
    defaults = {p.name: p.default for p in formula.line.parameters if isinstance(p, Scalar)}
    every = [given_for.get(p.name, defaults.get(p.name)) for p in formula.line.parameters]
    outputs = in_pytorch(formula, converted(every, torch.float64))
    known = {**defaults, **given_for}
    known |= {o.name: value for o, value in zip(formula.line.outputs, outputs, strict=True)}
    own = found.formula.line
    arrives = outputs if kind == "backward" else every
    arriving = [arrives[place] for place in found.arrives]
    saved = [known.get(name) for name in found.saved]
    arguments = converted([*arriving, *saved], torch.float64)
    assert len(arguments) == len(own.parameters)
    require_same(found.formula, arguments, scale=8)


@pytest.mark.parametrize("opset", range(18, 27))
def test_a_body_is_right_in_every_opset_that_onnx_runtime_has(opset: int, seed: int) -> None:
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip("the installed onnx does not know it")
    formula = formula_of(
        "alone::f(x[..., n], w[n]?, k: float = 0.1) -> (y[..., n], big[..., n]: bool) ="
        " y = gelu(x) + where(x > 1, round(x), fmod(x, 0.3))*w*k; big = isfinite(x) and x > k"
    )
    x, w = torch.randn(2, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    require_same(formula, [x, w], opset, scale=8)
    require_same(formula, [x.float(), None], opset, scale=8)


OUTER = "alone::f(x[n, ...], w[..., m], b[...]) -> (y[m, ..., n]) = x*w + tanh(b)"
BATCHED = "alone::f(x[..., n], w[...], b[n]) -> y[..., n] = x*w - b"
batches = st.lists(st.integers(1, 3), max_size=3)


# Which sizes of a batch are 1 instead, and how many are left out on the left.
parts = st.tuples(st.lists(st.booleans(), min_size=3, max_size=3), st.integers(0, 3))


def part(batch: list[int], of: tuple[list[bool], int]) -> list[int]:
    """Return sizes that broadcast to those of a batch."""
    ones, absent = of
    sizes = [1 if one else size for size, one in zip(batch, ones, strict=False)]
    return sizes[absent:]


@settings(max_examples=25)
@given(batch=batches, one=parts, other=parts, n=st.integers(0, 3), m=st.integers(1, 3))
def test_a_body_works_for_sizes_of_every_kind(
    batch: list[int], one: tuple[list[bool], int], other: tuple[list[bool], int], n: int, m: int
) -> None:
    some, others = part(batch, one), part(batch, other)
    batched = [torch.randn(*some, n), torch.randn(others), torch.randn(n)]
    require_same(formula_of(BATCHED), batched)
    outer = [torch.randn(n, *some), torch.randn(*others, m), torch.randn(batch)]
    require_same(formula_of(OUTER), outer)


# --- What a file says


def text(line: str, *arguments: Any) -> str:
    """Return a body as ONNX writes it."""
    formula = formula_of(line)
    body = bodies.body_of(call_of(formula, arguments), formula)
    return onnx.printer.to_text(ir.to_proto(body.function))


def test_float32_and_float64_have_one_body() -> None:
    formula = formula_of("alone::f(x[..., n], w[n], k: float = 0.5) -> y[..., n] = exp(x*k) + 3*w")
    x, w = torch.ones(2, 3), torch.ones(3)
    texts = {
        text_of(bodies.body_of(call_of(formula, arguments), formula).function)
        for arguments in ([x, w], [x.double(), w.double()], [x[0], w], [x[None], w])
    }
    assert len(texts) == 1


def test_float16_and_bfloat16_are_computed_in_float32() -> None:
    written = text("alone::f(x[...]) -> y[...] = exp(x)*0.1", torch.ones(2, dtype=torch.half))
    assert "Cast <to: int = 1> (x)" in written
    assert "y = CastLike" in written
    assert written == text(
        "alone::f(x[...]) -> y[...] = exp(x)*0.1", torch.ones(2, dtype=torch.bfloat16)
    )


def test_a_scalar_that_float32_rounds_is_kept_as_it_is_for_float64() -> None:
    line = "alone::f(x[...], k: float) -> y[...] = x*k"
    formula, x = formula_of(line), torch.tensor([1 / 3, 1e300], dtype=torch.float64)
    for k in (0.1, 0.5, 1e-310, float("inf")):
        (found,) = alone(formula, [x, k])
        assert torch.equal(found, x * k)
    assert "value_float: float = @k" in text(line, x, 0.5)
    assert "value: tensor = @k" in text(line, x, 0.1)
    assert "value_float: float = @k" in text(line, x.float(), 0.1)


def test_what_is_none_is_not_read() -> None:
    written = text("alone::f(x[...], b[...]?) -> y[...] = x + b", torch.ones(2), None)
    assert "(x, b) => (y)" in written
    assert "Identity (x)" in written


def test_index_notation_is_refused() -> None:
    formula = formula_of("alone::f(x[n]) -> y[n] = exp(x)")
    (element,) = formula.nodes[0].args
    total = node.close(node.SUM, "n", size("n"), element)
    summed = Formula(line=formula.line, elements=(total,), dims=formula.dims)
    with pytest.raises(Underivable, match="'sum'"):
        bodies.body_of(call_of(formula, [torch.ones(2)]), summed)
    turned = node.read("x", [size("n") - at("n") - 1])
    reversed_ = Formula(line=formula.line, elements=(turned,), dims=formula.dims)
    with pytest.raises(Underivable, match="'x' at indices of their own"):
        bodies.body_of(call_of(formula, [torch.ones(2)]), reversed_)
