"""The backward of a registered operator cannot be traced."""

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pullback.diagnostic import Finding
from pullback.verify.call import Call, Run, tensors_in
from pullback.verify.composition.fakes import copy_of
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class BackwardUntraceable(Probe):
    """The backward of a registered operator is made of operators that can be traced.

    ## Why
    `torch.compile` runs it once on fake tensors, which have no values: `.numpy()`, `.item()` and
    a kernel called by address have nothing to read, and compilation fails.

    ## Fails
    ```python
    @torch.library.custom_op("page::square_numpy", mutates_args=())
    def target(x: torch.Tensor) -> torch.Tensor:
        return x * x


    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(2 * grad.numpy() * x.detach().numpy())


    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


    target.register_fake(lambda x: torch.empty_like(x))
    target.register_autograd(backward, setup_context=keep)
    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    @torch.library.custom_op("page::square_traced", mutates_args=())
    def target(x: torch.Tensor) -> torch.Tensor:
        return x * x


    @torch.library.custom_op("page::square_numpy_backward", mutates_args=())
    def kernel(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(2 * grad.numpy() * x.numpy())


    kernel.register_fake(lambda grad, x: torch.empty_like(x))
    target.register_fake(lambda x: torch.empty_like(x))
    target.register_autograd(
        lambda ctx, grad: kernel(grad, ctx.saved_tensors[0]), setup_context=keep
    )
    ```

    ## Cannot see
    A branch on values that another input takes.
    """

    code = "PB587"
    name = "backward-not-traceable"
    help = "make a second operator of it, with a fake kernel, and call that in backward"
    about = frozenset({"traced", "second"})
    explains = frozenset({"traced"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Run forward and backward on fake tensors."""
        if call.target.overload is None:
            raise NotApplicable("it is not a registered operator")
        mode: Any = FakeTensorMode()
        leaves = tuple(
            mode.from_tensor(copy_of(leaf.value).requires_grad_(leaf.wanted))
            for leaf in call.leaves
        )
        try:
            with mode:
                returned = call.on([leaf.clone() for leaf in leaves])
        except Exception as error:
            raise NotApplicable("the fake kernel raises") from error
        outputs = tensors_in(returned)
        run = Run(leaves=leaves, given=leaves, returned=returned, outputs=outputs, seed=call.seed)
        with mode:
            grads = [torch.ones_like(o) if o.requires_grad else None for o in outputs]
        try:
            with mode:
                run.backward(grads)
        except Exception as error:
            place = place_of_error(error)
            if place is None:
                raise NotApplicable("fake tensors fail outside of the author's code") from error
            yield self.breach(
                f"{call.target.name}: backward is not traceable: it reads values (numpy, item, an "
                "address) that fake tensors do not have, so torch.compile fails",
                where=place,
                raised=f"{type(error).__name__}: {shorten(str(error))}",
            )
