"""At which values of an input a gradient is wrong that is right for the example's values."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from pullback.verify.call import Call
from pullback.verify.invariance.sweep import Sweep, describe_region, points_for, sweep
from pullback.verify.invariance.values import ValueVariant, limits_of, variants_of
from pullback.verify.invariance.variants import (
    Wrong,
    floor_of,
    is_taken,
    reduce_size,
    require_sound,
    wrong_of,
)
from pullback.verify.numbers.iterated import iterates
from pullback.verify.numbers.located import Elements, is_confirmed
from pullback.verify.remembered import remembered

# A target that takes longer is tried at fewer values.
SECONDS = 1.5
STEPS = 12


@dataclass(frozen=True, kw_only=True)
class Region:
    """Values for which a gradient is wrong.

    Attributes:
        leaf: the input.
        nan: the gradient is not finite, though differences are.
        text: what is wrong, to follow the name of the target.
        evidence: one value or a few.
        near: a number that the author's code may contain.
        wrong: the call, if it is one; None for a sweep.
        certain: otherwise it may be a convention: at one value, or if other rows suffer as well.
    """

    leaf: int
    nan: bool
    text: str
    evidence: str
    near: float | None = None
    wrong: Wrong | None = None
    certain: bool = True


@remembered
def regions_of(call: Call) -> list[Region]:
    """Return where the gradient is wrong: at most one region of each kind for an input.

    Raises:
        NotApplicable: it is wrong for the example's values as well.
    """
    require_sound(call)
    return search_regions(reduce_size(call))


def search_regions(call: Call) -> list[Region]:
    """Try an elementwise target at many values, any other one at a few."""
    points = points_for(limits_of(call))
    found: list[Region] = []
    swept: set[int] = set()
    for leaf in call.wanted:
        own = sweep(call, leaf, points)
        if own is not None:
            swept.add(leaf)
            found += of_sweep(call, leaf, own)
    floor, end = floor_of(call), time.process_time() + SECONDS
    for variant in variants_of(call):
        if time.process_time() > end:
            break
        if variant.leaf in swept:
            continue
        wrong = wrong_of(variant.call(call), floor=floor)
        if wrong is None or not is_certain(wrong) or not is_inside(wrong.call, variant.leaf):
            continue
        if not is_nan(wrong) and iterates(call):
            continue  # values that are small or large beside the tolerance at which forward stops
        if (own := of_variant(call, variant, wrong)) is not None:
            known = {(one.leaf, one.nan) for one in found}
            found += [own] if (own.leaf, own.nan) not in known else []
    return found


def is_certain(wrong: Wrong) -> bool:
    """Tell whether another method finds it wrong as well; a NaN is certain anyway."""
    mismatch = wrong.mismatch
    if mismatch is None or math.isnan(mismatch.analytic):
        return True
    return is_confirmed(wrong.call, mismatch.leaf)


def is_nan(wrong: Wrong) -> bool:
    """Tell whether the gradient is not a number."""
    return wrong.mismatch is not None and math.isnan(wrong.mismatch.analytic)


def is_inside(call: Call, leaf: int) -> bool:
    """Tell whether forward takes values on both sides: these are not at the edge of its domain."""
    values = [own.value for own in call.leaves]
    start = values[leaf]
    step = 1e-3 * (float(start.abs().max()) or 1.0)
    for sign in (1, -1):
        values[leaf] = start + sign * step
        if not is_taken(call.with_values(values)):
            return False
    return True


def of_sweep(call: Call, leaf: int, own: Sweep) -> list[Region]:
    """Describe what a sweep found."""
    found: list[Region] = []
    name = call.leaves[leaf].name
    for nan in (True, False):
        wrong = own.wrong & (own.analytic.isfinite() != nan)
        if not wrong.any():
            continue
        part = Sweep(
            x=own.x, analytic=own.analytic, numeric=own.numeric, wrong=wrong, judged=own.judged
        )
        # The middle one of the wrong values: not at an edge.
        index = int(wrong.nonzero().flatten()[int(wrong.sum()) // 2])
        x, analytic, numeric = (float(t[index]) for t in (own.x, own.analytic, own.numeric))
        right = describe_region(part, limits_of(call))
        instead = f"instead of {numeric:.4g} " if math.isfinite(numeric) else ""
        found.append(
            Region(
                leaf=leaf,
                nan=nan,
                text=f"the gradient of `{name}` is right for {right.replace('x', name)}, "
                f"and {analytic:.4g} {instead}at {name} = {x:.4g}",
                evidence=f"{int(wrong.sum())} of {len(wrong)} values between "
                f"{float(own.x[0]):.4g} and {float(own.x[-1]):.4g} are wrong",
                near=float(own.x[wrong].abs().min()),
                certain=nan or bool(own.x[wrong].unique().numel() > 1),
            )
        )
    return found


def of_variant(call: Call, variant: ValueVariant, wrong: Wrong) -> Region | None:
    """Describe what was found with other values for a whole input."""
    mismatch = wrong.mismatch
    leaf = variant.leaf if mismatch is None else mismatch.leaf
    name = call.leaves[variant.leaf].name
    nan = is_nan(wrong)
    if mismatch is None:
        text = f"right for the values as given; for `{name}` {variant.name} {wrong.text}"
        return Region(leaf=leaf, nan=False, text=text, evidence=format_values(variant), wrong=wrong)
    of = call.leaves[leaf].name
    if nan:
        text = f"the gradient of `{of}` is NaN for `{name}` {variant.name}; forward is finite"
        return Region(
            leaf=leaf,
            nan=True,
            text=text,
            evidence=describe_nan(wrong, leaf),
            wrong=wrong,
            certain=not spreads(variant, wrong, leaf),
        )
    start, limit = (call.leaves[variant.leaf].value, find_edge(call, variant))
    text = (
        f"the gradient of `{of}` is right for `{name}` as given, wrong for `{name}` {variant.name}"
    )
    within = start + limit * (variant.value - start)
    size = float(within.abs().max())
    text += f" ({wrong.text}); it goes wrong when the largest |{name}| comes to {size:.4g}"
    return Region(
        leaf=leaf, nan=False, text=text, evidence=format_values(variant), near=size, wrong=wrong
    )


def spreads(variant: ValueVariant, wrong: Wrong, leaf: int) -> bool:
    """Tell whether a row of zeros makes the gradient of other rows NaN: the input is singular."""
    if leaf != variant.leaf or not bool((variant.value[:1] == 0).all()) or variant.value.ndim < 2:
        return False
    gradient = Elements(wrong.call, leaf).gradient
    return bool(variant.value.any()) and not bool(gradient[1:].isfinite().all())


def format_values(variant: ValueVariant) -> str:
    """Return a few of the values."""
    return ", ".join(f"{own:.4g}" for own in variant.value.flatten()[:6].tolist())


def describe_nan(wrong: Wrong, leaf: int) -> str:
    """Say which elements of a gradient are NaN."""
    elements = Elements(wrong.call, leaf)
    spoiled = ~elements.gradient.isfinite()
    first = [int(i) for i in spoiled.nonzero()[0]] if spoiled.any() else []
    return f"{int(spoiled.sum())} of {spoiled.numel()} elements, the first is {first}"


def find_edge(call: Call, variant: ValueVariant) -> float:
    """Return, by bisection, how far from the given values to the others it goes wrong."""
    start = call.leaves[variant.leaf].value
    right, wrong, end = 0.0, 1.0, time.process_time() + SECONDS
    for _ in range(STEPS):
        if time.process_time() > end:
            break
        middle = (right + wrong) / 2
        between = ValueVariant(
            leaf=variant.leaf, name="", value=torch.lerp(start, variant.value, middle)
        )
        if wrong_of(between.call(call)) is None:
            right = middle
        else:
            wrong = middle
    return wrong
