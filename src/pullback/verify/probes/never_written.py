"""Fresh memory that is returned unwritten."""

from collections.abc import Iterator

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call, format_call
from pullback.verify.invariance.uneven import calls_of
from pullback.verify.nodes import EVERYTHING, require_own
from pullback.verify.probe import Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.target import Part
from pullback.verify.tracing.unwritten import memory_of

FRESH = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "resize_")


class NeverWritten(Probe):
    """Every element of an output and of a gradient is written.

    ## Why
    `torch.empty` returns memory as it is. Fresh from the system it is zero and all tests pass;
    later it holds whatever was freed before.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            gradient = torch.empty_like(grad)
            gradient[:4] = grad[:4] * 2
            return gradient


    inputs = (torch.randn(9, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleWhole(Double):
        @staticmethod
        def backward(ctx, grad):
            gradient = torch.empty_like(grad)
            gradient[:] = grad * 2
            return gradient
    ```

    ## Cannot see
    Memory that a kernel takes from elsewhere (`malloc`). Without a C++ compiler: integers, and
    memory that C++ allocates.
    """

    code = "PB507"
    name = "never-written"
    needs = "forward"
    unnatural = True
    about = frozenset({"fresh"})
    explains = EVERYTHING - {"forward", "memory", "traced"}
    help = "write every element, or begin with zeros: torch.zeros_like"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Fill fresh memory with two patterns, as the call is given and at uneven sizes."""
        require_own(call)
        for own in calls_of(call):
            spoilt = [seen for seen in memory_of(own).seen if bool(seen.unwritten.any())]
            for seen in spoilt:
                yield self.breach(
                    f"{call.target.name}: {seen.name} contains uninitialised memory: {seen.part} "
                    f"never writes {name_elements(seen.unwritten)}",
                    where=place_of_fresh(call, seen.part),
                    inputs=None if own is call else format_call(own),
                    seen=f"{int(seen.unwritten.sum())} of {seen.unwritten.numel()} elements show "
                    "what fresh memory is filled with",
                )
            if spoilt:
                return


def name_elements(spoilt: Tensor) -> str:
    """Name elements: "elements 5 to 8", "elements [0, 2], [1, 2], ..."."""
    found = spoilt.nonzero().tolist()
    if spoilt.dim() == 1:
        first, last = found[0][0], found[-1][0]
        if last - first + 1 == len(found):
            return f"elements {first} to {last}" if last > first else f"element {first}"
        found = [index for (index,) in found]
    more = ", ..." if len(found) > 4 else ""
    return f"elements {', '.join(str(index) for index in found[:4])}{more}"


def place_of_fresh(call: Call, part: Part) -> SourcePlace | None:
    """Return the line that allocates uninitialised memory."""
    own = call.target.parts.get(part)
    return None if own is None else Text(own).calls(*FRESH)
