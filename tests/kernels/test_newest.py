"""The order in which a loop adds up what a step of a recurrence needs."""

from __future__ import annotations

import pytest

from pullback.define.math import notation
from pullback.define.math.node import Node
from pullback.define.math.recurrence import reads_of
from pullback.define.parse import parse
from pullback.kernels.loops.newest import put_newest_last


def ordered(text: str) -> tuple[Node, Node]:
    """Return the element of a formula's first state, as written and as a loop computes it."""
    formula = notation.parse(parse(f"test::{text}"))
    (group,) = formula.groups
    state = group.states[0]
    ((time, direction),) = group.weights
    times = {each.name: each.indices.index(time) for each in group.states}
    (found,) = put_newest_last([state.node], times, (time, direction), formula.ranges)
    return state.node, found


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("f(x[t], a[3]) -> y[t] = x - a[1]*pad(y[t - 1]) - a[2]*pad(y[t - 2])", "t + -1"),
        ("f(x[t], a[3]) -> y[t] = a[1]*pad(y[t + 1]) + a[2]*pad(y[t + 3]) + x", "t + 1"),
    ],
)
def test_the_newest_state_is_added_last(text: str, last: str) -> None:
    written, found = ordered(text)
    assert found is not written
    places = [str(read.places[0]) for read in reads_of([found.args[1]], ["y"])]
    assert places == [last]


@pytest.mark.parametrize(
    "text",
    [
        "f(x[t], a[3]) -> y[t] = x + a[2]*pad(y[t - 2]) - a[1]*pad(y[t - 1])",
        "f(x[t], a[3]) -> y[t] = x + (a[1]*pad(y[t - 1]) + a[2]*pad(y[t - 2]))",
        "f(x[t]) -> y[t] = pad(y[t - 1]) + x - pad(y[t - 1])*0.5 - pad(y[t - 2])",
    ],
)
def test_other_sums_are_left_as_they_are(text: str) -> None:
    """In order already, in brackets, or with a state that is taken off again."""
    written, found = ordered(text)
    assert found is written
