"""Backward is right for the example's size, but wrong for another."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place
from pullback.verify.invariance.sizes import (
    Axes,
    axes_of,
    follows,
    halve,
    is_index,
    redraw_values,
    repeats,
    resize,
    shuffle,
    size_of,
    sizes_for,
)
from pullback.verify.invariance.variants import Wrong, require_sound, wrong_of
from pullback.verify.numbers.located import describe_wrong_elements
from pullback.verify.probe import Probe

# A target that is slow at large sizes is checked only at the smaller ones.
SECONDS = 1.5


class Size(Probe):
    """Backward is right for every size that forward takes.

    ## Why
    Kernels work in blocks. The elements past the last full block, or a size one below it, take a
    branch that a small example never enters.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            gradient = torch.zeros_like(x)
            whole = len(x) // 64 * 64 or len(x)
            gradient[:whole] = 2 * x[:whole] * grad[:whole]
            return gradient


    inputs = (torch.randn(12, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareOfAll(Square):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad
    ```

    ## Cannot see
    Sizes that cannot be reached by changing all axes of equal size together; blocks of more than a
    thousand elements.
    """

    code = "PB559"
    name = "wrong-for-a-size"
    help = "look at the last, partial block: its elements have to be written as well"
    about = frozenset({"values", "numbers"})
    explains = frozenset({"values", "second", "transform"})
    intentions = frozenset({"straight_through", "reversal", "surrogate", "tangent_space"})
    unnatural = True

    def examine(self, call: Call) -> Iterator[Finding]:
        """Judge the call at other sizes, one group of axes at a time."""
        require_sound(call)
        end = time.process_time() + SECONDS
        for axes in axes_of(call):
            right = [axes.size]
            for size in sizes_for(call, axes):
                if time.process_time() > end:
                    return
                wrong = judge_at_size(call, axes, size)
                if wrong is not None:
                    yield self.told(call, axes, size, wrong, right)
                    return
                right.append(size)

    def told(self, call: Call, axes: Axes, size: int, wrong: "AtSize", right: list[int]) -> Finding:
        """Say what is to blame: repeated places, values, or the size from which on it is wrong."""
        own = wrong.wrong
        at = describe_wrong_elements(own.call, own.mismatch) or own.text
        shapes = ", ".join(f"{leaf.name} {tuple(leaf.value.shape)}" for leaf in own.call.leaves)
        if wrong.blame == "repeat":
            index = next(repeats(call, own.call), None)
            text = f"right as given, wrong where a place in `{index and index.name}` stands twice: "
            text, cure = text + own.text, "add up what comes to one element: index_add_, or "
            cure += "index_put_ with accumulate=True"
        elif wrong.blame == "values":
            text = f"right for the values as given, wrong for others between them: {own.text}"
            cure = "look at the branch, the limit or the epsilon that these values meet"
        else:
            below = max((n for n in right if n < size), default=None)
            until = f"right at size {axes.size}"
            if below is not None:
                until = f"right up to size {find_boundary(call, axes, below, size) - 1}"
            text, cure = f"{until}, wrong at size {size}: {at}", None
        return self.breach(
            f"{call.target.name}: {text}",
            where=own.place or backward_place(call),
            help=cure,
            inputs=shapes,
            seen=own.text,
        )


@dataclass(frozen=True, kw_only=True)
class AtSize:
    """A call at another size that is wrong, and what is to blame."""

    wrong: Wrong
    blame: Literal["size", "repeat", "values"]


def judge_at_size(call: Call, axes: Axes, size: int) -> AtSize | None:
    """Judge a call at another size."""
    for other in resize(call, axes, size):
        wrong = wrong_of(other)
        # If the engine refuses, and not the author's code, the shapes do not fit.
        if wrong is not None and (wrong.error is None or wrong.place is not None):
            defined = follows(call, other, axes) and not is_overwritten(call, wrong)
            return blame(call, axes, wrong) if defined else None
    return None


def blame(call: Call, axes: Axes, wrong: Wrong) -> AtSize | None:
    """Ask the size as given with what another size brings; None if that breaks what held.

    Values that were symmetric, sorted, or the inverse of others need not be so any more.
    """
    if wrong_of(redraw_values(call, axes)) is not None:
        return None
    if any(is_index(leaf.value) for leaf in call.leaves):
        if wrong_of(shuffle(call)) is not None:
            return None
        if next(repeats(call, wrong.call), None) is not None:
            return AtSize(wrong=wrong, blame="repeat")
    elif wrong.mismatch is not None and (smaller := judge_at_given_size(wrong, axes)) is not None:
        return AtSize(wrong=smaller, blame="values")
    return AtSize(wrong=wrong, blame="size")


def judge_at_given_size(wrong: Wrong, axes: Axes) -> Wrong | None:
    """Halve a call down to the size as given; None where no half is wrong any more."""
    now: Wrong | None = wrong
    while now is not None and size_of(now.call, axes) > axes.size:
        now = next(filter(None, map(wrong_of, halve(now.call, axes))), None)
    return now if now is not None and size_of(now.call, axes) == axes.size else None


def is_overwritten(call: Call, wrong: Wrong) -> bool:
    """Tell whether an input is written to places by a repeating index: which value would count?"""
    if wrong.mismatch is None:
        return False
    value = wrong.call.leaves[wrong.mismatch.leaf].value
    indices = [leaf.value for leaf in repeats(call, wrong.call)]
    return any(value.shape[: index.ndim] == index.shape for index in indices)


def find_boundary(call: Call, axes: Axes, right: int, wrong: int) -> int:
    """Return the first size that is wrong, by halving."""
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if judge_at_size(call, axes, middle) is None:
            right = middle
        else:
            wrong = middle
    return wrong
