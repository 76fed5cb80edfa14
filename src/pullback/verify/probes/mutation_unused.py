"""An argument that is declared to be changed, but is not."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.probes.input_changed import declared_of
from pullback.verify.source import Text
from pullback.verify.trace import NodeTrace, watch_calls
from pullback.verify.tracing.memory import count_changed


class MutationUnused(Probe):
    """What is declared to be changed is changed.

    ## Why
    A mutation that is declared forces copies in torch.compile, and forbids inputs that autograd
    needs elsewhere.

    ## Fails
    ```python
    @torch.library.custom_op("page655::scaled", mutates_args=("buffer",))
    def scaled(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        return x * 2


    @scaled.register_fake
    def _(x, buffer):
        return torch.empty_like(x)


    target, inputs = scaled, (torch.randn(4), torch.zeros(4))
    ```

    ## Passes
    ```python
    @torch.library.custom_op("page655::counted", mutates_args=("buffer",))
    def counted(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer.add_(1)
        return x * 2


    @counted.register_fake
    def _(x, buffer):
        return torch.empty_like(x)


    target = counted
    ```

    ## Cannot see
    A write that leaves every value as it was, or that happens only for other inputs.
    """

    code = "PB655"
    name = "mutation-unused"
    level = "advice"
    needs = "forward"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare every argument that is declared to be changed before forward and after it."""
        if call.target.kind in ("module", "callable"):
            raise NotApplicable("nothing is declared")
        nodes: list[NodeTrace] = []
        with watch_calls(nodes):
            run = call.forward()
        for index in sorted(declared_of(call, run, nodes)):
            leaf, given = call.leaves[index], run.given[index]
            if leaf.value.numel() and not count_changed(leaf.value, given):
                own = call.target.parts.get("forward")
                yield self.breach(
                    f"{call.target.name}: {leaf.name} is declared to be changed in place, but is "
                    f"never written",
                    where=Text(own).place if own else None,
                    help="take it out of mutates_args, or of ctx.mark_dirty: it forces copies",
                )
