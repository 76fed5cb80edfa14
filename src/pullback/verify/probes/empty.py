"""An empty batch fails."""

import ast
from collections.abc import Iterator

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.agreement import differing
from pullback.verify.answer import answer, backward_place
from pullback.verify.call import Call, tensors_in
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.refusal import is_refusal
from pullback.verify.sizes import Axes, axes_of, has_numbers, resized
from pullback.verify.source import Place, place_of_error
from pullback.verify.target import shortened


class Empty(Probe):
    """A batch of no elements is a batch: backward works, and gives zeros.

    ## Why
    Masks, the last shard of a data set and empty images send tensors of no elements.
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
    A forward that raises for no elements, unless it treats each row alone: a maximum of nothing
    is not defined.
    """

    code = "PB557"
    name = "empty-batch-fails"
    help = "return zeros of the input's shape if there are no elements"
    about = frozenset({"backward", "numbers"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Call it with axes of size 0: the first axes, then others of equal size."""
        if has_numbers(call):
            raise NotApplicable("an integer among the arguments may be a number of elements")
        groups = list(axes_of(call))
        leading = [own for own in groups if all(axes in ((), (0,)) for axes in own.of)]
        for axes in [*leading, *(own for own in groups if own not in leading)]:
            for empty in resized(call, axes, 0):
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
            if not is_accident(error) or not is_rowwise(call, axes):
                return None
            return self.told(call, shapes, "in forward, though each row is computed alone", error)
        try:
            found = answer(empty) if run.differentiable else None
        except Exception as error:
            return self.told(call, shapes, "in backward, though forward takes it", error)
        used = [] if found is None else zip(found.outputs, found.grads, strict=True)
        if found is None or any(o.numel() for o, grad in used if grad is not None):
            return None
        for leaf, gradient in zip(call.leaves, found.gradients, strict=True):
            if gradient is not None and differing(gradient, torch.zeros_like(gradient)) is not None:
                return self.breach(
                    f"{call.target.name}: for an empty batch the gradient of `{leaf.name}` is not "
                    "0, though the outputs have no elements",
                    where=backward_place(call, "empty", "empty_like", "new_empty"),
                    inputs=shapes,
                )
        return None

    def told(self, call: Call, shapes: str, where: str, error: Exception) -> Finding:
        """Say how it fails."""
        return self.breach(
            f"{call.target.name}: fails for an empty batch {where}",
            where=place_of_error(error) or backward_place(call),
            inputs=shapes,
            error=f"{type(error).__name__}: {shortened(str(error))}",
        )


def is_accident(error: Exception) -> bool:
    """Tell whether an exception is none that the author raises."""
    place = place_of_error(error)
    return place is not None and not is_raised(place) and not is_refusal(error)


def is_raised(place: Place) -> bool:
    """Tell whether a line refuses something on purpose."""
    if place.text.startswith(("raise", "assert")):
        return True
    try:
        names = {
            node.attr for node in ast.walk(ast.parse(place.text)) if isinstance(node, ast.Attribute)
        }
    except SyntaxError:
        return False
    return bool(names & {"_check", "check"})


def is_rowwise(call: Call, axes: Axes) -> bool:
    """Tell whether each row of the outputs comes of its own row, so that none come of none."""
    if call.random or axes.size < 2 or not all(own in ((), (0,)) for own in axes.of):
        return False
    whole = [leaf.value for leaf in call.leaves]
    part = [v[: axes.size - 1] if axes.of[i] else v for i, v in enumerate(whole)]
    try:
        with torch.no_grad():
            all_rows = tensors_in(call.on([own.clone() for own in whole]))
            fewer = tensors_in(call.on([own.clone() for own in part]))
    except Exception:
        return False
    return len(all_rows) == len(fewer) and all(map(is_part, fewer, all_rows))


def is_part(fewer: Tensor, rows: Tensor) -> bool:
    """Tell whether a tensor is another one without its last row."""
    if not rows.ndim or fewer.shape != rows[:-1].shape:
        return False
    return bool(fewer.numel()) and differing(fewer, rows[:-1]) is None
