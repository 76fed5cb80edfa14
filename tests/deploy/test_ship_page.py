"""The commands in docs/ship.md run as they stand, section by section."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from building import ENVIRONMENT, PACKAGE

from tests.quickly import LAUNCHER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ship.md").read_text(encoding="utf-8")
FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What a section's commands print, beside ending well.
PRINTED = {
    # The loss shrinks by 0.98 ** 50 each time; the second run begins where the first one ended.
    "In a C++ program": r"epoch 325   loss    0.004\n(.*\n){6}epoch   0   loss    0.000\n",
}

pytestmark = [pytest.mark.compiler, pytest.mark.thorough]


def sections() -> dict[str, str]:
    """Return the commands of each section that has some."""
    texts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)
    found = {
        title: "".join(COMMANDS.findall(text))
        for title, text in zip(texts[1::2], texts[2::2], strict=True)
    }
    return {title: commands for title, commands in found.items() if commands}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files, and the commands `pullback` and `python`."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILE.findall(PAGE):
        (folder / name).write_text(text)
    shutil.copytree(ROOT / "examples", folder / "examples")
    programs = folder / "bin"
    programs.mkdir()
    for name, words in (("python", ""), ("pip", "-m pip"), ("pullback", "-m pullback")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("title", sections())
def test_the_commands_of_a_section_run(title: str, folder: Path) -> None:
    site = folder / "site"
    variables = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        # Installed is found before what is in the folder itself.
        "PYTHONPATH": f"{site}{os.pathsep}{PACKAGE}",
        "PYTHONSAFEPATH": "1",
        # What is on the page, without the network.
        **{"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"},
        **{"PIP_TARGET": str(site), "PIP_UPGRADE": "1", "PIP_QUIET": "1"},
        # One library is compiled as its users compile it.
        **({"CMAKE_CXX_COMPILER_LAUNCHER": ""} if title.startswith("As a CMake") else LAUNCHER),
    }
    answer = subprocess.run(
        ["bash", "-euc", sections()[title]],
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert re.search(PRINTED.get(title, ""), answer.stdout), answer.stdout
