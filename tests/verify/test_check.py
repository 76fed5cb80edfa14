"""`pb.check` itself: bad input, what forward may return, what a process may do, options."""

from __future__ import annotations

import dataclasses
import functools
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError
from pullback.verify import agreement
from pullback.verify import check as check_module
from pullback.verify.probes import every_probe
from pullback.verify.report import Report
from pullback.verify.tracing import patch
from tests.forked import in_fork

FEW = ["PB501", "PB504", "PB530", "PB553"]
X = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.25, -0.75]], dtype=torch.float64, requires_grad=True)
HERE: list[int] = []


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0]


class Overwriting(Square):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return x.data.mul_(2 * grads[0])


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclasses.dataclass
class Outputs:
    y: Tensor
    count: int


def codes(report: Report) -> list[str]:
    """Return the codes of the faults."""
    return [finding.code for finding in report.faults]


@pytest.mark.parametrize("target", [3, None, "Square", torch.ones(2), int])
def test_what_cannot_be_called_is_refused(target: object) -> None:
    with pytest.raises(PullbackError, match=r"not-callable \[PB401\]"):
        pb.check(target, X)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"straight_trough": True}, "did you mean 'straight_through'"),
        ({"eps": True}, r"keywords=\{'eps'"),
        ({"probes": ["saved-tensor-overwriten"]}, "did you mean 'saved-tensor-overwritten'"),
        ({"skip": ["nothing"]}, "pullback explain lists them"),
        ({"timeout": 0}, "seconds, more than 0"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PullbackError, match=rf"(?s)wrong-check-option \[PB402\].*{said}"):
        pb.check(Square, X, **options)


def test_inputs_that_require_no_gradient_are_checked_as_if_they_did() -> None:
    report = pb.check(Overwriting, X.detach(), probes=FEW)
    assert codes(report) == ["PB504"]
    assert report.notes == ("no input requires a gradient; checked as if these did: x",)


def test_without_a_differentiable_tensor_it_says_so() -> None:
    report = pb.check(lambda i: i + 1, torch.arange(3), probes=FEW)
    assert report.ok
    assert "there is no gradient to check" in report.notes[0]


class Running(torch.autograd.Function):
    """Twice what arrives, and a mean that PyTorch's own operation updates."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor) -> Tensor:
        mean.lerp_(x.mean(), 0.1)
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return 3 * grads[0], None


def test_an_advice_explains_no_fault() -> None:
    report = pb.check(Running, X, torch.zeros((), dtype=torch.float64), isolate=False)
    levels = {finding.code: finding.level for finding in report.findings}
    assert (levels["PB502"], levels["PB553"]) == ("advice", "fault")


def test_small_elements_are_not_measured_by_the_large_ones() -> None:
    large, small = (torch.tensor([1.0, value], dtype=torch.float64) for value in (1e-6, 2e-6))
    where = agreement.find_differing(large, small)
    assert where is not None
    assert where.tolist() == [False, True]


def test_a_forward_that_raises_is_a_fault_and_the_rest_is_not_asked() -> None:
    def fail(x: Tensor) -> Tensor:
        raise ValueError(f"no such shape: {tuple(x.shape)}")

    report = pb.check(fail, X, probes=FEW)
    assert codes(report) == ["PB501"]
    assert "no such shape: (2, 3)" in str(report)


RETURNED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "dict": lambda y, z: {"y": y, "z": z, "n": 3},
    "list": lambda y, z: [y, [z, None]],
    "tuple": lambda y, z: (y, None, 2.0, z),
    "named tuple": Pair,
    "nested": lambda y, z: {"a": (y, [z]), "b": "text"},
    "a tensor twice": lambda y, _: (y, y),
    "dataclass": lambda y, z: (Outputs(y, 2), z),
}


@pytest.mark.parametrize("shape", RETURNED)
def test_what_is_returned_may_be_nested(shape: str) -> None:
    def run(x: Tensor) -> object:
        return RETURNED[shape](Square.apply(x), x.sin())

    assert pb.check(run, X, probes=FEW).ok


def test_a_fault_in_a_nested_output_is_found() -> None:
    report = pb.check(lambda x: {"y": [Overwriting.apply(x)]}, X, probes=FEW)
    assert codes(report) == ["PB504"]


@pytest.mark.parametrize("value", [None, 3.0, "text", [], {}])
def test_a_target_that_returns_no_tensor_does_not_stop_the_check(value: object) -> None:
    assert pb.check(lambda x: value, X, probes=FEW).outcomes


ENDS: dict[str, tuple[Callable[[], object], str, str]] = {
    "SIGSEGV": (lambda: os.kill(os.getpid(), signal.SIGSEGV), "PB403", "dies (SIGSEGV)"),
    "abort": (os.abort, "PB403", "dies (SIGABRT)"),
    "exit": (lambda: os._exit(0), "PB403", "dies (exit code 0)"),
    "sys.exit": (lambda: sys.exit(2), "PB403", "is ended (SystemExit: 2)"),
    "hang": (lambda: time.sleep(60), "PB405", "do not return (no answer in 1 s)"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_is_a_fault(end: str) -> None:
    run, code, said = ENDS[end]
    report = pb.check(lambda x: (run(), x)[1] * 2, X, probes=FEW, timeout=1)
    assert codes(report) == [code]
    assert said in str(report)
    assert [o.verdict for o in report.outcomes] == ["fault", *["not applicable"] * 3]


def test_after_a_death_the_other_probes_are_asked() -> None:
    class Fragile(Square):
        """Dies where its input is transposed."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            if not x.is_contiguous():
                os.abort()
            return Square.forward(ctx, x)

    report = pb.check(Fragile, X, probes=["PB504", "PB537", "PB538", "PB553"])
    assert codes(report) == ["PB403"]
    verdicts = [outcome.verdict for outcome in report.outcomes]
    assert verdicts == ["ok", "fault", "explained", "ok"]


