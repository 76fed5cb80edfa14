"""The runtime libraries: looked for once, and what is loaded is told the options."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullback.kernels.cuda_on_cpu import library, runtimes
from pullback.kernels.cuda_on_cpu.mode import Mode

pytestmark = pytest.mark.compiler


def refuse(*_: object, **__: object) -> Path:
    raise AssertionError("nothing is to be compiled, nor looked for")


def test_a_runtime_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    path = library.runtime("none")
    monkeypatch.setattr(library.compilation, "compile", refuse)
    assert library.runtime("none") == path
    assert library.link("none")[-1] == str(path)


def test_a_runtime_that_is_gone_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(library._runtimes, "none", tmp_path / "gone.so")
    assert library.runtime("none").is_file()


def test_options_are_handed_to_what_is_loaded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes.load(Mode())
    there = {Path(each._name) for each in runtimes.loaded_runtimes()}
    assert library.runtime("none") in there
    monkeypatch.setattr(library, "runtime", refuse)
    runtimes.configure(Mode(check="race", order="random:3"))
    assert {Path(each._name) for each in runtimes.loaded_runtimes()} == there
    runtimes.configure(Mode())
