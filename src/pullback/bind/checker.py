"""The place of the checker that `pb.operator(..., check=True)` asks.

The checker is a later stage, which no import leads to from here: it is loaded by its name, as a
plugin is, and puts itself into `require_sound`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from pullback.bind.operator import Operator

CHECKER = "pullback.verify.definition"

# Stops if an operator has a fault; the arguments to call it with are found where there are none.
require_sound: Callable[[Operator, Sequence[object]], None] | None = None


def check(operator: Operator, example: Sequence[object] | None) -> None:
    """Stop if an operator that was just defined has a fault."""
    if require_sound is None:
        importlib.import_module(CHECKER)
    assert require_sound is not None, f"{CHECKER} did not put itself here"
    require_sound(operator, example or ())
