"""The tensors that a Function keeps for its backward unknown to autograd, and whether they matter.

A tensor that is neither input nor output is a constant to a second backward. To test whether that
matters, it is replaced by one that requires a gradient, and backward is differentiated.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from pullback.verify.call import Run, is_same
from pullback.verify.numbers.second import Second, draw_grads, move_along, weighted_sum
from pullback.verify.source import SourcePlace, Text, last_name
from pullback.verify.trace import FunctionBase, NodeTrace, describe_tensor, watch_calls


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A tensor that backward reads, and that autograd cannot follow to the inputs.

    Attributes:
        name: in the author's words: "e", "ctx.h".
        what: "intermediate", "input 0 detached", "output 0 detached".
        place: where it is saved.
        inner: whether it is part of a graph of its own.
    """

    name: str
    what: str
    place: SourcePlace | None
    inner: bool


@dataclass(frozen=True, kw_only=True)
class KeptSlot:
    """Where a tensor is kept: saved under a number, or an attribute of ctx with a path in it."""

    node: int
    saved: int | None
    attribute: str | None = None
    path: int = 0


def slots(nodes: Sequence[NodeTrace]) -> Iterator[tuple[KeptSlot, Tensor]]:
    """Yield every tensor that the nodes keep."""
    for index, node in enumerate(nodes):
        if node.ctx is None:
            continue
        try:
            saved: tuple[Any, ...] = FunctionBase.saved_tensors.__get__(node.ctx)
        except RuntimeError:  # changed in place since
            saved = ()
        for number, tensor in enumerate(saved):
            if isinstance(tensor, Tensor):
                yield KeptSlot(node=index, saved=number), tensor
        for name, value in node.attributes.items():
            for path, leaf in enumerate(_pytree.tree_leaves(value)):
                if isinstance(leaf, Tensor):
                    yield KeptSlot(node=index, saved=None, attribute=name, path=path), leaf


def find_constants(found: Second) -> list[Kept]:
    """Return the kept tensors that depend on the inputs but are constants to a second backward."""
    call = found.call
    nodes: list[NodeTrace] = []
    with watch_calls(nodes):
        run = call.forward()
    suspects = [
        (slot, tensor)
        for slot, tensor in slots(nodes)
        if tensor.is_floating_point() or tensor.is_complex()
        if describe_tensor(tensor, nodes[slot.node]) not in known_to_autograd(nodes[slot.node])
    ]
    if not suspects:
        return []
    count = len(call.leaves)
    values = move_along([leaf.value for leaf in call.leaves], found.way[:count], 2.0**-6)
    others: list[NodeTrace] = []
    with watch_calls(others):
        elsewhere = call.with_values(values).forward()
    there = dict(slots(others))
    moving = [
        (slot, tensor)
        for slot, tensor in suspects
        if slot in there and not is_same(tensor.detach(), there[slot].detach())
    ]
    del elsewhere
    read = read_smoothly(run, nodes, moving, found)
    return [describe_kept(slot, tensor, nodes[slot.node]) for slot, tensor in read]


def known_to_autograd(node: NodeTrace) -> set[str]:
    """Return the names of a node's inputs and outputs."""
    return {
        *(f"input {i}" for i in range(len(node.inputs))),
        *(f"output {i}" for i in range(len(node.outputs))),
    }


def read_smoothly(
    run: Run, nodes: Sequence[NodeTrace], suspects: Sequence[tuple[KeptSlot, Tensor]], found: Second
) -> list[tuple[KeptSlot, Tensor]]:
    """Return the suspects on which the gradients depend."""
    own = {slot: tensor.detach().clone().requires_grad_() for slot, tensor in suspects}
    if not own:
        return []
    inner = [(s, tensor) for s, tensor in suspects if is_inner(tensor, nodes[s.node])]
    try:
        with exchange_kept(nodes, own):
            first = run.backward(draw_grads(run), create_graph=True)
    except Exception:  # backward does not take other tensors: an inner graph has its own
        return inner
    losses = [
        weighted_sum(g, found.weights[i])
        for i, g in enumerate(first)
        if g is not None and g.requires_grad and i in found.weights
    ]
    if not losses:
        return inner
    got = torch.autograd.grad(sum(losses), list(own.values()), allow_unused=True)  # type: ignore[arg-type]
    return inner or [
        pair
        for pair, g in zip(suspects, got, strict=True)
        if g is not None and bool((g != 0).any())
    ]


