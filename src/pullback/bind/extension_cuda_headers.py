"""PyTorch's headers for extensions in CUDA on the CPU: ours before its own, and precompiled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pullback.bind import runtime
from pullback.bind.build import MODULE
from pullback.kernels import precompile
from pullback.kernels.cuda_on_cpu import library
from pullback.kernels.plan import BuildPlan

# First on the include path: c10/cuda and ATen/cuda, of which PyTorch without CUDA has only names.
FOLDER = library.CSRC / "include_torch"
# Reading <torch/extension.h> takes most of the time, so all extensions share it precompiled.
PRECOMPILED = ("cuda_runtime.h", "torch/extension.h")
# An author's flags that leave PyTorch's headers as they are.
OWN = re.compile(r"-D(?!TORCH_|AT_|C10_|PYBIND|Py_|NDEBUG|_GLIBCXX|__CUDA_NO|CUDA_ON_CPU)|-Wl,")
LINES = re.compile(
    r"^[ \t]*#[ \t]*(?:include[ \t]*(?P<form>[<\"])(?P<name>[^>\"]+)"
    r"|(?:define|undef)[ \t]+(?P<macro>\w+))",
    re.MULTILINE,
)
NEEDS_TORCH = re.compile(r"(torch|ATen|c10|THC|pybind11)/")
# Macros that the headers of PyTorch, pybind11 and the standard library test.
FOR_TORCH = re.compile(
    r"(TORCH|AT|C10|CAFFE2|PYBIND11|PY|Py|_GLIBCXX|__CUDA|USE)_|NDEBUG$|min$|max$"
)


def precompile_headers(plan: BuildPlan) -> dict[str, Path]:
    """Return the precompiled header of each unit that can begin with it."""
    assert plan.translation
    folders = plan.translation.folders
    wanted = [
        unit.file for unit in plan.units if begins_with_torch(unit.text, None, folders, set())
    ]
    if not wanted or not precompile.can(plan.compiler):
        return {}
    flags = [flag for flag in _shared_flags(plan.flags) if not flag.startswith(MODULE)]
    # A check instruments the code in a precompiled header too.
    flags += plan.compile_flags
    # Headers are precompiled untranslated, so the translator is not part of their identity.
    wide = precompile.plan_of(PRECOMPILED, plan.compiler, flags, runtime.abi())
    header = precompile.precompile_header(wide, runtime.announce)
    return dict.fromkeys(wanted, header) if header else {}


def begins_with_torch(
    text: str, beside: Path | None, folders: Sequence[Path], seen: set[Path]
) -> bool | None:
    """Return whether a text includes one of PyTorch's headers before any macro that affects them.

    The author's other macros do not affect those headers, so this reads past them, unlike
    `precompile.leading_headers`. None stands for neither a header nor a macro.
    """
    for line in LINES.finditer(precompile.COMMENT.sub(" ", text)):
        include, defined = line["name"], line["macro"]
        if defined is not None:
            if FOR_TORCH.match(defined):
                return False
            continue
        if NEEDS_TORCH.match(include):
            return True
        places = [*([beside] if beside and line["form"] == '"' else []), *folders]
        path = next((one for place in places if (one := place / include).is_file()), None)
        if path is None or path in seen:
            continue
        seen.add(path)
        begins = begins_with_torch(
            path.read_text(encoding="utf-8", errors="replace"), path.parent, folders, seen
        )
        if begins is not None:
            return begins
    return None


def _shared_flags(flags: Sequence[str]) -> list[str]:
    """Return the flags that affect PyTorch's headers; extensions may differ in the others."""
    kept: list[str] = []
    words = iter(flags)
    ours = {f"-I{FOLDER}", *library.include_flags()}
    for flag in words:
        if flag in ("-I", "-iquote"):
            next(words, "")
        elif flag in ours or not (flag.startswith(("-I", "-iquote")) or OWN.match(flag)):
            kept.append(flag)
    return kept
