"""What PyTorch's exporter works out anew in each export, the tests have it work out once."""

from __future__ import annotations

import copy
import functools
from collections.abc import Generator
from typing import Any

import pytest
import torch._export.utils as exports
from torch.onnx._internal.exporter import _registration


@pytest.fixture(scope="session", autouse=True)
def quick_exports() -> Generator[None]:
    kind: Any = _registration.ONNXRegistry
    read = functools.cache(kind.from_torchlib)

    def from_torchlib(opset_version: int) -> Any:
        registry = copy.copy(read(opset_version))
        registry.functions = {name: list(each) for name, each in registry.functions.items()}
        return registry

    patch = pytest.MonkeyPatch()
    # Its translations, and PyTorch's own operators by name.
    patch.setattr(kind, "from_torchlib", staticmethod(from_torchlib))
    once = functools.cache(exports._materialize_cpp_cia_ops)
    patch.setattr(exports, "_materialize_cpp_cia_ops", once)
    yield
    patch.undo()