def is_inner(tensor: Tensor, node: NodeTrace) -> bool:
    """Tell whether a tensor is kept with an inner graph, which backward goes through.

    A view of an input says that it requires a gradient, but has no graph.
    """
    text = Text(node.parts["backward"]) if "backward" in node.parts else None
    asks = text is None or not has_source(text) or text.calls("grad", "backward", "vjp") is not None
    return tensor.requires_grad and asks


def has_source(text: Text) -> bool:
    """Tell whether a function's text is known."""
    return bool(getattr(text.tree, "body", ()))


@contextmanager
def exchange_kept(nodes: Sequence[NodeTrace], own: dict[KeptSlot, Tensor]) -> Generator[None]:
    """Let backward find other tensors in place of those that are kept."""
    kinds: set[type] = set()
    before: list[tuple[Any, str, Any]] = []
    saved: dict[int, tuple[Any, ...]] = {}
    for index, node in enumerate(nodes):
        mine = {slot: tensor for slot, tensor in own.items() if slot.node == index}
        if not mine:
            continue
        held = list(FunctionBase.saved_tensors.__get__(node.ctx))
        for slot, tensor in mine.items():
            if slot.saved is not None:
                held[slot.saved] = tensor
        saved[id(node.ctx)] = tuple(held)
        kinds.add(type(node.ctx))
        for name in {slot.attribute for slot in mine if slot.attribute}:
            before.append((node.ctx, name, node.ctx.__dict__[name]))
            setattr(node.ctx, name, replace_tensors(node.ctx.__dict__[name], name, mine))

    def saved_tensors(ctx: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return saved.get(id(ctx)) or FunctionBase.saved_tensors.__get__(ctx)

    for kind in kinds:
        kind.saved_tensors = property(saved_tensors)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for kind in kinds:
            del kind.saved_tensors  # type: ignore[attr-defined]
        for ctx, name, value in before:
            setattr(ctx, name, value)


def replace_tensors(value: object, name: str, own: dict[KeptSlot, Tensor]) -> object:
    """Return an attribute with other tensors in it."""
    leaves, spec = _pytree.tree_flatten(value)
    for slot, tensor in own.items():
        if slot.attribute == name:
            leaves[slot.path] = tensor
    return _pytree.tree_unflatten(leaves, spec)


def describe_kept(slot: KeptSlot, tensor: Tensor, node: NodeTrace) -> Kept:
    """Name what is kept."""
    name, place = f"ctx.{slot.attribute}", None
    writers = [Text(node.parts[part]) for part in ("forward", "setup") if part in node.parts]
    if slot.saved is not None:
        name, place = saved_name(writers, slot.saved)
        told = [t.place for t in node.told if t.method == "save_for_backward"]
        place = place or (told[-1] if told else None)
    else:
        assert slot.attribute is not None
        place = next((p for text in writers if (p := text.assigns(slot.attribute))), None)
    return Kept(
        name=name, what=describe_tensor(tensor, node), place=place, inner=is_inner(tensor, node)
    )


def saved_name(writers: Sequence[Text], number: int) -> tuple[str, SourcePlace | None]:
    """Return the author's name for the saved tensor of a number, and where it is saved."""
    for text in writers:
        calls: list[Any] = [n for n in ast.walk(text.tree) if is_save(n)]
        if len(calls) != 1:
            continue
        given = calls[0].args
        place = text.calls("save_for_backward")
        if number < len(given) and not any(isinstance(a, ast.Starred) for a in given[: number + 1]):
            return ast.unparse(given[number]), place
        return f"saved tensor {number}", place
    return f"saved tensor {number}", None


def is_save(node: ast.AST) -> bool:
    """Tell whether a part of a text is a call of save_for_backward."""
    return isinstance(node, ast.Call) and last_name(node.func) == "save_for_backward"


def find_leaving(text: Text) -> SourcePlace | None:
    """Return the line of a backward that leaves autograd."""
    return text.find(is_leaving)


def is_leaving(node: ast.AST) -> bool:
    """Tell whether a part of a text takes a tensor out of autograd."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in LEAVING
    return isinstance(node, ast.Attribute) and node.attr in ("data", "no_grad")


LEAVING = (
    *("numpy", "item", "tolist", "detach", "detach_", "data_ptr", "no_grad", "inference_mode"),
    *("asarray", "from_numpy", "from_dlpack", "set_grad_enabled", "stop_gradient"),
)
