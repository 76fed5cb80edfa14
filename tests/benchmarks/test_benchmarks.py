"""The benchmarks run, and what they make of their figures is right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import (  # noqa: E402  (from the repository, not installed)
    adopt,
    attention,
    call,
    edit,
    formula,
    formula_peers,
    formula_tables,
    measure,
)

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.filterwarnings("ignore"),  # the peers' own
]


def test_a_call_is_timed_beside_pythons_own_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those that take minutes to build are left out; these need no compiler of their own.
    peers = {
        call.BASE: torch.mul,
        "autograd.Function, ctx": call.peers.function_with_ctx(torch.mul),
    }
    monkeypatch.setattr(call, "others", lambda: (peers, {"a peer": "not built"}))
    figures = call.main(rounds=2, calls=20)
    assert {"pullback", *peers} <= set(figures)
    assert {len(row) for row in figures.values()} == {3}


def test_an_adopted_function_is_timed_and_traced_whole() -> None:
    figures = adopt.main(rounds=2, calls=20)
    assert {adopt.OURS_SETUP, adopt.SETUP} <= set(figures)
    assert adopt.graph_breaks() == 0


@pytest.mark.thorough
def test_an_edit_is_timed_until_it_is_seen() -> None:
    assert edit.main("pullback, C++")["pullback, C++"].median > 0


@pytest.mark.thorough
def test_long_reductions_agree_with_eager_and_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    # Values and gradients that do not agree stop the measurement.
    threads = torch.get_num_threads()
    cases = attention.attention_cases(70, 2, attention.ALL)
    attention.main(cases=cases, budget=0)
    torch.set_num_threads(threads)
    assert "causal" in capsys.readouterr().out


@pytest.mark.thorough
def test_every_formula_agrees_with_pytorchs_operators_and_is_timed() -> None:
    # Values that do not agree stop the measurement; the slow peers are left out.
    rows, first = formula.main(sizes=[67], threads=[1], quick=True, budget=0)
    timed = {(row.case.name, row.direction) for row in rows}
    assert timed == {
        (case.name, way) for case in formula_peers.CASES for way in ("forward", "backward")
    }
    assert all(row.ratio(formula_peers.EAGER) > 0 for row in rows)
    assert formula_peers.OURS in first


def test_an_error_in_ulp_is_counted_in_the_numbers_of_float32_at_the_exact_value() -> None:
    exact = torch.tensor([1.0, -3.0, 2.0**-140], dtype=torch.float64)
    steps = torch.tensor([2.0**-23, 3 * 2.0**-22, 2.0**-149], dtype=torch.float64)
    for place, expected in enumerate([1, 3, 1]):
        value = exact.clone()
        value[place] += steps[place]
        assert formula.ulps([value.float()], [exact]) == expected


def test_the_aims_of_formulas_are_judged_by_rows_that_nothing_disturbed() -> None:
    def row(threads: int, seconds: float, busy: float) -> formula_tables.Row:
        setting = formula_tables.Setting(device="cpu", size=2**22, threads=threads)
        times = {formula_peers.OURS: 1.0, formula_peers.COMPILED: seconds, formula_tables.COPY: 0.5}
        return formula_tables.Row(
            setting=setting, case=cheap, direction="forward", seconds=times, errors={}, busy=busy
        )

    cheap = next(case for case in formula_peers.CASES if case.cheap)
    rows = [row(1, 2.0, busy=0), row(1, 8.0, busy=1), row(2, 1e6, busy=10_000)]
    assert [row.disturbed for row in rows] == [False, False, True]
    assert formula_tables.mean_ratio(rows) == pytest.approx(4)
    first = {
        formula_peers.OURS: measure.Figure(0.4, 0),
        formula_peers.COMPILED: measure.Figure(20, 0),
    }
    told = formula_tables.aims(rows, first)
    assert [text.split(": ")[-1] for text in told] == [
        "4.00, yes",
        "0.50, no",
        "0.40, yes",
        "20.0 s",
    ]


def test_a_figure_is_a_median_and_half_the_quartiles_distance() -> None:
    assert measure.figure([1, 2, 3, 4, 5, 6, 7]) == measure.Figure(4, 2)
