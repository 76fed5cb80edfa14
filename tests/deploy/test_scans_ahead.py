"""Loops of recurrences are compiled ahead of a call, and found where nothing can be compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind import kernel
from pullback.bind.kinds.recurrent import Recurrent
from pullback.bind.loops import gpu
from pullback.bind.loops.backends import CudaBackend
from pullback.bind.loops.scans import Scan
from pullback.bind.math import agree, recur, recurrent_call
from pullback.bind.math.call import call_of
from pullback.bind.math.recurrent_call import RecurrentCall
from pullback.deploy import libraries, shipped, target
from pullback.kernels import prebuilt, toolchain

pytestmark = pytest.mark.compiler
THOROUGH = pytest.mark.thorough
DEFAULT = [("lru", "float32"), ("ema", "float64")]
# Of gradients that sum two hundred terms of states that are rounded, by a chain of additions.
BOUNDS: dict[str, Any] = {
    "float32": {"rtol": 200 * 2**-23, "atol": 200 * 2**-23},
    "bfloat16": {"rtol": 0.03, "atol": 0.3},
}
LRU = "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d] = a*h[t - 1, d] + x; h[-1, d] = h0"
EMA = (
    "(x[..., t, d], r[d]) -> (y[..., t, d], end[..., d]) ="
    " y = r*pad(y[t - 1, d]) + (1 - r)*x; end = y[size(t) - 1, d]"
)
SS = (
    "(dt[..., t, d], A[d, s], B[..., t, s], C[..., t, s], x[..., t, d]) -> y[..., t, d] ="
    " h[t, d, s] = exp(-dt*A)*pad(h[t - 1, d, s]) + dt*B*x; y = sum[s](C*h)"
)
# In its gradient the gates are sums that no state decides, and are computed before the steps.
GRU = (
    "(x[b, t, 3, d], w[3, d, d]) -> h[b, t, d] ="
    " r[b, t, d] = sigmoid(x[b, t, 0, d] + sum[j](w[0, d, j]*pad(h[b, t - 1, j])));"
    " z[b, t, d] = sigmoid(x[b, t, 1, d] + sum[j](w[1, d, j]*pad(h[b, t - 1, j])));"
    " n[b, t, d] = tanh(x[b, t, 2, d] + r*sum[j](w[2, d, j]*pad(h[b, t - 1, j])));"
    " h = (1 - z)*n + z*pad(h[b, t - 1, d])"
)

LINES: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "lru": (LRU, ((2, 100, 20), (2, 100, 20), (20,))),
    "ema": (EMA, ((2, 100, 20), (20,))),
    "ss": (SS, ((2, 70, 9), (9, 5), (2, 70, 5), (2, 70, 5), (2, 70, 9))),
    "backwards": (
        "(delta[..., t], c[..., t]) -> adv[..., t] = delta + c*pad(adv[t + 1])",
        ((30, 200), (30, 200)),
    ),
    "gru": (GRU, ((2, 70, 3, 9), (3, 9, 9))),
    "reservoir": (
        "(x[t, n], w[n, k], to[n, k]: int64) -> h[t, n] ="
        " tanh(x + sum[k](w[n, k]*pad(h[t - 1, to[n, k]])))",
        ((100, 90), (90, 3)),
    ),
}
PLACES = {"reservoir": [torch.arange(270).view(90, 3) * 7 % 91]}


def build(operator: pb.Operator, dtypes: list[str], folder: Path, *gpus: str) -> None:
    """Compile the loops of an operator and of its gradients, for the first processors or GPUs."""
    built_for = target.target()
    built_for = replace(built_for, levels=() if gpus else built_for.levels[:1], loops=gpus)
    travelling = shipped.collect([operator], orders=1)
    jobs = [job for one in travelling for job in libraries.jobs_of_formula(one, dtypes, built_for)]
    prebuilt.write(folder, libraries.compile_jobs(jobs, folder), "again")


def results_of(function: Callable[..., Any], given: list[Tensor]) -> list[Tensor]:
    """Return what a function gives, and the gradients of it."""
    leaves = [tensor.clone().requires_grad_(tensor.is_floating_point()) for tensor in given]
    found = function(*leaves)
    outputs = list(found) if isinstance(found, tuple) else [found]
    loss = torch.stack([output.double().square().sum() for output in outputs]).sum()
    real = [leaf for leaf in leaves if leaf.requires_grad]
    return [*(output.detach() for output in outputs), *torch.autograd.grad(loss, real)]


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(
            name, dtype, id=f"{name}-{dtype}", marks=[] if (name, dtype) in DEFAULT else [THOROUGH]
        )
        for name in LINES
        for dtype in ("float32", "float64", "bfloat16")
    ],
)
def test_a_package_brings_the_loops_of_a_recurrence_and_of_its_gradients(
    name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    line, shapes = LINES[name]
    operator = pb.operator(f"shippedscan::{name}_{dtype}{line}")
    given = [torch.rand(shape).to(getattr(torch, dtype)) for shape in shapes]
    places = PLACES.get(name, [])
    # Step by step in double precision, differentiated by PyTorch.
    assert isinstance(operator.kind, Recurrent)
    doubles = [tensor.double() for tensor in given]
    wanted = results_of(operator.kind.in_pytorch(), [*doubles, *places])
    build(operator, [dtype], tmp_path)
    monkeypatch.setattr(prebuilt, "_folders", {})
    prebuilt.add(tmp_path)
    monkeypatch.setattr(toolchain, "has", lambda _language: False)
    leaves = [tensor.clone().requires_grad_() for tensor in given]
    plan = str(operator.plan(*leaves, *places))
    assert "own loop, recurrence" in plan
    assert "step by step" not in plan
    for found, exact in zip(results_of(operator, [*given, *places]), wanted, strict=True):
        torch.testing.assert_close(found, exact.to(found.dtype), **BOUNDS.get(dtype, {}))


CELL = (
    "(x[b, t, d], w[d], h0[d]) -> y[b, t, d] ="
    " h[b, t, d] = tanh(w*h[b, t - 1, d] + x); h[b, -1, d] = h0; y = h*h"
)


@THOROUGH
@pytest.mark.parametrize("name", ["cell", "gru"])
def test_a_package_brings_the_loops_that_a_compiler_would_give(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that keep few states of many, and those that bring what is added up into the steps."""
    monkeypatch.setattr(recur, "LARGE", 0)
    line, shapes = {**LINES, "cell": (CELL, ((2, 200, 40), (40,), (40,)))}[name]
    operator = pb.operator(f"shippedscan::brought_{name}{line}")
    compiled = pb.operator(f"shippedscan::compiled_{name}{line}")
    given = [torch.rand(shape) for shape in shapes]
    here = compiled.plan(*(tensor.clone().requires_grad_() for tensor in given))
    wanted = results_of(compiled, given)
    build(operator, ["float32"], tmp_path)
    monkeypatch.setattr(prebuilt, "_folders", {})
    prebuilt.add(tmp_path)
    monkeypatch.setattr(toolchain, "has", lambda _language: False)
    there = operator.plan(*(tensor.clone().requires_grad_() for tensor in given))
    computed = (
        [step.outputs for step in plan.steps if step.way == "own loop, recurrence"]
        for plan in (here, there)
    )
    assert next(computed) == next(computed)
    assert ("every 32nd state" in str(there)) == (name == "cell")
    for found, exact in zip(results_of(operator, given), wanted, strict=True):
        torch.testing.assert_close(found, exact, **BOUNDS["float32"])


@THOROUGH
@pytest.mark.nvcc
def test_a_package_brings_the_loops_of_a_recurrence_for_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For those that were named and for later ones; here none can run them."""
    line, shapes = LINES["lru"]
    operator = pb.operator(f"shippedscan::for_gpus{line}")
    build(operator, ["float32"], tmp_path, "sm_90", "compute_90")
    monkeypatch.setattr(prebuilt, "_folders", {})
    prebuilt.add(tmp_path)
    monkeypatch.setattr(toolchain, "has", lambda _language: False)
    monkeypatch.setattr(gpu, "find_nvrtc", lambda: None)
    monkeypatch.setattr(agree, "require_agreement", lambda *_: None)
    definition = operator.kind.definition
    given = kernel.fill_defaults(definition, tuple(map(torch.rand, shapes)), None)
    call = call_of(definition, given)
    for architecture, is_there in (("sm_90", True), ("sm_120", True), ("sm_80", False)):
        backend = CudaBackend(architecture)
        monkeypatch.setattr(recurrent_call, "find_backend", lambda _, own=backend: own)
        found = RecurrentCall.of_call(call).scan(0, call, torch.float32)
        assert isinstance(found, Scan) is is_there
        assert not isinstance(found, Scan) or found.own.brought
