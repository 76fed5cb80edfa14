"""The `ctx` of a Function that runs inside an operator, and what is left of it after forward.

An operator returns only tensors, so what forward put on `ctx` is taken apart: tensors travel as
tensors, each known by its place, and the rest is kept under a number. A tensor holds that number,
and the rest is freed with that tensor's memory.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import _VF, Tensor


class Context:
    """Stands in for the `ctx` of a `torch.autograd.Function`; its fields have PyTorch's names.

    Only `plain` is ours: in a backward that is differentiated, the `ctx` that PyTorch would give
    it.
    """

    needs_input_grad: Any
    to_save: tuple[Tensor | None, ...]
    saved_for_forward: tuple[Tensor | None, ...]
    saved_tensors: tuple[Tensor | None, ...]
    dirty_tensors: tuple[Tensor, ...]
    non_differentiable: tuple[Tensor, ...]
    materialize_grads: bool
    plain: Context | None

    __slots__ = (
        *("needs_input_grad", "to_save", "saved_for_forward", "saved_tensors"),
        *("dirty_tensors", "non_differentiable", "materialize_grads", "plain", "__dict__"),
    )

    def __init__(self, needs_input_grad: Sequence[Any] = ()) -> None:
        self.needs_input_grad = tuple(needs_input_grad)
        self.to_save = self.saved_for_forward = self.saved_tensors = ()
        self.dirty_tensors = self.non_differentiable = ()
        self.materialize_grads, self.plain = True, None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward; a second call replaces the first."""
        self.to_save = self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for jvp."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs are changed in place."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether a gradient that does not arrive is zeros, or None."""
        self.materialize_grads = value


@dataclass(frozen=True)
class View:
    """How a tensor is a view of an argument's memory: `x.t()`, `x.reshape(-1)`, `x.detach()`."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    base: tuple[int, ...]  # the argument's own strides
    detached: bool  # as `x.detach()` is

    def of(self, argument: Tensor) -> Tensor:
        """Return the view of an argument, which may have other strides by now.

        Where derivatives are recorded, a detached one depends on the argument too: otherwise a
        second derivative would lack that part.
        """
        if argument.stride() != self.base:
            laid_out = argument.new_empty_strided(argument.shape, self.base)
            argument = laid_out.copy_(argument)
        offset = argument.storage_offset() + self.offset
        view = argument.as_strided(self.size, self.stride, offset)
        return view.detach() if self.detached and not torch.is_grad_enabled() else view


def view_of(tensor: Tensor, argument: object) -> View | None:
    """Return how a tensor is a view of an argument's memory, None if it is not one."""
    if not isinstance(argument, Tensor) or address(tensor) != address(argument):
        return None
    offset = int(tensor.storage_offset() - argument.storage_offset())
    last = offset + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    dense = _VF._debug_has_internal_overlap(argument) == 0 and tensor.numel() > 0
    if tensor.dtype != argument.dtype or not dense or offset < 0 or last >= argument.numel():
        return None
    detached = not tensor.requires_grad
    return View(tuple(tensor.shape), tensor.stride(), offset, argument.stride(), detached)


