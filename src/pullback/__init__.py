"""pullback: write your own differentiable PyTorch operators; one line, one operator.

The public names are loaded on first use, so that `import pullback` costs nothing to programs that
may not need it, and `pullback --help` does not wait for PyTorch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullback import cuda
    from pullback.bind.declare import operator
    from pullback.bind.extension import source
    from pullback.bind.math.declare import formula
    from pullback.bind.operator import Operator
    from pullback.deploy.aoti import compile_and_package
    from pullback.deploy.build import build
    from pullback.deploy.onnx.export import export_onnx, onnx_session
    from pullback.diagnostic import Finding, PullbackError, Rule
    from pullback.graphs import graph
    from pullback.verify.check import check
    from pullback.verify.report import Report

    __version__: str

_HOMES = {
    "Finding": "pullback.diagnostic",
    "Operator": "pullback.bind.operator",
    "PullbackError": "pullback.diagnostic",
    "Report": "pullback.verify.report",
    "Rule": "pullback.diagnostic",
    "build": "pullback.deploy.build",
    "check": "pullback.verify.check",
    "compile_and_package": "pullback.deploy.aoti",
    "export_onnx": "pullback.deploy.onnx.export",
    "formula": "pullback.bind.math.declare",
    "graph": "pullback.graphs",
    "onnx_session": "pullback.deploy.onnx.export",
    "operator": "pullback.bind.declare",
    "source": "pullback.bind.extension",
}

# Parts with public names of their own.
_PARTS = ("cuda",)

# Written out, since type checkers read it.
# fmt: off
__all__ = [
    "Finding", "Operator", "PullbackError", "Report", "Rule", "build", "check",
    "compile_and_package", "cuda", "export_onnx", "formula", "graph", "onnx_session", "operator",
    "source",
]
# fmt: on


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name == "__version__":
        # From what is installed: pyproject.toml alone states it.
        return importlib.import_module("importlib.metadata").version(__name__)
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'pullback' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
