"""A forward that iterates to a tolerance: differences depend on where its solver stops.

A bisection stops at one of a few numbers, so over tiny steps its result is constant, or changes
without the part that it solves for. The derivative by the implicit function theorem, which backward
gives, shows only over steps that are large beside the tolerance, and to the digits of the
tolerance.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
from collections import Counter
from types import FrameType
from typing import Any

from torch import Tensor

from pullback.verify.call import Call
from pullback.verify.numbers.directional import Mismatch, curve_of
from pullback.verify.numbers.numeric import Curve, dot, draw_direction, flatten
from pullback.verify.remembered import remembered
from pullback.verify.source import is_authors

# A line of a loop that solves something, or a library's callback, is run at least so often.
OFTEN = 4
# Steps relative to the input's size, and how close backward has to be to two of the differences.
STEPS = (0.1, 0.05, 0.025, 0.0125, 0.00625)
CLOSE = 0.02


@remembered
def iterates(call: Call) -> bool:
    """Tell whether forward runs a loop that it can leave early, or a library's solver."""
    lines: Counter[tuple[FrameType, int]] = Counter()
    callbacks: Counter[tuple[FrameType, int, object]] = Counter()

    def watch(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401
        if not is_authors(frame.f_code.co_filename):
            return None
        if event == "line":
            lines[frame, frame.f_lineno] += 1
        elif event == "call" and frame.f_back is not None and is_callback(frame):
            callbacks[frame.f_back, frame.f_back.f_lineno, frame.f_code] += 1
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        call.values([leaf.value for leaf in call.leaves])
    finally:
        sys.settrace(before)
    again = {(frame.f_code.co_filename, line) for (frame, line), n in lines.items() if n >= OFTEN}
    if any(first <= line <= last for file, line in again for first, last in loops_of(file)):
        return True
    return any(n >= OFTEN and lines[own[0], own[1]] < OFTEN for own, n in callbacks.items())


def is_callback(frame: FrameType) -> bool:
    """Tell whether a library calls a function, and this is not a generator that is resumed."""
    assert frame.f_back is not None
    by_library = "site-packages" in frame.f_back.f_code.co_filename
    return by_library and not frame.f_code.co_flags & inspect.CO_GENERATOR


@functools.lru_cache(maxsize=64)
def loops_of(file: str) -> list[tuple[int, int]]:
    """Return the first and last lines of the loops of a file that end on a condition."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.While)
        or (
            isinstance(node, ast.For)
            and any(isinstance(inner, ast.Break | ast.Return) for inner in ast.walk(node))
        )
    ]


def is_right_over_steps(call: Call, own: Mismatch, *, seed: int) -> bool:
    """Tell whether backward agrees with differences over steps beyond a solver's tolerance."""
    run = call.forward()
    if own.missing or not iterates(call):
        return False
    v = draw_direction(call.leaves[own.leaf].value, seed + 31 * own.leaf)
    curve = curve_of(call, run, {own.leaf: v}, [own.output])
    grad = run.random_grads(seed)
    only = [g if i == own.output else None for i, g in enumerate(grad)]
    u = flatten([only[own.output]])
    return is_met(curve, u, dot(run.backward(only)[own.leaf], v))


def is_met(curve: Curve, weights: Tensor, mine: float) -> bool:
    """Tell whether the slope of a weighted sum is `mine` over two of the larger steps."""
    met = 0
    for step in STEPS:
        slope = (8 * (curve(step) - curve(-step)) - curve(2 * step) + curve(-2 * step)) / (
            12 * step
        )
        terms = slope * weights
        met += abs(float(terms.sum()) - mine) <= CLOSE * max(float(terms.norm()), abs(mine))
    return met >= 2
