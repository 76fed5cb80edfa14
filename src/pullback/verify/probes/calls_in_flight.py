"""A second call spoils what the first one left for its backward."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.agreement import described, first_differing
from pullback.verify.answer import Answer, backward_place, steady
from pullback.verify.call import Call, Run, can_require_grad
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shortened


class CallsInFlight(Probe):
    """Two calls before the first backward do not disturb each other.

    ## Why
    A layer that is used twice, a siamese network or gradient accumulation over two losses calls
    forward again before the first backward. What is kept on the class, the module or in a buffer
    that is used again then belongs to the second call.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            Square.x = x.detach().clone()
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * Square.x * grad


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareOnItsOwn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad
    ```

    ## Cannot see
    Two calls that disturb each other only in two threads.
    """

    code = "PB540"
    name = "calls-in-flight"
    help = "keep it on ctx or in save_for_backward, not on the class, the module or in a buffer"
    about = frozenset({"repeat", "random"})
    explains = frozenset({"repeat", "second", "transform", "checkpoint"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Call twice, then go back through the first."""
        base = steady(call)
        for other in other_calls(call):
            first = call.forward()
            try:
                second = other.forward()
            except Exception:  # it does not take these values
                continue
            finding = self.disturbed(call, first, base)
            del second  # until here it has to be alive
            if finding is not None:
                yield finding
            return
        raise NotApplicable("forward takes no other values")

    def disturbed(self, call: Call, first: Run, base: Answer) -> Finding | None:
        """Compare the first call, after the second, with one that was alone."""
        outputs = [output.detach() for output in first.outputs]
        if (wrong := first_differing(outputs, base.outputs)) is not None:
            index, where = wrong
            return self.breach(
                f"{call.target.name}: a second call changes output {index} of the first: its "
                "memory is used again",
                wrong=described(where, outputs[index], base.outputs[index]),
            )
        try:
            found = first.backward(base.grads)
        except Exception as error:
            return self.breach(
                f"{call.target.name}: after a second call, the backward of the first raises: "
                "state of one call is overwritten by the next",
                where=place_of_error(error) or backward_place(call),
                error=f"{type(error).__name__}: {shortened(str(error))}",
            )
        if (wrong := first_differing(found, base.gradients)) is not None:
            index, where = wrong
            return self.breach(
                f"{call.target.name}: state of the second call is used in the backward of the "
                f"first: the gradient of `{call.leaves[index].name}` changes if forward is called "
                "again before backward",
                where=backward_place(call),
                wrong=described(where, found[index], base.gradients[index]),
            )
        return None


def other_calls(call: Call) -> Iterator[Call]:
    """Yield the same call on other values."""
    values = [leaf.value for leaf in call.leaves]
    mixed = [0.75 * v.flip(list(range(v.ndim))) if can_require_grad(v) else v for v in values]
    flipped = [v.flip(list(range(v.ndim))) if can_require_grad(v) else v for v in values]
    for other in (mixed, flipped):
        yield call.with_values([new.to(old) for new, old in zip(other, values, strict=True)])
