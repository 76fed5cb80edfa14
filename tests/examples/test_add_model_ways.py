"""One definition, three ways to compile it: the model trains to the same figures with each."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from loading import EXAMPLES

import pullback as pb
from tests import fresh
from tests.quickly import LAUNCHER

pytestmark = pytest.mark.compiler
PACKAGE = str(Path(pb.__file__).parents[1])


def run(folder: Path, *words: str) -> CompletedProcess[str]:
    """Run Python as a newcomer does in the example's folder."""
    found = {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{folder / 'site'}"}
    return fresh.python(*words, folder=folder, **found, **LAUNCHER)


def output_of(folder: Path, *words: str) -> str:
    answer = run(folder, *words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, in a folder of its own."""
    copy = tmp_path_factory.mktemp("ways") / "add_model"
    return Path(shutil.copytree(EXAMPLES / "add_model", copy))


@pytest.fixture(scope="module")
def trained(folder: Path) -> str:
    """What training prints when the operator is compiled at run time."""
    return output_of(folder, "train.py", "--compiler", "jit")


@pytest.mark.thorough
def test_it_trains_compiled_at_run_time(trained: str) -> None:
    assert trained.count("epoch") == 20
    assert trained == trained.replace("nan", "")


@pytest.mark.thorough
def test_it_trains_with_an_installed_package(folder: Path, trained: str) -> None:
    build = ("-m", "pullback", "build", "add2.py", "--as", "setup", "--name", "add2_package")
    output_of(folder, *build)
    install = ("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation")
    output_of(folder, *install, "--target", "site", "./add2_package-setup")
    assert output_of(folder, "train.py", "--compiler", "setup") == trained


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake here")
def test_it_trains_with_a_library_of_cmakes(folder: Path, trained: str) -> None:
    build = ("-m", "pullback", "build", "add2.py", "--as", "cmake", "--into", "add2-cmake")
    output_of(folder, *build)
    assert output_of(folder, "train.py", "--compiler", "cmake") == trained


def test_another_way_is_an_error_that_lists_the_three(folder: Path) -> None:
    answer = run(folder, "train.py", "--compiler", "make")
    assert answer.returncode == 2
    for way in ("jit", "setup", "cmake"):
        assert way in answer.stderr


@pytest.mark.parametrize("way", ["setup", "cmake"])
def test_what_is_not_built_yet_is_said_with_the_command(way: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(EXAMPLES / "add_model", tmp_path / "fresh"))
    answer = run(copy, "train.py", "--compiler", way)
    assert answer.returncode == 1
    assert f"pullback build add2.py --as {way}" in answer.stderr
