from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags
from pullback.kernels.toolchain import Compiler

GXX = Compiler(language="c++", path=Path("/bin/g++"), version="12.2.0", identity="g++ 12.2.0 avx2")
NVCC = Compiler(language="cuda", path=Path("/bin/nvcc"), version="13.0.88", identity="nvcc 13")
PLAN = BuildPlan(
    name="demo-add2-cpu",
    compiler=GXX,
    units=(TranslationUnit("unit.cpp", '#include "/home/me/add2.cpp"\n'),),
    sources=(Path("/home/me/add2.cpp"),),
    flags=kernel_flags(GXX),
    abi="kernel-1",
)


def test_the_key_is_the_same_in_every_process() -> None:
    assert PLAN.key == replace(PLAN).key
    assert len(PLAN.key) == 32
    assert int(PLAN.key, 16)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "demo-add3-cpu"},
        {"compiler": replace(GXX, identity="g++ 12.2.0 avx512")},
        {"units": (TranslationUnit("unit.cpp", "int x;"),)},
        {"units": (TranslationUnit("other.cpp", PLAN.units[0].text),)},
        {"sources": (Path("/home/me/other.cpp"),)},
        {"flags": (*PLAN.flags, "-DX")},
        {"link": ("-lm",)},
        {"abi": "kernel-2"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_key_changes_with_every_part(change: dict[str, Any]) -> None:
    assert replace(PLAN, **change).key != PLAN.key


def test_what_is_no_authors_has_one_key_under_all_names() -> None:
    shared = replace(PLAN, is_shared=True)
    assert replace(shared, name="demo-add3-cpu").key == shared.key
    assert replace(shared, abi="kernel-2").key != shared.key


def test_flags_and_link_are_not_confused() -> None:
    assert replace(PLAN, flags=("-a", "-b")).key != replace(PLAN, flags=("-a",), link=("-b",)).key


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "demo/add2"},
        {"units": ()},
        {"units": (TranslationUnit("../unit.cpp", ""),)},
        {"units": (TranslationUnit("unit.cpp", ""), TranslationUnit("unit.cpp", ""))},
        {"sources": (Path("add2.cpp"),)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_plan_that_cannot_be_run_is_not_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        replace(PLAN, **wrong)


@pytest.mark.parametrize("compiler", [GXX, NVCC], ids=str)
def test_flags_keep_floating_point_as_written(compiler: Compiler) -> None:
    flags = " ".join(kernel_flags(compiler))
    assert "-std=c++20" in flags
    for unsafe in ("fast-math", "-Ofast", "associative", "reciprocal", "finite"):
        assert unsafe not in flags


def test_the_architecture_is_the_callers() -> None:
    assert not [flag for flag in kernel_flags(NVCC) if "arch" in flag]
    assert "-arch=sm_90" in kernel_flags(NVCC, "sm_90")
