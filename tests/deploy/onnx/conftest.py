"""PyTorch's exporter reads its own translations anew in each export; the tests read them once."""

from __future__ import annotations

import copy
import functools
from collections.abc import Generator
from typing import Any

import pytest
import torch
from torch.onnx._internal.exporter import _registration


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


@pytest.fixture(autouse=True)
def one_thread() -> Generator[None]:
    """Small models run faster in one thread, and tests beside these want the other core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
