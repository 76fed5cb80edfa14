"""The benchmarks run, and pullback is not behind where it says it is ahead."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import adopt, call, edit, measure  # noqa: E402  (from the repository, not installed)

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.filterwarnings("ignore"),  # the peers' own
]


def test_a_call_costs_less_than_through_pythons_own_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those that take minutes to build are left out; these need no compiler of their own.
    peers = {
        call.BASE: torch.mul,
        "autograd.Function, ctx": call.peers.function_with_ctx(torch.mul),
    }
    monkeypatch.setattr(call, "others", lambda: (peers, {"a peer": "not built"}))
    figures = call.main(rounds=5, calls=200)
    ours, function = figures["pullback"], figures["autograd.Function, ctx"]
    assert len(ours) == len(function) == 3
    # A third to a fifth of it; backward is mostly the engine's, too close for a busy machine.
    assert ours[0].median < function[0].median
    assert ours[1].median < function[1].median


def test_an_adopted_function_costs_less_than_setup_context() -> None:
    figures = adopt.main(rounds=5, calls=200)
    ours, theirs = figures[adopt.OURS_SETUP], figures[adopt.SETUP]
    # Half of it; backward is mostly the engine's, too close for a busy machine.
    assert ours[0].median < theirs[0].median
    assert ours[1].median < theirs[1].median
    assert adopt.graph_breaks() == 0


def test_an_edit_is_seen_in_less_than_the_time_of_a_thought() -> None:
    figures = edit.main("pullback, C++")
    assert figures["pullback, C++"].median < 2  # 0.1 s where nothing else runs


def test_a_figure_is_a_median_and_half_the_quartiles_distance() -> None:
    assert measure.figure([1, 2, 3, 4, 5, 6, 7]) == measure.Figure(4, 2)
