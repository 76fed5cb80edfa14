"""The benchmarks run, and what they make of their figures is right."""

from __future__ import annotations

import itertools
import random
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
    sweep,
    sweep_cases,
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


def point_of(d: int, seconds: dict[str, float]) -> sweep.Point:
    family = next(each for each in sweep_cases.FAMILIES if each.name == "squared distances")
    sizes = {"n": 100, "m": 100, "d": d}
    ladder = sweep_cases.Ladder(family=family, axis="d", dtype=torch.float32, rungs=(sizes,))
    times = {"copy": 1e-9 * d, **seconds}
    return sweep.Point(
        ladder=ladder, sizes=sizes, turns={}, seconds=dict.fromkeys(sweep.DIRECTIONS, times)
    )


def test_a_cliff_is_what_costs_more_for_each_operation_than_one_rung_below() -> None:
    even, steep = point_of(16, {"pullback": 1e-3}), point_of(17, {"pullback": 2e-3})
    assert [(a.name, b.name) for _, a, b, _ in sweep.cliffs([even, steep])] == [
        ("d=16", "d=17")
    ] * 3
    assert not sweep.cliffs([even, point_of(32, {"pullback": 2e-3})])
    # A copy has it too.
    assert not sweep.cliffs([even, point_of(17, {"pullback": 2e-3, "copy": 34e-9})])


def test_a_peer_wins_by_a_quarter_or_not_at_all() -> None:
    near, far = ({"pullback": 1e-3, "eager": seconds} for seconds in (0.9e-3, 0.5e-3))
    assert not sweep.wins([point_of(16, near)])
    assert {name for _, _, name, _ in sweep.wins([point_of(16, far)])} == {"eager"}


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        ({"pullback": 60e-6, "eager": 45e-6}, "2 loops takes 20 µs of nothing, 33% of this"),
        ({"pullback": 1e-3, "eager": 0.7e-3, "copy": 0.8e-3}, "memory: 1.2 times a copy"),
        ({"pullback": 1e-3, "eager": 0.7e-3}, "an operation takes 1.0 times"),
    ],
)
def test_where_a_peer_wins_a_sweep_says_why(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], why: str
) -> None:
    """Each entry that is left is explained by what was measured, and not by hand."""
    monkeypatch.setattr(sweep, "ways_of", lambda *_: ("own loop",) * 2)
    monkeypatch.setattr(sweep, "least_of", lambda *_: dict.fromkeys(sweep.DIRECTIONS, 20e-6))
    point = point_of(16, seconds)
    assert why in sweep.explain_win("forward", point, "eager", [point])


def test_sizes_are_drawn_from_the_seed() -> None:
    def draw(seed: int) -> list[sweep_cases.Ladder]:
        return list(itertools.islice(sweep_cases.draw_ladders(random.Random(seed), 12), 30))

    assert [each.name for each in draw(1)] == [each.name for each in draw(1)]
    assert [each.name for each in draw(1)] != [each.name for each in draw(2)]
    assert all(len({r[each.axis] for r in each.rungs}) == len(each.rungs) for each in draw(1))


@pytest.mark.thorough
def test_a_sweep_measures_for_as_long_as_it_is_told() -> None:
    jumps, lost = sweep.main(minutes=0.2, peers=["eager"], seed=1, budget=0)
    assert jumps >= 0
    assert lost >= 0
