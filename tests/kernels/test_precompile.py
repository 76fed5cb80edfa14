"""Precompiled headers: for what they are made, when anew, and how many are kept."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch

import pullback as pb
from pullback.bind.loops import backends, compiled
from pullback.kernels import cache, identity, precompile, toolchain
from pullback.kernels.loops.cpu import Cpu
from tests.kernels.launches import loop_of

KNOWN = {"torch/torch.h", "torch/library.h", "ATen/ATen.h"}


@pytest.mark.compiler
def test_a_header_that_changed_is_precompiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "big.h").write_text("#pragma once\n#define NUMBER 1\n")
    compiler = toolchain.find("c++")
    said: list[str] = []

    def announce(line: str) -> AbstractContextManager[None]:
        said.append(line)
        return nullcontext()

    monkeypatch.setattr(precompile, "MOST_KEPT", 4)
    plans = [
        precompile.plan_of(["big.h"], compiler, ["-I", str(tmp_path), f"-DN={n}"], "test")
        for n in range(precompile.MOST_KEPT + 1)
    ]
    first = precompile.precompile_header(plans[0], announce)
    assert precompile.precompile_header(plans[0], announce) == first
    assert len(said) == 1
    (tmp_path / "big.h").write_text("#pragma once\n#define NUMBER 22\n")
    assert precompile.precompile_header(plans[0], announce) == first
    assert len(said) == 2
    # The one that was used longest ago makes room.
    for plan in plans[1:]:
        precompile.precompile_header(plan, announce)
    assert kept() == {plan.key for plan in plans[1:]}
    # So do those that are too large together, but for the last.
    monkeypatch.setattr(precompile, "MOST_BYTES", 1)
    precompile.precompile_header(plans[0], announce)
    assert kept() == {plans[0].key}


def kept() -> set[str]:
    return {path.parent.name for path in cache.folder().glob("*/precompiled.h.gch")}


@pytest.mark.compiler
def test_loops_share_their_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them was a third of what compiling a line took."""
    pb.operator("test::shares_before(x[...]) -> y[...] = x + 1")(torch.ones(2))  # the runtime
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path))
    compiler = toolchain.find("c++")
    read = precompile.can(compiler)
    for k, line in enumerate(("y[...] = sum[n](x[n]**2)", "y[...] = max[n](x[n]) - x[0]")):
        operator = pb.operator(f"test::shares_{k}(x[..., n]) -> {line}")
        assert "own loop" in str(operator.plan(torch.randn(300, 40)))
        assert len(kept()) == read
    for k, text in enumerate(("x*tanh(x)", "x*sigmoid(x)")):
        pb.operator(f"test::shares_formula_{k}(x[...]) -> y[...] = {text}")(torch.randn(9))
        assert len(kept()) == 2 * read


@pytest.mark.compiler
@pytest.mark.parametrize("header", ["formula/vector.h", "index/lanes.h", "index/cuda/index.cuh"])
def test_loops_of_another_version_of_our_headers_are_others(
    header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No compiler notes what is precompiled: a new version called the loops of the one before."""
    loop = loop_of("test::version(x[...]) -> y[...] = x*tanh(x)")

    def keys() -> list[str]:
        identity.digest_of.cache_clear()
        plans = compiled.plan_of(loop), backends.plan_kernels("version", (), Cpu.of("float"), 4)
        return [*(plan.key for plan in plans), identity.of_headers("of a GPU")]

    shutil.copytree(identity.CSRC, tmp_path / "csrc")
    monkeypatch.setattr(identity, "CSRC", tmp_path / "csrc")
    before = keys()
    assert keys() == before
    changed = tmp_path / "csrc" / header
    changed.write_text(changed.read_text() + "// another version\n")
    assert not {*before} & {*keys()}
    identity.digest_of.cache_clear()


BEGINNINGS = {
    "#include <torch/library.h>": ["torch/library.h"],
    "// why\n#pragma once\n#include <cmath>\n#include <torch/torch.h>": ["torch/torch.h"],
    '#include "torch/torch.h"\n#include <ATen/ATen.h>': ["torch/torch.h", "ATen/ATen.h"],
    '#include "guarded.h"': ["torch/library.h"],
    "#include <torch/library.h>\n#define N 3\n#include <ATen/ATen.h>": ["torch/library.h"],
    "#define N 3\n#include <torch/library.h>": None,
    '#include "settings.h"\n#include <torch/library.h>': None,
    "#include <mine/settings.h>\n#include <torch/library.h>": None,
    "#if 1\n#include <torch/library.h>\n#endif": None,
    "#include <cmath>\nint three() { return 3; }": None,
}


@pytest.mark.parametrize("text", BEGINNINGS)
def test_only_what_stands_before_any_macro_is_precompiled(tmp_path: Path, text: str) -> None:
    guard = "#ifndef GUARDED_H\n#define GUARDED_H\n{}\n#endif\n"
    (tmp_path / "guarded.h").write_text(guard.format("#include <torch/library.h>"))
    (tmp_path / "settings.h").write_text(guard.format("#define NDEBUG"))
    found = precompile.leading_headers(tmp_path / "a.cpp", text, KNOWN.__contains__)
    assert found == BEGINNINGS[text]
