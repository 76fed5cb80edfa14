"""A hypothesis about why a derivative is wrong; the first that fits all samples is named."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from pullback.verify.numbers.causes.sample import Sample


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a derivative is wrong.

    Attributes:
        name: of the kind of cause, "sign"; the same for several inputs if they share it.
        text: one sentence with the input's name.
        help: the cure.
        key: what has to be equal for two samples.
    """

    name: str
    text: str
    help: str
    key: tuple[object, ...] = ()


class Hypothesis(ABC):
    """One kind of cause. A subclass registers itself.

    Attributes:
        order: a lower one is tried first: the more specific, the lower.
    """

    registry: ClassVar[list[type[Hypothesis]]] = []
    order: ClassVar[int]

    def __init_subclass__(cls) -> None:
        if not inspect.isabstract(cls) and hasattr(cls, "order"):
            Hypothesis.registry.append(cls)

    @abstractmethod
    def explain(self, sample: Sample) -> Cause | None:
        """Return the cause if it fits a sample."""
