"""What is released: a source distribution, and a wheel that is built from it."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from email.message import Message
from importlib.metadata import version as metadata_version
from pathlib import Path

import pytest

import pullback
from tests.fresh import python

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pullback"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both, made as a release is made, but without the network."""
    folder = tmp_path_factory.mktemp("release")
    # A copy, because setuptools writes into the folder that it packs.
    left = shutil.ignore_patterns(".git", ".venv", ".*cache", "*.egg-info", "build", "dist")
    source = shutil.copytree(ROOT, folder / "source", ignore=left)
    answer = python("-m", "build", "--no-isolation", "-o", folder / "dist", source, folder=folder)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


@pytest.mark.ci
def test_a_wheel_has_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    wanted = {str(path.relative_to(PACKAGE.parent)) for path in files}
    assert wanted - set(wheel.namelist()) == set()
    # CUDA_ON_CPU works by what Python reads at its start; py.typed tells type checkers.
    assert {"pullback_cuda.pth", "pullback/py.typed"} <= set(wheel.namelist())


@pytest.mark.ci
def test_a_wheel_says_its_licence_and_has_its_text(
    wheel: zipfile.ZipFile, metadata: Message
) -> None:
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata.get_all("License-File") == ["LICENSE"]
    (name,) = (name for name in wheel.namelist() if name.endswith("/licenses/LICENSE"))
    assert wheel.read(name).decode() == (ROOT / "LICENSE").read_text()


@pytest.mark.ci
def test_a_source_distribution_has_what_its_readme_names(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    named = {"CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "constraints.txt"}
    named |= {"CITATION.cff", "docs/policy.md", ".ci/release"}
    assert named | {"docs/tutorial.md", "tests/conftest.py", "examples/cpp_train"} <= names


def test_the_version_is_stated_once_and_cited() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    texts = [path.read_text() for path in PACKAGE.rglob("*.py") if "project" not in path.parts]
    assert not [text for text in texts if re.search(r"^__version__ *=", text, re.MULTILINE)]
    assert pullback.__version__ == metadata_version("pullback")


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_release_is_made_without_the_network(tmp_path: Path) -> None:
    left = shutil.ignore_patterns(".git", ".venv", ".*cache", "*.egg-info", "build", "dist")
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=left)
    run = [source / ".ci" / "release", tmp_path / "out"]
    early = subprocess.run(run, capture_output=True, text=True, check=False)
    assert "CHANGELOG.md has no part" in early.stderr
    changes = source / "CHANGELOG.md"
    version = metadata_version("pullback")
    text = changes.read_text().replace(
        "## [Unreleased]", f"## [Unreleased]\n\n## [{version}] - 2026-12-01"
    )
    changes.write_text(text)
    made = subprocess.run(run, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"pullback-{version}-py3-none-any.whl", f"pullback-{version}.tar.gz"]
