"""An empty batch fails."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding, Level
from pullback.verify.agreement import find_differing
from pullback.verify.call import Call
from pullback.verify.invariance.answer import Answer, backward_place, compute_answer
from pullback.verify.invariance.sizes import Axes, axes_of, follows, has_numbers, resize
from pullback.verify.invariance.variants import is_meant
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class Empty(Probe):
    """An empty batch is a batch: backward works, and gives zeros.

    ## Why
    Masks, the last shard of a data set and empty images give tensors without elements.
    A kernel launched over an empty grid, `view(0, -1)` or a division by the size fails for them.

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
            rows = grad.reshape(len(x), -1)
            return (2 * rows * x.reshape(len(x), -1)).reshape(x.shape)


    inputs = (torch.randn(3, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareOfNone(Square):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad
    ```

    ## Cannot see
    A forward that raises without elements, unless it treats each row alone: a maximum of nothing
    is not defined.
    """

    code = "PB557"
    name = "empty-batch-fails"
    milder = True
    help = "return zeros of the input's shape if there are no elements"
    about = frozenset({"backward", "numbers"})
    unnatural = True

    def examine(self, call: Call) -> Iterator[Finding]:
        """Call it with axes of size 0: the first axes, then others of equal size."""
        if has_numbers(call):
            raise NotApplicable("an integer among the arguments may be a number of elements")
        # A tensor of one element is there to be broadcast, not to have one for each row.
        groups = [axes for axes in axes_of(call) if axes.size > 1]
        for axes in sorted(groups, key=lambda own: not is_leading(own)):
            for empty in resize(call, axes, 0):
                finding = self.emptied(call, empty, axes)
                if finding is not None:
                    yield finding
                    return

    def emptied(self, call: Call, empty: Call, axes: Axes) -> Finding | None:
        """Judge the call with no elements along some axes."""
        shapes = ", ".join(f"{leaf.name} {tuple(leaf.value.shape)}" for leaf in empty.leaves)
        try:
            run = empty.forward()
        except Exception as error:
            if is_meant(error) or place_of_error(error) is None or not is_rowwise(call, axes):
                return None
            # PyTorch's operators refuse some empty shapes, as view(0, -1) does: loud and harmless.
            level = "advice" if isinstance(error, RuntimeError) else "fault"
            where = "in forward, though each row is computed alone"
            return self.told(call, shapes, where, error, level=level)
        if not run.differentiable or not follows(call, empty, axes):
            return None
        try:
            found = compute_answer(empty)
        except Exception as error:
            # If the engine refuses, and not the author's code, other shapes may have been meant.
            certain = place_of_error(error) is not None or is_rowwise(call, axes)
            if not certain or is_meant(error):
                return None
            # An empty batch happens; an axis without channels hardly does.
            level = "fault" if is_leading(axes) else "advice"
            where = "in backward, though forward takes it"
            return self.told(call, shapes, where, error, level=level)
        return self.not_zero(call, shapes, found) if is_leading(axes) else None

    def not_zero(self, call: Call, shapes: str, found: Answer) -> Finding | None:
        """Report a gradient of outputs without elements that is not zero."""
        used = zip(found.outputs, found.grads, strict=True)
        if any(o.numel() for o, grad in used if grad is not None):
            return None
        for leaf, gradient in zip(call.leaves, found.gradients, strict=True):
            if (
                gradient is not None
                and find_differing(gradient, torch.zeros_like(gradient)) is not None
            ):
                return self.breach(
                    f"{call.target.name}: for an empty batch the gradient of `{leaf.name}` is not "
                    "0, though the outputs have no elements",
                    where=backward_place(call, "empty", "empty_like", "new_empty"),
                    inputs=shapes,
                )
        return None

    def told(
        self, call: Call, shapes: str, where: str, error: Exception, *, level: Level = "fault"
    ) -> Finding:
        """Say how it fails."""
        return self.breach(
            f"{call.target.name}: fails for an empty batch {where}",
            level=level,
            where=place_of_error(error) or backward_place(call),
            inputs=shapes,
            error=f"{type(error).__name__}: {shorten(str(error))}",
        )


def is_leading(axes: Axes) -> bool:
    """Tell whether axes are the first ones of their tensors."""
    return all(own in ((), (0,)) for own in axes.of)


def is_rowwise(call: Call, axes: Axes) -> bool:
    """Tell whether each row of the outputs depends on its own row alone: then no rows give no rows.

    A row in the middle is changed: the outputs have as many rows, and no other one may change.
    """
    if call.random or axes.size < 2 or not is_leading(axes):
        return False
    row = axes.size // 2
    plain = [leaf.value for leaf in call.leaves]
    moved = [own.clone() for own in plain]
    for own, of in zip(moved, axes.of, strict=True):
        if of and own.is_floating_point():
            own[row] += 0.1 * own[row].abs() + 0.01
    try:
        before, after = call.values(plain), call.values(moved)
        fewer = call.values(
            [own[:-1] if of else own for own, of in zip(plain, axes.of, strict=True)]
        )
    except Exception:
        return False
    others = torch.arange(axes.size) != row
    return bool(before) and all(
        own.ndim > 0
        and own.shape == now.shape
        and own.shape[0] == axes.size
        and part.shape == own[:-1].shape
        and find_differing(own[others], now[others]) is None
        and find_differing(own[row], now[row]) is not None
        and find_differing(part, own[:-1]) is None
        for own, now, part in zip(before, after, fewer, strict=True)
    )
