"""The examples of the probes' pages, as targets and inputs."""

from __future__ import annotations

import inspect
import itertools
import linecache
import re
import sys
import warnings
from types import ModuleType
from typing import Any

import torch

import pullback
from pullback.bind.register import RedefinitionNotice
from pullback.verify.probe import Probe

SECTION = re.compile(r"^## (\w+)[^\n]*\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
number = itertools.count()


def sections(probe: type[Probe]) -> dict[str, str]:
    """Return the sections of a probe's page by their headings."""
    return dict(SECTION.findall(inspect.getdoc(probe) or ""))


def code_of(text: str) -> str:
    """Return the code of a section."""
    return "\n".join(CODE.findall(text))


def example(probe: type[Probe], heading: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Run the code of a page down to a section; return its target, inputs and options of `check`.

    The target is `target`, or else the Function that the code defines last; `inputs` and `options`
    are variables of these names.
    """
    page = sections(probe)
    # A module: the compiler looks up that of a function.
    module = ModuleType(f"page_{probe.code}_{next(number)}")
    sys.modules[module.__name__] = module
    space = vars(module)
    space |= {"torch": torch, "pb": pullback}
    torch.manual_seed(0)
    for name in ("Fails", "Passes"):
        # Python finds the text of a function by its file: a page has none, so one is made up.
        text, file = code_of(page[name]), f"<page {probe.code} {name} {next(number)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        with warnings.catch_warnings():
            # A page is run once for each test of it, and defines its operators again.
            warnings.simplefilter("ignore", RedefinitionNotice)
            exec(compile(text, file, "exec"), space)
        if name == heading:
            break
    functions = [
        value
        for value in space.values()
        if isinstance(value, type) and issubclass(value, torch.autograd.Function)
    ]
    target = space["target"] if "target" in space else functions[-1]
    return target, space["inputs"], space.get("options", {})
