import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from pullback.diagnostic import Finding, PullbackError
from pullback.kernels import cache
from pullback.kernels.compile import compile, open_library
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags
from pullback.kernels.toolchain import Compiler, find, survey

HAVE = {seen.language for seen in survey() if isinstance(seen, Compiler)}
needs_cxx = [
    pytest.mark.compiler,
    pytest.mark.skipif("c++" not in HAVE, reason="no C++ compiler here"),
]
needs_nvcc = [
    pytest.mark.nvcc,
    pytest.mark.skipif("cuda" not in HAVE, reason="no CUDA toolkit here"),
]
GXX_OR_NVCC = [
    pytest.param("c++", marks=needs_cxx),
    pytest.param("cuda", marks=needs_nvcc),
]

NUMBER = 'extern "C" __attribute__((visibility("default"))) int number() {{ return {}; }}\n'

# What another process runs: compile the plan of this folder, print where its library is.
OTHER = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_compile as shared
plan = shared.plan_in(Path(sys.argv[1]))
print("ready", flush=True)
print(shared.compile(plan), flush=True)
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "a.cpp", NUMBER.format(1))
    return tmp_path


def write(path: Path, text: str) -> Path:
    """Write a source as it most often is: older than the build."""
    path.write_text(text)
    past = time.time() - 10
    os.utime(path, (past, past))
    return path


def plan_in(folder: Path, *, name: str = "a.cpp", language: str = "c++") -> BuildPlan:
    compiler = find("cuda" if language == "cuda" else "c++")
    source = folder / name
    return BuildPlan(
        name="demo-number-cpu",
        compiler=compiler,
        units=(TranslationUnit(f"unit{source.suffix}", f'#include "{source}"\n'),),
        sources=(source,),
        flags=kernel_flags(compiler),
        abi="kernel-1",
    )


def number_of(library: Path) -> int:
    return open_library(library).number()


def finding_of(plan: BuildPlan) -> Finding:
    with pytest.raises(PullbackError) as raised:
        compile(plan)
    return raised.value.finding


