"""CUDA on a machine without a GPU: extensions are built for the CPU, and PyTorch plays along.

`with pb.cuda.on_cpu():` does so within the block, the environment variable `CUDA_ON_CPU` for a
whole process and its children, and `python -m pullback.cuda SCRIPT` for one script.

Nothing here is loaded before it is asked for, since every start of Python reads the switch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullback.cuda.context import on_cpu
    from pullback.cuda.programs import memory, race, run
    from pullback.cuda.report import Report

_HOMES = {
    "Report": "pullback.cuda.report",
    "memory": "pullback.cuda.programs",
    "on_cpu": "pullback.cuda.context",
    "race": "pullback.cuda.programs",
    "run": "pullback.cuda.programs",
}

__all__ = ["Report", "memory", "on_cpu", "race", "run"]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pullback.cuda' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
