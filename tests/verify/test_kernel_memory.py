"""What a kernel does to memory: each element is written, and none beside a tensor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pullback as pb
from tests.telling import telling
from tests.verify.case import Function, asked

ALL = "long i = 0; i < n; ++i"
SQUARE = "y[i] = x[i] * x[i]"
# What is wrong: the loop of forward and its body, that of backward, the code, and what is said.
LOOPS = {
    "the last element": (
        ("long i = 0; i < n - 1; ++i", SQUARE, ALL),
        "PB507",
        "output 0 contains uninitialised memory: forward never writes element 8",
    ),
    "the last element of a gradient": (
        (ALL, SQUARE, "long i = 0; i < n - 1; ++i"),
        "PB507",
        "the gradient of x contains uninitialised memory: backward never writes element 8",
    ),
    "what is added to": ((ALL, "y[i] += x[i] * x[i]", ALL), "PB507", "elements 0 to 8"),
    "the tail of a block that the example has not": (
        ("long i = 0; i < (n < 16 ? n : n / 16 * 16); ++i", SQUARE, ALL),
        "PB507",
        "element 32",
    ),
    "one place further": ((ALL, "y[i + 1] = x[i] * x[i]", ALL), "PB500", "output 0: element 9"),
    "one element too many": (
        (ALL, SQUARE, "long i = 0; i <= n; ++i"),
        "PB500",
        "backward writes past the end of the gradient of x: element 9",
    ),
    "before the first": (
        ("long i = -1; i < n; ++i", "y[i] = i < 0 ? 0 : x[i] * x[i]", ALL),
        "PB500",
        "before the start of output 0: element -1",
    ),
    "the tail of a vector that the example has not": (
        ("long k = 0; k < n * (n > 9 ? 35 : 33) / 33; ++k", "long i = k; y[i] = x[i] * x[i]", ALL),
        "PB500",
        "elements 33 to 34",
    ),
    "a neighbour that is not there": (
        (ALL, "y[i] = x[i] * x[i] + 0 * x[i + 1]", ALL),
        "PB500",
        "forward reads past the end",
    ),
}
# What is left out at a size that the example has not, and what is beside a tensor; 4 s each.
TELLING = ("the tail of a block that the example has not", "one place further")
RIGHT = (ALL, SQUARE, ALL)
CPP = """
void forward(float* y, const float* x, long n) {{ for ({0}) {{ {1}; }} }}
void backward(float* out, const float* g, const float* x, long n) {{
  for ({2}) out[i] = 2 * (i < n ? x[i] * g[i] : 0);
}}
"""
CUDA = """
__global__ void forward_(float* y, const float* x, long n) {{ for ({0}) {{ {1}; }} }}
__global__ void backward_(float* out, const float* g, const float* x, long n) {{
  for ({2}) out[i] = 2 * (i < n ? x[i] * g[i] : 0);
}}
void forward(float* y, const float* x, long n) {{ forward_<<<1, 1>>>(y, x, n); }}
void backward(float* out, const float* g, const float* x, long n) {{
  backward_<<<1, 1>>>(out, g, x, n);
}}
"""


def operator(name: str, loops: tuple[str, str, str], kind: str) -> pb.Operator:
    text = (CPP if kind == "cpu" else CUDA).format(*loops)
    name = f"memory::{name}_{kind}"
    kernels: Any = {kind: pb.source(text, call="backward(out, g, x, n)")}
    pb.operator(f"{name}_backward(g[n], x[n]) -> out[n]", **kernels)
    kernels = {kind: pb.source(text, call="forward(y, x, n)")}
    line = f"{name}(x[n]) -> y[n]"
    return pb.operator(line, **kernels, backward={"x": f"{name}_backward(grad, x)"})


@pytest.mark.compiler
@pytest.mark.parametrize("what", telling(dict(zip(LOOPS, LOOPS, strict=True)), TELLING))
def test_a_kernel_that_leaves_out_or_exceeds_its_tensors_is_found_first_and_named(
    what: str,
) -> None:
    loops, code, says = LOOPS[what]
    own = operator(f"fault_{list(LOOPS).index(what)}", loops, "cpu")
    report = asked((own, (torch.randn(9, requires_grad=True),)))
    assert report.faults[0].code == code, str(report)
    assert says in report.faults[0].message
    assert {fault.code for fault in report.faults} == {code}, str(report)


@pytest.mark.compiler
def test_a_kernel_that_keeps_to_its_tensors_has_no_finding() -> None:
    own = operator("right", RIGHT, "cpu")
    report = asked((own, (torch.randn(9, requires_grad=True),)), dear=("PB559",))
    assert report.ok, str(report)


@pytest.mark.compiler
@pytest.mark.parametrize("what", ["the last element", "one place further"])
def test_so_is_a_cuda_kernel_on_the_cpu(what: str) -> None:
    loops, code, says = LOOPS[what]
    own = operator(f"fault_{list(LOOPS).index(what)}", loops, "cuda")
    report = asked((own, (torch.randn(9, requires_grad=True),)), probes=["PB500", "PB507"])
    assert [fault.code for fault in report.faults] == [code], str(report)
    assert says in str(report)


def by_address(to: Tensor, values: Tensor, first: int, count: int) -> None:
    """Do as a kernel that is given two pointers."""
    size = to.element_size()
    ctypes.memmove(to.data_ptr() + first * size, values.data_ptr(), count * size)


def function(forward: Callable[[Tensor], Any]) -> Any:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            return forward(x)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return 2 * grads[0]

    return Twice


def past_the_end(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    by_address(y, torch.cat([2 * x, x]), 0, len(x) + 1)
    return y


def short(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    by_address(y, 2 * x, 0, len(x) - 1)
    return y


def beside_a_temporary(x: Tensor) -> Tensor:
    scratch = torch.empty(3)
    by_address(scratch, torch.zeros(4), 0, 4)
    return 2 * x


def beside_its_input(x: Tensor) -> Tensor:
    by_address(x.detach(), torch.zeros(1, dtype=x.dtype), -1, 1)
    return 2 * x


def whole_numbers(x: Tensor) -> Any:
    order = torch.empty(len(x), dtype=torch.int32)
    order[1:] = 7
    return 2 * x, order


def truths(x: Tensor) -> Any:
    marks = torch.empty(len(x), dtype=torch.bool)
    marks[:-1] = True
    return 2 * x, marks


def by_numpy(x: Tensor) -> Tensor:
    y = np.empty(len(x))
    y[::2] = 2 * x.detach().numpy()[::2]
    return torch.from_numpy(y)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("forward", "code", "says"),
    [
        (past_the_end, "PB500", "past the end of output 0: element 9"),
        (beside_a_temporary, "PB500", "past the end of a tensor of 12 bytes"),
        (beside_its_input, "PB500", "before the start of its input x: element -1"),
        (short, "PB507", "never writes element 8"),
        (by_numpy, "PB507", "elements 1, 3, 5, 7"),
        (whole_numbers, "PB507", "output 1 contains uninitialised memory"),
        (truths, "PB507", "output 1 contains uninitialised memory"),
    ],
)
def test_what_is_written_by_address_is_found_in_python(
    forward: Callable[[Tensor], Any], code: str, says: str
) -> None:
    x = torch.randn(9, dtype=torch.float64, requires_grad=True)
    report = asked((function(forward), (x,)), probes=["PB500", "PB507"])
    assert [fault.code for fault in report.faults] == [code], str(report)
    assert says in str(report)


def workspace(x: Tensor) -> Tensor:
    scratch = torch.empty(2, len(x))
    scratch[0] = x
    return 2 * scratch[0].to(x)


def of_nan(x: Tensor) -> Tensor:
    return torch.where(torch.arange(len(x)) > 3, 2 * x, torch.nan)


def resized(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=x.dtype).resize_(len(x)).copy_(2 * x)


@pytest.mark.parametrize("forward", [workspace, of_nan, resized])
def test_memory_that_nobody_reads_may_be_unwritten(forward: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(9, dtype=torch.float64, requires_grad=True)
    report = asked((function(forward), (x,)), probes=["PB500", "PB507"])
    assert report.ok, str(report)


def test_an_index_that_is_no_permutation_at_another_size_is_not_tried() -> None:
    class Permuted(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, order: Tensor) -> Tensor:
            ctx.save_for_backward(order)
            y = torch.empty_like(x)
            y[order] = x
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            (order,) = ctx.saved_tensors
            return grad[order], None

    x = torch.randn(9, dtype=torch.float64, requires_grad=True)
    report = asked((Permuted, (x, torch.randperm(9))), probes=["PB500", "PB507"])
    assert report.ok, str(report)


def test_another_size_of_many_axes_takes_no_memory_for_a_thousand_each() -> None:
    sizes: list[int] = []

    def noted(x: Tensor) -> Tensor:
        sizes.append(x.numel())
        return 2 * x

    x = torch.randn(5, 5, 5, 5, dtype=torch.float64, requires_grad=True)
    assert asked((function(noted), (x,)), probes=["PB500", "PB502", "PB507"]).ok
    assert max(sizes) <= 1 << 17
