"""The checks in C++ and those in Python accept and refuse alike, with the same words."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st
from torch import Tensor

import pullback as pb
from pullback.bind import check, kernel
from pullback.define.line import Line, Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.diagnostic import PullbackError
from pullback.kernels.glue import CPP_KEYWORDS
from tests.define.strategies import lines, shapes_for
from tests.telling import examples

pytestmark = pytest.mark.compiler
numbers = itertools.count()
# Those that every supported compiler can name; the others are refused by the kernel (PB302).
TAKEN = ("float32", "float64", "float16", "complex64", "complex128")
SHARED = (*TAKEN, "bfloat16", "int64")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-3, 6),
    "float": st.floats(),
    "bool": st.booleans(),
    "str": st.text(st.characters(exclude_categories=["Cs"])),
}
# Output sizes multiply; nothing is learnt from gigabytes.
MOST_ELEMENTS = 10**5


@st.composite
def shapes(draw: st.DrawFn, line: Line) -> dict[str, tuple[int, ...] | None]:
    """Shapes that fit the line, or, as often, that differ from such in one place."""
    fitting: dict[str, tuple[int, ...] | None] = draw(shapes_for(line))
    present = [name for name, shape in fitting.items() if shape is not None]
    if not present or draw(st.booleans()):
        return fitting
    name = draw(st.sampled_from(present))
    shape = list(fitting[name] or ())
    place = draw(st.integers(0, len(shape)))
    if draw(st.booleans()) or place == len(shape):
        shape.insert(place, draw(st.integers(0, 4)))
    elif draw(st.booleans()):
        shape[place] = draw(st.integers(0, 4))
    else:
        del shape[place]
    return {**fitting, name: tuple(shape)}


@st.composite
def calls(draw: st.DrawFn, line: Line) -> list[object]:
    """Arguments of a call, most of them with the right dtypes."""
    sizes = draw(shapes(line))
    shared = draw(st.sampled_from(SHARED))
    seldom = st.integers(0, 9).map(lambda digit: digit == 0)
    device = "meta" if draw(seldom) else "cpu"
    arguments: list[object] = []
    for parameter in line.parameters:
        if isinstance(parameter, Scalar):
            arguments.append(draw(VALUES[parameter.type]))
            continue
        shape = sizes[parameter.name]
        if shape is None:
            arguments.append(None)
            continue
        dtype = draw(st.sampled_from(SHARED)) if draw(seldom) else parameter.dtype or shared
        place = "meta" if draw(seldom) else device
        tensor = torch.zeros(shape, dtype=check.dtype_named(dtype), device=place)
        arguments.append(tensor)
    return arguments


def defined(line: Line) -> pb.Operator:
    text = "#include <complex>\ninline void nothing() {}"
    return pb.operator(str(line), cpu=pb.source(text, call="nothing()", dtypes=TAKEN))


def outcome_in_cpp(operator: pb.Operator, arguments: list[object]) -> object:
    """Return the outputs' shapes and dtypes, or the error's text."""
    try:
        returned = operator(*arguments)
    except PullbackError as error:
        return str(error)
    outputs: tuple[Tensor, ...] = returned if isinstance(returned, tuple) else (returned,)
    return [(tuple(output.shape), output.dtype) for output in outputs]


def outcome_in_python(operator: pb.Operator, arguments: list[object]) -> object:
    try:
        outputs = kernel.outputs_of(operator.definition, arguments)
    except PullbackError as error:
        return str(error)
    return [
        (tuple(shape), dtype) for shape, dtype in zip(outputs.shapes, outputs.dtypes, strict=True)
    ]


def too_large(outcome: object) -> bool:
    if not isinstance(outcome, list):
        return False
    found: list[tuple[tuple[int, ...], torch.dtype]] = outcome
    return any(
        torch.Size(shape).numel() > MOST_ELEMENTS
        for shape, _ in found
        if max(shape, default=0) < 2**31
    ) or any(max(shape, default=0) >= 2**31 for shape, _ in found)


# Shrinking compiles hundreds of kernels; the operators are small as they are.
@settings(
    max_examples=examples(8, 50),
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.data())
def test_cpp_and_python_check_alike(data: st.DataObject) -> None:
    line = data.draw(lines(formula=False))
    assume(line.tensors)
    names = {*(p.name for p in (*line.parameters, *line.outputs)), *line.dimensions}
    assume(not names & CPP_KEYWORDS)
    # g++ before 13 cannot name the type.
    assume(all(tensor.dtype != "bfloat16" for tensor in (*line.tensors, *line.outputs)))
    operator = defined(dataclasses.replace(line, namespace="pbagree", name=f"op{next(numbers)}"))
    for _ in range(8):
        arguments = data.draw(calls(operator.line))
        if not any(isinstance(argument, Tensor) for argument in arguments):
            continue  # PyTorch cannot tell the device
        expected = outcome_in_python(operator, arguments)
        if too_large(expected):
            continue
        found = outcome_in_cpp(operator, arguments)
        if isinstance(found, str) and "[PB302]" in found:
            event("the kernel does not take the dtype")
            assert not isinstance(expected, str)
            continue
        event("refused" if isinstance(found, str) else "accepted")
        assert found == expected


def test_a_dtype_that_nothing_gives_is_the_default_one() -> None:
    operator = defined_line("pbagree::typed(x[n]: int64) -> y[n]")
    for default in (torch.float32, torch.float64):
        before = torch.get_default_dtype()
        torch.set_default_dtype(default)
        try:
            arguments: list[object] = [torch.zeros(3, dtype=torch.int64)]
            assert outcome_in_cpp(operator, arguments) == [((3,), default)]
            assert outcome_in_python(operator, arguments) == [((3,), default)]
        finally:
            torch.set_default_dtype(before)


def defined_line(line: str) -> pb.Operator:
    text = "#include <complex>\ninline void nothing() {}"
    return pb.operator(line, cpu=pb.source(text, call="nothing()", dtypes=TAKEN))


def test_the_specs_are_those_of_the_line() -> None:
    """The strategy draws what it says: tensors, scalars and both kinds of dtype."""
    line = defined_line("pbagree::drawn(x[..., n], k: int, i[n]: int64?) -> y[..., n + k]").line
    assert [type(p) for p in line.parameters] == [TensorSpec, Scalar, TensorSpec]
