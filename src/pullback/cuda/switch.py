"""The switch `CUDA_ON_CPU`, for processes that are started with it.

Python runs this at its start if the variable is set. So it costs nothing until PyTorch is
imported, imports little but the standard library, and raises nothing.
"""

from __future__ import annotations

import functools
import importlib

from pullback.imported import when_imported
from pullback.kernels.cuda_on_cpu.environment import is_wanted


def install() -> None:
    """Let PyTorch pretend as soon as it is imported; without the switch do nothing."""
    if is_wanted():
        _follow()


@functools.cache  # once
def _follow() -> None:
    when_imported("torch", "pretend", _pretend)
    when_imported("torch.utils.cpp_extension", "build", _build)


def _pretend() -> None:
    importlib.import_module("pullback.cuda.pretend").for_good()


def _build() -> None:
    patches = importlib.import_module("pullback.cuda.patches").Patches()
    importlib.import_module("pullback.cuda.toolkit").patch(patches)
