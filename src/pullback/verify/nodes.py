"""The Functions in a trace that are judged with a target, and the names of their parts."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import torch
from torch import Tensor
from torch.utils import _pytree

from pullback.verify.call import Call, names_of
from pullback.verify.probe import Effect, NotApplicable
from pullback.verify.source import Text
from pullback.verify.target import values_in_closure
from pullback.verify.trace import NodeTrace, Trace, trace

EVERYTHING: frozenset[Effect] = frozenset(get_args(Effect))
# The effects of gradients that are wrong in the ordinary call.
WRONG: frozenset[Effect] = frozenset(
    {"numbers", "values", "second", "tangent", "transform", "autocast", "checkpoint", "traced"}
)
# The effects of gradients that are wrong in every use.
SPOILT: frozenset[Effect] = EVERYTHING - {"forward", "random", "memory"}


def nodes_of_target(call: Call, found: Trace) -> list[NodeTrace]:
    """Return the nodes that are judged with this target.

    Functions inside a module or a callable are parts, which are checked before it and by
    themselves; operators of `torch.library` in it are not.
    """
    nodes = [node for node in found.nodes if node.ctx is not None]
    if call.target.function is not None:
        return [node for node in nodes if node.function is call.target.function]
    if call.target.kind in ("module", "callable"):
        return [node for node in nodes if is_generated(node)]
    return nodes


def require_own(call: Call) -> None:
    """Stop unless the author wrote a derivative that is not checked by itself as a part.

    Raises:
        NotApplicable: all derivatives are PyTorch's, or those of parts.
    """
    if call.target.kind in ("module", "callable") and not nodes_of_target(call, trace(call)):
        raise NotApplicable("no derivative of its own")


def is_generated(node: NodeTrace) -> bool:
    """Tell whether PyTorch made this Function for an operator of `torch.library`."""
    return node.function.__name__.startswith("GeneratedBackwardFor_")


def overload_of(node: NodeTrace) -> torch._ops.OpOverload | None:
    """Return the operator that PyTorch made this Function for."""
    if not is_generated(node):
        return None
    inside = [value for value in values_in_closure(node.function.forward) if is_overload(value)]
    return inside[0] if inside else None  # type: ignore[return-value]


def is_overload(value: object) -> bool:
    """Tell whether it is an operator."""
    return isinstance(value, torch._ops.OpOverload)


def name_of(call: Call, node: NodeTrace) -> str:
    """Return a node's name to print: "Square", "demo::mul"."""
    overload = overload_of(node)
    if overload is not None:
        return overload._schema.name
    return call.target.name if is_generated(node) else node.function.__name__


def argument_names(node: NodeTrace) -> list[str]:
    """Return a name for each of the arguments that `apply` was given."""
    overload = overload_of(node)
    count = len(node.arguments)
    if overload is not None:
        known = [argument.name for argument in overload._schema.arguments]
        known = name_list_items(known, node.arguments)
        return [known[i] if i < len(known) else f"input {i}" for i in range(count)]
    parts = node.parts
    if "forward" not in parts or is_generated(node):
        return [f"input {i}" for i in range(count)]
    found = list(inspect.signature(parts["forward"]).parameters.values())
    own = found if "setup" in parts else found[1:]
    return names_of(inspect.Signature(own), count)


def name_list_items(names: list[str], arguments: tuple[Any, ...]) -> list[str]:
    """Return names of the tensors in lists, which PyTorch flattens: "xs" is "xs[0]", "xs[1]"."""
    spec = getattr(arguments[-1], "input_spec", None)
    if spec is None:
        return names
    places: Any = _pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    found: list[str] = []
    for name, own in zip(names, places, strict=False):
        several = isinstance(own, list | tuple)
        found += [f"{name}[{i}]" for i in range(len(own))] if several else [name]
    return found


def extra_arguments(node: NodeTrace) -> int:
    """Return how many arguments PyTorch adds at the end, whose gradients are None."""
    if not is_generated(node):
        return 0
    return 2 if hasattr(node.arguments[-1], "input_spec") else 1


def input_name(node: NodeTrace, tensor: Tensor) -> str | None:
    """Return the name of an input that is this tensor."""
    for name, argument in zip(argument_names(node), node.arguments, strict=True):
        if argument is tensor:
            return name
    return None


def describe_saved(node: NodeTrace, what: str) -> str:
    """Describe a saved tensor by the author's names: "input 0" is "its input x"."""
    kind, _, rest = what.partition(" ")
    if kind != "input":
        return "an intermediate result" if kind == "intermediate" else f"its {what}"
    index, _, detached = rest.partition(" ")
    name = input_name(node, node.inputs[int(index)])
    return f"its input {name or index}{' (detached)' if detached else ''}"


def leaves_in_containers(call: Call) -> dict[int, tuple[str, object]]:
    """Return the leaves in a list, dict or other container, with its name and itself."""
    names = names_of(call.target.signature, len(call.arguments))
    found: dict[int, tuple[str, object]] = {}
    index = 0
    for name, own in [*zip(names, call.arguments, strict=True), *call.keywords.items()]:
        for leaf in _pytree.tree_leaves(own):
            if isinstance(leaf, Tensor):
                if leaf is not own:
                    found[index] = (name, own)
                index += 1
    return found


def backward_text(node: NodeTrace) -> Text:
    """Return the text of a node's backward."""
    return Text(node.parts.get("backward", node.function.backward))


def forward_text(node: NodeTrace) -> Text:
    """Return the text where a node's ctx is written: setup_context, or else forward."""
    parts = node.parts
    return Text(parts.get("setup", parts.get("forward", node.function.forward)))