class Poisoned(torch.autograd.Function):
    """Dies of what it has not saved itself, and at other sizes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if x.isnan().any() or x.shape != X.shape:
            os.abort()
        return 2 * x * grads[0]


def test_a_death_of_unnatural_values_is_no_fault() -> None:
    report = pb.check(Poisoned, X, probes=["PB518", "saved-unused", "wrong-for-a-size"])
    assert report.ok
    reasons = [outcome.reason or "" for outcome in report.outcomes]
    assert any("the process died in this experiment (SIGABRT)" in reason for reason in reasons)


def test_a_death_after_unnatural_values_is_asked_again(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    class Spoilt(torch.autograd.Function):
        """Dies later, where it has seen NaN, as a heap that was written to does."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            spoilt = seen.exists() and seen.read_text() == str(os.getpid())
            if spoilt and not x.is_contiguous():
                os.abort()
            ctx.save_for_backward(x, 2 * x)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            x, twice = ctx.saved_tensors
            if x.isnan().any():
                seen.write_text(str(os.getpid()))
            return twice * grads[0]

    image = X.detach().repeat(1, 2).reshape(1, 3, 2, 2)
    report = pb.check(Spoilt, image, probes=["saved-unused", "channels-last-lost"])
    assert report.ok, str(report)
    assert seen.exists()
    assert [outcome.verdict for outcome in report.outcomes] == ["advice", "ok"]


def test_sys_exit_without_isolation_does_not_end_the_caller() -> None:
    assert codes(pb.check(lambda _: sys.exit(2), X, probes=FEW, isolate=False)) == ["PB403"]


def test_without_isolation_it_finds_the_same() -> None:
    for target in (Square, Overwriting, lambda x: Overwriting.apply(x) + 1):
        apart = pb.check(target, X, probes=FEW)
        inline = pb.check(target, X, probes=FEW, isolate=False)
        assert apart.findings == inline.findings


def test_nothing_of_the_target_happens_in_the_caller(capfd: pytest.CaptureFixture[str]) -> None:
    def remember(x: Tensor) -> Tensor:
        HERE.append(1)
        print("said")  # noqa: T201
        warnings.warn("warned", stacklevel=1)
        return Square.apply(x)  # type: ignore[no-any-return]

    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pb.check(remember, X, probes=FEW).ok
    assert HERE == []
    assert torch.equal(state, torch.get_rng_state())
    assert X.grad is None
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("isolate", [True, False])
def test_the_callers_random_numbers_go_on(isolate: bool) -> None:
    def draw() -> list[float]:
        return [random.random(), float(np.random.randn()), float(torch.randn(()))]

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(3)
    draw()  # NumPy has made a second normal number by now, and keeps it
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    pb.check(lambda x: x * torch.rand(()) + np.random.randn(), X, probes=FEW, isolate=isolate)
    found = draw()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    assert found == draw()


