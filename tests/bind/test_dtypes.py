"""Every dtype that PyTorch has, in tensors with elements and without: right, or refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from gathered import for_each

import pullback as pb
from pullback.diagnostic import PullbackError

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]

ALL = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
# Without PyTorch's old quantized ones, of which it can no longer make a tensor.
DTYPES = sorted((dtype for dtype in ALL if not str(dtype).startswith("torch.q")), key=str)
BODY = "{ while (n--) y[n] = x[n] + x[n]; }"
# A template takes float32 and float64; overloads take what they are written for.
TEMPLATE = f"""#include <cstdint>
template <class T> void twice(T* y, const T* x, int64_t n) {BODY}
"""
OVERLOADS = f"""#include <complex>
using C = std::complex<float>;
inline void twice(float* y, const float* x, int64_t n) {BODY}
inline void twice(C* y, const C* x, int64_t n) {BODY}
"""


@pytest.fixture(scope="session")
def operators() -> list[pb.Operator]:
    call = "twice(y, x, numel(x))"
    return [
        pb.operator("pbdtypes::any(x[...]) -> y[...]", cpu=pb.source(TEMPLATE, call=call)),
        pb.operator("pbdtypes::two(x[...]) -> y[...]", cpu=pb.source(OVERLOADS, call=call)),
        pb.operator("pbdtypes::pointwise(x[...]) -> y[...] = x + x"),
        pb.operator("pbdtypes::indexed(x[n]) -> y[n] = x[n] + x[n]"),
    ]


@for_each("dtype", DTYPES)
def test_a_kernel_and_a_formula_are_right_in_every_dtype_or_refuse_it(
    dtype: torch.dtype, operators: list[pb.Operator]
) -> None:
    tensors = [torch.empty(0, dtype=dtype)]
    with suppress(RuntimeError, NotImplementedError):  # PyTorch itself cannot write such a number
        tensors.append(torch.tensor([1.0, 2.0, 0.5]).to(dtype))
    for operator in operators:
        outcomes = {outcome(operator, x) for x in tensors}
        assert outcomes <= {"right"} or outcomes <= {"PB116", "PB139", "PB302"}, outcomes
        # An empty tensor is taken exactly where others of its dtype are.
        assert len(outcomes) == 1, f"{operator}: {outcomes}"


def outcome(operator: pb.Operator, x: torch.Tensor) -> str:
    """Return how a call is refused, or whether it gave twice the input."""
    name = str(x.dtype).removeprefix("torch.")
    try:
        y = operator(x)
    except PullbackError as error:
        return error.finding.code if name in str(error) else f"{name} is not named: {error}"
    return "right" if y.dtype == x.dtype and y.tolist() == (x + x).tolist() else f"gives {y}"
