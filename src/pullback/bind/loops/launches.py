"""What a call does, noted step by step, so that the runtime can make calls like it alone.

That is kernels, and the few operations that come between them: tensors are allocated, looked at in
another way, copied and added up, also cumulatively, and the entries of a scatter are sorted. A call
that does anything else is not noted, nor is one whose data decide what it does: reading them is one
more of PyTorch's operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.weak import WeakTensorKeyDictionary

from pullback.bind.levels import EagerMode
from pullback.bind.native import SCALAR_TYPES
from pullback.bind.runtime import (
    NativeCall,
    NativeLaunch,
    NativeOperation,
    NativeStep,
    NativeView,
    NativeWritten,
)

ATEN = torch.ops.aten
MAKES = (ATEN.empty.memory_format, ATEN.empty_strided.default)
# `Step::Operation` of python/shortcuts.cpp.
COPY, SUM, CUMSUM, CUMPROD, FLIP, PAD, SORT = range(7)
OPERATIONS = {
    ATEN.clone.default: COPY,
    ATEN._to_copy.default: COPY,
    ATEN.sum.dim_IntList: SUM,
    ATEN.cumsum.default: CUMSUM,
    ATEN.cumprod.default: CUMPROD,
    ATEN.flip.default: FLIP,
    ATEN.constant_pad_nd.default: PAD,
}


@dataclass(frozen=True)
class _Place:
    """Which tensor one looks at, an argument or one that was made, and where that begins."""

    number: int
    begin: int


class Launches(EagerMode):
    """The steps of one call, while it runs.

    Args:
        given: its arguments; no tensor of them is twice the same object.
        names: of the arguments.
    """

    def __init__(self, given: Sequence[object], names: Sequence[str]) -> None:
        super().__init__()
        self.is_complete = True
        self.given = given
        tensors = (value for value in given if isinstance(value, Tensor))
        self.device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        self.names = {name: place for place, name in enumerate(names)}
        self.places = WeakTensorKeyDictionary()
        for k, value in enumerate(given):
            if isinstance(value, Tensor):
                self.places[value] = _Place(k, int(value.storage_offset()))
        self.steps: list[NativeStep] = []
        self.written: list[NativeWritten] = []  # not yet part of a step
        self.shapes: list[tuple[int, ...]] = []  # of all that was made

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Run one of PyTorch's operations, and note it; or those that it consists of."""
        with self:
            result = func.decompose(*args, **(kwargs or {}))
        if result is not NotImplemented:
            return result
        result = func(*args, **(kwargs or {}))
        if self.is_complete:
            self.is_complete = self.note(func, args, kwargs or {}, result)
        return result

    def note(
        self,
        func: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: object,
    ) -> bool:
        """Note one of PyTorch's operations; return False if it is none of those that are."""
        if not isinstance(result, Tensor) or result.device != self.device:
            return False
        if func in MAKES:
            self.written.append((tuple(result.shape), _number_of(result)))
            return self.make(result)
        place = self.places.get(args[0]) if args and isinstance(args[0], Tensor) else None
        alias = func._schema.returns[0].alias_info
        if place is None or (alias and alias.is_write):
            return False
        if alias:
            self.places[result] = place
            return True
        return self.operate(func, args, kwargs, result)

    def operate(
        self,
        func: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Tensor,
    ) -> bool:
        """Note an operation that makes a tensor; return False if the runtime does not know it."""
        kind = OPERATIONS.get(func)
        if kind is None or len(args) > 2 or "keepdim" in kwargs:
            return False
        given = args[1] if len(args) > 1 else ()
        along = [given] if isinstance(given, int) else [*(given or ())]
        if bool(along) == (kind == COPY):
            return False
        dimensions = tuple(d if kind == PAD else d % args[0].dim() for d in along)
        self.step(operation=(kind, self.view(args[0]), dimensions, _number_of(result)))
        return self.make(result)

    def make(self, result: Tensor) -> bool:
        """Number a tensor; return whether it lies as the runtime allocates it."""
        self.places[result] = _Place(len(self.given) + len(self.shapes), 0)
        self.shapes.append(tuple(result.shape))
        return result.is_contiguous()

    def step(
        self, launch: NativeLaunch | None = None, operation: NativeOperation | None = None
    ) -> None:
        """Add a step, before which the tensors that were made since the last one are allocated."""
        self.steps.append((tuple(self.written), (), launch, operation))
        self.written = []

    def view(self, tensor: Tensor) -> NativeView:
        """Return a tensor, or a part of one, as the runtime finds it."""
        place = self.places[tensor]
        made = place.number - len(self.given)
        if made >= 0 and self.shapes[made] == tuple(tensor.shape) and tensor.is_contiguous():
            return place.number, None
        offset = tensor.storage_offset() - place.begin
        return place.number, (tuple(tensor.shape), tuple(tensor.stride()), offset)

    def launch(  # noqa: PLR0913, PLR0917  (all that a kernel is given)
        self,
        address: int,
        tensors: Sequence[Tensor],
        sizes: tuple[int, ...],
        scalars: Mapping[str, float],
        count: int,
        share: int,
    ) -> None:
        """Note that a kernel ran."""
        places = [place for tensor in tensors if (place := self.places.get(tensor))]
        if len(places) < len(tensors) or not all(map(self.is_given, scalars, scalars.values())):
            self.is_complete = False
        if not self.is_complete:
            return
        bytes_of = [tensor.element_size() for tensor in tensors]
        begins = zip(tensors, places, bytes_of, strict=True)
        strides = zip(tensors, bytes_of, strict=True)
        self.step(
            launch=(
                address,
                tuple(place.number for place in places),
                tuple((t.storage_offset() - place.begin) * size for t, place, size in begins),
                tuple(step * size for t, size in strides for step in t.stride()),
                sizes,
                tuple(self.names[name] for name in scalars),
                count,
                share,
            )
        )

    def sort(self, places: Tensor, dimensions: tuple[int, ...], result: Tensor) -> None:
        """Note that the runtime has sorted entries by their places."""
        self.is_complete = self.is_complete and places in self.places
        if self.is_complete:
            self.step(operation=(SORT, self.view(places), dimensions, _number_of(result)))
            self.make(result)

    def is_given(self, name: str, value: float) -> bool:
        """Return whether a scalar of a kernel is that argument of the call."""
        return name in self.names and self.given[self.names[name]] == value

    def call(self, outputs: Sequence[Tensor | None]) -> NativeCall | None:
        """Return the call, which has these outputs; None if it did something else, too."""
        found = [None if o is None else self.places.get(o) for o in outputs]
        numbers = [place.number for place in found if place]
        if not self.is_complete or len(numbers) < sum(o is not None for o in outputs):
            return None
        # An output has memory of its own.
        if len({*numbers}) < len(numbers) or min(numbers, default=0) < len(self.given):
            return None
        if self.written:
            self.step()
        for output in outputs:
            if output is not None and output.is_contiguous():
                self.shape_like(output)
        views = [None if output is None else self.view(output) for output in outputs]
        return tuple(_drop(self.steps, len(self.given), {*numbers})), tuple(views)

    def shape_like(self, output: Tensor) -> None:
        """Have a tensor allocated in the shape of an output that is all of it."""
        made = self.places[output].number - len(self.given)
        first = 0
        for k, (written, last, launch, operation) in enumerate(self.steps):
            place = made - first
            first += len(written) + (operation is not None)
            many = math.prod(self.shapes[made])
            if 0 <= place < len(written) and many == output.numel():
                own = list(written)
                own[place] = (tuple(output.shape), own[place][1])
                self.shapes[made] = tuple(output.shape)
                self.steps[k] = (tuple(own), last, launch, operation)


