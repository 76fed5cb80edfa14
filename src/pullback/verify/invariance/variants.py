"""The same target called differently: other sizes, options or values, each judged by numbers.

A variant that forward refuses is skipped. One that backward gets wrong is a finding only if
backward is right for the call as it was given: a fault everywhere has another cause.
"""

from __future__ import annotations

import ast
import math
import time
from dataclasses import dataclass

from pullback.verify.agreement import rounding
from pullback.verify.call import Call, can_require_grad
from pullback.verify.composition.refusal import is_refusal
from pullback.verify.invariance.answer import compute_answer
from pullback.verify.invariance.sizes import axes_of, has_numbers, resize
from pullback.verify.invariance.trusted import is_trusted
from pullback.verify.numbers.gradient import Mismatch, compare_gradients
from pullback.verify.probe import NotApplicable
from pullback.verify.remembered import remembered
from pullback.verify.source import SourcePlace, place_of_error
from pullback.verify.target import shorten

# Judging a variant takes some hundred calls; a slower one is left out.
SLOWEST = 0.03
# In these, it may be PyTorch's own operators that refuse a backward.
OTHERS = ("module", "callable")
# Elements above which a call is made smaller, and the sizes that its axes then get.
LARGE, SMALL = 1 << 13, (61, 16)


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """What is wrong with a variant.

    Attributes:
        call: the variant.
        mismatch: the worst, None if backward raises.
        error: what backward raised.
        place: where.
    """

    call: Call
    mismatch: Mismatch | None = None
    error: Exception | None = None
    place: SourcePlace | None = None

    @property
    def text(self) -> str:
        """What is wrong, to follow "for n = 130: "."""
        if self.error is not None:
            error = f"{type(self.error).__name__}: {shorten(str(self.error))}"
            return f"backward raises {error}"
        assert self.mismatch is not None
        name = self.call.leaves[self.mismatch.leaf].name
        return f"the gradient of `{name}` is {self.amount(self.mismatch)}"

    def amount(self, mismatch: Mismatch) -> str:
        """Say how much is wrong."""
        if mismatch.missing or mismatch.analytic == 0:
            return "0"
        if math.isnan(mismatch.analytic):
            return "NaN"
        ratio = simple_factor(mismatch)
        if ratio is not None:
            return f"{ratio} of the true one"
        return f"wrong: {mismatch.analytic:.4g} for {mismatch.numeric:.4g} in a random direction"


def simple_factor(mismatch: Mismatch) -> str | None:
    """Return the factor between a gradient and the true one, if it is a simple one."""
    if not mismatch.numeric:
        return None
    ratio = mismatch.analytic / mismatch.numeric
    error = abs(mismatch.allowed / mismatch.numeric) + 1e-9
    for n in range(1, 1025):
        for value, text in ((n, f"{n} ×"), (1 / n, f"1/{n}" if n > 1 else "1 ×")):
            for sign in (1, -1):
                if abs(ratio - sign * value) <= min(error, 1e-3 * value):
                    return text if sign > 0 else f"-{text}"
    return None


@remembered
def require_sound(call: Call) -> None:
    """Stop if the call as it was given is wrong already.

    Raises:
        NotApplicable: it is, or nothing can be said about it.
    """
    if not call.wanted:
        raise NotApplicable("no input needs a gradient")
    if not call.repeatable:
        raise NotApplicable("forward gives other values each time")
    found = compare_gradients(call)
    if found.mismatches:
        raise NotApplicable("the gradient is wrong for the call as it is given")
    if not found.agreed:
        raise NotApplicable("nothing can be said about the call as it is given")


def is_sound(call: Call) -> bool:
    """Tell whether variants of a call can be judged."""
    try:
        require_sound(call)
    except NotApplicable:
        return False
    return True


def wrong_of(call: Call, *, floor: float = 0.0) -> Wrong | None:
    """Judge a variant; None if it is right, refused, or cannot be judged.

    Args:
        call: the variant.
        floor: the smallest derivative that forward can show: anything less is lost when it adds
            numbers of ordinary size, as in 1 + exp(-40).
    """
    if not is_taken(call):
        return None
    try:
        compute_answer(call)
    except Exception as error:
        place = place_of_error(error)
        if is_meant(error) or (place is None and call.target.kind in OTHERS):
            return None
        return Wrong(call=call, error=error, place=place)
    found = [m for m in compare_gradients(call).mismatches if not is_slight(call, m, floor)]
    found = [m for m in found if is_trusted(call, m)]
    if not found:
        return None
    return Wrong(call=call, mismatch=max(found, key=lambda m: m.relative))


def is_meant(error: Exception) -> bool:
    """Tell whether the author raises an exception on purpose, or it is a clear refusal."""
    place = place_of_error(error)
    return is_refusal(error) or (place is not None and is_raised(place))


def is_raised(place: SourcePlace) -> bool:
    """Tell whether a line refuses something on purpose."""
    if place.text.startswith(("raise", "assert")):
        return True
    try:
        tree = ast.parse(place.text)
    except SyntaxError:
        return False
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(names & {"_check", "check"})


def is_taken(call: Call) -> bool:
    """Tell whether forward takes the call: with finite outputs, one of them differentiable."""
    began = time.process_time()
    try:
        run = call.forward()
    except Exception:
        return False
    if time.process_time() - began > SLOWEST:
        return False
    outputs = [output.detach() for output in run.outputs if can_require_grad(output)]
    some = any(run.outputs[i].numel() for i in run.differentiable)
    return some and all(bool(output.isfinite().all()) for output in outputs)


def reduce_size(call: Call) -> Call:
    """Return a large call at a smaller size, for questions that do not depend on size."""
    if has_numbers(call):
        return call
    small = call
    for axes in sorted(axes_of(call), key=lambda own: -own.size):
        if max((leaf.value.numel() for leaf in small.leaves), default=0) <= LARGE:
            break
        for size in SMALL:
            other = next(resize(small, axes, size), None)
            if size < axes.size and other is not None and is_taken(other):
                small = other
                break
    return small if small is not call and is_sound(small) else call


def is_slight(call: Call, mismatch: Mismatch, floor: float) -> bool:
    """Tell whether it may be rounding: half of the digits are lost at worst."""
    eps = max(rounding(call.leaves[i].value.dtype) for i in call.wanted)
    if abs(mismatch.analytic - mismatch.numeric) < eps**0.5 * floor:
        return True
    return mismatch.relative < eps**0.25


def floor_of(call: Call) -> float:
    """Return the outputs' size: how much changing the inputs by their own size may change."""
    outputs = call.values([leaf.value for leaf in call.leaves])
    sizes = [
        float(o.double().abs().nan_to_num(0, 0, 0).norm()) for o in outputs if o.is_floating_point()
    ]
    return max(sizes, default=0.0)
