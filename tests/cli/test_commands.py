"""What every command shares: help, versions, exit codes, the texts of errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pullback.cli import app, info
from pullback.kernels import toolchain

COMMANDS = ("tour", "build", "check", "explain", "cuda", "info")


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

    monkeypatch.setattr(info, "versions", break_down)
    result = CliRunner().invoke(app, ["info"])
    assert result.exit_code == 2
    assert "ZeroDivisionError" in result.stderr
    assert "This is a fault of pullback. Report it" in result.stderr


def test_info_shows_versions_compilers_and_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    result = CliRunner().invoke(app, ["info"])
    assert result.exit_code == 0
    keys = [line.split("  ")[0] for line in result.output.splitlines()]
    for key in ("pullback", "torch", "python", "cuda", "gpu", "cache", "size", "runtime"):
        assert key in keys
    assert "refused" in keys
    assert "CXX=/nowhere/g++: not found" in result.output


def test_info_without_a_compiler_says_that_the_runtime_cannot_be_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    result = CliRunner().invoke(app, ["info"])
    assert result.exit_code == 0
    assert f"[{toolchain.CompilerMissing.code}]" in result.output
