"""The benchmark of GPUs: what it makes of its figures, of tests that fail and of parts that end."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.figure import Figure  # noqa: E402  (from the repository, not installed)
from benchmarks.gpu import exact, missing, part, report, tests  # noqa: E402
from benchmarks.gpu.__main__ import run_process  # noqa: E402
from benchmarks.gpu.cases import COPY, FORMULAS, LOOPS, RECURRENCES, Bound, rehearsed  # noqa: E402
from benchmarks.gpu.measuring import GpuLost, judge  # noqa: E402
from benchmarks.gpu.place import Place  # noqa: E402
from benchmarks.gpu.rows import OURS, Fact, Row, Timing, from_json, to_json  # noqa: E402


def timing(**seconds: float) -> Timing:
    figures = {name: Figure(value, 0.0) for name, value in seconds.items()}
    return Timing(case="softmax 4x4", way="forward", seconds=figures)


def test_a_share_is_of_a_copy_or_of_pairs_and_a_rehearsal_has_none() -> None:
    softmax = next(case for case in LOOPS if case.name.startswith("softmax"))
    row = timing(**{OURS: 2.0, COPY: 1.8})
    judge(row, softmax, Place(rehearsal=False))
    assert row.share == pytest.approx(0.9)
    assert row.good
    gauss = next(case for case in LOOPS if case.name.startswith("gauss 100000"))
    row = timing(**{OURS: 1e10 / 1.9e12 / 0.5})
    judge(row, gauss, Place(rehearsal=False))
    assert row.share == pytest.approx(0.5)
    assert row.good is False
    row = timing(**{OURS: 2.0, COPY: 1.8})
    judge(row, softmax, Place(rehearsal=True))
    assert row.share is None
    assert row.good is None


def test_what_is_wrong_has_no_time_and_falls_short() -> None:
    row = timing(eager=1.0)
    assert row.good is False
    assert "ours has no time" in report.why(row)
    assert exact.worst([torch.tensor([math.nan])], [torch.tensor([1.0]).double()]) == math.inf
    assert exact.worst([torch.ones(2)], [torch.ones(3).double()]) == math.inf
    assert exact.worst([torch.tensor([3.0])], [torch.tensor([4.0]).double()]) == 0.25


def test_rows_are_written_and_read_back() -> None:
    rows: list[Row] = [Fact(name="a", value="b|c", good=False, note="d"), timing(pullback=1.0)]
    assert [from_json(json.loads(json.dumps(to_json(row)))) for row in rows] == rows


def test_a_report_says_first_what_fell_short(tmp_path: Path) -> None:
    slow = Timing(case="s", way="forward", seconds={OURS: Figure(1e-3, 0)}, bound=COPY)
    slow.share, slow.expected = 0.3, 0.85
    again = Timing(case="s again", way="forward", seconds={OURS: Figure(1.1e-3, 0)})
    parts = [report.Part(name="loops", rows=[slow, again], failed=["the time was over"])]
    made = report.Report(rehearsal=False, missing=["missing: x: y"], parts=parts)
    made.write(tmp_path)
    text = (tmp_path / "gpu.md").read_text()
    assert "loops: the time was over" in text
    assert "30 % of copy, 85 % expected; under half of it" in text
    assert "the clock has drifted: s, forward: +10 % at the end" in text
    assert json.loads((tmp_path / "gpu.json").read_text())["parts"][0]["name"] == "loops"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["gpu.json", "gpu.md"]
    made.rehearsal = True
    assert "rehearsal" in next(made.lines())


def test_a_broken_gpu_loses_its_step_and_no_other(tmp_path: Path) -> None:
    def breaking(budget: float) -> Iterator[Row]:
        yield Fact(name="before", value=str(budget > 0))
        raise GpuLost("CUDA error: an illegal memory access was encountered")

    def failing(budget: float) -> Iterator[Row]:
        raise ValueError(budget)
        yield

    def well(budget: float) -> Iterator[Row]:
        yield Fact(name="after", value=str(budget > 0))

    file = tmp_path / "rows"
    steps: dict[str, part.Step] = {"breaking": breaking, "failing": failing, "well": well}
    assert part.run(steps, file, time.time() + 100) == part.AGAIN
    assert part.run(steps, file, time.time() + 100) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["begun"] for line in lines if "begun" in line] == list(steps)
    assert [line["name"] for line in lines if "name" in line] == ["before", "after"]
    assert [line["step"] for line in lines if "failed" in line] == ["breaking", "failing"]


def test_a_process_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    late = tmp_path / "late"
    child = f"import time, pathlib; time.sleep(1.5); pathlib.Path({str(late)!r}).touch()"
    script = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]);"
        "time.sleep(9)"
    )
    assert run_process([sys.executable, "-c", script], 0.5, tmp_path / "log") is None
    time.sleep(1.5)
    assert not late.exists()
    assert run_process([sys.executable, "-c", "raise SystemExit(3)"], 9, tmp_path / "log") == 3


def test_outcomes_of_tests_are_read_with_and_without_workers() -> None:
    log = """
tests/bind/test_index_gpu.py::test_a[on_cpu]
[gw0] [ 10%] PASSED tests/bind/test_index_gpu.py::test_a[a b-on_cpu]
[gw1] [ 20%] FAILED tests/bind/test_index_gpu.py::test_b
tests/bind/test_index_gpu.py::test_c[x] SKIPPED (no GPU here) [ 30%]
FAILED tests/bind/test_index_gpu.py::test_b - AssertionError: 3 ulp
"""
    outcomes, reasons = tests.read(log)
    names = {name.partition("::")[2]: outcome for name, outcome in outcomes.items()}
    assert names == {"test_a[a b-on_cpu]": "PASSED", "test_b": "FAILED", "test_c[x]": "SKIPPED"}
    assert list(reasons.values()) == ["AssertionError: 3 ulp"]


def test_every_kind_of_operator_is_rehearsed_and_every_aim_is_one_of_the_table() -> None:
    every = (*LOOPS, *RECURRENCES, *FORMULAS)
    small = {case.name.partition(" ")[0] for case in rehearsed(every, small=True)}
    assert small == {case.name.partition(" ")[0] for case in every}
    names = [case.name for case in every]
    assert len(names) == len(set(names))
    bounds = [bound for case in LOOPS for bound in case.bounds.values()]
    assert {bound.share for bound in bounds} == {None, 0.65, 0.7, 0.85}
    assert Bound(share=0.7, pairs=4, rate=1.9e12).name == "1.9e+12 pairs/s"
    assert all("missing: " in line for line in missing.missing())