def test_it_works_in_a_thread() -> None:
    reports: list[Report] = []
    threads = [
        threading.Thread(target=lambda: reports.append(pb.check(Overwriting, X, probes=FEW)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [codes(report) for report in reports] == [["PB504"]] * 3


def test_the_same_seed_finds_the_same() -> None:
    first, second = (pb.check(Overwriting, X, probes=FEW, seed=5) for _ in range(2))
    assert first.findings == second.findings
    assert first.replay == "pb.check(Overwriting, *inputs, seed=5, probes=['PB504'])"
    longer = pb.check(Overwriting, X, seed=5, probes=FEW, timeout=90)
    assert longer.replay == "pb.check(Overwriting, *inputs, seed=5, probes=['PB504'], timeout=90)"


def test_probes_are_asked_in_their_order_and_can_be_skipped() -> None:
    report = pb.check(Square, X, probes=["PB530", "saved-tensor-overwritten", "PB501"])
    assert [o.code for o in report.outcomes] == ["PB501", "PB504", "PB530"]
    report = pb.check(Square, X, probes=FEW, skip=["PB504"])
    assert [o.code for o in report.outcomes] == ["PB501", "PB530", "PB553"]


def test_keywords_are_given_to_the_target() -> None:
    def scaled(x: Tensor, *, by: float, other: Tensor) -> Tensor:
        return x * by * other

    assert pb.check(scaled, X, keywords={"by": 2.0, "other": X}, probes=FEW).ok


def test_every_intention_is_an_option() -> None:
    names = sorted({name for probe in every_probe() for name in probe.intentions})
    assert "straight_through" in names
    options: dict[str, Any] = dict.fromkeys(names, True)
    assert pb.check(Square, X, probes=["PB504"], **options).ok


@pytest.mark.parametrize("declared", [True, False])
def test_what_is_declared_is_not_asked(declared: bool) -> None:
    class Reversal(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return -grads[0]

    assert pb.check(Reversal, X, probes=FEW, reversal=declared).ok == declared


def test_the_time_of_a_report_is_what_the_caller_waited_for() -> None:
    class Hanging(Square):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            time.sleep(60)
            return Square.forward(ctx, x)

    began = time.monotonic()
    report = pb.check(Hanging, X, probes=FEW, timeout=0.5)
    waited = time.monotonic() - began
    assert 0.5 <= sum(outcome.seconds for outcome in report.outcomes) <= report.seconds <= waited


def test_what_nobody_would_call_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    class Diverging(Square):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            while bool((x > 100).any()):
                pass
            return Square.forward(ctx, x)

    monkeypatch.setattr(check_module, "SHORTER", 0.5)
    report = pb.check(Diverging, X, probes=["PB504", "PB561", "PB569"])
    assert report.ok, str(report)
    assert [outcome.reason for outcome in report.outcomes][1] == "no answer in 0 s"
    assert report.seconds < 30


def test_a_program_may_have_put_a_function_in_the_place_of_apply(tmp_path: Path) -> None:
    def work() -> None:
        own = patch.pytorch_apply()
        calls: list[type] = []

        @functools.wraps(own)
        def apply(cls: Any, *args: Any) -> Any:
            calls.append(cls)
            return own(cls, *args)

        setattr(torch.autograd.Function, "apply", classmethod(apply))  # noqa: B010
        patch.pytorch_apply.cache_clear()
        report = pb.check(Overwriting, X, probes=FEW, isolate=False)
        assert [fault.code for fault in report.faults] == ["PB504"], str(report)
        assert calls

    done = in_fork(work, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_process_that_talks_to_others_is_not_forked(tmp_path: Path) -> None:
    class Summed(Square):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            own = x * x
            torch.distributed.all_reduce(own)
            return own

    def work() -> None:
        url = f"file://{tmp_path}/store"
        torch.distributed.init_process_group("gloo", init_method=url, rank=0, world_size=1)
        report = pb.check(Summed, X, probes=FEW, timeout=5)
        assert report.ok, str(report)
        assert "torch.distributed is initialised" in str(report)

    done = in_fork(work, folder=tmp_path)
    assert done.returncode == 0, done.stderr
