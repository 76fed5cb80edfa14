"""What is worked out once for each kind of call: its key, and where the answer is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(dict[Key, Value]):
    """A dictionary that does not grow for ever: one that is full begins anew.

    Calls read it as any dictionary, at its price; only a new entry looks at how many there are.

    Args:
        most: how many entries it has at the most.
    """

    def __init__(self, most: int = 256) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        """Add an entry."""
        if len(self) >= self.most and key not in self:
            self.clear()
        super().__setitem__(key, value)

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return an entry, made if there is none; another thread may empty the rest meanwhile."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
        return found


def key_of_argument(value: object) -> object:
    """Return all of an argument that checks, shapes and the choice of kernels may depend on.

    Of a tensor that is everything but its values and strides; a number is itself.
    """
    if isinstance(value, Tensor):
        return (value.shape, value.dtype, value.device, value.layout)
    return tuple(value) if isinstance(value, list) else value
