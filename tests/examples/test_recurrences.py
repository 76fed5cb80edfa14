"""The recurrences of the examples are what they are compared to, and what they train is learnt."""

from __future__ import annotations

import pytest
from loading import EXAMPLES, example

from tests.telling import telling

pytestmark = pytest.mark.compiler

# How much of the first loss is left at most. The model's own entropy is left of the last one.
LEFT = {
    **{"biquad": 0.01, "ctc": 0.01, "gae": 0.2, "gru": 0.1, "lif": 0.01, "linear_attention": 0.01},
    **{"lotka_volterra": 0.01, "lru": 0.01, "selective_scan": 0.1, "soft_dtw": 0, "wave": 0.01},
    **{"wkv": 0.01, "hmm": 0.98},
}
# One index that is sequential, from either end, and gathers.
TYPICAL = ("biquad", "gae", "ctc")


@pytest.mark.parametrize("name", telling({name: name for name in LEFT}, TYPICAL))
def test_a_recurrence_is_its_reference_and_learns(name: str) -> None:
    figures = example(f"recurrences/{name}").main()
    # They differ in the order of sums, and an exponent of 1000 has three digits less.
    assert figures["apart"] < 1e-11
    assert figures["last"] < LEFT[name] * figures["first"]


def test_every_recurrence_is_in_the_table() -> None:
    files = {path.stem for path in (EXAMPLES / "recurrences").glob("*.py")}
    assert files - {"against"} == {*LEFT}
