"""A kernel that writes or reads beside a tensor."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call, format_call
from pullback.verify.invariance.uneven import calls_of
from pullback.verify.nodes import EVERYTHING, require_own
from pullback.verify.probe import Probe
from pullback.verify.probes.never_written import name_elements
from pullback.verify.tracing.guard import Outside
from pullback.verify.tracing.unwritten import memory_of


class OutsideOfTensor(Probe):
    """Forward and backward touch no memory but that of their tensors.

    ## Why
    One element too far is somebody else's memory: most often nothing shows, and now and then
    another tensor changes, or the process crashes somewhere else.

    ## Fails
    ```python
    import ctypes


    class Ramp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.empty_like(x)
            kernel = (ctypes.c_double * (len(x) + 1)).from_address(y.data_ptr())
            kernel[:] = [float(i) for i in range(len(x) + 1)]
            return y * x

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.arange(len(grad))


    inputs = (torch.randn(9, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class RampInside(Ramp):
        @staticmethod
        def forward(ctx, x):
            y = torch.empty_like(x)
            kernel = (ctypes.c_double * len(x)).from_address(y.data_ptr())
            kernel[:] = [float(i) for i in range(len(x))]
            return y * x
    ```

    ## Cannot see
    Memory outside PyTorch's tensors on the CPU: NumPy's, `malloc`'s, a GPU's. Accesses more than
    4 KiB away from the tensor. Anything without a C++ compiler: the guard is compiled at first use.
    """

    code = "PB500"
    name = "outside-of-tensor"
    needs = "forward"
    unnatural = True
    explains = EVERYTHING
    help = "compare each index with the number of elements before it is used: if (i < n)"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Look at the zones beside tensors, and for results that depend on them."""
        require_own(call)
        for own in calls_of(call):
            memory = memory_of(own)
            inputs = None if own is call else format_call(own)
            for part, outside in memory.written[:1]:
                yield self.breach(
                    f"{call.target.name}: {part} writes {describe_outside(outside)}",
                    inputs=inputs,
                    seen=f"the memory beside it has changed: it has {outside.count} elements",
                )
                return
            for seen in memory.seen:
                if bool(seen.outside.any()):
                    yield self.breach(
                        f"{call.target.name}: {seen.name} depends on memory outside of every "
                        f"tensor: {seen.part} reads past the end or before the start of one for "
                        f"{name_elements(seen.outside)}",
                        inputs=inputs,
                        seen=f"{int(seen.outside.sum())} of {seen.outside.numel()} elements are "
                        "NaN where the memory beside tensors is filled with NaN",
                    )
                    return


def describe_outside(outside: Outside) -> str:
    """Say which elements: "past the end of output 0: element 9"."""
    side = "before the start of" if outside.first < 0 else "past the end of"
    one = outside.first == outside.last
    which = f"element {outside.first}" if one else f"elements {outside.first} to {outside.last}"
    return f"{side} {outside.name}: {which}"
