import os
import stat
from pathlib import Path

import pytest

from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain
from pullback.kernels.toolchain import (
    Compiler,
    Language,
    RefusedCompiler,
    find,
    first_error,
    survey,
)

GCC = "g++ (Debian {0}.2.0-14) {0}.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.\n"
CLANG = "Debian clang version {0}.0.6\nTarget: x86_64-pc-linux-gnu\n"
NVCC = "Cuda compiler driver\nCuda compilation tools, release {0}.0, V{0}.0.88\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH that holds nothing but what a test puts there."""
    for name in (*toolchain.CHOOSING, *toolchain.STEERING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put(path: Path, answer: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{answer}END\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("name", "answer", "version"),
    [
        ("g++", GCC.format(12), "12.2.0"),
        ("g++", GCC.format(11), "11.2.0"),
        ("clang++", CLANG.format(13), "13.0.6"),
    ],
)
def test_a_compiler_with_concepts_is_found(
    programs: Path, name: str, answer: str, version: str
) -> None:
    path = put(programs / name, answer)
    compiler = find("c++")
    assert (compiler.path, compiler.version) == (path, version)
    assert compiler.command == (str(path),)


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        ("g++", GCC.format(10), "is g++ 10.2.0; C++20 needs 11 or newer"),
        ("clang++", CLANG.format(12), "is clang 12.0.6; C++20 needs 13 or newer"),
        ("c++", "Tiny C 1.0\n", "its --version names neither g++, clang nor nvcc"),
        ("c++", NVCC.format(13), "is nvcc, which does not compile c++"),
    ],
)
def test_a_compiler_that_cannot_do_is_refused_with_its_reason(
    programs: Path, name: str, answer: str, reason: str
) -> None:
    put(programs / name, answer)
    assert RefusedCompiler(name, reason) in survey()
    with pytest.raises(PullbackError, match="PB201") as raised:
        find("c++")
    assert reason in dict(raised.value.finding.evidence)["looked_at"]


@pytest.mark.parametrize("language", ["c++", "cuda"])
def test_without_a_compiler_the_error_says_what_to_install(
    programs: Path, monkeypatch: pytest.MonkeyPatch, language: Language
) -> None:
    # The one place looked at that is not under the test's control.
    monkeypatch.setattr(toolchain.shutil, "which", lambda _: None)  # pyright: ignore
    with pytest.raises(PullbackError) as raised:
        find(language)
    assert raised.value.finding.code == "PB201"
    assert "install" in (raised.value.finding.help or "")


def test_a_compiler_that_fails_is_refused(programs: Path) -> None:
    program = put(programs / "g++", "")
    program.write_text("#!/bin/sh\nexit 3\n")
    (refusal,) = [
        seen for seen in survey() if isinstance(seen, RefusedCompiler) and seen.name == "g++"
    ]
    assert "does not answer --version" in refusal.reason


