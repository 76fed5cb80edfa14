"""One probe a file: its docstring is its page, its examples are run. An import registers all."""

from __future__ import annotations

import importlib
import pkgutil

from pullback.verify.probe import Probe

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)


def every_probe() -> list[type[Probe]]:
    """Return every probe in the order in which they are asked: by code."""
    return sorted(Probe.registry, key=lambda probe: probe.code)
