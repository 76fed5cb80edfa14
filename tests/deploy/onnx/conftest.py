"""PyTorch's exporter reads its own translations anew in each export; the tests read them once."""

from __future__ import annotations

import copy
import functools
from collections.abc import Generator
from typing import Any

import pytest
from torch.onnx._internal.exporter import _registration

from tests.one_thread import one_thread

__all__ = ["one_thread", "translations"]


@pytest.fixture(scope="session", autouse=True)
def translations() -> Generator[None]:
    kind: Any = _registration.ONNXRegistry
    read = functools.cache(kind.from_torchlib)

    def from_torchlib(opset_version: int) -> Any:
        registry = copy.copy(read(opset_version))
        registry.functions = {name: list(each) for name, each in registry.functions.items()}
        return registry

    patch = pytest.MonkeyPatch()
    patch.setattr(kind, "from_torchlib", staticmethod(from_torchlib))
    yield
    patch.undo()
