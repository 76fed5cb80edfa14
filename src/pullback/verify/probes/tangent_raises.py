"""Forward mode raises."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.tangent import compute_tangents, forward_mode, only_tangent
from pullback.verify.probe import Probe
from pullback.verify.source import Text, place_of_error
from pullback.verify.target import shorten
from pullback.verify.trace import trace


class TangentRaises(Probe):
    """If there is a `jvp`, it works: with all tangents, and with the tangent of one input alone.

    ## Why
    Tensors that forward saves with `save_for_backward` are not available in `jvp`: that needs a
    call of `save_for_forward` too. And an input that is a constant has no tangent: None may arrive.

    ## Fails
    ```python
    class Sin(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x.cos()

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return tangent * x.cos()


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SinSaved(Sin):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.sin()
    ```

    ## Cannot see
    A missing `jvp`: forward mode says so itself.
    """

    code = "PB570"
    name = "forward-mode-raises"
    help = "look at the line: jvp is called with a tangent, or None, for each input of forward"
    about = frozenset({"tangent"})
    explains = frozenset({"tangent"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Push tangents through: of all inputs, then of each alone."""
        found = forward_mode(call)
        if found.error is not None:
            yield self.raised(call, found.error, "")
            return
        if len(call.wanted) < 2:
            return
        for leaf in call.wanted:
            try:
                compute_tangents(found.call, only_tangent(found.way, leaf))
            except Exception as error:
                name = call.leaves[leaf].name
                yield self.raised(call, error, f" if `{name}` alone has a tangent")
                return

    def raised(self, call: Call, error: Exception, when: str) -> Finding:
        """Return the finding for an exception, with its cause where it is the usual one."""
        place, cure = place_of_error(error), None
        jvp = call.target.parts.get("jvp")
        told = {told.method for node in trace(call).nodes for told in node.told}
        if jvp is not None and "save_for_forward" not in told:
            if place_of_saved := Text(jvp).mentions("saved_tensors"):
                place = place_of_saved
                when += ": it reads ctx.saved_tensors, and ctx.save_for_forward was not called"
                cure = "call ctx.save_for_forward(...) as well as ctx.save_for_backward(...)"
        elif "alone" in when:
            cure = "an input that is a constant has the tangent None: leave its term out"
        return self.breach(
            f"{call.target.name}: forward mode fails{when}",
            where=place,
            help=cure,
            raised=f"{type(error).__name__}: {shorten(str(error))}",
        )
