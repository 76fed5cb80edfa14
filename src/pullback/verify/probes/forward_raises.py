"""Forward raises."""

import re
from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call, tensors_in
from pullback.verify.nodes import EVERYTHING
from pullback.verify.probe import Probe
from pullback.verify.source import SourcePlace, Text, place_of_error
from pullback.verify.trace import trace
from pullback.verify.tracing.memory import is_same_memory, shares

# PyTorch's messages, up to the part where the author's names are better.
NOT_SAVED = re.compile(
    r"save_for_backward can only save variables, but argument (\d+) is of type (\w+)"
)
DIRTY = "marked as dirty during the forward method were not returned as output"
ALIAS = re.compile(r"may not alias any inputs|must not also be an input|returns? .*alias")


class ForwardRaises(Probe):
    """Forward takes the inputs that it is checked with.

    ## Why
    A call that raises cannot be checked. PyTorch's message for a mistake with `ctx` names
    neither the argument nor the line.

    ## Fails
    ```python
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x, factor)
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            x, factor = ctx.saved_tensors
            return grad * factor, None


    inputs = (torch.randn(4, dtype=torch.float64), 3)
    ```

    ## Passes
    ```python
    class ScaleKept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None
    ```

    ## Cannot see
    Whether the inputs are ones that forward should take.
    """

    code = "PB501"
    name = "forward-raises"
    needs = "nothing"
    about = frozenset({"forward"})
    explains = EVERYTHING

    def examine(self, call: Call) -> Iterator[Finding]:
        """Say what the ordinary forward raised, and why if that is known."""
        error = trace(call).forward_error
        if error is None:
            return
        text = str(error).strip().split("\n")[0]
        message, cure = self.cause(call, text)
        yield self.breach(
            f"{call.target.name}: {message}",
            where=place_of_error(error) or self.likely(call, text),
            help=cure,
            raised=f"{type(error).__name__}: {text[:300]}",
            without_autograd=explain_unrecorded(call),
        )

    def cause(self, call: Call, text: str) -> tuple[str, str | None]:
        """Return what is wrong and the cure, by what PyTorch says of it."""
        if found := NOT_SAVED.search(text):
            return (
                f"save_for_backward is given a value that is not a tensor: argument {found[1]} is "
                f"of type {found[2]}",
                "keep numbers, strings and shapes as attributes: ctx.factor = factor",
            )
        if DIRTY in text:
            return (
                "ctx.mark_dirty is told of an input that forward does not return",
                "return the very tensor that was changed in place, or do not change it",
            )
        if ALIAS.search(text):
            return self.aliased(call)
        return f"forward raises for these inputs ({text[:160]})", None

    def aliased(self, call: Call) -> tuple[str, str | None]:
        """Say which input an operator returns, or returns a view of."""
        cure = "an operator returns memory of its own: .clone() what is returned"
        forward = call.target.parts.get("forward")
        if forward is not None:
            copies = [leaf.value.clone() for leaf in call.leaves]
            arguments, keywords, _ = call.filled(copies)
            with torch.no_grad():
                returned = tensors_in(forward(*arguments, **keywords))
            for output in returned:
                for leaf, own in zip(call.leaves, copies, strict=True):
                    if is_same_memory(output, own):
                        return f"the operator returns its input {leaf.name} itself", cure
                    if shares(output, own):
                        return f"the operator returns a view of its input {leaf.name}", cure
        return "the operator returns an alias of an input: the input itself, or a view of it", cure

    def likely(self, call: Call, text: str) -> SourcePlace | None:
        """Return the line that tells ctx what PyTorch refuses only later."""
        name = "mark_dirty" if DIRTY in text else "save_for_backward"
        if name not in text and DIRTY not in text:
            return None
        parts = [
            call.target.parts[part] for part in ("setup", "forward") if part in call.target.parts
        ]
        return next((place for part in parts if (place := Text(part).calls(name))), None)


def explain_unrecorded(call: Call) -> str | None:
    """Say that forward works where autograd does not record it."""
    try:
        call.values([leaf.value for leaf in call.leaves])
    except Exception:
        return None
    return "works under torch.no_grad()"
