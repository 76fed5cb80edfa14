"""What a check costs: an elementwise operator, and two layers with a million elements."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck

import pullback as pb
from benchmarks.measure import show
from pullback.verify.report import Report

# Seconds that gradcheck is waited for: its slow mode takes as many calls as there are elements.
PATIENCE = 60.0


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(1.702 * x)
        return grad * (s + 1.702 * x * s * (1 - s))


class Layers(torch.autograd.Function):
    """y = tanh(x wᵀ) vᵀ."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return (x @ w.t()).tanh() @ v.t()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, v = ctx.saved_tensors
        grad = grad.to(v.dtype)  # after a forward under autocast it is another one
        h = (x @ w.t()).tanh()
        inner = (grad @ v) * (1 - h * h)
        needs = ctx.needs_input_grad
        return (
            inner @ w if needs[0] else None,
            inner.t() @ x if needs[1] else None,
            grad.t() @ h if needs[2] else None,
        )


def inputs_of(rows: int, width: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return inputs of the two layers."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((rows, width), (width, width), (width, width))
    return tuple(
        (torch.randn(shape, dtype=dtype, generator=generator) / width**0.5).requires_grad_()
        for shape in shapes
    )


def seconds(run: Callable[[], object]) -> float:
    """Return what a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peer(function: Callable[..., Any], inputs: tuple[Tensor, ...], *, fast: bool) -> str:
    """Return gradcheck's seconds; for the slow mode what it would take, where that is too long."""
    wide = tuple(x.detach().double().requires_grad_() for x in inputs)
    if not fast:
        one = min(seconds(lambda: function(*wide)) for _ in range(3))
        calls = sum(2 * x.numel() for x in wide) + function(*wide).numel()
        if calls * one > PATIENCE:
            return f"about {calls * one / 3600:.1f} h"
    return f"{seconds(lambda: gradcheck(function, wide, fast_mode=fast)):.2f}"


def main(quick: bool = False) -> dict[str, float]:
    """Print the tables; return the seconds of each check."""
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    cases: dict[str, tuple[Any, tuple[Tensor, ...], str]] = {
        "elementwise, 20 elements": (Gelu, (x,), "3")
    }
    if not quick:
        rows = inputs_of(8192, 128, torch.float32)
        cases["two layers, 10⁶ elements"] = (Layers, rows, "30")
    figures: dict[str, float] = {}
    table: list[list[str]] = []
    for name, (function, inputs, aim) in cases.items():
        reports: list[Report] = []
        pb.check(function, *(own.detach()[:2, :2] for own in inputs))  # imports
        figures[name] = seconds(lambda f=function, i=inputs, r=reports: r.append(pb.check(f, *i)))
        assert reports[0].ok, str(reports[0])
        slow, fast = (peer(function.apply, inputs, fast=fast) for fast in (False, True))
        one = seconds(lambda f=function, i=inputs: f.apply(*i).sum().backward())
        calls = f"{figures[name] / one:.0f}"
        table.append([name, f"{figures[name]:.2f}", aim, slow, fast, calls])
        by_probe(name, reports[0])
    columns = [
        "",
        "check, s",
        "aim",
        "gradcheck, s",
        "fast_mode, s",
        "check / (forward + backward)",
    ]
    notes = [
        "gradcheck answers one question of those of a check: are the numbers right at these inputs?"
    ]
    show("A full check", columns, table, notes)
    return figures


def by_probe(name: str, report: Report, count: int = 10) -> None:
    """Print the probes that take longest."""
    slowest = sorted(report.everything, key=lambda outcome: -outcome.seconds)[:count]
    rows = [[f"{o.code} {o.name}", f"{1e3 * o.seconds:.0f}", o.verdict] for o in slowest]
    total = f"all {len(report.outcomes)} probes: {report.seconds:.2f} s"
    show(f"{name}: where the time goes", ["probe", "ms", "verdict"], rows, [total])


if __name__ == "__main__":
    main()
