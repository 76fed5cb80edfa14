"""The tensors that a node keeps for its backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node as GradFn

from pullback.bind import runtime
from pullback.graphs.data import Saved
from pullback.graphs.title import kind_of

RAW = "_raw_saved_"


class KnownMemory:
    """Which memory is known by a name, and how much other memory was found."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.seen: set[int] = set()
        self.held = 0

    def know(self, tensor: Tensor, name: str) -> None:
        """Give a tensor's memory a name, unless it has one."""
        if storage := storage_of(tensor):
            self.names.setdefault(storage, name)

    def saved(self, name: str, tensor: Tensor) -> Saved:
        """Return a saved tensor as data, and count it if it is new."""
        storage = storage_of(tensor)
        if storage not in self.names and storage not in self.seen:
            self.held += tensor.untyped_storage().nbytes() if storage else bytes_of(tensor)
            self.seen.add(storage or -1)
        return Saved(
            name=name,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            bytes=bytes_of(tensor),
            same_as=self.names.get(storage),
        )


def bytes_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def storage_of(tensor: Tensor) -> int:
    """Return the address of a tensor's memory, 0 where it has none of its own to compare."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse, or a subclass without storage
        return 0


def saved_by(node: GradFn, memory: KnownMemory) -> Iterator[Saved]:
    """Yield what a node keeps, in its own order."""
    match kind_of(node):
        case "pullback" if not isinstance(node, BackwardCFunction):
            yield from saved_by_pullback(node, memory)
        case "pullback" | "function":
            yield from saved_by_function(node, memory)
        case _:
            yield from saved_by_pytorch(node, memory)


def saved_by_pullback(node: GradFn, memory: KnownMemory) -> Iterator[Saved]:
    """Yield what the runtime's node keeps, by the line's names."""
    try:
        tensors = runtime.load().saved(node)
    except RuntimeError:  # as PyTorch's own nodes raise once backward has released the tensors
        yield Saved(name="its tensors", state="freed")
        return
    for name, tensor in tensors or []:
        yield memory.saved(name, tensor)


def saved_by_pytorch(node: GradFn, memory: KnownMemory) -> Iterator[Saved]:
    """Yield what a built-in node keeps; its `_raw_saved_*` are the tensors among `_saved_*`."""
    for attribute in dir(node):
        if attribute.startswith(RAW):
            name = attribute.removeprefix(RAW)
            yield from unpack_attribute(node, name, f"_saved_{name}", memory)


def saved_by_function(node: GradFn, memory: KnownMemory) -> Iterator[Saved]:
    """Yield what an autograd.Function keeps: `saved_tensors`, and tensors set on `ctx`."""
    assert isinstance(node, BackwardCFunction)
    yield from unpack_attribute(node, "tensors", "saved_tensors", memory)
    for name, value in vars(node).items():
        if isinstance(value, Tensor):
            yield memory.saved(f"ctx.{name}", value)


def unpack_attribute(node: Any, name: str, attribute: str, memory: KnownMemory) -> Iterator[Saved]:  # noqa: ANN401
    """Yield one attribute's tensors; saved-tensor hooks are not called: they may read a disk."""
    shown = attribute if attribute == "saved_tensors" else name
    try:
        raw = getattr(node, f"{RAW}{name}")
        several = isinstance(raw, tuple | list)
        if any(is_packed(each) for each in (raw if several else [raw])):
            yield Saved(name=shown, state="packed")
            return
        values = getattr(node, attribute)
    except RuntimeError:
        yield Saved(name=shown, state="freed")
        return
    for index, value in enumerate(values if several else [values]):
        if isinstance(value, Tensor):
            yield memory.saved(f"{shown}[{index}]" if several else shown, value)


def is_packed(raw: object) -> bool:
    """Tell whether a hook keeps the tensor in place of autograd.

    Reads only `unpack_hook`: reading `data` without a hook crashes PyTorch 2.13.
    """
    return getattr(raw, "unpack_hook", None) is not None
