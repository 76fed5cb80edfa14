"""The documentation's code runs, from top to bottom, as a reader would run it."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import probes_page
import pytest

ROOT = Path(__file__).parents[2]
# A named file ("`softplus.cpp`:" or "`softplus.cpp` knows …") and the block after it, or Python.
BLOCK = re.compile(
    r"(?:^`(?P<file>[\w.]+)`[^\n]*\n\n)?```(?P<language>cpp|python)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
MULTILINE = re.MULTILINE | re.DOTALL

pytestmark = pytest.mark.compiler


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_code_on_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    namespace: dict[str, object] = {"__name__": "page"}
    blocks = list(BLOCK.finditer((ROOT / page).read_text()))
    assert blocks
    for block in blocks:
        if block["language"] == "cpp":
            Path(block["file"]).write_text(block["code"])
        elif not block["code"].startswith(">>>"):
            exec(compile(block["code"], page, "exec"), namespace)


@pytest.mark.parametrize(
    "page",
    [
        "docs/tutorial.md",
        *(
            pytest.param(f"docs/{name}.md", marks=pytest.mark.thorough)
            for name in ("index-notation", "recurrences")
        ),
    ],
)
def test_a_session_on_a_page_prints_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    namespace: dict[str, object] = {"__name__": "page"}
    sessions = 0
    for block in BLOCK.finditer((ROOT / page).read_text()):
        code = block["code"]
        if block["language"] == "cpp":
            Path(block["file"]).write_text(code)
        elif not code.startswith(">>>"):
            exec(compile(code, page, "exec"), namespace)
        else:
            sessions += 1
            for example in re.findall(r">>> (.*)\n((?:(?!>>>).*\n)+)", code):
                assert_prints(example[0], example[1], namespace)
    assert sessions


def assert_prints(source: str, expected: str, namespace: dict[str, object]) -> None:
    try:
        printed = repr(eval(source, namespace))
    except Exception as error:
        printed = f"{type(error).__name__}: {error}"
    assert printed.strip() == expected.strip()


def test_the_report_that_is_shown_is_the_one_that_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme, page = ((ROOT / name).read_text() for name in ("README.md", "docs/check.md"))
    code = re.search(
        r"```python\n(class SquaredError.*?)^```\n\n```\n(.*?)^```$", readme, MULTILINE
    )
    shown = re.search(r"^```\n(SquaredError.*?)^```$", page, MULTILINE)
    assert code
    assert shown
    file = tmp_path / "loss.py"
    file.write_text(f"import torch\nimport pullback as pb\n\n\n{code[1]}")
    runpy.run_path(str(file))
    printed = capsys.readouterr().out
    assert code[2] in printed
    assert without_times(shown[1]) == without_times(printed)


def without_times(report: str) -> str:
    return re.sub(r"\d+\.\d s", "some s", report).strip()


@pytest.mark.parametrize("path", probes_page.WRITTEN, ids=lambda path: path.name)
def test_what_is_said_of_probes_is_what_their_pages_say(path: Path) -> None:
    said = "run: python tests/repo/probes_page.py"
    assert path.read_text(encoding="utf-8") == probes_page.WRITTEN[path](), said
