"""Backward raises."""

import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import (
    EVERYTHING,
    argument_names,
    backward_text,
    extra_arguments,
    name_of,
    nodes_of_target,
)
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, place_of_error
from pullback.verify.trace import NodeTrace, Trace, trace

NO_AUTOGRAD = re.compile(r"no autograd formula was registered|autograd kernel is not registered")
IN_PLACE = "modified by an inplace operation"
UNIMPLEMENTED = re.compile(r"must implement either the backward")
# PyTorch's SVD and eigenvectors: each complex vector has a phase that nothing determines.
PHASE = re.compile(r"specified up to multiplication by e\^\{i phi\}.*ill-defined", re.S)
STRUCTURE = re.compile(r"same structure|expected.*list", re.I | re.S)

Cause = tuple[str, str | None, SourcePlace | None]
UNREGISTERED: Cause = (
    "no autograd is registered for this operator",
    "register a derivative: op.register_autograd(backward, setup_context=...)",
    None,
)


class BackwardRaises(Probe):
    """Backward returns one gradient for each argument of forward, and does not raise.

    ## Why
    The engine's message counts gradients and positions: it does not name the arguments.

    ## Fails
    ```python
    class Mul(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w


    inputs = (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class MulBoth(Mul):
        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, grad * x
    ```

    ## Cannot see
    Errors only for other values, sizes or strides: other probes try those.
    """

    code = "PB506"
    name = "backward-raises"
    needs = "forward"
    about = frozenset({"backward"})
    explains = EVERYTHING - {"forward"}

    def examine(self, call: Call) -> Iterator[Finding]:
        """Say what the ordinary backward raised, and why if that is known."""
        found = trace(call)
        error = found.backward_error
        if error is None:
            return
        text = " ".join(str(error).split())
        if NO_AUTOGRAD.search(text) and call.assumed:
            raise NotApplicable("no derivative is registered, and no input requires a gradient")
        if PHASE.search(text):
            raise NotApplicable(
                "not judged: the outputs have a phase that nothing determines, and backward "
                "refuses gradients that depend on it; check what you compute of them: pb.check("
                "lambda a: loss(f(a)), a)"
            )
        message, cure, where = explain(call, found, error, text)
        yield self.breach(
            f"{call.target.name}: {message}",
            where=where or place_of_error(error),
            help=cure,
            raised=f"{type(error).__name__}: {text[:400]}",
        )


def explain(call: Call, found: Trace, error: Exception, text: str) -> Cause:
    """Return what is wrong, the cure and the line."""
    nodes = nodes_of_target(call, found) or [node for node in found.nodes if node.ctx is not None]
    for node in nodes:
        if node.errors and node.errors[-1] is not None:
            return explain_inside(call, node, text)
        if node.gave and (said := explain_miscounted(call, node)):
            return said
    if NO_AUTOGRAD.search(text):
        return UNREGISTERED
    if STRUCTURE.search(text) and (said := explain_list(call)):
        return said
    if IN_PLACE in text:
        return explain_in_place(nodes)
    return f"backward raises {type(error).__name__} ({text[:160]})", None, None


def explain_inside(call: Call, node: NodeTrace, text: str) -> Cause:
    """Say what the author's backward raised."""
    if NO_AUTOGRAD.search(text):
        return UNREGISTERED
    if UNIMPLEMENTED.search(text):
        return "it has no backward", "write backward(ctx, *grads)", node_place(node)
    if IN_PLACE in text:
        return explain_in_place([node])
    known = explain_list(call) if STRUCTURE.search(text) else None
    known = known or explain_cleared(node) or explain_not_expected(node, text)
    where = place_of_error_of(node) or backward_text(node).place
    return known or (f"backward raises ({text[:200]})", None, where)


