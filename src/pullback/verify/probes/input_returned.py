"""Forward returns an input as it is, or a view of a part of it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call, tensors_in
from pullback.verify.nodes import argument_names, forward_text, name_of, nodes_of_target
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text
from pullback.verify.trace import NodeTrace, Trace, trace
from pullback.verify.tracing.memory import count_changed, shares


class InputReturned(Probe):
    """An output is not an input or a view of one, unless it is declared to be changed in place.

    ## Why
    PyTorch turns an input that forward returns into a view. A view that a Function made, and its
    base, may not be changed in place. That matters only if something does so: `y = f(x); y += 1`,
    or an activation with `inplace=True` after it, raises far away from here. Otherwise it is a
    common idiom.

    ## Fails
    ```python
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class Copy(Same):
        @staticmethod
        def forward(ctx, x):
            return x.clone()
    ```

    ## Cannot see
    Views of the whole input that are made on purpose (`x.view_as(x)`): whoever writes that knows.
    """

    code = "PB520"
    name = "input-returned"
    level = "advice"
    help = "return x.clone(), or x.view_as(x) to say that it is a view; or ctx.mark_dirty(x)"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Look for inputs among what forward returned, and change that output in place."""
        if call.target.kind != "function":
            raise NotApplicable("PyTorch looks after operators itself")
        found = trace(call)
        for node in nodes_of_target(call, found):
            dirty = [t for one in node.told if one.method == "mark_dirty" for t in one.arguments]
            for index, output in enumerate(tensors_in(node.raw)):
                what = describe_returned(node, output)
                if what is None or any(shares(output, own) for own in dirty):
                    continue
                if is_changed(call, found, output):
                    continue  # then that is the fault
                error = error_in_place(call, index)
                if error is None:
                    continue
                forward = Text(node.parts["forward"]) if "forward" in node.parts else None
                yield self.breach(
                    f"{name_of(call, node)}: output {index} is {what}; that matters if the output "
                    f"is changed in place: y += 1 raises",
                    where=(forward or forward_text(node)).returns(),
                    raised=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
                )


def describe_returned(node: NodeTrace, output: Tensor) -> str | None:
    """Say which input an output of forward is, or is a part of in other sizes or strides."""
    for name, argument in zip(argument_names(node), node.arguments, strict=True):
        if not isinstance(argument, Tensor) or not argument.requires_grad:
            continue
        if argument is output:
            return f"the input object {name}, returned as is"
        alike = output.shape == argument.shape and output.stride() == argument.stride()
        if output.numel() and not alike and shares(output, argument):
            return f"a view of the input {name}"
    return None


def is_changed(call: Call, found: Trace, tensor: Tensor) -> bool:
    """Tell whether an input was written to."""
    given = found.run.given if found.run else ()
    pairs = zip(call.leaves, given, strict=False)
    return any(own is tensor and count_changed(leaf.value, own) > 0 for leaf, own in pairs)


def error_in_place(call: Call, index: int) -> Exception | None:
    """Return what an in-place operation on an output raises."""
    output = call.forward().outputs[index]
    try:
        with torch.enable_grad():
            output.mul_(2)
    except RuntimeError as error:
        return error
    return None
