"""Fresh memory that is returned unwritten."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import EVERYTHING, require_own
from pullback.verify.probe import Probe
from pullback.verify.source import Place, Text
from pullback.verify.target import Part
from pullback.verify.watching.difference import between, kept
from pullback.verify.watching.fresh import filled_with_nan, left_as_it_is

FRESH = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "resize_")


class NeverWritten(Probe):
    """Every element of an output and of a gradient is written.

    ## Why
    `torch.empty` hands out memory as it is. Fresh from the system it is zero and all tests pass;
    later on it holds what was freed before.

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
    Memory that a kernel takes from elsewhere (`malloc`).
    """

    code = "PB507"
    name = "never-written"
    unnatural = True
    explains = EVERYTHING - {"forward", "memory", "traced"}
    help = "write every element, or begin with zeros: torch.zeros_like"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the ordinary call with one whose fresh memory is NaN: first forward's outputs."""
        require_own(call)
        with left_as_it_is():
            ordinary = call.forward()
            outputs = kept(ordinary.outputs)
            gradients = kept(ordinary.backward(ordinary.random_grads()))
        with filled_with_nan():
            again = call.forward()
            filled = kept(again.outputs)
        names = [f"output {index}" for index in range(len(outputs))]
        if found := list(self.unwritten(call, "forward", names, outputs, filled)):
            yield from found
            return
        grads = ordinary.random_grads()
        run = call.forward()
        with filled_with_nan():
            filled = kept(run.backward(grads))
        names = [f"the gradient of {leaf.name}" for leaf in call.leaves]
        yield from self.unwritten(call, "backward", names, gradients, filled)

    def unwritten(
        self,
        call: Call,
        part: Part,
        names: Sequence[str],
        ordinary: Sequence[Tensor | None],
        filled: Sequence[Tensor | None],
    ) -> Iterator[Finding]:
        """Say which elements come from fresh memory."""
        for index, (name, first, second) in enumerate(zip(names, ordinary, filled, strict=False)):
            if first is None or second is None or between(index, first, second) is None:
                continue
            spoilt = is_fresh(first, second)
            if not bool(spoilt.any()):
                continue
            yield self.breach(
                f"{call.target.name}: {name} contains uninitialised memory: {elements(spoilt)} "
                f"{'is' if spoilt.sum() == 1 else 'are'} never written in {part}",
                where=place_of_fresh(call, part),
                seen=f"{int(spoilt.sum())} of {spoilt.numel()} elements are NaN where fresh memory "
                "is filled with NaN",
            )


def is_fresh(ordinary: Tensor, filled: Tensor) -> Tensor:
    """Tell which elements show what fresh memory was filled with."""
    if filled.is_floating_point() or filled.is_complex():
        return filled.isnan() & ~ordinary.isnan()
    return (filled != ordinary) & (filled == torch.iinfo(filled.dtype).max)


def elements(spoilt: Tensor) -> str:
    """Name elements: "elements 5 to 8", "elements [0, 2], [1, 2], ..."."""
    found = spoilt.nonzero().tolist()
    if spoilt.dim() == 1:
        first, last = found[0][0], found[-1][0]
        if last - first + 1 == len(found):
            return f"elements {first} to {last}" if last > first else f"element {first}"
        found = [index for (index,) in found]
    more = ", ..." if len(found) > 4 else ""
    word = "element" if len(found) == 1 else "elements"
    return f"{word} {', '.join(str(index) for index in found[:4])}{more}"


def place_of_fresh(call: Call, part: Part) -> Place | None:
    """Return the line that takes fresh memory."""
    own = call.target.parts.get(part)
    return None if own is None else Text(own).calls(*FRESH)
