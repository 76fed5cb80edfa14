"""PyTorch's counter counts operators in index notation, and what they derive."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import pullback as pb
from tests.fresh import python

pytestmark = pytest.mark.compiler

LINE = "flops::linear(x[n, i], w[o, i], b[o]?) -> y[n, o] = sum[i](x[n, i]*w[o, i]) + b[o]"
UNUSED = """
import sys
import torch
import pullback as pb
op = pb.operator("unused::square(x[n, d]) -> y[n] = sum[d](x[n, d]**2)")
op(torch.ones(4, 3, requires_grad=True)).sum().backward()
layer = pb.operator("unused::layer(x[..., n], g[n]) -> y[..., n] = x*g/mean[k](x[k])")
layer(torch.ones(400, 300, requires_grad=True), torch.ones(300)).sum().backward()
modules = ["torch.distributed.tensor", "torch.utils.flop_counter", "sympy", "pullback.verify"]
assert not [name for name in modules if name in sys.modules]
from torch.utils.flop_counter import FlopCounterMode, flop_registry
assert torch.ops.unused.square in flop_registry
with FlopCounterMode(display=False) as counter:
    op(torch.ones(4, 3))
assert counter.get_total_flops() == 2 * 4 * 3
from torch.distributed.tensor import DTensor
from torch._library.simple_registry import find_torch_dispatch_rule
assert find_torch_dispatch_rule(torch.ops.unused.square.default, DTensor)
"""


def counts(call: object) -> dict[str, int]:
    with FlopCounterMode(display=False) as counter:
        call()  # pyright: ignore
    found = counter.get_flop_counts().get("Global", {})
    return {str(packet): count for packet, count in found.items()}


def test_forward_and_backward_are_counted() -> None:
    linear = pb.operator(LINE)
    n, i, o = 7, 5, 3
    x, w, b = (torch.ones(*shape, requires_grad=True) for shape in ((n, i), (o, i), (o,)))
    forward, backward = 2 * n * i * o + n * o, 4 * n * i * o + n * o
    assert counts(lambda: linear(x, w, b).sum().backward()) == {
        "flops.linear": forward,
        "flops._linear_grad": backward,
    }
    assert counts(lambda: linear(x, w)) == {"flops.linear": 2 * n * i * o}
    only = w.detach()
    assert counts(lambda: linear(x, only).sum().backward()) == {
        "flops.linear": 2 * n * i * o,
        "flops._linear_grad": 2 * n * i * o,
    }


@pytest.mark.filterwarnings("ignore::pullback.bind.register.RedefinitionNotice")
def test_a_redefinition_is_counted_as_it_is_now() -> None:
    x = torch.ones(4, 3)
    for text, count in (("x[n, d]**2", 24), ("exp(x[n, d])", 11 * 12)):
        op = pb.operator(f"flops::again(x[n, d]) -> y[n] = sum[d]({text})")
        assert counts(lambda op=op: op(x)) == {"flops.again": count}


def test_what_nobody_imports_is_not_imported(tmp_path: Path) -> None:
    done = python("-W", "ignore", "-c", UNUSED, folder=tmp_path)
    assert done.returncode == 0, done.stderr
