"""Backward is right for the example's options, but wrong for others."""

import time
from collections.abc import Iterator
from contextlib import suppress

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place
from pullback.verify.invariance.options import Option, options_of, set_option
from pullback.verify.invariance.variants import Wrong, reduce_size, require_sound, wrong_of
from pullback.verify.probe import NotApplicable, Probe

SECONDS = 1.5


class WrongOption(Probe):
    """Backward is right for every value of an option that forward takes.

    ## Why
    Each option is a branch in forward that needs one in backward. Tests that run with the defaults
    do not enter the others.

    ## Fails
    ```python
    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, reduction="mean"):
            ctx.save_for_backward(x)
            ctx.reduction = reduction
            return (x**2).mean() if reduction == "mean" else (x**2).sum()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad / x.numel(), None


    inputs = (torch.randn(3, 4, dtype=torch.float64), "mean")
    ```

    ## Passes
    ```python
    class LossOfBoth(Loss):
        @staticmethod
        def forward(ctx, x, reduction="mean"):
            return Loss.forward(ctx, x, reduction)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            count = x.numel() if ctx.reduction == "mean" else 1
            return 2 * x * grad / count, None


    inputs = (torch.randn(3, 4, dtype=torch.float64), "mean")
    ```

    ## Cannot see
    Values that are listed neither in the Function nor in its signature; two options that go wrong
    only together.
    """

    code = "PB558"
    name = "wrong-for-an-option"
    help = "follow the option in backward as in forward, or refuse it in forward"
    about = frozenset({"values", "numbers"})
    explains = frozenset({"values", "second", "transform"})
    intentions = frozenset({"straight_through", "reversal", "surrogate", "tangent_space"})
    unnatural = True

    def examine(self, call: Call) -> Iterator[Finding]:
        """Judge the call with each other value of one option at a time."""
        options = list(options_of(call))
        if not options:
            raise NotApplicable("it has no options")
        require_sound(call)
        call = reduce_size(call)
        end = time.process_time() + SECONDS
        for option in options:
            found: dict[object, Wrong] = {}
            for value in option.others:
                if time.process_time() > end:
                    break
                wrong = None
                with suppress(Exception):  # it cannot be given
                    wrong = wrong_of(set_option(call, option.name, value))
                if wrong is not None:
                    found[value] = wrong
                # One arbitrary number may make an approximation bad; that two do is unlikely.
                if wrong is not None and (value in option.told_apart or len(found) > 1):
                    yield self.told(call, option, *next(iter(found.items())))
                    break

    def told(self, call: Call, option: Option, value: object, wrong: Wrong) -> Finding:
        """Say for which value it is wrong."""
        before = "a tensor" if hasattr(option.value, "shape") else repr(option.value)
        return self.breach(
            f"{call.target.name}: right for {option.name}={before}, wrong for "
            f"{option.name}={value!r}: {wrong.text}",
            where=wrong.place or backward_place(call),
        )
