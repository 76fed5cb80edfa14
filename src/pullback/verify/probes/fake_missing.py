"""An operator has no fake kernel, or one that raises."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.fakes import compare_calls
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class FakeMissing(Probe):
    """A registered operator has a fake kernel that works for all sizes that the real one takes.

    ## Why
    `torch.compile`, `torch.export` and fake tensors ask for the shapes and dtypes of the outputs
    without computing them. Without a fake kernel they raise.

    ## Fails
    ```python
    @torch.library.custom_op("page::square_alone", mutates_args=())
    def target(x: torch.Tensor) -> torch.Tensor:
        return x * x


    target.register_autograd(
        lambda ctx, grad: 2 * grad * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    @target.register_fake
    def like(x):
        return torch.empty_like(x)
    ```

    ## Cannot see
    A size that the fake kernel refuses and that was not tried.
    """

    code = "PB585"
    name = "fake-kernel-raises"
    help = "register one: @op.register_fake, or torch.library.register_fake(name)"
    needs = "forward"
    about = frozenset({"traced"})
    explains = frozenset({"traced"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Run the operator on fake tensors."""
        if call.target.overload is None:
            raise NotApplicable("it is not a registered operator")
        missing = "fake" not in call.target.parts and call.target.kind == "library"
        for one in compare_calls(call):
            if one.error is not None:
                # If a kernel was found, its error has a line of the author's.
                place = place_of_error(one.error)
                none = missing and place is None
                what = "there is no fake kernel" if none else "the fake kernel raises"
                when = f" {one.when}, which the real one takes" if one.when else ""
                yield self.breach(
                    f"{call.target.name}: {what}{when}: torch.compile and fake tensors fail",
                    where=place,
                    help=None if none else "it has to take all that the real kernel takes",
                    raised=f"{type(one.error).__name__}: {shorten(str(one.error))}",
                )
                return
