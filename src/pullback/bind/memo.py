"""A bounded cache of what is worked out once for each kind of call, and its keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(dict[Key, Value]):
    """A dictionary of bounded size, which is emptied when it is full.

    Reading it costs no more than any dictionary; only a new entry checks the size.

    Args:
        most: the largest number of entries.
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
        """Return an entry, made if there is none; another thread may empty the memo meanwhile."""
        value = self.get(key)
        if value is None:
            value = self[key] = make()
        return value


def key_of_argument(value: object) -> object:
    """Return all of an argument that checks, shapes and the choice of kernels may depend on.

    For a tensor that is everything but its values and strides; a number is its own key.
    """
    if isinstance(value, Tensor):
        return (value.shape, value.dtype, value.device, value.layout)
    return tuple(value) if isinstance(value, list) else value
