"""Conditions and whole numbers in formulas: the functions of the table beside those of reals."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from formulas import DTYPES, TESTS, of_torch, points
from torch import Tensor

import pullback as pb

pytestmark = pytest.mark.compiler


def test_conditions_are_those_of_pytorch() -> None:
    outputs = ", ".join(f"c{k}[...]: bool" for k in range(len(TESTS)))
    line = f"pbformulas::conditions(x[...], y[...]) -> ({outputs}) = {', '.join(TESTS)}"
    run = pb.operator(line)
    for dtype in DTYPES:
        x, y = points(dtype, 2)
        for found, (text, function) in zip(run(x, y), TESTS.items(), strict=True):
            one = text.endswith("(x)")
            assert torch.equal(found, function(x) if one else function(x, y)), (text, dtype)


WHOLE: dict[str, Callable[..., Tensor]] = {
    **{f"{name}(a, b)": of_torch(name) for name in ("add", "sub", "mul", "maximum", "minimum")},
    **{f"{name}(a, b)": of_torch(name) for name in ("remainder", "fmod", "floor_divide")},
    **{f"{name}(a)": lambda a, b, name=name: of_torch(name)(a) for name in ("neg", "abs", "sign")},
    **{f"{name}(a)": lambda a, b: a for name in ("floor", "ceil", "round", "trunc")},
    "relu(a)": lambda a, b: torch.relu(a),
    "a**3": lambda a, b: a**3,
    "clamp(a, -2, b)": lambda a, b: torch.minimum(a.clamp(min=-2), b),
    "where(a > b, a, 1)": lambda a, b: torch.where(a > b, a, 1),
    "(a > 0) + (b > 0)": lambda a, b: (a > 0).long() + (b > 0),
}


def test_whole_numbers_are_those_of_pytorch() -> None:
    outputs = ", ".join(f"c{k}[...]: int64" for k in range(len(WHOLE)))
    some = torch.tensor([0, 1, -1, 2, -7, 100, 3, 2**31, -(2**62), 2**63 - 1, -(2**63)])
    for dtype in (torch.int64, torch.int32, torch.uint8):
        name = str(dtype)[6:]
        line = f"pbformulas::whole_{name}(a[...]: {name}, b[...]: {name}) -> ({outputs})"
        a, b = torch.meshgrid(some, some[1:], indexing="ij")
        usable = (a != torch.iinfo(torch.int64).min) | (b != -1)  # beyond int64 in PyTorch as well
        a, b = a[usable].to(dtype), b[usable].to(dtype)
        a, b = a[b != 0], b[b != 0]
        found = pb.operator(f"{line} = {', '.join(WHOLE)}")(a, b)
        for value, (text, function) in zip(found, WHOLE.items(), strict=True):
            assert torch.equal(value, function(a.long(), b.long())), (text, dtype)


def test_what_is_computed_of_scalars_alone_is_computed_in_double_precision() -> None:
    line = "pbf::of_scalars(x[...], a: float, b: float) -> y[...] = x + exp(a*b)/(a - 3*b)"
    found = pb.operator(line)(torch.zeros(3, dtype=torch.float64), 0.1, 0.7)
    wanted = math.exp(0.1 * 0.7) / (0.1 - 3 * 0.7)
    torch.testing.assert_close(found, torch.full_like(found, wanted), rtol=1e-14, atol=0)
