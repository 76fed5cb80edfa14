"""How the tests import an example: as `python examples/<folder>/<module>.py` would."""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from pathlib import Path
from types import ModuleType

from pullback.bind.register import RedefinitionNotice

EXAMPLES = Path(__file__).parents[2] / "examples"
# A tutorial's own project, for a GPU: test_add_model_cuda.py runs it.
FOR_A_GPU = EXAMPLES / "add_model_cuda"
# What a newcomer runs.
SCRIPTS = sorted(
    path
    for path in EXAMPLES.rglob("*.py")
    if "__main__" in path.read_text() and not path.is_relative_to(FOR_A_GPU)
)


@functools.cache
def example(path: str) -> ModuleType:
    """Import "legendre/train" with its folder on the path, once: operators have one definition."""
    folder, module = path.split("/")
    sys.path.insert(0, str(EXAMPLES / folder))
    try:
        # Every folder has a `train` of its own, and other tests may have run the same file.
        sys.modules.pop(module, None)
        with warnings.catch_warnings(action="ignore", category=RedefinitionNotice):
            return importlib.import_module(module)
    finally:
        sys.path.remove(str(EXAMPLES / folder))
        # Last: what a script imports once it runs is found, whatever ran before.
        sys.path.append(str(EXAMPLES / folder))
