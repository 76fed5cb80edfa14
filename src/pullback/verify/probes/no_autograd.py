"""A registered operator has no derivative of its own, and gets one by chance."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.fakes import is_implicit
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text
from pullback.verify.trace import trace

KEYS = ("Autograd", "AutogradCPU", "AutogradCUDA", "AutogradOther", "CompositeImplicitAutograd")


class NoAutograd(Probe):
    """A differentiable operator registers its derivative under the Autograd key.

    ## Why
    Without one, PyTorch records what the kernel does inside, perhaps an autograd.Function. That is
    below autograd: it happens to work in eager mode, with a warning that it may be silently wrong,
    and is lost when the operator is traced, compiled or run in C++.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]


    library = torch.library.Library("page_autograd", "FRAGMENT")
    name = f"square_{id(library)}"
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: Square.apply(x), "CPU")
    torch.library.register_fake(f"page_autograd::{name}", torch.empty_like, lib=library)
    target = getattr(torch.ops.page_autograd, name)
    inputs = (torch.randn(4, dtype=torch.float64, requires_grad=True),)
    ```

    ## Passes
    ```python
    name = f"known_{id(library)}"
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x * x, "CPU")
    torch.library.register_fake(f"page_autograd::{name}", torch.empty_like, lib=library)
    torch.library.register_autograd(
        f"page_autograd::{name}",
        lambda ctx, grad: 2 * grad * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        lib=library,
    )
    target = getattr(torch.ops.page_autograd, name)
    ```

    ## Cannot see
    Whether a derivative is wanted, if no input requires a gradient.
    """

    code = "PB579"
    name = "no-autograd-registered"
    help = "register it: torch.library.register_autograd(name, backward, setup_context=...)"
    needs = "forward"
    about = frozenset({"backward"})
    explains = frozenset({"backward", "second", "tangent", "transform", "traced", "numbers"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Ask the dispatcher for a kernel of the Autograd key."""
        overload = call.target.overload
        if overload is None or call.target.kind != "library":
            raise NotApplicable("it is not an operator of torch.library")
        if call.assumed or not call.wanted or is_implicit(call):
            raise NotApplicable("no gradient is asked for, or it is made of other operators")
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        if any(has(overload.name(), key) for key in KEYS):
            return
        inner = [n for n in trace(call).nodes if not n.function.__module__.startswith("torch.")]
        by = (
            f"the autograd.Function {inner[-1].function.__name__} is called inside its kernel, "
            "which is below autograd (the wrong dispatch key)"
            if inner
            else "no derivative is registered for it"
        )
        yield self.breach(
            f"{call.target.name}: no autograd kernel: {by}",
            where=Text(inner[-1].parts["forward"]).place if inner else None,
            keys=f"none of {', '.join(KEYS)} has a kernel",
        )
