"""One probe a file: its docstring is its page, its examples are run. An import registers all."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
