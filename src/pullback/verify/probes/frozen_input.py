"""Backward goes wrong if one of the inputs needs no gradient."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.agreement import describe_differing, find_differing
from pullback.verify.call import Call
from pullback.verify.invariance.answer import Answer, backward_place, compute_answer, steady_answer
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten

MOST = 8


class FrozenInput(Probe):
    """An input's gradient is the same whether or not others need one.

    ## Why
    Frozen weights and first layers are common: `ctx.needs_input_grad` is then partly False. What
    is saved or returned for the rest must not depend on it.

    ## Fails
    ```python
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x if w.requires_grad else w, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            found = [grad * w, grad * x]
            return tuple(found[: sum(ctx.needs_input_grad)]) + (None,) * (
                2 - sum(ctx.needs_input_grad)
            )


    inputs = (
        torch.randn(2, 4, dtype=torch.float64),
        torch.randn(2, 4, dtype=torch.float64),
    )
    ```

    ## Passes
    ```python
    class ProductOfEither(Product):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return (
                grad * w if ctx.needs_input_grad[0] else None,
                grad * x if ctx.needs_input_grad[1] else None,
            )
    ```

    ## Cannot see
    Subsets other than each input alone and all but one.
    """

    code = "PB536"
    name = "frozen-input"
    help = "return one gradient for each argument, in its place, None where none is needed"
    about = frozenset({"backward", "random"})
    explains = frozenset({"second", "transform"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Ask for the gradient of each input alone, then of all but one."""
        if not 2 <= len(call.wanted) <= MOST:
            raise NotApplicable(f"{len(call.wanted)} inputs need a gradient")
        base = steady_answer(call)
        subsets = [{i} for i in call.wanted] + [set(call.wanted) - {i} for i in call.wanted]
        for subset in dict.fromkeys(map(frozenset, subsets)):
            found = self.frozen(call, base, subset)
            if found is not None:
                yield found
                return

    def frozen(self, call: Call, base: Answer, subset: frozenset[int]) -> Finding | None:
        """Compare the gradients of a subset with those that they have together."""
        wanted = [i in subset for i in range(len(call.leaves))]
        rest = [f"`{call.leaves[i].name}`" for i in call.wanted if i not in subset]
        names = " and ".join(rest)
        needs = "needs no gradient" if len(rest) == 1 else "need no gradient"
        try:
            found = compute_answer(call, base.grads, wanted=wanted)
        except Exception as error:
            return self.breach(
                f"{call.target.name}: it raises if {names} {needs} (frozen)",
                where=place_of_error(error) or backward_place(call),
                error=f"{type(error).__name__}: {shorten(str(error))}",
            )
        for index in subset:
            own, right = found.gradients[index], base.gradients[index]
            if (where := find_differing(own, right)) is not None:
                return self.breach(
                    f"{call.target.name}: the gradient of `{call.leaves[index].name}` is another "
                    f"one if {names} {needs} (frozen)",
                    where=backward_place(call),
                    wrong="none arrives" if own is None else describe_differing(where, own, right),
                )
        return None
