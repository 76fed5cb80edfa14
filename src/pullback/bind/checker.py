"""Where `pb.operator(..., check=True)` finds the checker.

The checker is a later stage, which may not be imported from here. It is loaded by its name, like a
plugin, and puts itself into `require_sound`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from pullback.bind.operator import Operator

CHECKER = "pullback.verify.definition"

# Stops if an operator has a fault; if no arguments are given, it looks for some.
require_sound: Callable[[Operator, Sequence[object]], None] | None = None


def check(operator: Operator, example: Sequence[object] | None) -> None:
    """Stop if an operator that was just defined has a fault."""
    if require_sound is None:
        importlib.import_module(CHECKER)
    assert require_sound is not None, f"{CHECKER} did not put itself here"
    require_sound(operator, example or ())
