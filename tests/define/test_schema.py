"""The schema of a line, read back by PyTorch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import lines

from pullback.define.line import Line, Scalar
from pullback.define.parse import parse
from pullback.define.schema import schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "demo::linear(input[n, i], weight[o, i], bias[o]?, eps: float = 1e-5) -> output[n, o]",
            "linear(Tensor input, Tensor weight, Tensor? bias=None, float eps=1e-05) -> Tensor",
        ),
        (
            "demo::f(xs[*]*, k: int?, s: int[] = [1, 2], o[n]?) -> y[n]",
            "f(Tensor[] xs, int? k=None, int[] s=[1, 2], Tensor? o=None) -> Tensor",
        ),
        (
            "demo::f_(x[n], a[n], y[n], k: float[]) -> (y[n], z[n], x[n])",
            "f_(Tensor(b!) x, Tensor a, Tensor(a!) y, float[] k) "
            "-> (Tensor(a!), Tensor, Tensor(b!))",
        ),
        (
            "demo::f(x[n], o[n]?, k: int) -> (y[n], z[n])",
            "f(Tensor x, Tensor? o, int k) -> (Tensor, Tensor)",
        ),
        (
            """demo::f(flag: bool = False, mode: str = 'a "b" \\\\') -> y[1]""",
            r"""f(bool flag=False, str mode="a \"b\" \\") -> Tensor""",
        ),
    ],
)
def test_a_schema_says_what_the_line_says(text: str, expected: str) -> None:
    assert schema(parse(text), masked=False) == expected
    torch._C.parse_schema(expected)


def test_a_masked_schema_ends_with_the_mask() -> None:
    line = parse("demo::f(x[n]) -> y[n]")
    assert schema(line, masked=True) == "f(Tensor x, *, bool[]? output_mask=None) -> Tensor"


@given(line=lines(), masked=st.booleans())
def test_pytorch_reads_every_schema(line: Line, masked: bool) -> None:
    read = torch._C.parse_schema(schema(line, masked=masked))
    arguments = read.arguments[: len(line.parameters)]
    assert [argument.name for argument in arguments] == [p.name for p in line.parameters]
    assert len(read.arguments) == len(line.parameters) + masked
    assert len(read.returns) == len(line.outputs)
    for argument, parameter in zip(arguments, line.parameters, strict=True):
        if isinstance(parameter, Scalar):
            assert argument.default_value == parameter.default
            assert str(argument.type) == parameter.type
        else:
            assert str(argument.type) == ("Optional[Tensor]" if parameter.optional else "Tensor")