def current() -> Launches | None:
    """Return what notes the steps of the call that runs in this thread, if anything does."""
    mode = _get_current_dispatch_mode()
    return mode if isinstance(mode, Launches) else None


def refuse() -> None:
    """Have the runtime make no calls like the one that runs in this thread."""
    if noting := current():
        noting.is_complete = False


def _number_of(tensor: Tensor) -> int:
    return SCALAR_TYPES[str(tensor.dtype).removeprefix("torch.")]


def _drop(steps: Sequence[NativeStep], first: int, kept: Set[int]) -> Iterator[NativeStep]:
    """Yield the steps, each with the tensors that none after it reads and that are no outputs.

    Args:
        steps: in order.
        first: the number of the first tensor that is made.
        kept: the numbers of the outputs.
    """
    ends: dict[int, int] = {}
    number = first
    for k, (written, _, launch, operation) in enumerate(steps):
        more = len(written) + (operation is not None)
        ends |= dict.fromkeys(range(number, number + more), k)
        number += more
        read = [*(launch[1] if launch else ()), *([operation[1][0]] if operation else ())]
        ends |= {place: k for place in read if place >= first}
    for k, (written, _, launch, operation) in enumerate(steps):
        last = tuple(place for place, end in ends.items() if end == k and place not in kept)
        yield written, last, launch, operation
