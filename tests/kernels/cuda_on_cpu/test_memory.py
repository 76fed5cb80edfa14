"""Planted accesses out of bounds are found at their line; their repaired twins are not."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import pytest

from pullback.cuda.programs import Options, memory
from pullback.cuda.report import Report
from pullback.diagnostic import PullbackError
from pullback.kernels.cuda_on_cpu import sanitizer
from tests.kernels.cuda_on_cpu.one_program import together

pytestmark = pytest.mark.compiler

FOLDER = Path(__file__).parent / "faults_memory"
ALL = tuple(sorted(FOLDER.glob("*.cu")))
MARK = "// FAULT"
# What the first line says, and the row "memory" below it.
PLANTED = {
    "global_past_end": (
        "fill: thread (4,0,0) of block (3,0,0) writes 4 bytes past the end of memory of 400 bytes",
        "0 bytes after its end, allocated by cudaMalloc at",
    ),
    "global_before_start": (
        "difference: thread (0,0,0) of block (0,0,0) reads 4 bytes before the start of memory",
        "4 bytes before it, allocated by cudaMalloc at",
    ),
    "shared_past_end": (
        "reverse: thread (63,0,0) of block (0,0,0) writes 4 bytes past the end of shared memory 's'"
        " of 252 bytes",
        "0 bytes after its end",
    ),
    "shared_between": ("reads 4 bytes past the end of shared memory 'a' of 128 bytes", "after"),
    "dynamic_shared": (
        "thread (32,0,0) of block (0,0,0) writes 8 bytes past the end of dynamic shared memory"
        " of 256 bytes",
        "0 bytes after its end",
    ),
    "local_array": ("reads 4 bytes past the end of local 'v' of 16 bytes", "0 bytes after its end"),
    "index_of_array": ("takes element 8 of an array 'int [8]'", None),
    "after_free": ("reads 4 bytes of memory that was freed", "128 bytes, freed by cudaFree at"),
    "misaligned": (
        "from an address that is no multiple of 16: it is 4 past one",
        "4 bytes into memory of 528 bytes",
    ),
    "unwritten_shared": (
        "reads 4 bytes of shared memory that no thread has written",
        "160 bytes into shared memory 's' of 256 bytes",
    ),
    "unwritten_by_block": (
        "of block (1,0,0) reads 4 bytes of shared memory that no thread has written",
        "0 bytes into shared memory 's' of 256 bytes",
    ),
    "host_copy": ("the host writes 128 bytes past the end of memory of 120 bytes", "after its end"),
}

each_fault = pytest.mark.parametrize("name", PLANTED)


def line_of(name: str) -> str:
    lines = (FOLDER / f"{name}.cu").read_text().splitlines()
    return f"{name}.cu:{1 + next(i for i, line in enumerate(lines) if MARK in line)}"


def run(name: str, **options: Unpack[Options]) -> Report:
    return memory(together("memory_faults", ALL, twins=True), [name], **options)


def rows(report: Report) -> dict[str, str]:
    return dict(report.findings[0].evidence)


@pytest.mark.ci(3)
@each_fault
def test_planted_fault_is_found_at_its_line(name: str) -> None:
    report = run(name, workers=1)  # each block runs where the one before it has been
    assert [finding.code for finding in report.findings] == ["PB223"], str(report)
    message, where = PLANTED[name]
    assert message in report.findings[0].message
    assert rows(report)["at"].endswith(line_of(name))
    assert where is None or where in rows(report)["memory"]


@each_fault
def test_repaired_twin_is_silent(name: str) -> None:
    report = run(f"{name}_repaired")
    assert report.ok, str(report)
    assert report.launches == 1


def test_null_pointer_is_a_fault_of_its_own() -> None:
    report = run("null_pointer")
    assert [finding.code for finding in report.findings] == ["PB225"], str(report)
    assert rows(report)["at"].endswith(line_of("null_pointer"))


@pytest.mark.parametrize("order", ["forward", "reverse", "random:3"])
def test_sound_program_is_silent(order: str) -> None:
    report = run("sound", order=order, workers=2)
    assert report.ok, str(report)
    assert report.output == "1005 7950\n"


def test_a_process_is_started_after_a_launch_from_another_thread() -> None:
    # What knew the first thread's stack launches for the second one too.
    report = run("two_threads", workers=1)
    assert report.ok, str(report)
    assert report.output == "128\n"


def test_other_accesses_are_counted() -> None:
    report = run("after_free")
    assert rows(report)["more"].startswith("31 other accesses, at ")


def test_library_is_not_loaded_into_a_process_without_the_sanitizer() -> None:
    with pytest.raises(PullbackError, match=r"sanitizer-not-loaded \[PB236\]") as error:
        sanitizer.require("memory")
    assert "pullback cuda memory" in (error.value.finding.help or "")


def test_other_checks_need_no_sanitizer() -> None:
    sanitizer.require("none")
    sanitizer.require("race")


def test_a_compiler_is_started_without_the_sanitizer() -> None:
    given = {"LD_PRELOAD": "/a/libasan.so.8:/b/libother.so", "HOME": "/"}
    assert sanitizer.strip_sanitizer(given) == {"LD_PRELOAD": "/b/libother.so", "HOME": "/"}
    assert sanitizer.strip_sanitizer({"LD_PRELOAD": "/a/libasan.so.8"}) == {}
