"""The operators of this process, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullback.bind.operator import Operator

operators: dict[str, Operator] = {}
