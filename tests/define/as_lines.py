"""The formulas of `indexed.py` as operators, and their derivatives."""

from __future__ import annotations

import functools

from pullback.define import parse as lines
from pullback.define.math import derived, notation
from pullback.define.math.formula import Formula
from tests.define.indexed import FORMULAS

NAMES = {text.partition("(")[0]: text for text in FORMULAS}
DERIVE = {"backward": derived.backward, "jvp": derived.jvp}


@functools.cache
def operator(name: str, *kinds: str) -> Formula:
    """Return a formula by its name, or its derivative: `operator("gauss", "backward", "jvp")`."""
    if kinds:
        derived = DERIVE[kinds[-1]](operator(name, *kinds[:-1]))
        assert derived
        return derived.formula
    return made(NAMES[name])


def made(text: str) -> Formula:
    """Return the formula of a line without its namespace."""
    return notation.parse(lines.parse(f"test::{text}"))
