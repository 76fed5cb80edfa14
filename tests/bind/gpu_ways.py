"""Tests for a GPU that CUDA on the CPU rehearses: what they share.

A test that takes `way` runs on a GPU where there is one, marked `cuda`; and as a rehearsal on the
CPU, so that the test itself is known to run before anybody has a GPU. Tensors are on "cuda".
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind import gpu
from pullback.bind.loops.backends import CudaBackend

ON_A_GPU = (
    pytest.mark.cuda,
    pytest.mark.skipif(not gpu.is_available(), reason="no GPU here"),
)
ON_CPU, GPU = "on_cpu", "gpu"
on_a_gpu = pytest.mark.parametrize("way", [pytest.param(GPU, marks=ON_A_GPU)], indirect=True)
both_ways = pytest.mark.parametrize(
    "way", [ON_CPU, pytest.param(GPU, marks=ON_A_GPU)], indirect=True
)
rehearsed_thoroughly = pytest.mark.parametrize(
    "way",
    [pytest.param(ON_CPU, marks=pytest.mark.thorough), pytest.param(GPU, marks=ON_A_GPU)],
    indirect=True,
)
_numbers = itertools.count()


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where a test runs; loops are called wherever there is one, whatever the clock would say."""
    monkeypatch.setattr(CudaBackend, "is_preferred", True)
    if request.param == ON_CPU:
        with pb.cuda.on_cpu():
            yield ON_CPU
        return
    yield GPU
    # What a kernel did wrong is this test's fault, and not the next one's.
    torch.cuda.synchronize()


def define(rest: str, **options: Any) -> pb.Operator:
    """Return a new operator, which nothing knows of yet."""
    return pb.operator(f"on_gpu::f{next(_numbers)}{rest}", **options)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normal numbers on the GPU, the same ones whichever it is."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).to("cuda")


def require_loops(operator: pb.Operator, *given: Any) -> None:
    """Stop unless the operator itself is computed by loops."""
    own = [s for s in operator.plan(*given).steps if s.operator == operator.line.qualname]
    assert all(step.way.startswith("own loop") for step in own), own


def require_close(value: Tensor, wanted: Tensor, within: float = 3e-6) -> None:
    """Stop unless an output is near one in float64, relative to the largest value."""
    assert value.shape == wanted.shape
    error = (value.double().cpu() - wanted.double().cpu()).abs().max().item()
    assert error <= within * max(1e-30, wanted.abs().max().item()), error


def require_same_each_time(run: Any, times: int) -> Tensor:
    """Stop unless many calls give the same bits; return them."""
    first: Tensor = run()
    for _ in range(times):
        assert torch.equal(run(), first)
    return first


def gradients(operator: Any, given: Sequence[Tensor]) -> list[Tensor]:
    """Return an output and the gradients of its sum."""
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in given]
    output = operator(*leaves)
    wrt = [t for t in leaves if t.requires_grad]
    return [output.detach(), *torch.autograd.grad(output.sum(), wrt)]


def child(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process."""
    file = folder / "script.py"
    file.write_text(script)
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, **variables},
        check=False,
        timeout=55,
    )