def test_the_environment_chooses_first_and_a_change_of_it_is_noticed(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(programs / "g++", GCC.format(12))
    chosen = put(programs / "my compiler" / "gxx", GCC.format(13))
    assert find("c++").version == "12.2.0"
    monkeypatch.setenv("CXX", str(chosen))
    assert find("c++").path == chosen
    monkeypatch.setenv("CXX", f"{programs / 'g++'} -m64")
    assert find("c++").command == (str(programs / "g++"), "-m64")


def test_nvcc_is_found_by_cuda_home_and_an_old_one_refused(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(programs / "nvcc", NVCC.format(11))
    assert RefusedCompiler("nvcc", "is nvcc 11.0.88; C++20 needs 12.0 or newer") in survey()
    path = put(programs / "cuda" / "bin" / "nvcc", NVCC.format(12))
    monkeypatch.setenv("CUDA_HOME", str(programs / "cuda"))
    assert find("cuda").path == path


def test_a_program_of_two_names_is_examined_once(programs: Path) -> None:
    path = put(programs / "g++", GCC.format(12))
    (programs / "c++").symlink_to(path)
    assert [seen.path for seen in survey() if isinstance(seen, Compiler)][:1] == [path]
    assert not [seen for seen in survey() if str(getattr(seen, "path", "")).endswith("c++")]


def test_a_compiler_is_asked_once(programs: Path) -> None:
    program = put(programs / "g++", GCC.format(12))
    program.write_text(program.read_text().replace("#!/bin/sh", f"#!/bin/sh\necho >>{programs}/n"))
    find("c++")
    find("c++")
    assert (programs / "n").read_text() == "\n"


# By the manuals of g++ and nvcc.
@pytest.mark.parametrize(
    "variable",
    [
        *("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
        *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"),
    ],
)
def test_identity_changes_with_what_steers_the_compiler(
    variable: str, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(programs / "g++", GCC.format(12))
    before = find("c++").identity
    monkeypatch.setenv(variable, "/opt/other")
    assert find("c++").identity != before


def test_identity_changes_with_the_binary(programs: Path) -> None:
    path = put(programs / "g++", GCC.format(12))
    before = find("c++").identity
    os.utime(path, (1, 1))
    toolchain._examine_all.cache_clear()
    assert find("c++").identity != before


def test_identity_changes_with_the_instruction_set(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(programs / "g++", GCC.format(12))
    before = find("c++").identity
    toolchain._examine_all.cache_clear()
    monkeypatch.setattr(toolchain, "_instruction_set", lambda: "x86_64 another")
    assert find("c++").identity != before


GXX_TEMPLATE = """\
/usr/include/c++/12/bits/ops.h: In instantiation of 'bool less(T, T) [with T = P]':
/usr/include/c++/12/bits/stl_algo.h:4820:18:   required from 'void std::sort(P*, P*)'
/home/me/a.cpp:5:38:   required from here
/usr/include/c++/12/bits/ops.h:45:23: error: no match for 'operator<'
   45 |       { return *__it1 < *__it2; }
      |                ~~~~~~~^~~~~~~~
/usr/include/c++/12/bits/stl_iterator.h:1185:5: note: candidate: 'pages of it'
 1185 |     operator<=>(const __normal_iterator<_IteratorL, _Container>& __lhs,
/home/me/a.cpp:9:1: error: a second one
"""

NVCC_TEMPLATE = """\
/usr/include/c++/12/bits/ops.h(45): error: no operator "<" matches these operands
            operand types are: P < P
        { return *__it1 < *__it2; }
                        ^
/usr/include/c++/12/bits/ops.h(45): note #3328-D: pages of it
          detected during:
            instantiation of "bool less(T, T)" at line 7 of /usr/include/c++/12/bits/stl_algo.h
            instantiation of "void std::sort(P*, P*)" at line 5 of /home/me/a.cu

1 error detected in the compilation of "unit.cu".
"""


def test_a_template_error_of_gxx_keeps_the_error_and_the_authors_line() -> None:
    first = first_error(GXX_TEMPLATE)
    assert (first.at, first.required_from) == ("/home/me/a.cpp:5:38", None)
    assert first.text.splitlines() == [
        "no match for 'operator<'",
        "   45 |       { return *__it1 < *__it2; }",
        "      |                ~~~~~~~^~~~~~~~",
    ]


def test_a_template_error_of_nvcc_keeps_the_error_and_the_authors_line() -> None:
    first = first_error(NVCC_TEMPLATE)
    assert (first.at, first.required_from) == ("/home/me/a.cu:5", None)
    assert first.text.splitlines()[0] == 'no operator "<" matches these operands'
    assert "pages" not in first.text
    assert "detected during" not in first.text


OURS = "/p/pullback/csrc/cuda_on_cpu/include/cufft.h"
WRITTEN = "/home/me/.cache/pullback/57240a358bd8f97b80f78df62f57a2d8/cuda_on_cpu/cufft.h"
CHAIN = f"""\
In file included from {OURS.replace("cufft", "cufftXt")}:4,
                 from /home/me/fft.cuh:3,
                 from /home/me/a.cu:7:
{OURS}:4:2: error: #error "cuFFT does not run on the CPU"
    4 | #error "cuFFT does not run on the CPU"
"""


def test_an_error_in_our_own_header_is_one_of_the_line_that_includes_it() -> None:
    assert first_error(CHAIN).at == "/home/me/fft.cuh:3"
    assert first_error(CHAIN.replace(OURS, WRITTEN)).at == "/home/me/fft.cuh:3"
    elsewhere = CHAIN.replace(OURS + ":4:2", "/home/me/b.cu:9:1")
    assert first_error(elsewhere).at == "/home/me/b.cu:9:1"


def test_a_note_that_names_the_cure_joins_the_error() -> None:
    hint = "did you forget to '#include <v>'?"
    log = f"a.cpp:1:6: error: 'x' is not a member\n    1 | x\na.cpp:1:1: note: {hint}\n"
    assert first_error(log).text.splitlines()[0] == f"'x' is not a member ({hint})"


@pytest.mark.parametrize(
    "log",
    [
        "{standard input}: Assembler messages:\n{standard input}:4: Error: no such instruction\n",
        "/usr/bin/ld: cannot find -lnothing: No such file\ncollect2: error: ld returned 1\n",
        "words of no known form\n",
    ],
)
def test_what_has_no_place_is_shown_as_it_is(log: str) -> None:
    first = first_error(log)
    assert first.at is None
    assert first.text
    assert first.text.splitlines()[-1] in log
