"""What every command shares: help, versions, exit codes, the texts of errors."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from pullback.cli import app, doctor, new, screen
from pullback.kernels import cache, toolchain
from pullback.kernels.cache_folder import CacheNotice
from tests.fresh import python

COMMANDS = ("tour", "new", "build", "check", "explain", "doctor", "cuda", "cache")


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(f"\n  {command} " in result.output for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f" {command} [OPTIONS]" in result.output


def test_version_names_pullback_and_torch() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("pullback ")
    assert ", torch 2." in result.output


def test_an_unknown_command_cannot_run() -> None:
    assert CliRunner().invoke(app, ["tuor"]).exit_code == 2


def test_the_module_runs_and_help_does_not_wait_for_torch() -> None:
    code = "import sys, pullback.cli; assert 'torch' not in sys.modules, 'imported'"
    subprocess.run([sys.executable, "-c", code], check=True)
    command = [sys.executable, "-m", "pullback", "--help"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("Usage: pullback ")


def test_a_fault_of_ours_asks_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor, "versions", break_down)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 2
    assert "ZeroDivisionError" in result.stderr
    assert "This is a fault of pullback. Report it" in result.stderr


def test_a_file_that_cannot_be_written_is_no_fault_of_ours(tmp_path: Path) -> None:
    way = tmp_path / "file"
    way.touch()
    for target in (way / "below", Path("/proc/below")):
        result = CliRunner().invoke(app, ["new", "foo", "--into", str(target)])
        assert result.exit_code == 2
        assert "PB808" in result.stderr
        assert "fault of pullback" not in result.stderr


def test_a_full_disk_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(doctor, "versions", fill)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 2
    assert result.stderr.startswith("file-unusable [PB808]: No space left on device")


def test_a_cache_that_is_a_file_can_be_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "file"))
    with pytest.warns(CacheNotice, match="cannot be used"):
        result = CliRunner().invoke(app, ["cache", "clean"])
    assert (result.exit_code, result.exception) == (0, None)
    assert (tmp_path / "file").is_file()


def test_errors_are_data_where_json_is_asked_for() -> None:
    result = CliRunner().invoke(app, ["explain", "PB5O4", "--format", "json"])
    assert result.exit_code == 2
    record = json.loads(result.stdout)
    assert not record["ok"]
    assert [error["code"] for error in record["errors"]] == ["PB806"]


def test_the_completion_of_a_shell_is_offered() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize(("terminal", "colour"), [(True, True), (False, False)])
def test_faults_have_a_colour_on_a_terminal_alone(terminal: bool, colour: bool) -> None:
    console = Console(
        force_terminal=terminal, file=io.StringIO(), color_system="standard" if terminal else None
    )
    screen.say_report(console, "Cube    seed 0\n  FAIL  some-name  PB504  a FAIL  inside")
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert ("\x1b[1;31m  FAIL\x1b[0m" in shown) == colour
    assert shown.count("\x1b[1;31m") == colour


def test_what_is_done_is_shown_on_a_terminal_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with screen.progress("reading") as update:
        update("writing")
    assert capfd.readouterr() == ("", "")


# --- doctor


def test_doctor_shows_what_was_found_and_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    keys = [line.split("  ")[0] for line in result.output.splitlines()]
    for key in ("pullback", "torch", "python", "cuda", "gpu", "cache", "runtime", "ok"):
        assert key in keys
    assert "refused" in keys
    assert "CXX=/nowhere/g++: not found" in result.output
    assert "compiles and links" in result.output


def test_doctor_without_a_compiler_says_what_does_not_work_and_the_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("CXX", "CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(app, ["doctor", "--format", "json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    facts = {fact["name"]: fact["value"] for fact in record["facts"]}
    assert f"[{toolchain.CompilerMissing.code}]" in facts["runtime"]
    cpp = next(a for a in record["abilities"] if a["what"] == "operators in C++")
    assert cpp["state"] == "no"
    assert "apt install g++" in cpp["help"]
    assert {a["state"] for a in record["abilities"] if a["what"] == "operators in Python"} == {"ok"}
    cmake = next(a for a in record["abilities"] if a["what"] == "libraries without Python")
    assert cmake["state"] == "add"


def test_doctor_finds_a_compiler_that_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken-g++"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec g++ --version\n'
        "echo 'trial.cpp:1:10: fatal error: vector: No such file' >&2; exit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "broken-g++ 12" in result.output or "cannot compile a small library" in result.output
    assert "vector: No such file" in result.output


def test_doctor_names_a_pytorch_that_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.1.0+cpu")
    assert doctor.python_and_pytorch().state == "FAIL"


# --- cache


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one library of each of two names; nothing compiles them."""
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    for number, name in enumerate(("demo-one", "demo-two")):
        content = name.encode() * 1000
        sha256 = hashlib.sha256(content).hexdigest()
        entry = cache.folder() / f"{number:032x}"
        entry.mkdir(mode=0o700)
        library = f"{name}-{sha256[:16]}.so"
        (entry / library).write_bytes(content)
        variant = {"dependencies": {}, "library": library, "sha256": sha256}
        (entry / cache.MANIFEST).write_text(json.dumps({"variants": [variant]}))
    return cache.folder()


