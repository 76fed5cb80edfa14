"""The formulas that are measured, and each of them as the others have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb

Function = Callable[..., Tensor]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator.

    Attributes:
        name: in the tables, and of the operator.
        line: the rest of its line.
        torch: the same as one writes it in PyTorch.
        inputs: between which numbers each input lies. Neither the result nor a gradient has a zero
            there: beside one, an error in ulp says how near the inputs came to it, and no more.
        fused: PyTorch's own kernel of it.
        jiterator: its value in C++, for `torch.cuda.jiterator`.
        cheap: memory alone should limit it.
    """

    name: str
    line: str
    torch: Function
    inputs: tuple[tuple[float, float], ...] = ((0.1, 4),)
    fused: Function | None = None
    jiterator: str
    cheap: bool = False

    @property
    def bytes(self) -> dict[str, int]:
        """What has to be moved for one element, in float32: what is read and what is written."""
        count, saved = len(self.inputs), len(ours(self).derivative().saved)
        return {"forward": 4 * (count + 1), "backward": 4 * (saved + 1 + count)}

    def tensors(self, size: int, device: str) -> list[Tensor]:
        """Return inputs, the same ones every time."""
        draw = torch.Generator().manual_seed(0)
        drawn = [low + (high - low) * torch.rand(size, generator=draw) for low, high in self.inputs]
        return [tensor.to(device) for tensor in drawn]


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def call_price(
    spot: Tensor, strike: Tensor, time: Tensor, rate: Tensor, volatility: Tensor
) -> Tensor:
    root = volatility * torch.sqrt(time)
    d = (torch.log(spot / strike) + (rate + volatility**2 / 2) * time) / root
    owed = strike * torch.exp(-rate * time)
    return (spot * torch.erfc(-d / sqrt(2)) - owed * torch.erfc((root - d) / sqrt(2))) / 2


CASES = (
    Case(
        name="multiply_add",
        line="(x[...], y[...]) -> z[...] = x*y + 1",
        torch=lambda x, y: x * y + 1,
        inputs=((0.1, 4), (0.1, 4)),
        jiterator="x*y + 1",
        cheap=True,
    ),
    Case(
        name="legendre3",
        line="(x[...]) -> y[...] = (5*x**3 - 3*x) / 2",
        torch=lambda x: (5 * x**3 - 3 * x) / 2,
        inputs=((1, 4),),
        jiterator="(5*x*x*x - 3*x) / 2",
    ),
    Case(
        name="gelu_tanh",
        line="(x[...]) -> y[...] = gelu_tanh(x)",
        torch=gelu_tanh,
        fused=lambda x: functional.gelu(x, approximate="tanh"),
        jiterator="T(0.5)*x*(1 + tanh(T(0.7978845608028654)*(x + T(0.044715)*x*x*x)))",
    ),
    Case(
        name="silu",
        line="(x[...]) -> y[...] = silu(x)",
        torch=lambda x: x * torch.sigmoid(x),
        fused=functional.silu,
        jiterator="x / (1 + exp(-x))",
    ),
    Case(
        name="softplus",
        line="(x[...]) -> y[...] = softplus(x)",
        torch=lambda x: torch.log1p(torch.exp(x)),
        inputs=((-4, 4),),
        fused=functional.softplus,
        jiterator="log1p(exp(x))",
    ),
    Case(
        name="mish",
        line="(x[...]) -> y[...] = mish(x)",
        torch=lambda x: x * torch.tanh(torch.log1p(torch.exp(x))),
        fused=functional.mish,
        jiterator="x * tanh(log1p(exp(x)))",
    ),
    Case(
        name="gate",
        line="(x[...], y[...], b[...]) -> z[...] = x*sigmoid(b) + tanh(x*y)",
        torch=lambda x, y, b: x * torch.sigmoid(b) + torch.tanh(x * y),
        inputs=((0.1, 2), (0.1, 1), (-2, 2)),
        jiterator="x / (1 + exp(-b)) + tanh(x*y)",
    ),
    Case(
        name="call_price",
        line="(spot[...], strike[...], time[...], rate[...], volatility[...]) -> price[...] = "
        "root = volatility*sqrt(time); "
        "d = (log(spot/strike) + (rate + volatility**2/2)*time) / root; "
        "owed = strike*exp(-rate*time); "
        "price = (spot*erfc(-d/sqrt(2)) - owed*erfc((root - d)/sqrt(2))) / 2",
        torch=call_price,
        inputs=((110, 150), (90, 100), (0.5, 2), (0.01, 0.1), (0.2, 0.5)),
        jiterator="[&] { T root = volatility*sqrt(time); "
        "T d = (log(spot/strike) + (rate + volatility*volatility/2)*time) / root; "
        "return (spot*erfc(-d*T(0.7071067811865476)) - strike*exp(-rate*time)"
        "*erfc((root - d)*T(0.7071067811865476))) / 2; }()",
    ),
)
OURS, EXACT, EAGER, FUSED, COMPILED, JITERATOR = (
    *("pullback", "1ulp", "eager", "fused", "compile", "jiterator"),
)


@cache
def ours(case: Case) -> pb.Operator:
    return pb.operator(f"bench_formula::{case.name}{case.line}")


@cache
def exact(case: Case) -> pb.Operator:
    """Return our operator with functions as accurate as PyTorch's."""
    return pb.operator(f"bench_formula::{case.name}_1ulp{case.line}", accuracy="1ulp")


def jiterator(case: Case) -> Function:
    """Return PyTorch's own generated CUDA kernel: forward only."""
    parameters = ", ".join(f"T {tensor.name}" for tensor in ours(case).line.tensors)
    code = f"template <typename T> T {case.name}({parameters}) {{ return {case.jiterator}; }}"
    jitted: Any = torch.cuda.jiterator._create_jit_fn(code)
    return jitted


def candidates(case: Case, device: str, *, quick: bool) -> dict[str, Function]:
    """Return ours and the peers: those that the case and the machine have.

    Args:
        case: the operator.
        device: where it runs.
        quick: leave out those that take time to build.
    """
    found: dict[str, Function] = {OURS: ours(case), EAGER: case.torch}
    if case.fused:
        found[FUSED] = case.fused
    if not quick:
        found[EXACT] = exact(case)
        # Its kernels are specialised to sizes and threads; nothing of an earlier case remains.
        torch._dynamo.reset()
        found[COMPILED] = torch.compile(case.torch, dynamic=False, fullgraph=True)
    if device == "cuda":
        found[JITERATOR] = jiterator(case)
    return found
