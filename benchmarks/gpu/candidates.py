"""Ours and its peers, for one operator."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import pullback as pb
from benchmarks.gpu.cases import Case, Function
from benchmarks.gpu.place import Place
from benchmarks.gpu.rows import OURS
from pullback.bind.loops.backends import CudaBackend

LOOPS, EAGER, FUSED, COMPILED, KEOPS = "loops", "eager", "fused", "compile", "KeOps"
WHO = (OURS, LOOPS, EAGER, FUSED, COMPILED, KEOPS)
_numbers = itertools.count()


def define(case: Case) -> pb.Operator:
    """Return our operator, a new one each time."""
    return pb.operator(f"bench_gpu::c{next(_numbers)}{case.line}")


def peers(case: Case, place: Place) -> dict[str, Callable[[], Function]]:
    """Return what makes each peer that the case and the machine have."""
    found: dict[str, Callable[[], Function]] = {EAGER: lambda: case.eager}
    if fused := case.fused:
        found[FUSED] = lambda: fused
    # The GPU that PyTorch is made to see in a rehearsal has no Inductor.
    if case.is_compiled and not (place.rehearsal or case.is_loop):
        found[COMPILED] = lambda: compiled(case)
    if case.keops and importlib.util.find_spec("pykeops"):
        found[KEOPS] = lambda: by_keops(case)
    return found


def compiled(case: Case) -> Function:
    """Return the plain computation by torch.compile."""
    torch._dynamo.reset()
    function: Any = torch.compile(case.eager, dynamic=False, fullgraph=True)
    return function


def by_keops(case: Case) -> Function:
    """Return a case by KeOps, as it is by default: with fast mathematics."""
    lazy: Any = importlib.import_module("pykeops.torch").LazyTensor
    keops = case.keops
    assert keops
    return lambda *inputs: keops(lazy, *inputs)


def with_loops(case: Case, run: Callable[[Function], object]) -> Function:
    """Return our operator by its loops, whatever the clock would choose.

    Args:
        case: the operator.
        run: calls it as it will be called, so that the choice is made.
    """
    operator = define(case)
    with mock.patch.object(CudaBackend, "is_preferred", new=True):
        run(operator)
    return operator


def ways_of(operator: pb.Operator, inputs: tuple[Tensor, ...]) -> list[str]:
    """Return who computes each output of an operator in index notation, gradients too."""
    try:
        plan = operator.plan(*inputs)
    except pb.PullbackError:
        return []  # pointwise: always a loop
    return [f"{', '.join(step.outputs)}: {step.way} ({step.reason})" for step in plan.steps]