@pytest.mark.parametrize("words", [["cache"], ["cache", "size"]])
def test_the_cache_is_shown(words: list[str], filled: Path) -> None:
    record = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).stdout)
    assert [own["name"] for own in record["libraries"]] == ["demo-one", "demo-two"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert str(filled) in result.output
    assert "demo-one" in result.output
    assert "in 2 libraries" in result.output


def test_a_library_that_was_changed_is_found(filled: Path) -> None:
    assert CliRunner().invoke(app, ["cache", "verify"]).exit_code == 0
    (library,) = filled.glob("*/demo-two-*.so")
    library.write_bytes(b"something else")
    result = CliRunner().invoke(app, ["cache", "verify", "--format", "json"])
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert [row["entry"] for row in record["damaged"]] == [str(library.parent)]
    assert library.name in record["damaged"][0]["faults"][0]


@pytest.mark.parametrize("damage", ["manifest", "writable", "missing"])
def test_what_else_is_not_loaded_is_found(damage: str, filled: Path) -> None:
    (library,) = filled.glob("*/demo-one-*.so")
    if damage == "manifest":
        (library.parent / cache.MANIFEST).write_text("{")
    elif damage == "writable":
        library.parent.chmod(0o777)
    else:
        library.unlink()
    result = CliRunner().invoke(app, ["cache", "verify"])
    assert result.exit_code == 1
    assert "1 of 2 entries are damaged" in result.output


def test_the_cache_is_emptied(filled: Path) -> None:
    result = CliRunner().invoke(app, ["cache", "clean", "--format", "json"])
    assert json.loads(result.stdout)["removed"] == 2
    assert list(filled.parent.glob("cache/*")) == []


# --- new


def test_a_new_project_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "waves"]).exit_code == 0
    files = [path for path in Path("waves").rglob("*") if path.is_file()]
    assert {str(path) for path in files} >= {
        *("waves/src/waves/operators.py", "waves/src/waves/softplus.cpp", "waves/README.md"),
        *("waves/tests/test_operators.py", "waves/.github/workflows/test.yml", "waves/.gitignore"),
    }
    assert not [path for path in files if new.NAME in path.read_text()]


def test_a_new_project_computes_at_once(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["new", "waves", "--into", str(tmp_path / "w")]).exit_code == 0
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "pytorchs")
    answer = python(*words, folder=tmp_path / "w")
    assert answer.returncode == 0, answer.stdout
    assert "2 passed" in answer.stdout


@pytest.mark.thorough
def test_a_new_project_passes_its_own_tests_and_its_own_check(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["new", "waves", "--into", str(tmp_path / "w")]).exit_code == 0
    answer = python("-m", "pytest", "-q", folder=tmp_path / "w")
    assert answer.returncode == 0, answer.stdout
    answer = python("-m", "pullback", "check", "src", folder=tmp_path / "w")
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize(
    ("name", "code"),
    [("not-a-name", "PB710"), ("class", "PB710"), ("json", "PB710"), ("w", "PB707")],
)
def test_a_project_that_cannot_be_written_is_told(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "mine.py").touch()
    result = CliRunner().invoke(app, ["new", name])
    assert result.exit_code == 2
    assert code in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
