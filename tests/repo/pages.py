"""A page of the documentation as a program: its files, its Python, its sessions and its commands.

A block below "`softplus.cpp`:" is a file. Other Python runs from the top of the page to its end,
also what stands in a comment, where readers do not see it. What a page shows has to be printed:
in a session, below a command, and in a block without a language that follows Python; there it may
be a part of what is printed, or the error that ends the block. A line `...` stands for any lines.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?:^`(?P<file>[\w/-]+\.(?:cpp|cu|cuh|h|py|txt|toml))`[^\n]*:\n\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$"
    r"(?:\n(?:-->\n)?\n```\n(?P<printed>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
SESSION = re.compile(r"^>>> (.*\n(?:\.\.\. .*\n)*)((?:(?!>>>).*\n)*)", re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*\n)((?:(?!\$ ).*\n)*)", re.MULTILINE)
DURATION = re.compile(r"\d+(?:\.\d+)? (s|ms|µs)\b")


def has_code(page: Path) -> bool:
    """Return whether anything on a page runs."""
    blocks = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return any(block["language"] in ("python", "console") for block in blocks)


def run(page: Path, folder: Path) -> None:
    """Run a page in an empty folder; what it changes in this process stays changed."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(folder))
    namespace: dict[str, object] = {"__name__": "__main__"}
    blocks = list(BLOCK.finditer(page.read_text(encoding="utf-8")))
    # A file may stand below what needs it, and later again as it is after an edit.
    for block in reversed(blocks):
        write(block, folder)
        # Another module of that name may have been imported.
        sys.modules.pop(Path(block["file"] or "").stem, None)
    for number, block in enumerate(blocks, 1):
        code, name = block["code"], f"{page.stem}-{number}.py"
        if block["file"]:
            write(block, folder)
        elif block["language"] == "console":
            for command, shown in COMMAND.findall(code):
                assert_shows(shown, output_of(command, folder), folder)
        elif block["language"] == "python" and code.startswith(">>>"):
            for statement, shown in SESSION.findall(code):
                source = re.sub(r"^\.\.\. ", "", statement, flags=re.MULTILINE)
                assert_shows(shown, printed_by(source, name, "single", namespace), folder)
        elif block["language"] == "python":
            shown = block["printed"]
            printed = printed_by(code, name, "exec", namespace, may_raise=bool(shown))
            if shown:
                assert_shows(shown, printed, folder, part=True)


def write(block: re.Match[str], folder: Path) -> None:
    """Write a block that is a file."""
    if block["file"]:
        path = folder / block["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block["code"], encoding="utf-8")


def printed_by(
    code: str, name: str, mode: str, namespace: dict[str, object], *, may_raise: bool = True
) -> str:
    """Run Python, and return what it prints, and in the end its error, as a session shows it."""
    # Where tracebacks and the checker look for the text of a line.
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            exec(compile(code, name, mode), namespace)
        except Exception as error:
            if not may_raise:
                raise
            print(f"{type(error).__name__}: {error}")  # noqa: T201
    return out.getvalue()


def output_of(command: str, folder: Path) -> str:
    """Run a command of a shell that has `python` and `pullback`; return what it prints."""
    programs = folder / ".bin"
    programs.mkdir(exist_ok=True)
    for name, words in (("python", ""), ("pullback", "-m pullback")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONWARNINGS": "ignore",
        "COLUMNS": "120",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def assert_shows(shown: str, printed: str, folder: Path, *, part: bool = False) -> None:
    """Require that what a page shows is printed; durations and the folder may be others."""
    shown, printed = (
        DURATION.sub(r"some \1", re.sub(r" +$", "", text, flags=re.MULTILINE)).strip("\n")
        for text in (shown, printed.replace(str(folder), "/home/me"))
    )
    lines = [
        r"(?:.*\n)*" if line == "..." else re.escape(f"{line}\n") for line in shown.split("\n")
    ]
    pattern = "".join(lines)
    found = re.search(pattern, f"{printed}\n") if part else re.fullmatch(pattern, f"{printed}\n")
    assert found, f"the page shows\n{shown}\n--- but this is printed\n{printed}"
