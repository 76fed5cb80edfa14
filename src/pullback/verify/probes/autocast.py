"""Backward fails after a forward under autocast."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding, Level
from pullback.verify.call import Call, Run
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class Autocast(Probe):
    """Backward works outside autocast, where forward ran under it.

    ## Why
    Under `torch.autocast` forward's matrix products are in bfloat16 or float16, and so is the
    gradient that arrives; the saved tensors are still float32. Backward runs outside autocast,
    where nothing is cast for it: a product of the two raises.

    ## Fails
    ```python
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad @ w.t(), x.t() @ grad


    inputs = (torch.randn(3, 4), torch.randn(4, 5))
    ```

    ## Passes
    ```python
    class LinearCast(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad @ w.t(), x.t() @ grad
    ```

    ## Cannot see
    Casts that a GPU's autocast makes and the CPU's does not. For a Function that is called with
    float64 it is advice: autocast is for float32, and perhaps nobody will ever use it there.
    """

    code = "PB575"
    name = "autocast-backward"
    milder = True
    help = (
        "decorate forward with @torch.amp.custom_fwd and backward with @torch.amp.custom_bwd, "
        "or cast in backward: grad.to(w.dtype)"
    )
    about = frozenset({"autocast"})
    explains = frozenset({"autocast"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Run forward under autocast and backward outside, for each half precision."""
        level: Level = "advice" if is_double(call) else "fault"
        single = call.to(torch.float32)
        try:
            run = single.forward()
            run.backward(run.random_grads())
        except Exception as error:
            raise NotApplicable("it does not take float32, which autocast is for") from error
        asked = False
        for dtype in (torch.bfloat16, torch.float16):
            run = run_under_autocast(single, dtype)
            if run is None:
                continue
            asked = True
            grads = run.random_grads()
            try:
                run.backward(grads)
            except Exception as error:
                dtypes = sorted({str(output.dtype) for output in run.outputs})
                yield self.breach(
                    f"{call.target.name}: backward fails after a forward under autocast: the "
                    "gradient that arrives has another dtype than what was saved",
                    where=place_of_error(error),
                    level=level,
                    autocast=f"torch.autocast('{single.leaves[0].value.device.type}', {dtype})",
                    outputs=", ".join(dtypes),
                    raised=f"{type(error).__name__}: {shorten(str(error))}",
                )
                return
        if not asked:
            raise NotApplicable("forward does not run under autocast")


def is_double(call: Call) -> bool:
    """Tell whether it is called with float64, which autocast leaves as it is."""
    return any(leaf.value.dtype in (torch.float64, torch.complex128) for leaf in call.leaves)


def run_under_autocast(call: Call, dtype: torch.dtype) -> Run | None:
    """Return a run whose forward was under autocast; None if that raises."""
    device = call.leaves[0].value.device.type if call.leaves else "cpu"
    try:
        with torch.autocast(device, dtype=dtype):
            return call.forward()
    except Exception:
        return None
