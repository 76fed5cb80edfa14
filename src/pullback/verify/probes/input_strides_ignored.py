"""Forward or backward gives other numbers for an input of other strides."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.strides import try_inputs
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.tracing.operations import names_in_forward

RAW = ("data_ptr", "as_strided", "numpy", "untyped_storage", "storage")


class InputStridesIgnored(Probe):
    """Equal values give equal outputs and gradients, whatever the strides of the inputs.

    ## Why
    A kernel that walks through memory from the first element on is right for contiguous inputs
    only. For `x.t()` or `x[:, ::2]` it silently computes with other elements.

    ## Fails
    ```python
    class Cumulated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            in_memory = x.as_strided((x.numel(),), (1,))
            return in_memory.cumsum(0).view(x.shape)

        @staticmethod
        def backward(ctx, grad):
            return grad.reshape(-1).flip(0).cumsum(0).flip(0).view(grad.shape)


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class CumulatedContiguous(Cumulated):
        @staticmethod
        def forward(ctx, x):
            return Cumulated.forward(ctx, x.contiguous())
    ```

    ## Cannot see
    Strides that are not tried; module parameters, which are hardly ever strided.
    """

    code = "PB538"
    name = "input-strides-ignored"
    help = "call .contiguous() on the input, or give the kernel its strides"
    about = frozenset({"input layout", "random"})
    explains = frozenset({"input layout", "transform", "traced"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Give inputs of other strides and equal values."""
        if call.random:
            raise NotApplicable("random numbers are drawn in the order of the strides")
        failed = [trial for trial in try_inputs(call) if trial.error is None]
        if not failed:
            return
        if not call.target.parts and reads_strides(call):
            raise NotApplicable("it is as_strided: strides are what it is about")
        first = failed[0]
        names = list(dict.fromkeys(trial.layout.name for trial in failed))
        verb = "change" if first.of == "the outputs" else "changes"
        yield self.breach(
            f"{call.target.name}: {first.of} {verb} if `{first.tensor}` of equal values is "
            f"{' or '.join(names)}: the strides of the input are ignored, it is read as if it "
            "were contiguous",
            help=first.layout.cure,
            where=raw_place(call),
            seen=f"{first.layout.name}: {first.wrong}",
        )


def raw_place(call: Call) -> SourcePlace | None:
    """Return the line that takes an input's memory."""
    for part in ("forward", "setup", "backward"):
        function = call.target.parts.get(part)
        place = Text(function).calls(*RAW) if function else None
        if place is not None:
            return place
    return None


def reads_strides(call: Call) -> bool:
    """Tell whether the target is PyTorch's own as_strided."""
    return "as_strided" in names_in_forward(call)
