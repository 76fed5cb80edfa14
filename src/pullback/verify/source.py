"""The author's text, to find the line that a finding is about."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

# Folders whose lines are not the author's. A package installed beside PyTorch may be the very thing
# that is checked.
NOT_AUTHORS = (
    *(f"{Path(f).parent}{os.sep}" for f in (torch.__file__, np.__file__)),  # not of torchvision
    f"{Path(__file__).parents[1]}{os.sep}",
    "<frozen",
)
STANDARD = str(Path(contextlib.__file__).parent)


def is_authors(file: str) -> bool:
    """Tell whether a file may be the author's: not PyTorch's, not Python's, not this library's."""
    own = not file.startswith(STANDARD) or "site-packages" in file
    return own and not file.startswith(NOT_AUTHORS)


@dataclass(frozen=True, kw_only=True)
class SourcePlace:
    """One line of the author's code: "ops.py:14 in backward: return grad * x"."""

    file: str
    line: int
    function: str
    text: str

    @staticmethod
    def of_frame(frame: FrameType) -> SourcePlace:
        """Return the place of a frame."""
        return SourcePlace.at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)

    @staticmethod
    def at(file: str, line: int, function: str) -> SourcePlace:
        """Return a line with its text."""
        text = linecache.getline(file, line).strip()
        return SourcePlace(file=file, line=line, function=function, text=text)

    def __str__(self) -> str:
        place = f"{Path(self.file).name}:{self.line} in {self.function}"
        return f"{place}: {self.text}" if self.text else place


def authors_place() -> SourcePlace | None:
    """Return the innermost line of the author's that is running now."""
    frame = sys._getframe(1)
    while frame is not None and not is_authors(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else SourcePlace.of_frame(frame)


def place_of_error(error: BaseException) -> SourcePlace | None:
    """Return the innermost line of the author's that an exception passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_authors(frame.filename)]
    if not own:
        return None
    return SourcePlace.at(own[-1].filename, own[-1].lineno or 0, own[-1].name)


class Text:
    """The text of one function of the author's, as a tree; empty where there is no source."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = inspect.unwrap(function)

    @cached_property
    def tree(self) -> ast.AST:
        """Its syntax tree, with the file's line numbers."""
        try:
            lines, first = inspect.getsourcelines(self.function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):  # no source, or part of a longer expression
            return ast.Module([], [])
        return ast.increment_lineno(tree, first - 1)

    @property
    def place(self) -> SourcePlace | None:
        """Where it begins."""
        code = getattr(self.function, "__code__", None)
        if code is None:
            return None
        return SourcePlace.at(code.co_filename, code.co_firstlineno, code.co_name)

    def find(self, wanted: Callable[[ast.AST], bool]) -> SourcePlace | None:
        """Return the line of the first node that is wanted."""
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.expr | ast.stmt) and wanted(n)]
        first = min(found, key=lambda n: (n.lineno, n.col_offset), default=None)
        code = getattr(self.function, "__code__", None)
        if first is None or code is None:
            return None
        return SourcePlace.at(code.co_filename, first.lineno, code.co_name)

    def calls(self, *names: str) -> SourcePlace | None:
        """Return the line of the first call of a function or method of one of these names."""
        return self.find(lambda n: isinstance(n, ast.Call) and last_name(n.func) in names)

    def assigns(self, attribute: str) -> SourcePlace | None:
        """Return the line that assigns to `anything.attribute`."""

        def is_assigned(node: ast.AST) -> bool:
            return (
                isinstance(node, ast.Attribute)
                and node.attr == attribute
                and isinstance(node.ctx, ast.Store)
            )

        return self.find(is_assigned)

    def deletes(self, attribute: str) -> SourcePlace | None:
        """Return the line that deletes `anything.attribute`."""
        return self.find(
            lambda n: (
                isinstance(n, ast.Attribute) and n.attr == attribute and isinstance(n.ctx, ast.Del)
            )
        )

    def mentions(self, attribute: str) -> SourcePlace | None:
        """Return the line with the first `anything.attribute`."""
        return self.find(lambda n: isinstance(n, ast.Attribute) and n.attr == attribute)

    def returns(self) -> SourcePlace | None:
        """Return the line of the last `return`."""
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.Return)]
        last = max((n.lineno for n in found), default=None)
        return self.find(lambda n: isinstance(n, ast.Return) and n.lineno == last)

    def writes(self) -> SourcePlace | None:
        """Return the line of the first thing done in place: `x.mul_(2)`, `x[...] = 0`, `x *= 2`."""

        def is_write(node: ast.AST) -> bool:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = node.func.attr
                if name.endswith("_") and not name.startswith("_") and name != "requires_grad_":
                    return True
                return any(word.arg == "out" for word in node.keywords)
            if isinstance(node, ast.AugAssign):
                return True
            return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)

        return self.find(is_write)

    def constants(self) -> Iterator[object]:
        """Yield the literals in it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant):
                yield node.value


def last_name(node: ast.expr) -> str:
    """Return the name that is called: "view" of `grad.view`, "relu" of `relu`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
