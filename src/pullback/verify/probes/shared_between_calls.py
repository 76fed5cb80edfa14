"""State that one call leaves for another."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call, can_require_grad
from pullback.verify.nodes import require_own
from pullback.verify.numbers.gradient import compare
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.randomness import make_generator
from pullback.verify.tracing.difference import Difference, copy_values, find_difference
from pullback.verify.tracing.shared_state import line_that_sets, state_of, written_between


class SharedBetweenCalls(Probe):
    """Two calls do not share what one of them needs in backward.

    ## Why
    A network calls an operator many times before the first backward. By then, whatever is kept on
    the class, in a global or in a reused buffer belongs to the last call.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            Square.x = x.clone()
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * Square.x * grad


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareSaved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad
    ```

    ## Cannot see
    State that is shared only by calls of other sizes or options, or by threads.
    """

    code = "PB514"
    name = "shared-between-calls"
    about = frozenset({"repeat"})
    explains = frozenset({"repeat", "values", "checkpoint", "transform", "numbers", "second"})
    help = "keep it on ctx: ctx.save_for_backward for inputs and outputs, ctx.name for the rest"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Run two calls alone and then one after another, with backward in every order."""
        require_own(call)
        if call.random:
            raise NotApplicable("forward is random")
        other = move_elsewhere(call)
        before = state_of(call)
        first, second = run_alone(call), run_alone(other)
        names = written_between(call, before)
        for kind, found in run_mixed(call, other, first, second):
            if found is None:
                continue
            yield self.breach(
                f"{call.target.name}: {explain(kind, call, found)}"
                + (f": {names[0]} is shared by all calls, not kept on ctx" if names else ""),
                where=line_that_sets(call, names[0]) if names else None,
                alone_and_together=found.evidence,
                shared=", ".join(names[:4]) or None,
            )
            return
        yield from self.stale(call, other, first, second, names)

    def stale(
        self,
        call: Call,
        other: Call,
        first: "Alone",
        second: "Alone",
        names: Sequence[str],
    ) -> Iterator[Finding]:
        """Look for a gradient of the first call that is also returned for other values."""
        same = all(
            a is None or b is None or torch.equal(a, b)
            for a, b in zip(first.gradients, second.gradients, strict=True)
        )
        if not same or not compare(other) or compare(call):
            return
        yield self.breach(
            f"{call.target.name}: the second call, with other values, gets the gradient of the "
            f"first call: something is kept once and for all, and does not belong to the values",
            where=line_that_sets(call, names[0]) if names else None,
            help="keep it on ctx; a cache needs all that its content depends on in its key",
            shared=", ".join(names[:4]) or None,
        )


class Alone:
    """What one call gives by itself: outputs and gradients, copied."""

    def __init__(self, call: Call) -> None:
        run = call.forward()
        self.outputs = copy_values(run.outputs)
        self.gradients = copy_values(run.backward(run.random_grads()))


def run_alone(call: Call) -> Alone:
    """Run a call by itself."""
    return Alone(call)


def move_elsewhere(call: Call) -> Call:
    """Return the call for other values, which forward is as likely to take as its own."""
    return call.with_values([other_values(leaf.value, i) for i, leaf in enumerate(call.leaves)])


def other_values(value: Tensor, index: int) -> Tensor:
    """Return a tensor's values in another order, and a bit smaller: same range, same signs."""
    if not can_require_grad(value) or value.layout != torch.strided:
        return value
    generator = make_generator(index)
    factors = 0.5 + 0.5 * torch.rand(value.shape, dtype=torch.float64, generator=generator)
    return value * factors.to(value)


def run_mixed(
    call: Call, other: Call, first: Alone, second: Alone
) -> Iterator[tuple[str, Difference | None]]:
    """Yield what differs when both calls are in flight, in the order of likelihood."""
    one = call.forward()
    two = other.forward()
    yield "outputs", find_difference(first.outputs, one.outputs)
    backward_of_one = one.backward(one.random_grads())
    yield "gradients", find_difference(first.gradients, backward_of_one)
    copies = copy_values(backward_of_one)
    backward_of_two = two.backward(two.random_grads())
    yield "gradients of the second", find_difference(second.gradients, backward_of_two)
    yield "kept gradients", find_difference(copies, backward_of_one)
    one, two = call.forward(), other.forward()
    two.backward(two.random_grads())
    yield "gradients", find_difference(first.gradients, one.backward(one.random_grads()))


def explain(kind: str, call: Call, found: Difference) -> str:
    """Say what is wrong."""
    if kind == "outputs":
        return f"the second call overwrites output {found.index} of the first call"
    name = call.leaves[found.index].name
    if kind == "kept gradients":
        return f"the second backward overwrites the gradient of {name} that the first returned"
    if kind == "gradients of the second":
        return (
            f"with two calls in flight, the backward of the second uses state of the first (the "
            f"gradient of {name} differs)"
        )
    return (
        f"with two calls in flight, state of the second call is used in the backward of the first "
        f"(the gradient of {name} differs)"
    )
