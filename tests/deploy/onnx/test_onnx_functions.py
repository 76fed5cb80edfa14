"""Every function of formulas in ONNX's operators, against PyTorch in float64."""

from __future__ import annotations

import math

import pytest
import torch
from running import alone, formula_of, in_pytorch
from torch import Tensor

from pullback.define.math.functions import HIDDEN, TABLE, FunctionRow

MADE = [
    function
    for name, function in TABLE.items()
    if function.defined is None and (name not in HIDDEN or name == "tanh_softplus")
]
# Where PyTorch itself is not right: polygamma at infinities, gelu of float32 at infinity; sinc and
# lgamma near their zeros, where float64 has no digits left either.
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 1e-5, -1e-5, 3.7, -3.7, 10.0, -10.0, 30.0, -30.0)
EXTREME = (math.inf, -math.inf, math.nan, 1e-30, -1e-30)
UNSAFE = ("polygamma", "gelu")


def text_of(function: FunctionRow) -> str:
    """Return a line whose formula is the function."""
    name, parameters = function.name, function.parameters
    if name in OWN:
        parameters = tuple(p for p in ("x", "y") if p in parameters)
    tensors = ", ".join(f"{p}[...]" for p in parameters)
    arguments = ", ".join(parameters)
    if function.kind == "logic":
        arguments = ", ".join(f"{p} > 0" for p in parameters)
    text = OWN.get(name, f"{name}({arguments})")
    output = "r[...]: bool" if function.kind in ("test", "logic") else "r[...]"
    return f"alone::f({tensors}) -> {output} = {text}"


# What is not called with tensors alone.
OWN = {
    "polygamma": "polygamma(2, x)",
    "clamp": "clamp(x, -1, 2)",
    "tanh_softplus": "tanh(softplus(x))",
    "where": "where(x > y, x, y)",
}


def sample(function: FunctionRow, dtype: torch.dtype) -> Tensor:
    extreme = () if function.name in UNSAFE else EXTREME
    some = torch.tensor((*SPECIAL, *extreme), dtype=dtype)
    return torch.cat([some, 4 * torch.randn(200, dtype=dtype), torch.rand(100, dtype=dtype)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", MADE, ids=lambda function: function.name)
def test_a_function_is_pytorchs(function: FunctionRow, dtype: torch.dtype, seed: int) -> None:
    """Hold each function against PyTorch's in float64.

    ONNX Runtime's own are right to a few units in the last place, or, where they cross zero, to a
    few roundings of 1; the texts add some.
    """
    formula = formula_of(text_of(function))
    count = len(formula.line.tensors)
    x = sample(function, dtype)
    arguments = [x, x.roll(7)][:count]
    (found,) = alone(formula, arguments)
    (same,) = in_pytorch(formula, arguments)
    assert found.dtype == same.dtype
    if found.dtype == torch.bool:
        assert torch.equal(found, same)
        return
    (wanted,) = in_pytorch(formula, [argument.double() for argument in arguments])
    wanted = wanted.to(dtype).double()
    error = (found.double() - wanted).abs()
    # How far a rounding of the reduced argument of a periodic function moves it near a pole.
    steep = wanted**2 if function.name == "tan" else 0
    allowed = 64 * torch.finfo(dtype).eps * (1 + wanted.abs() + steep)
    same = (found == wanted) | (found.isnan() & wanted.isnan())
    assert (same | (error <= allowed)).all()


WHOLE = {
    "x // y": "[3, -4, -4, 3, 0, 0]",
    "x % y": "[1, 1, -1, -1, 0, 0]",
    "fmod(x, y)": "[1, -1, 1, -1, 0, 0]",
}


@pytest.mark.parametrize("text", WHOLE)
def test_whole_numbers_divide_as_in_python_and_by_zero_give_zero(text: str) -> None:
    formula = formula_of(f"alone::f(x[...]: int64, y[...]: int64) -> r[...]: int64 = {text}")
    x, y = torch.tensor([7, -7, 7, -7, 0, 5]), torch.tensor([2, 2, -2, -2, 3, 0])
    (found,) = alone(formula, [x, torch.where(y == 0, 1, y)])
    (wanted,) = in_pytorch(formula, [x, torch.where(y == 0, 1, y)])
    assert torch.equal(found, wanted)
    (found,) = alone(formula, [x, y])
    assert str(found.tolist()) == WHOLE[text]


@pytest.mark.parametrize(
    "text",
    [
        *("abs(x) + sign(y) - relu(x)", "maximum(x, y) * minimum(x, y)", "clamp(x, -3, 3)"),
        *("where(x > y, x, y)", "x**3", "(x % 5)**(abs(y) * 20)", "y**(x % 70)", "-x // y"),
    ],
)
def test_whole_numbers_are_exact_and_wrap_around_as_pytorchs(text: str) -> None:
    formula = formula_of(f"alone::f(x[...]: int64, y[...]: int64) -> r[...]: int64 = {text}")
    x = torch.tensor([7, -7, 7, -7, 0, 5, -(2**63), 2**62 + 1])
    y = torch.tensor([2, 2, -2, -2, 3, 1, -1, 3])
    assert torch.equal(*alone(formula, [x, y]), *in_pytorch(formula, [x, y]))


def test_a_power_to_a_negative_whole_number_is_that_of_the_kernels() -> None:
    formula = formula_of("alone::f(x[...]: int64, n[...]: int64) -> r[...]: int64 = x**n")
    x, n = torch.tensor([1, -1, -1, 2, -3]), torch.tensor([-3, -3, -4, -1, -2])
    assert alone(formula, [x, n])[0].tolist() == [1, -1, 1, 0, 0]


def test_a_scalar_is_the_order_of_polygamma() -> None:
    formula = formula_of("alone::f(x[...], n: int = 1) -> r[...] = polygamma(n + 1, x)")
    x = torch.tensor([0.5, 2.0, 7.0])
    for arguments in ([x], [x, 0], [x, 3]):
        torch.testing.assert_close(alone(formula, arguments), in_pytorch(formula, arguments))
