"""The operators of this process, by name."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullback.bind.operator import Operator

operators: dict[str, Operator] = {}
# PyTorch knows an operator before it is one of these: in between it would look like foreign ones.
lock = threading.RLock()
