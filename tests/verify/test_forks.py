"""Checks in a process whose autograd has started threads, as it does on a machine with a GPU."""

from __future__ import annotations

from pathlib import Path

from tests.fresh import python

# A backward in a backward in a backward ... is where autograd starts threads without a GPU.
SCRIPT = """
import os
import torch
import pullback as pb

class Deep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.n:
            with torch.enable_grad():
                Deep.apply(torch.ones(1, requires_grad=True), ctx.n - 1).sum().backward()
        return grad, None

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad

class Dies(Square):
    @staticmethod
    def backward(ctx, grad):
        os.abort()

Deep.apply(torch.ones(1, requires_grad=True), 100).sum().backward()
if os.fork() == 0:
    try:
        torch.ones(1, requires_grad=True).clone().backward()
    except RuntimeError:
        print("refused", flush=True)
    os._exit(0)
os.wait()
x = torch.randn(4, dtype=torch.float64, requires_grad=True)
options = dict(probes=["PB501", "PB506", "PB553"])
print(pb.check(Square, x, **options).ok)
print([finding.code for finding in pb.check(Dies, x, **options).faults])
"""


def test_a_backward_in_a_forked_process_works_where_pytorch_refuses_it(tmp_path: Path) -> None:
    done = python("-W", "ignore", "-c", SCRIPT, folder=tmp_path)
    assert done.stdout.splitlines() == ["refused", "True", "['PB403']"], done.stderr
