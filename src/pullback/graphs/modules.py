"""Which call of a module made a node: autograd numbers nodes in the order it makes them in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.autograd.graph import Node as GradFn
from torch.nn.modules import module as hooks

from pullback.graphs.data import Module


@dataclass
class ModuleCalls:
    """The calls of modules during one forward call: nodes with the numbers in between are theirs.

    Attributes:
        names: of modules, by identity.
        modules: a row for each call.
        starts: the number that the next node had when a call began.
        ends: and when it ended.
    """

    names: Mapping[int, str]
    modules: list[Module] = field(default_factory=list[Module])
    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    running: list[int] = field(default_factory=list[int])

    @contextmanager
    def recorded(self) -> Generator[None]:
        """Note the calls in a block."""
        before = hooks.register_module_forward_pre_hook(self.begin)
        after = hooks.register_module_forward_hook(self.end, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def begin(self, module: nn.Module, _inputs: object) -> None:
        """Note that a call begins."""
        kind = type(module).__name__
        parent = self.running[-1] if self.running else None
        self.running.append(len(self.modules))
        name = self.names.get(id(module)) or kind
        self.modules.append(Module(name=name, type=kind, parent=parent))
        self.starts.append(next_number())
        self.ends.append(0)

    def end(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        """Note that the innermost call ends."""
        self.ends[self.running.pop()] = next_number()

    def module_of(self, node: GradFn) -> int | None:
        """Return the innermost call that made a node; None if none did."""
        number = node._sequence_nr()
        found: int | None = bisect_right(self.starts, number) - 1
        if found == -1:
            return None
        while found is not None and number >= self.ends[found]:
            found = self.modules[found].parent
        return found


def next_number() -> int:
    """Return the number that this thread's next node will have."""
    return torch._C._autograd._get_sequence_nr()  # pyright: ignore  (PyTorch's stubs lack it)
