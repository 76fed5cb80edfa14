"""Forward mode gives wrong tangents."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.agreement import describe_differing, find_first_differing
from pullback.verify.call import Call
from pullback.verify.numbers.tangent import (
    Forward,
    add_tangents,
    by_backward,
    compare_with_differences,
    compute_tangents,
    forward_mode,
    only_tangent,
)
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text


class TangentWrong(Probe):
    """`jvp` is the derivative of forward, and the transpose of backward.

    ## Why
    Nothing calls `jvp` in training, so a wrong one waits until somebody takes a Hessian, a Jacobian
    of few inputs, or a tangent. Its test is the inner product: <u, J v> = <Jᵀ u, v> for all u, v.

    ## Fails
    ```python
    class Sin(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x.cos()

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return -tangent * x.cos()


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SinRight(Sin):
        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return tangent * x.cos()
    ```

    ## Cannot see
    Which of the two is wrong, where forward is not smooth and `jvp` and backward disagree.
    """

    code = "PB571"
    name = "tangent-wrong"
    help = "compare jvp with backward: one is the transposed of the other"
    about = frozenset({"tangent"})
    explains = frozenset({"tangent"})
    intentions = frozenset(
        {"straight_through", "reversal", "surrogate", "tangent_space", "nonlinear_grad"}
    )

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare tangents with differences, with backward, and with those of single inputs."""
        found = forward_mode(call)
        if found.error is not None:
            raise NotApplicable("forward mode raises")
        jvp = call.target.parts.get("jvp")
        where = None if jvp is None else Text(jvp).place
        forward, backward, allowed = by_backward(found)
        disagree = f"{forward:.6g} and {backward:.6g}"
        try:
            apart = compare_with_differences(found)
        except NotApplicable:
            # This does not say which of the two is right, but works for a forward with kinks too.
            if abs(forward - backward) > allowed:
                yield self.breach(
                    f"{call.target.name}: jvp and backward disagree: {disagree}",
                    where=where,
                    inner_products=f"<u, jvp v> and <backward u, v>: {disagree}",
                )
            return
        for one in apart[:1]:
            yield self.breach(
                f"{call.target.name}: jvp is wrong: {one.tangent:.6g} for {one.wanted:.6g}"
                + (f" in output {one.output}" if len(found.tangents) > 1 else ""),
                where=where,
                inner_products=f"jvp and backward give {disagree}",
            )
        if not apart and (where_apart := self.not_additive(found)):
            yield self.breach(
                f"{call.target.name}: the tangents of single inputs do not add up to the tangent "
                "of all",
                where=where,
                help="an input that is a constant has the tangent None: leave its term out, only",
                difference=where_apart,
            )

    def not_additive(self, found: Forward) -> str | None:
        """Say where tangents of single inputs do not add up; each is asked alone."""
        wanted = found.call.wanted
        if len(wanted) < 2:
            return None
        total = add_tangents(
            [compute_tangents(found.call, only_tangent(found.way, leaf)) for leaf in wanted]
        )
        apart = find_first_differing(total, found.tangents)
        if apart is None:
            return None
        index, where = apart
        return describe_differing(where, total[index], found.tangents[index])
