"""What a table holds: packages, and their Functions."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Case:
    """A Function, the line it is adopted with, and arguments for it.

    Attributes:
        function: its import path; `module:factory()` where a factory returns its `apply`.
        line: without a namespace.
        arguments: makers and plain values.
        refused: the code of the error that adoption, or the first call, raises.
        broken: what the original says when it is called, or differentiated, by itself.
        random: whether it draws random numbers, so that `vmap` need not agree with a loop.
        loses: whether its forward goes wrong in a compiled program behind any operator.
        intentions: what its author means that would be a fault elsewhere: `surrogate`, ...
        note: what a reader should know.
    """

    function: str
    line: str
    arguments: tuple[Any, ...] = ()
    refused: str | None = None
    broken: str | None = None
    random: bool = False
    loses: bool = False
    intentions: tuple[str, ...] = ()
    note: str = ""

    @property
    def name(self) -> str:
        """The class's name, with the class around it if there is one."""
        return self.function.partition(":")[2]


@dataclass(frozen=True)
class Package:
    """A package, the version that the table was made with, and its Functions."""

    name: str
    version: str
    cases: tuple[Case, ...]

    @property
    def namespace(self) -> str:
        """Where its operators are registered."""
        return "packages_" + re.sub(r"\W", "_", self.name)

    @cached_property
    def installed(self) -> str | None:
        """The version that is installed."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None
