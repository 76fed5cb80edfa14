"""Runs when Python starts with this folder in PYTHONPATH; then the one that it hides."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

try:
    from pullback.cuda import switch

    switch.install()
except Exception as error:
    sys.stderr.write(f"pullback: CUDA_ON_CPU has no effect: {error!r}\n")

_here = Path(__file__).parent
_found = PathFinder.find_spec("sitecustomize", [p for p in sys.path if Path(p) != _here])
if _found is not None and _found.loader is not None:
    _found.loader.exec_module(module_from_spec(_found))
