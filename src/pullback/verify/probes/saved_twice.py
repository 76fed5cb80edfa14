"""A second save_for_backward replaces the first."""

from collections.abc import Iterator
from contextlib import suppress

from pullback.diagnostic import Finding
from pullback.verify.call import Call, tensors_in
from pullback.verify.nodes import SPOILT, describe_saved, name_of, nodes_of_target
from pullback.verify.numbers.gradient import compare
from pullback.verify.probe import Probe
from pullback.verify.trace import NodeTrace, Told, Trace, describe_tensor, trace


class SavedTwice(Probe):
    """Forward calls save_for_backward once, with all that is to be saved.

    ## Why
    A second call does not add to the first: it replaces it.

    ## Fails
    ```python
    class Mul(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x)
            ctx.save_for_backward(w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, grad * x


    inputs = (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class MulSaved(Mul):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w
    ```

    ## Cannot see
    Calls in branches that this call does not take.
    """

    code = "PB505"
    name = "saved-twice"
    milder = True
    needs = "forward"
    about = frozenset({"backward"})
    explains = SPOILT
    help = "one call with all of them: ctx.save_for_backward(x, w)"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Count the calls, and look at what the last one leaves out."""
        found = trace(call)
        for node in nodes_of_target(call, found):
            told = [one for one in node.told if one.method == "save_for_backward"]
            lost = find_missing(node, told)
            if not lost:
                continue
            lines = [f"line {one.place.line}: {one.place.text}" for one in told if one.place]
            yield self.breach(
                f"{name_of(call, node)}: save_for_backward is called {format_times(len(told))}; "
                "only the "
                f"last call counts, {', '.join(lost)} is not saved",
                level="fault" if is_wrong(call, found) else "advice",
                where=told[-1].place,
                calls="\n".join(lines) or None,
            )


def find_missing(node: NodeTrace, told: list[Told]) -> list[str]:
    """Return the tensors that earlier calls save and the last one does not."""
    if len(told) < 2:
        return []
    last = tensors_in(told[-1].arguments)
    earlier = [tensor for one in told[:-1] for tensor in tensors_in(one.arguments)]
    return [
        describe_saved(node, describe_tensor(tensor, node))
        for tensor in earlier
        if not any(tensor is own for own in last)
    ]


def format_times(count: int) -> str:
    """Say how often."""
    return "twice" if count == 2 else f"{count} times"


def is_wrong(call: Call, found: Trace) -> bool:
    """Tell whether backward raises or is wrong: the tensors that are left may be enough for it."""
    if found.backward_error is not None:
        return True
    with suppress(Exception):
        return bool(compare(call))
    return False
