"""Calls of one operator that are known: the runtime makes them without a line of Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from pullback.bind import kernel, runtime
from pullback.bind.loops.launches import Launches
from pullback.bind.math.execute import find_counts, key_of
from pullback.bind.memo import Memo
from pullback.bind.runtime import NativeCall
from pullback.define.operator import Definition


class State(Enum):
    """What is known of calls that are no shortcut."""

    once = "one was made, for which all was worked out that later ones need"
    refused = "they do what the runtime does not"


class Shortcuts:
    """The kernel of one operator; the runtime asks for what it does not know.

    The second call of its kind is noted, step by step, and the runtime makes all later ones.

    Attributes:
        definition: the operator.
        execute: computes a call.
        native: the runtime's part of it.
        known: what is known of each kind of call.
    """

    def __init__(self, definition: Definition, execute: Callable[..., object]) -> None:
        self.definition = definition
        self.execute = execute
        self.counts = find_counts(definition)
        self.native = runtime.load().Shortcuts(self.counts)
        self.known: Memo[object, State | NativeCall] = Memo()

    def __call__(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the outputs, None for those that are not wanted."""
        given = kernel.fill_defaults(self.definition, arguments, output_mask)
        tensors = [value for value in given if isinstance(value, Tensor)]
        if not all(type(t) in (Tensor, Parameter) and not t.is_neg() for t in tensors):
            return self.run(given)
        if {tensor.device.type for tensor in tensors} not in ({"cpu"}, {"cuda"}, set()):
            return self.run(given)
        # Kernels of a GPU may read 16 bytes at a time.
        lies = [(t.stride(), t.is_cuda and t.data_ptr() % 16 > 0) for t in tensors]
        key = (key_of(given, self.counts), *lies)
        known = self.known.get(key)
        if known is State.once:
            return self.note(key, given)
        if known is None:
            self.known[key] = State.once
        elif known is not State.refused:
            self.native.add(given, known)  # the runtime has forgotten it
        return self.run(given)

    def run(self, given: tuple[object, ...]) -> object:
        """Return the outputs of a call in Python."""
        if not self.definition.masked:
            return self.execute(*given)
        return self.execute(*given[:-1], output_mask=given[-1])

    def note(self, key: object, given: tuple[object, ...]) -> object:
        """Return the outputs of a call, and let the runtime make all later ones if it can."""
        names = [parameter.name for parameter in self.definition.line.parameters]
        outputs, known = note_call(given, names, self.run)
        self.known[key] = known or State.refused
        if known:
            self.native.add(given, known)
        return outputs

    def forget(self) -> None:
        """Forget all calls."""
        self.known.clear()
        self.native.clear()


def note_call(
    given: tuple[object, ...], names: Sequence[str], run: Callable[[tuple[object, ...]], object]
) -> tuple[object, NativeCall | None]:
    """Return the outputs of a call, and all calls like it; None if they do something else, too."""
    # The same tensor may be given twice, and be two in another call of this kind.
    with torch.no_grad():
        given = tuple(v.detach() if isinstance(v, Tensor) else v for v in given)
    with Launches(given, names) as launches:
        outputs = run(given)
    values: list[Any] = [*outputs] if isinstance(outputs, list | tuple) else [outputs]
    return outputs, launches.call(values) if launches.is_complete else None


def call_again(given: tuple[object, ...], known: NativeCall) -> Callable[[], object] | None:
    """Return what has the runtime make a call once more; None if it does not make such calls."""
    native = runtime.load().Shortcuts(())
    native.add(given, known)
    return (lambda: native.run(given)) if native.run(given) else None
