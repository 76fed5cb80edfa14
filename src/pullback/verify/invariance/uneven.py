"""The call at sizes that are not a multiple of a kernel's block: what a tail does to memory."""

from __future__ import annotations

import time

from pullback.verify.call import Call, can_require_grad
from pullback.verify.invariance.sizes import (
    axes_of,
    follows,
    has_numbers,
    is_small,
    redraw_values,
    resize,
)
from pullback.verify.invariance.variants import is_taken
from pullback.verify.remembered import remembered
from pullback.verify.tracing.guard import guard
from pullback.verify.tracing.unwritten import memory_of

# Past a warp, and past the largest block; neither is a multiple of the width of a vector.
SIZES = (33, 1030)
SECONDS = 0.5


@remembered
def calls_of(call: Call) -> list[Call]:
    """Return the call as given, and the same at uneven sizes if that is natural.

    It is not natural if a number states a size, or an index depends on it: a tiled index is not a
    permutation, and elements that are then not written were never promised.
    """
    found = [call]
    if has_numbers(call) or not memory_of(call).clean:
        return found
    end = time.process_time() + SECONDS
    for axes in axes_of(call):
        moved = [leaf.value for leaf, own in zip(call.leaves, axes.of, strict=True) if own]
        redraw = redraw_values(call, axes)
        if not all(map(can_require_grad, moved)) or not is_taken_from_zeros(redraw):
            continue
        if not memory_of(redraw).clean:
            continue
        for size in SIZES:
            late = time.process_time() > end and len(found) > 1
            if late or not is_small(call, axes, size):
                break
            other = next(resize(call, axes, size))
            if not is_taken_from_zeros(other):
                break
            if follows(call, other, axes):
                found.append(other)
    return found


def is_taken_from_zeros(call: Call) -> bool:
    """Tell whether forward takes the call; memory that it never writes, maybe NaN, is 0."""
    with guard(0):
        return is_taken(call)