def explain_cleared(node: NodeTrace) -> Cause | None:
    """Say that the saved tensors are read once more than they can be."""
    clears = getattr(node.function, "clear_saved_tensors_on_access", False)
    if not clears or len(node.unpacks) < 2:
        return None
    lines = ", ".join(str(place.line) for place in node.unpacks if place)
    return (
        f"ctx.saved_tensors is read {len(node.unpacks)} times (lines {lines}), and the first "
        f"read clears it: clear_saved_tensors_on_access = True",
        "read it once: x, y = ctx.saved_tensors",
        node.unpacks[1],
    )


def explain_not_expected(node: NodeTrace, text: str) -> Cause | None:
    """Say that backward does not expect a None."""
    missing = [f"output {i}" for i, grad in enumerate(node.arrived[-1]) if grad is None]
    if not missing or "NoneType" not in text:
        return None
    return (
        f"backward does not expect None, which arrives for {', '.join(missing)}",
        "test each gradient for None, or ctx.set_materialize_grads(True)",
        place_of_error_of(node),
    )


def place_of_error_of(node: NodeTrace) -> SourcePlace | None:
    """Return where a node's backward raised."""
    error = node.errors[-1]
    return None if error is None else place_of_error(error)


def node_place(node: NodeTrace) -> SourcePlace | None:
    """Return where a Function's forward begins."""
    code = getattr(node.function.forward, "__code__", None)
    return code and SourcePlace.at(code.co_filename, code.co_firstlineno, code.co_name)


def explain_in_place(nodes: list[NodeTrace]) -> Cause:
    """Say that a saved tensor was changed before backward ran."""
    lines = [told.place for n in nodes for told in n.told if told.method == "save_for_backward"]
    return (
        "forward changes a tensor in place after saving it, so backward cannot have it",
        "save the tensor after the change, or a clone",
        lines[-1] if lines else None,
    )


def explain_list(call: Call) -> Cause | None:
    """Say which argument is a list, whose gradient is a list as well."""
    signature = call.target.signature
    names = list(signature.parameters) if signature else []
    arguments: list[tuple[str, Any]] = [
        *zip(names, call.arguments, strict=False),
        *call.keywords.items(),
    ]
    lists = [name for name, own in arguments if isinstance(own, list | tuple)]
    if not lists:
        return None
    named = " and ".join(lists)
    return (
        f"backward does not return a list for the list argument {named}",
        f"return a list for {named}: [gradient of {lists[0]}[0], gradient of {lists[0]}[1], ...]",
        None,
    )


def explain_miscounted(call: Call, node: NodeTrace) -> Cause | None:
    """Say which arguments have no gradient, or have one that cannot have one."""
    names, gave = argument_names(node), list(node.gave[-1])
    line, who = backward_text(node).returns(), name_of(call, node)
    count = len(node.arguments)
    if extra := extra_arguments(node):  # PyTorch adds arguments, and a None for each
        names, count, gave = names[:-extra], count - extra, gave[:-extra]
    everything = f"return one for each argument: {', '.join(names)} (None where there is none)"
    if len(gave) < count:
        left = ", ".join(names[len(gave) :])
        return (
            f"too few gradients: backward of {who} returns {len(gave)} for {count} arguments; "
            f"{left} is left without one",
            everything,
            line,
        )
    if any(one is not None for one in gave[count:]):
        return (
            f"too many gradients: backward of {who} returns {len(gave)} for {count} arguments "
            f"({', '.join(names)})",
            everything,
            line,
        )
    for name, argument, one in zip(names, node.arguments, gave, strict=False):
        if one is not None and not isinstance(argument, Tensor):
            return (
                f"backward returns a gradient for {name}, which is not a tensor but "
                f"{article(argument)}",
                f"return None in the place of {name}; or the gradients are in another order than "
                f"the arguments {', '.join(names)}",
                line,
            )
        if one is not None and not isinstance(one, Tensor):
            return (
                f"backward returns {article(one)} as the gradient of {name}, not a tensor",
                f"return a tensor of {name}'s shape",
                line,
            )
    return None


def article(value: object) -> str:
    """Return "a float", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
