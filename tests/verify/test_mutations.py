"""Mutations of right Functions: each planted fault is found, by the probe that is meant for it.

A right Function is text; a mutation replaces a piece of it: without it nothing is found.
"""

from __future__ import annotations

import itertools
import linecache
from typing import Any

import pytest
import torch

from pullback.verify.report import Report
from tests.verify.case import asked

RIGHT = {
    "sine": """
class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()
""",
    "linear": """
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w.t() + b

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w, grad.t() @ x, grad.sum(0)
""",
    "softmax": """
class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (y * grad).sum(-1, keepdim=True))
""",
}
SHAPES = {"sine": [(3, 4)], "linear": [(3, 4), (4, 4), (4,)], "softmax": [(3, 4)]}
# Of which Function; what is replaced by what; the codes of which one has to be found.
MUTATIONS: list[tuple[str, str, str, set[str]]] = [
    ("sine", "grad * x.cos()", "-grad * x.cos()", {"PB553"}),
    ("sine", "grad * x.cos()", "2 * grad * x.cos()", {"PB553"}),
    ("sine", "grad * x.cos()", "x.cos()", {"PB530"}),
    ("sine", "grad * x.cos()", "grad.clamp(-1, 1) * x.cos()", {"PB531"}),
    ("sine", "grad * x.cos()", "grad.mul_(x.cos())", {"PB508"}),
    ("sine", "grad * x.cos()", "x.data.cos_().mul_(grad)", {"PB504"}),
    ("sine", "grad * x.cos()", "(grad.view(-1) * x.cos().view(-1)).view_as(x)", {"PB532"}),
    ("sine", "grad * x.cos()", "grad * x.cos() * (x < 20)", {"PB561", "PB553"}),
    ("sine", "return x.sin()", "y = x.sin(); x.add_(1); return y", {"PB502"}),
    ("sine", "return x.sin()", "ctx.y = x.sin(); return ctx.y", {"PB515"}),
    ("sine", "ctx.save_for_backward(x)", "ctx.save_for_backward(x.detach())", {"PB567"}),
    ("linear", "grad @ w,", "grad @ w.t(),", {"PB553"}),
    ("linear", "grad.t() @ x", "(grad.t() @ x).t()", {"PB553"}),
    ("linear", "grad.sum(0)", "grad.sum(0).repeat(2, 1)", {"PB503"}),
    ("linear", "grad.sum(0)", "None", {"PB512"}),
    ("linear", "grad.sum(0)", "grad.mean(0)", {"PB553"}),
    (
        "linear",
        "return grad @ w, grad.t() @ x, grad.sum(0)",
        "return grad @ w, grad.t() @ x",
        {"PB506"},
    ),
    ("softmax", "grad - (y * grad).sum(-1, keepdim=True)", "grad", {"PB553"}),
    ("softmax", "sum(-1, keepdim=True)", "sum(0, keepdim=True)", {"PB553"}),
]
number = itertools.count()


def checked(name: str, old: str = "", new: str = "") -> Report:
    """Check a Function, mutated."""
    text = RIGHT[name]
    assert old in text
    text = text.replace(old, new, 1) if old else text
    file = f"<mutation {next(number)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"torch": torch, "__name__": "mutation"}
    exec(compile(text, file, "exec"), space)
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randn(s, dtype=torch.float64, generator=generator) for s in SHAPES[name]]
    return asked((space[name.capitalize()], tuple(drawn)), dear={"PB561"})


def codes(report: Report) -> set[str]:
    """Return the codes of the faults."""
    return {finding.code for finding in report.faults}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_functions_have_no_fault(name: str) -> None:
    report = checked(name)
    assert report.ok, str(report)


@pytest.mark.ci(3)
@pytest.mark.parametrize(("name", "old", "new", "expected"), MUTATIONS)
def test_a_planted_fault_is_found(name: str, old: str, new: str, expected: set[str]) -> None:
    report = checked(name, old, new)
    assert codes(report) & expected, str(report)
