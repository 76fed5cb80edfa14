"""Tensors with a gradient that a forward reads although they are not among its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from pullback.verify.call import Call, Run, can_require_grad, is_same
from pullback.verify.source import SourcePlace, authors_place
from pullback.verify.tracing.memory import tensors_held


@dataclass(frozen=True)
class Read:
    """A tensor that was read: its name, if that is known, and where."""

    tensor: Tensor
    name: str | None
    place: SourcePlace | None


class ReadingMode(TorchFunctionMode):
    """Records the tensors that require a gradient and come from outside a call."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()
        self.known: list[Tensor] = list(known)
        self.reads: list[Read] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Record the arguments of one of PyTorch's functions, then call it."""
        own = dict(kwargs or {})
        for tensor in _pytree.tree_leaves((args, own)):
            if isinstance(tensor, Tensor) and not self.is_known(tensor) and wants_gradient(tensor):
                self.known.append(tensor)
                self.reads.append(Read(tensor, None, authors_place()))
        returned = func(*args, **own)
        # Results may require a gradient if forward switches recording on.
        self.known += [made for made in _pytree.tree_leaves(returned) if isinstance(made, Tensor)]
        return returned

    def is_known(self, tensor: Tensor) -> bool:
        """Tell whether a tensor is an argument, or was made from one."""
        return any(tensor is own for own in self.known)


def wants_gradient(tensor: Tensor) -> bool:
    """Tell whether a tensor requires a gradient, without recording this access."""
    with torch._C.DisableTorchFunction():
        return tensor.requires_grad


def find_captured(call: Call) -> list[Read]:
    """Return the tensors that forward reads, that require a gradient, and that get none.

    Each is shown to matter: forward gives something else if the tensor is changed, and no gradient
    arrives at it in an ordinary backward, not even from one that backward runs itself.
    """
    run = call.forward()
    found = [read for read in find_candidates(call) if matters(call, run, read.tensor)]
    return [read for read in found if not arrives(call, read.tensor)]


def find_candidates(call: Call) -> list[Read]:
    """Return candidates: tensors that PyTorch's functions get, or that the author's hold."""
    names = dict(tensors_held_by(call))
    reading = ReadingMode([leaf.value for leaf in call.leaves])

    def noted(value: Tensor) -> Tensor:
        copy = value.clone()
        reading.known.append(copy)
        return copy

    with suppress(Exception):
        leaves_and_copies(call, reading, noted)
    found = list(reading.reads)
    known = [id(read.tensor) for read in found]
    found += [Read(t, n, None) for t, n in names.items() if id(t) not in known]
    return [Read(read.tensor, read.name or names.get(read.tensor), read.place) for read in found]


def leaves_and_copies(call: Call, reading: ReadingMode, noted: Callable[[Tensor], Tensor]) -> None:
    """Run forward; the copies that it is given count as known."""
    leaves = [leaf.value.detach().clone().requires_grad_(leaf.wanted) for leaf in call.leaves]
    with torch.enable_grad():
        given = [noted(leaf) for leaf in leaves]
        reading.known += leaves
        with reading:
            call.on(given)


def tensors_held_by(call: Call) -> Iterator[tuple[Tensor, str]]:
    """Yield the tensors with a gradient that the author's functions can reach, with their names."""
    passed = [leaf for leaf in _pytree.tree_leaves(call.arguments) if isinstance(leaf, Tensor)]
    for path, value in reachable(call):
        for name, tensor in tensors_held(value, path):
            if wants_gradient(tensor) and not any(tensor is own for own in passed):
                yield tensor, name


def reachable(call: Call) -> Iterator[tuple[str, object]]:
    """Yield closures, globals, defaults, attributes of the class and arguments that are objects."""
    parts = call.target.parts
    for part in ("forward", "setup"):
        if part not in parts:
            continue
        function = inspect.unwrap(parts[part])
        with suppress(TypeError, ValueError):
            reached = inspect.getclosurevars(function)
            yield from reached.nonlocals.items()
            yield from ((n, v) for n, v in reached.globals.items() if not inspect.ismodule(v))
        for name, parameter in inspect.signature(function).parameters.items():
            yield name, parameter.default
    if call.target.function is not None:
        owner = call.target.function.__name__
        for name, value in vars(call.target.function).items():
            if not name.startswith("__"):
                yield f"{owner}.{name}", value
    signature = call.target.signature
    names = list(signature.parameters) if signature else []
    for name, value in [*zip(names, call.arguments, strict=False), *call.keywords.items()]:
        if not isinstance(value, Tensor | list | tuple | dict):
            yield name, value


def matters(call: Call, run: Run, tensor: Tensor) -> bool:
    """Tell whether forward gives something else if a tensor is changed."""
    if not can_require_grad(tensor):
        return False
    values = [leaf.value for leaf in call.leaves]
    before = call.values(values)
    kept = tensor.detach().clone()
    try:
        with torch.no_grad():
            tensor.data.add_(1.0 + kept.abs())
        after = call.values(values)
    except Exception:
        return False
    finally:
        tensor.data.copy_(kept)
    again = call.values(values)
    differs = len(before) != len(after) or not all(map(is_same, before, after))
    return differs and all(map(is_same, before, again))


def arrives(call: Call, tensor: Tensor) -> bool:
    """Tell whether an ordinary backward brings a gradient to a tensor."""
    seen: list[bool] = []
    kept = tensor.grad if tensor.is_leaf else None
    handle = tensor.register_hook(lambda grad: seen.append(True))
    try:
        run = call.forward()
        pairs = [
            (output, grad)
            for output, grad in zip(run.outputs, run.random_grads(), strict=True)
            if grad is not None
        ]
        if pairs:
            torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs], retain_graph=True)
    except Exception:
        return bool(seen)
    finally:
        handle.remove()
        if tensor.is_leaf:
            tensor.grad = kept
    return bool(seen)
