"""Pointwise formulas on a GPU; CUDA on the CPU rehearses the tests where there is none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.bind.gpu_ways import (
    GPU,
    both_ways,
    define,
    draw,
    gradients,
    on_a_gpu,
    rehearsed_thoroughly,
    require_close,
    way,
)

__all__ = ["way"]

pytestmark = pytest.mark.compiler

MISH = "(x[...]) -> y[...] = x*tanh(log1p(exp(x)))"
BIAS = "(x[..., n], b[n]) -> y[..., n] = tanh(x + b)"


def mish(x: Tensor) -> Tensor:
    return x * torch.log1p(x.exp()).tanh()


@both_ways
def test_a_formula_and_its_gradients_are_right(way: str) -> None:
    operator = define(BIAS)
    given = [draw(7, 5, 33), draw(33, seed=1)]
    got = gradients(lambda *t: operator(*t).square(), given)
    wanted = gradients(lambda x, b: torch.tanh(x + b).square(), [t.double() for t in given])
    for value, want in zip(got, wanted, strict=True):
        require_close(value, want)


@rehearsed_thoroughly
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_views_at_every_offset_are_read_where_they_lie(dtype: torch.dtype, way: str) -> None:
    operator = define(MISH)
    size = torch.empty((), dtype=dtype).element_size()
    base = draw(3000, dtype=dtype)
    for offset in range(16 // size):
        for count in (1, 7, 1000, 1021):
            x = base[offset : offset + count]
            require_close(operator(x), mish(x.double()), 4 * torch.finfo(dtype).eps)
    for x in (base[::3], base.view(50, 60).t(), base[:60].expand(9, 60), base.flip(0)):
        require_close(operator(x), mish(x.double()), 4 * torch.finfo(dtype).eps)


# What CUDA's programming guide says of its functions in float32, in ulp; ours of several steps have
# the sum of theirs. Half an ulp more is the rounding of what they are compared with.
ULP = {
    "exp": 2, "expm1": 1, "log": 1, "log1p": 1, "tanh": 2, "sin": 2, "cos": 2, "erf": 2,
    "erfc": 4, "sqrt": 0, "rsqrt": 2, "atan": 2, "asinh": 3, "sinh": 3, "cosh": 2,
}  # fmt: skip


@rehearsed_thoroughly
@pytest.mark.parametrize("name", ULP)
def test_functions_are_as_accurate_as_cuda_says(name: str, way: str) -> None:
    """At floats of all signs and exponents, and where the function is neither 0 nor constant."""
    operator = define(f"(x[...]) -> y[...] = {name}(x)")
    count = 2**25 if way == GPU else 2**10
    bits = torch.randint(-(2**31), 2**31, (count,), generator=torch.Generator().manual_seed(0))
    near = draw(count) * 4
    for x in (bits.to(torch.int32).view(torch.float32).to("cuda"), near):
        got = operator(x)
        exact = getattr(torch, name)(x.double())
        smallest = torch.finfo(torch.float32).tiny
        counted = (exact.abs() > smallest) & (exact.abs() < torch.finfo(torch.float32).max)
        # Beyond it the argument's reduction is what is tested, and that of float64 too.
        counted &= (x.abs() < 1e5) if name in {"sin", "cos"} else counted
        exponent = torch.frexp(torch.where(counted, exact, 1.0)).exponent
        error = torch.ldexp((got.double() - exact).abs(), 24 - exponent)
        worst = torch.where(counted, error, 0.0).max().item()
        assert worst <= ULP[name] + 0.5, f"{worst} ulp"
        same = torch.where(exact.isnan(), got.isnan(), ~got.isnan())
        assert same.all()


@on_a_gpu
def test_tensors_of_more_than_2_to_the_31_elements(way: str) -> None:
    if torch.cuda.mem_get_info()[0] < 30e9:
        pytest.skip("it takes 30 GB")
    operator = define("(x[...]) -> y[...] = x + 1")
    x = torch.zeros(2**31 + 5, device="cuda", dtype=torch.bfloat16)
    x[-1] = 4
    y = operator(x)
    assert y[-1].item() == 5
    assert y[2**31 - 3 : 2**31 + 3].eq(1).all()
    wide = torch.zeros(2, 2**31 + 8, device="cuda", dtype=torch.bfloat16)[:, :9]
    assert operator(wide).eq(1).all()


@rehearsed_thoroughly
def test_a_call_runs_on_the_current_stream(way: str) -> None:
    operator = define(MISH)
    value = draw(4000)
    operator(value)
    torch.cuda.synchronize()
    x = torch.zeros_like(value)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        if way == GPU:
            torch.cuda._sleep(200_000_000)
        x.copy_(value)
        y = operator(x)
        if way == GPU:
            assert not stream.query(), "the call has waited for the GPU"
    stream.synchronize()
    require_close(y, mish(value.double()))


@on_a_gpu
def test_a_warm_call_is_captured_and_replayed_with_new_inputs(way: str) -> None:
    operator = define(MISH)
    x = draw(1000)
    for _ in range(3):
        operator(x)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = operator(x)
    for seed in range(100):
        x.copy_(draw(1000, seed=seed))
        graph.replay()
        require_close(y, mish(x.double()))


@rehearsed_thoroughly
def test_nothing_and_whole_numbers_and_truths(way: str) -> None:
    operator = define(
        "(x[...], i[...]: int64, b[...]: bool, k: int) -> (y[...], j[...]: int64, c[...]: bool)"
        " = y = where(b, x, x*float(i)); j = i // k; c = x < 0"
    )
    for shape in ((0,), (3, 0), (5, 13)):
        x = draw(*shape)
        i = torch.arange(x.numel(), device="cuda").view(shape)
        b = i % 2 == 0
        y, j, c = operator(x, i, b, 3)
        assert torch.equal(y, torch.where(b, x, x * i))
        assert torch.equal(j, i // 3)
        assert torch.equal(c, x < 0)
