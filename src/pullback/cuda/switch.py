"""The switch `CUDA_ON_CPU`: what a process does that was started with it.

Python runs this at its start where the variable is set. So it costs nothing until PyTorch is
imported, imports little but the standard library, and raises nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import cast

from pullback.kernels.cuda_on_cpu.environment import wanted


def install() -> None:
    """Let PyTorch pretend from when it is imported; again, or without the switch: do nothing."""
    if not wanted() or any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder())
    for name, action in AFTER.items():
        if name in sys.modules:
            action()


def _pretend() -> None:
    importlib.import_module("pullback.cuda.pretend").for_good()


def _build() -> None:
    patches = importlib.import_module("pullback.cuda.patches").Patches()
    importlib.import_module("pullback.cuda.toolkit").patch(patches)


# Modules, and what is to happen when they have been imported.
AFTER: dict[str, Callable[[], None]] = {"torch": _pretend, "torch.utils.cpp_extension": _build}


class Finder(MetaPathFinder):
    """Finds nothing itself: it follows what others find by an action."""

    def __init__(self) -> None:
        self._looking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the others find one of the modules."""
        if fullname not in AFTER or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = None
            for finder in sys.meta_path:
                if finder is not self and (spec := finder.find_spec(fullname, path, target)):
                    break
        finally:
            self._looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", Following(spec.loader, AFTER[fullname]))
        return spec


class Following:
    """A loader that does something when the module has been loaded."""

    def __init__(self, loader: Loader, action: Callable[[], None]) -> None:
        self._loader = loader
        self._action = action

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create it as the loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load it, then act."""
        # Tools that read a module's loader are to see the one that read the file.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._action()
