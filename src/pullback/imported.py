"""Actions for when a module has been imported, by anybody; immediately if it already has been.

So support for `torch.distributed.tensor` or `torch.utils.flop_counter` costs nothing if these are
not used. `CUDA_ON_CPU` uses this from the start of Python, so nothing else is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import cast

Action = Callable[[], None]

# By module, and by a name: a later action with the same name replaces an earlier one.
_waiting: dict[str, dict[str, Action]] = {}


def when_imported(module: str, name: str, action: Action) -> None:
    """Act when a module has been imported.

    Args:
        module: its full name.
        name: an action that still waits under this name for the same module is replaced.
        action: what to do.
    """
    loaded = sys.modules.get(module)
    if loaded is not None and not is_loading(loaded):
        action()
        return
    _waiting.setdefault(module, {})[name] = action
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def is_loading(module: ModuleType) -> bool:
    """Return whether a module is still being imported."""
    return bool(getattr(module.__spec__, "_initializing", False))


class Finder(MetaPathFinder):
    """Finds nothing itself, but adds the waiting actions to what other finders find."""

    def __init__(self) -> None:
        self._looking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the others find a module for which actions wait."""
        if fullname not in _waiting or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            others = (finder for finder in sys.meta_path if finder is not self)
            specs = (finder.find_spec(fullname, path, target) for finder in others)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self._looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", Following(spec.loader, fullname))
        return spec


class Following:
    """A loader that takes the actions after loading."""

    def __init__(self, loader: Loader, name: str) -> None:
        self._loader = loader
        self._name = name

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create it as the loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load it, then act."""
        # Tools that read a module's loader should see the one that read the file.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        for action in _waiting.pop(self._name, {}).values():
            action()