def wrap(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Choose a compiler that runs a script first; return the file of what it notes."""
    program, notes = folder / "wrapped-g++", folder / "notes"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in --version) ;; *) {script.format(notes=notes)};; esac\n'
        f'exec {find("c++").path} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    return notes


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, folder, Path(__file__).parent],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    assert process.stdout.readline() == "ready\n"


def assert_manifests_are_sound(folder: Path) -> None:
    for path in (folder / "cache").glob("*/manifest.json"):
        json.loads(path.read_text())
        for variant in cache.read_manifest(path.parent):
            assert variant.sound(path.parent)


@pytest.mark.compiler
@pytest.mark.skipif("c++" not in HAVE, reason="no C++ compiler here")
class TestWithCxx:
    def test_a_kernel_is_compiled_once_and_runs(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        notes = wrap(work, monkeypatch, "echo x >> {notes}")
        library = compile(plan_in(work))
        assert compile(plan_in(work)) == library
        assert number_of(library) == 1
        assert notes.read_text() == "x\n"

    def test_what_is_announced_is_what_is_compiled(self, work: Path) -> None:
        said: list[str] = []

        @contextmanager
        def announce(line: str) -> Generator[None]:
            said.append(line)
            yield
            said.append("done")

        plan = plan_in(work)
        compile(plan, announce=announce)
        compile(plan, announce=announce)
        assert said == [f"compiling demo-number-cpu with {plan.compiler}", "done"]

    def test_a_changed_source_and_its_return_are_noticed(self, work: Path) -> None:
        plan = plan_in(work)
        first = compile(plan)
        write(work / "a.cpp", NUMBER.format(2))
        assert number_of(compile(plan)) == 2
        write(work / "a.cpp", NUMBER.format(1))
        assert compile(plan) == first

    def test_a_changed_header_of_a_header_is_noticed(self, work: Path) -> None:
        folder = work / "my $headers #1"
        folder.mkdir()
        write(folder / "inner.h", "#define N 5\n")
        write(folder / "outer.h", '#include <cmath>\n#include "inner.h"\n')
        write(work / "a.cpp", f'#include "{folder.name}/outer.h"\n' + NUMBER.format("N"))
        plan = plan_in(work)
        assert number_of(compile(plan)) == 5
        write(folder / "inner.h", "#define N 6\n")
        assert number_of(compile(plan)) == 6

    def test_several_units_become_one_library(self, work: Path) -> None:
        write(work / "a.cpp", "int two();\n" + NUMBER.format("two()"))
        write(work / "b.cpp", "int two() { return 2; }\n")
        plan = plan_in(work)
        units = (*plan.units, *(TranslationUnit(f"u{n}.cpp", f"int f{n};") for n in range(5)))
        sources = (*plan.sources, work / "b.cpp")
        second = TranslationUnit("second.cpp", f'#include "{work / "b.cpp"}"\n')
        plan = replace(plan, units=(*units, second), sources=sources)
        assert number_of(compile(plan)) == 2
        write(work / "b.cpp", "int two() { return 22; }\n")
        assert number_of(compile(plan)) == 22

    @pytest.mark.parametrize("content", [b"", b"\x7fELF cut", None])
    def test_a_damaged_library_is_compiled_anew(self, work: Path, content: bytes | None) -> None:
        plan = plan_in(work)
        library = compile(plan)
        whole = library.read_bytes()
        library.write_bytes(whole + b"tampered" if content is None else content)
        assert compile(plan).read_bytes() == whole

    def test_two_processes_compile_once(self, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        notes = wrap(work, monkeypatch, "echo x >> {notes}; sleep 0.5")
        both = [start(work) for _ in range(2)]
        said = [process.communicate(timeout=60) for process in both]
        assert [process.returncode for process in both] == [0, 0], said
        libraries = {out.splitlines()[-1] for out, _ in said}
        assert len(libraries) == 1
        assert number_of(Path(libraries.pop())) == 1
        assert [error for _, error in said] == ["", ""], "waiting must print nothing"
        assert notes.read_text() == "x\n"

    def test_a_build_killed_at_any_moment_does_no_harm(self, work: Path) -> None:
        plan = plan_in(work)
        for step in range(10):
            write(work / "a.cpp", NUMBER.format(step))
            process = start(work)
            wait_until_ready(process)
            time.sleep(step * 0.008)
            process.kill()
            process.communicate()
            assert_manifests_are_sound(work)
            if step % 3 == 0:
                assert number_of(compile(plan)) == step
        assert number_of(compile(plan)) == 9

    def test_an_interrupt_stops_the_compiler_and_leaves_nothing(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        process, children = compiling(work, monkeypatch)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=10)
        assert "KeyboardInterrupt" in error
        assert not any(map(is_running, children))
        assert not list((work / "cache").glob("*/*"))

    def test_a_compiler_and_its_children_die_with_who_started_them(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        process, children = compiling(work, monkeypatch)
        process.kill()
        process.communicate(timeout=10)
        deadline = time.monotonic() + 10
        while any(map(is_running, children)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(is_running, children))

    def test_a_file_size_limit_is_a_full_disk(self, work: Path) -> None:
        limited = (
            f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096,) * 2)\n{OTHER}"
        )
        ran = subprocess.run(
            [sys.executable, "-c", limited, work, Path(__file__).parent],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert "cannot-write [PB204]: demo-number-cpu cannot be written" in ran.stderr
        assert not list((work / "cache").glob("*/manifest.json"))
        assert number_of(compile(plan_in(work))) == 1

    def test_a_disk_that_fills_while_storing_is_told(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", full)
            finding = finding_of(plan_in(work))
        assert finding.code == "PB204"
        assert ("reason", "No space left on device") in finding.evidence
        assert ("folder", str(work / "cache")) in finding.evidence
        assert number_of(compile(plan_in(work))) == 1

    def test_a_compiler_without_space_is_told(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrap(work, monkeypatch, "echo 'fatal error: x.o: No space left on device'; exit 1")
        assert finding_of(plan_in(work)).code == "PB204"

    def test_a_disk_without_room_for_what_the_compiler_says(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrap(work, monkeypatch, "exit 1")
        assert finding_of(plan_in(work)).code == "PB202"
        full = SimpleNamespace(total=2**20, used=2**20, free=0)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
        assert finding_of(plan_in(work)).code == "PB204"

    @pytest.mark.parametrize(
        "script",
        ["kill -9 $$", "echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1"],
        ids=["driver", "child"],
    )
    def test_a_killed_compiler_is_told(
        self, work: Path, monkeypatch: pytest.MonkeyPatch, script: str
    ) -> None:
        wrap(work, monkeypatch, script)
        finding = finding_of(plan_in(work))
        assert finding.code == "PB205"
        assert dict(finding.evidence)["signal"] == "Killed"
        assert "memory" in (finding.help or "")

    def test_a_compiler_that_vanished_is_told(self, work: Path) -> None:
        plan = plan_in(work)
        compiler = replace(plan.compiler, path=work / "no-such-g++")
        assert finding_of(replace(plan, compiler=compiler)).code == "PB201"

    def test_a_source_that_is_edited_meanwhile_is_compiled_again(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The first run compiles 1; the author saves 2 before the library is stored.
        write(work / "later.cpp", NUMBER.format(2))
        save = f'{find("c++").path} "$@" && cp {work}/later.cpp {work}/a.cpp; exit'
        wrap(work, monkeypatch, f"[ -e {{notes}} ] || {{{{ echo x > {{notes}}; {save}; }}}}")
        library = compile(plan_in(work))
        assert (work / "a.cpp").read_text() == NUMBER.format(2)
        assert number_of(library) == 2

    def test_an_edit_that_never_ends_is_told(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrap(work, monkeypatch, f"echo '// more' >> {work}/a.cpp")
        finding = finding_of(plan_in(work))
        assert finding.code == "PB202"
        assert "changed while it compiled" in finding.message

    def test_a_library_that_lacks_a_function_is_told(self, work: Path) -> None:
        write(work / "a.cpp", "int elsewhere(double);\n" + NUMBER.format("elsewhere(1)"))
        library = compile(plan_in(work))
        with pytest.raises(PullbackError, match="PB206") as raised:
            open_library(library)
        assert "undefined symbol: _Z9elsewhered" in str(raised.value)
        if shutil.which("c++filt"):
            assert dict(raised.value.finding.evidence)["missing"] == "elsewhere(double)"

    @pytest.mark.parametrize("as_module", [False, True])
    def test_a_library_on_a_mount_that_runs_nothing_is_told(
        self, work: Path, monkeypatch: pytest.MonkeyPatch, as_module: bool
    ) -> None:
        from pullback.bind import runtime  # noqa: PLC0415  (imports torch, which `start` need not)

        load = partial(runtime.import_library, "damaged") if as_module else open_library
        library = write(work / "damaged.so", "no library")
        with pytest.raises(PullbackError, match="PB206") as raised:
            load(library)
        assert raised.value.finding.help is None
        # A mount takes more rights than a test has.
        flags = SimpleNamespace(f_flag=os.ST_NOEXEC)
        monkeypatch.setattr(os, "statvfs", lambda _: flags)  # pyright: ignore
        with pytest.raises(PullbackError, match=r"noexec.*set PULLBACK_CACHE"):
            load(library)

    def test_a_library_opens_as_ctypes_does(self, work: Path) -> None:
        assert isinstance(open_library(compile(plan_in(work))), ctypes.CDLL)

    def test_an_error_in_the_generated_text_shows_no_temporary_folder(self, work: Path) -> None:
        plan = replace(
            plan_in(work), units=(TranslationUnit("entry.cpp", "int f() { return gone; }\n"),)
        )
        finding = finding_of(plan)
        evidence = dict(finding.evidence)
        assert evidence["at"] == "entry.cpp:1:18"
        log = Path(evidence["log"])
        assert "build-" not in str(finding) + log.read_text()

    def test_the_assemblers_words_show_no_temporary_folder(self, work: Path) -> None:
        plan = replace(plan_in(work), units=(TranslationUnit("entry.cpp", 'asm("frobnicate");\n'),))
        # Without -pipe the assembler reads, and names, a file of the temporary folder.
        flags = tuple(flag for flag in plan.flags if flag != "-pipe")
        finding = finding_of(replace(plan, flags=flags))
        assert "frobnicate" in dict(finding.evidence)["error"]
        assert "build-" not in str(finding)

    def test_a_missing_library_is_the_linkers_own_words(self, work: Path) -> None:
        finding = finding_of(replace(plan_in(work), link=("-lnothing-of-that-name",)))
        assert finding.code == "PB202"
        assert "lnothing-of-that-name" in dict(finding.evidence)["error"]


def compiling(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a process whose compiler does not end, nor does its child; return it, and their ids."""
    notes = wrap(
        work,
        monkeypatch,
        "sleep 60 & echo $! $$ > {notes}.new; mv {notes}.new {notes}; wait",
    )
    process = start(work)
    wait_until_ready(process)
    while not notes.exists():
        time.sleep(0.01)
    return process, [int(word) for word in notes.read_text().split()]


def is_running(process: int) -> bool:
    """Tell whether a process runs; one that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("language", GXX_OR_NVCC)
def test_a_misspelt_function_gets_its_place_and_a_suggestion(work: Path, language: str) -> None:
    name = "b.cu" if language == "cuda" else "b.cpp"
    source = write(work / name, "inline void launch_add2() {}\nvoid f() { launch_ad2(); }\n")
    finding = finding_of(plan_in(work, name=name, language=language))
    evidence = dict(finding.evidence)
    assert (finding.code, finding.message) == ("PB202", "demo-number-cpu does not compile")
    assert evidence["at"].startswith(f"{source}:2")
    assert "launch_ad2" in evidence["error"].splitlines()[0]
    assert "void f() { launch_ad2(); }" in evidence["error"]
    assert evidence["error"].splitlines()[2].strip().startswith(("^", "|"))
    assert "did you mean 'launch_add2'" in str(finding)
    assert "launch_ad2" in Path(evidence["log"]).read_text()


@pytest.mark.parametrize("language", GXX_OR_NVCC)
def test_an_error_inside_a_template_is_short(work: Path, language: str) -> None:
    name = "b.cu" if language == "cuda" else "b.cpp"
    text = "#include <algorithm>\n#include <vector>\nstruct P {};\n"
    text += "void f(std::vector<P>& v) { std::sort(v.begin(), v.end()); }\n"
    source = write(work / name, text)
    finding = finding_of(plan_in(work, name=name, language=language))
    evidence = dict(finding.evidence)
    assert evidence["at"].startswith(f"{source}:4")
    assert len(evidence["error"].splitlines()) <= 12
    assert len(str(finding).splitlines()) < 20
    assert "note:" not in str(finding)
    assert Path(evidence["log"]).stat().st_size > 10 * len(evidence["error"])


@pytest.mark.nvcc
@pytest.mark.skipif("cuda" not in HAVE, reason="no CUDA toolkit here")
def test_a_cuda_kernel_is_compiled_and_its_headers_noted(work: Path) -> None:
    header = write(work / "n.h", "#define N 7\n")
    kernel = '#include "n.h"\n__global__ void k(int* x) { *x = N; }\n'
    source = write(work / "b.cu", kernel + NUMBER.format("N"))
    library = compile(plan_in(work, name="b.cu", language="cuda"))
    assert number_of(library) == 7
    (variant,) = cache.read_manifest(library.parent)
    assert set(variant.dependencies) == {str(source), str(header)}


@pytest.mark.parametrize("language", GXX_OR_NVCC)
def test_a_source_that_is_not_there_is_told_before_anything_runs(work: Path, language: str) -> None:
    finding = finding_of(plan_in(work, name="A.cpp", language=language))
    assert finding.code == "PB203"
    assert finding.help == "did you mean 'a.cpp'?"
    assert dict(finding.evidence)["at"] == str(work / "A.cpp")


def test_a_file_that_is_no_library_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x.so", "text")
    with pytest.raises(PullbackError, match="PB206"):
        open_library(path)