Whose = Literal["argument", "output", "kept"]


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor that `ctx` refers to is found in backward."""

    of: Whose
    index: int
    view: View | None = None


@dataclass(frozen=True, kw_only=True)
class State:
    """What forward left on `ctx`, with a `TensorPlace` for each tensor.

    Attributes:
        saved: of `save_for_backward`.
        forward: of `save_for_forward`.
        attributes: all other attributes, as forward set them.
        non_differentiable: the outputs that have no gradient.
        materialize_grads: whether an absent gradient is zeros.
        held: intermediates that stay here, because the caller has no place for them.
    """

    saved: tuple[TensorPlace | None, ...]
    forward: tuple[TensorPlace | None, ...]
    attributes: Mapping[str, object]
    non_differentiable: tuple[int, ...]
    materialize_grads: bool
    held: tuple[Tensor, ...] = ()

    def uses(self) -> set[tuple[str, int]]:
        """Return the places that backward or jvp will read."""
        found = [p for p in (*self.saved, *self.forward) if p is not None]
        exchange(dict(self.attributes), TensorPlace, found.append)
        return {(place.of, place.index) for place in found}


def take_apart(
    ctx: Context, arguments: Sequence[object], outputs: Sequence[Tensor], *, hold: bool
) -> tuple[State, list[Tensor]]:
    """Return what forward left on `ctx`, and the intermediates if they are not to be held.

    Args:
        ctx: after forward.
        arguments: forward's, tensors of lists one by one.
        outputs: forward's.
        hold: whether the intermediates stay in the state.
    """
    kept: list[Tensor] = []
    memory = {address(tensor) for tensor in (*arguments, *outputs) if isinstance(tensor, Tensor)}

    def place(tensor: Tensor) -> TensorPlace:
        known: dict[Whose, Sequence[object]] = {
            "output": outputs,
            "argument": arguments,
            "kept": kept,
        }
        for of, values in known.items():
            for index, value in enumerate(values):
                if value is tensor:
                    return TensorPlace(of, index)
        views = [(i, view) for i, a in enumerate(arguments) if (view := view_of(tensor, a))]
        if len(views) == 1:  # if two arguments share memory, it could be of either
            return TensorPlace("argument", *views[0])
        kept.append(tensor)
        return TensorPlace("kept", len(kept) - 1)

    state = State(
        saved=tuple(None if t is None else place(t) for t in ctx.to_save),
        forward=tuple(None if t is None else place(t) for t in ctx.saved_for_forward),
        attributes={name: exchange(value, Tensor, place) for name, value in vars(ctx).items()},
        non_differentiable=tuple(
            index for index, o in enumerate(outputs) if any(o is t for t in ctx.non_differentiable)
        ),
        materialize_grads=ctx.materialize_grads,
    )
    # A tensor that shares memory with an input or output may be overwritten by then: copy it.
    kept = [t.detach().clone() if address(t) in memory else t.detach() for t in kept]
    if hold:
        return replace(state, held=tuple(kept)), []
    return state, kept


def put_together(
    state: State,
    arguments: Sequence[object],
    outputs: Sequence[Tensor],
    kept: Sequence[Tensor],
    needs: Sequence[Any],
) -> Context:
    """Return a `ctx` as forward left it, with these tensors in their places."""
    of = {"argument": arguments, "output": outputs, "kept": [*kept, *state.held]}

    def tensor(place: TensorPlace) -> Any:  # noqa: ANN401
        found: Any = of[place.of][place.index]
        return place.view.of(found) if place.view else found

    ctx = Context(needs)
    ctx.save_for_backward(*(None if p is None else tensor(p) for p in state.saved))
    ctx.save_for_forward(*(None if p is None else tensor(p) for p in state.forward))
    ctx.materialize_grads = state.materialize_grads
    vars(ctx).update(
        {name: exchange(value, TensorPlace, tensor) for name, value in state.attributes.items()}
    )
    return ctx


def replace_tensors(ctx: Context, by: Callable[[Tensor], Tensor]) -> Context:
    """Return the `ctx` of a backward with each of its tensors replaced."""
    other = Context(ctx.needs_input_grad)
    other.saved_tensors = tuple(None if t is None else by(t) for t in ctx.saved_tensors)
    other.materialize_grads = ctx.materialize_grads
    vars(other).update({name: exchange(value, Tensor, by) for name, value in vars(ctx).items()})
    return other


def exchange(value: object, kind: type, by: Callable[[Any], object]) -> object:
    """Return a value with everything of a kind replaced, in tuples, lists and dicts too."""
    if isinstance(value, kind):
        return by(value)
    if type(value) in (tuple, list):
        items: Iterable[object] = value  # pyright: ignore[reportAssignmentType]
        return type(value)(exchange(item, kind, by) for item in items)  # pyright: ignore
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = cast("tuple[object, ...]", value)
        return type(fields)(*(exchange(item, kind, by) for item in fields))  # pyright: ignore
    if type(value) is dict:
        return {key: exchange(item, kind, by) for key, item in value.items()}  # pyright: ignore
    return value


def address(tensor: Tensor) -> int:
    """Return where a tensor's memory begins, which is the same for all its views."""
    if tensor.layout is not torch.strided:
        return -id(tensor)  # a sparse tensor has no memory that could be compared
    return tensor.untyped_storage().data_ptr()


class OwnedMemory(np.ndarray[Any, Any]):
    """The memory of a tensor that owns a state: both are freed together."""

    state: State


_owners: weakref.WeakValueDictionary[int, OwnedMemory] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def stow(state: State) -> tuple[Tensor, Tensor]:
    """Keep a state; return its number, 0-dim int64, and the tensor that owns it.

    The number may be copied and stacked; the owner may not.
    """
    number = next(_numbers)
    memory = np.full((1,), number, dtype=np.int64).view(OwnedMemory)
    memory.state = state
    _owners[number] = memory
    return torch.tensor(number), torch.from_numpy(memory)


def find(number: int) -> State | None:
    """Return a state that was kept, None if its owner is gone."""
    memory = _owners.get(number)
    return None if memory is None else memory.state
