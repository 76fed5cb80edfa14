"""What the trace of one call shows: faults with their causes, and nothing on code that is right."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pullback as pb
from tests.verify.case import SPOILING, Function, asked, d
from tests.verify.tracing import faults, sound
from tests.verify.tracing.case import FAMILY, FAULTS, RIGHT, Case

MODULES = (faults, sound)


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_the_fault_is_found_and_named(case: Case) -> None:
    torch.manual_seed(0)
    report = asked(case.make(), isolate=case.code in SPOILING, probes=FAMILY)
    assert case.code in {finding.code for finding in report.faults}, str(report)
    text = "\n".join(str(f) for f in report.faults if f.code == case.code)
    assert all(word in text for word in case.says), str(report)
    assert len({finding.code for finding in report.faults}) == 1, str(report)


def test_the_line_that_changes_a_setting_is_shown() -> None:
    class Watched(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.t().t() * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            torch.autograd.set_detect_anomaly(True)
            return grad * 2

    (fault,) = pb.check(Watched, d(2, 3), probes=["PB522"]).faults
    assert fault.where is not None
    assert "torch.autograd.set_detect_anomaly(True)" in fault.where


def test_what_is_never_written_is_found_where_pytorch_fills_memory_itself() -> None:
    class Forgetful(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            gradient = torch.empty_like(grad)
            gradient[1:] = grad[1:] * 2
            return gradient

    torch.use_deterministic_algorithms(True)
    try:
        report = asked((Forgetful, (d(9),)), probes=["PB507"])
    finally:
        torch.use_deterministic_algorithms(False)
    assert [fault.code for fault in report.faults] == ["PB507"], str(report)


@pytest.mark.parametrize("seeding", [torch.manual_seed, np.random.seed, random.seed])
def test_a_forward_that_seeds_one_generator_is_found(seeding: Callable[[int], object]) -> None:
    class Seeding(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            seeding(0)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    report = asked((Seeding, (d(2),)), probes=["PB652"])
    assert "forward seeds the global random generator" in str(report)


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_code_that_is_right_has_no_fault(case: Case) -> None:
    torch.manual_seed(0)
    report = asked(case.make(), probes=FAMILY)
    assert report.ok, str(report)


def test_an_input_that_is_one_of_two_outputs_is_advice_that_says_when_it_matters() -> None:
    class Pass(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Any:
            return x, y * 2

        @staticmethod
        def backward(ctx: Any, a: Tensor, b: Tensor) -> Any:
            return a, b * 2

    report = asked((Pass, (d(4), d(4))), probes=FAMILY)
    assert report.ok, str(report)
    assert [own.code for own in report.findings if "y += 1 raises" in own.message] == ["PB520"]


@pytest.mark.parametrize("limit", [2, 33])
def test_an_input_that_is_changed_for_some_shapes_is_found(limit: int) -> None:
    class Sometimes(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            if len(x) > limit if limit > 2 else len(x) % 2:
                x.numpy(force=True)[...] = 0
            return 2 * x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return 2 * grad, None

    report = asked((Sometimes, (d(4, 3), torch.randn(3).double())), probes=["PB502"])
    assert [fault.code for fault in report.faults] == ["PB502"], str(report)
    assert "Sometimes(x: float64" in str(report.faults[0])
