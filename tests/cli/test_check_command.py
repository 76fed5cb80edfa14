"""`pullback check` and `pullback explain`."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pullback.cli import app
from pullback.verify.probes import every_probe

GOOD = """
import torch

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad

def cubed(x):
    return Cube.apply(x) + 1

class Layer(torch.nn.Module):
    def forward(self, x):
        return Cube.apply(x)
"""
BAD = """
class Overwriting(Cube):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return x.data.pow_(2).mul_(3 * grad)
"""
NEEDY = """
class Needy(Cube):
    @staticmethod
    def forward(ctx, x):
        assert x.shape == (11,)
        return Cube.forward(ctx, x)
"""
FEW = ("--probe", "PB501", "--probe", "PB504", "--probe", "PB530")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import what each fork of a check would import anew: a second each."""
    importlib.import_module("torch._dynamo")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ops.py"
    path.write_text(GOOD + BAD, encoding="utf-8")
    return path


@pytest.mark.usefixtures("file")
def test_each_function_of_a_file_is_checked() -> None:
    result = run("check", "ops.py", *FEW)
    assert result.exit_code == 1, result.output
    assert "Cube(x: float64 (3, 4))    seed 0\n" in result.output
    assert "FAIL  saved-tensor-overwritten  PB504  Overwriting: backward changes" in result.output
    assert re.search(r"at: +ops.py:2\d in backward: return x.data.pow_", result.output)
    assert result.output.endswith("1 of 2 have faults\n")


@pytest.mark.usefixtures("file")
def test_the_replay_command_finds_the_same() -> None:
    first = run("check", "ops.py:Overwriting", *FEW, "--seed", "3")
    command = re.findall(r"^replay: pullback (.*)$", first.output, re.MULTILINE)
    assert command == ["check ops.py:Overwriting --probe PB504 --seed 3"]
    longer = run("check", "ops.py:Overwriting", *FEW, "--timeout", "90")
    assert "--probe PB504 --timeout 90 --seed 0" in longer.output
    again = run(*shlex.split(command[0]))
    assert again.exit_code == 1
    block = re.search(r"  FAIL.*?\n\n", first.output, re.DOTALL)
    assert block
    assert block[0] in again.output


@pytest.mark.parametrize("name", ["Cube", "cubed", "Layer"])
@pytest.mark.usefixtures("file")
def test_a_name_is_checked_alone(name: str) -> None:
    result = run("check", f"ops.py:{name}", *FEW)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{name}(x: float64 (3, 4))")
    assert "FAIL" not in result.output


@pytest.mark.usefixtures("file")
def test_a_module_is_named_with_dots() -> None:
    assert run("check", "ops:Cube", *FEW).exit_code == 0


@pytest.mark.parametrize(
    "given",
    [
        'example_inputs = {"Needy": (torch.ones(11),), "Cube": torch.ones(2)}',
        'example_inputs = lambda: {"Needy": lambda: torch.ones(11)}',
        "Needy.example_inputs = (torch.ones(11),)",
    ],
)
def test_a_file_may_have_inputs(given: str, file: Path) -> None:
    file.write_text(f"{GOOD}{NEEDY}{given}\n", encoding="utf-8")
    result = run("check", str(file), *FEW)
    assert result.exit_code == 0, result.output
    assert "Needy(x: float32 (11,))" in result.output


def test_what_cannot_be_checked_is_told_and_the_rest_is_checked(file: Path) -> None:
    file.write_text(GOOD + NEEDY, encoding="utf-8")
    result = run("check", "ops.py", *FEW)
    assert result.exit_code == 2
    assert "no-inputs [PB404]: Needy: no inputs were given" in result.stderr
    assert "ok: 3 probes" in result.output
    assert "0 of 1 have faults, 1 could not be checked" in result.output


@pytest.mark.usefixtures("file")
def test_json_has_the_same_records() -> None:
    for option in (["--json"], ["--format", "json"]):
        result = run("check", "ops.py", *FEW, *option)
        assert result.exit_code == 1
        record = json.loads(result.stdout)
        assert not record["ok"]
        assert record["errors"] == []
        assert [report["ok"] for report in record["reports"]] == [True, False]
        assert record["reports"][1]["replay"].startswith("pullback check ops.py:Overwriting ")


def test_a_page_is_written(file: Path) -> None:
    assert run("check", "ops.py", *FEW, "--html", "page.html").exit_code == 1
    page = (file.parent / "page.html").read_text(encoding="utf-8")
    assert page.count("<h1>") == 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project: a package whose modules import from one another, a script, tests, what is left."""
    monkeypatch.chdir(tmp_path)
    name = f"package_{tmp_path.name.replace('-', '_')}"
    for path, text in {
        f"src/{name}/__init__.py": "from .cube import Cube\nFunction = None\n",
        f"src/{name}/cube.py": GOOD,
        f"src/{name}/inner/__init__.py": "",
        f"src/{name}/inner/bad.py": f"import torch\nfrom ..cube import Cube\n{BAD}",
        "src/stops.py": "import pullback\n1 / 0\n",
        "src/plain.py": "1 / 0\n",
        "src/test_cube.py": GOOD + BAD,
        "src/setup.py": "import pullback\nraise SystemExit\n",
        "src/.hidden/bad.py": GOOD + BAD,
        "src/venv/pyvenv.cfg": "",
        "src/venv/bad.py": GOOD + BAD,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path / "src" / name


def test_each_file_of_a_folder_is_checked_and_those_that_stop_are_told(folder: Path) -> None:
    result = run("check", "src", *FEW, "--format", "json")
    assert result.exit_code == 1, result.output
    record = json.loads(result.stdout)
    assert [report["place"] for report in record["reports"]] == [
        f"src/{folder.name}/cube.py:Cube",
        f"src/{folder.name}/inner/bad.py:Overwriting",
    ]
    assert [error["code"] for error in record["errors"]] == ["PB802"]
    assert "src/stops.py stopped with ZeroDivisionError" in result.stderr


def test_a_package_is_checked_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder.parent)
    result = run("check", folder.name, *FEW)
    assert result.exit_code == 1, result.output
    assert re.search(rf"^FAIL +{folder.name}.inner.bad:Overwriting +PB504 +\d", result.output, re.M)
    assert re.search(rf"^ok +{folder.name}.cube:Cube +\d", result.output, re.M)


@pytest.mark.usefixtures("file")
def test_a_baseline_lets_known_faults_pass_and_no_others(file: Path) -> None:
    assert run("check", "ops.py", *FEW, "--write-baseline", "known.json").exit_code == 0
    known = run("check", "ops.py", *FEW, "--baseline", "known.json")
    assert known.exit_code == 0, known.output
    assert "FAIL  saved-tensor-overwritten" in known.output
    assert re.search(r"^known +ops.py:Overwriting +PB504", known.output, re.MULTILINE)
    # The lines above may change; another fault fails, and one that was not looked for is not gone.
    file.write_text("\n\n" + GOOD + BAD + BAD.replace("Overwriting", "Other"), encoding="utf-8")
    again = run("check", "ops.py", *FEW, "--baseline", "known.json", "--format", "json")
    assert again.exit_code == 1
    record = json.loads(again.stdout)
    assert record["known"] == [{"target": "ops.py:Overwriting", "code": "PB504"}]
    assert not record["ok"]
    other = run("check", "ops.py:Overwriting", "--probe", "PB501", "--baseline", "known.json")
    assert "mended" not in other.output
    file.write_text(GOOD + BAD.replace(".data", ""), encoding="utf-8")
    file.write_text(GOOD + BAD.replace("x.data.pow_(2)", "x.pow(2)"), encoding="utf-8")
    mended = run("check", "ops.py", *FEW, "--baseline", "known.json")
    assert "mended, and still in the baseline: PB504 of ops.py:Overwriting" in mended.output


def test_sarif_has_rules_places_and_what_is_new(folder: Path) -> None:
    words = ["check", "src", *FEW, "--format", "sarif"]
    result = run(*words)
    assert result.exit_code == 1
    log = json.loads(result.stdout)
    assert log["version"] == "2.1.0"
    (own,) = log["runs"]
    (found,) = own["results"]
    rule = own["tool"]["driver"]["rules"][found["ruleIndex"]]
    assert rule["id"] == found["ruleId"] == "PB504"
    assert rule["help"]["markdown"].startswith("# PB504 saved-tensor-overwritten")
    assert (found["level"], found["baselineState"]) == ("error", "new")
    place = found["locations"][0]["physicalLocation"]
    bad = f"src/{folder.name}/inner/bad.py"
    assert place["artifactLocation"] == {"uri": bad, "uriBaseId": "SRCROOT"}
    line = Path(bad).read_text().splitlines()[place["region"]["startLine"] - 1]
    assert "x.data.pow_" in line
    assert not own["invocations"][0]["executionSuccessful"]
    assert "stops.py" in own["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    run(*words[:-2], "--write-baseline", "known.json")
    (again,) = json.loads(run(*words, "--baseline", "known.json").stdout)["runs"]
    assert again["results"][0]["baselineState"] == "unchanged"
    assert again["results"][0]["partialFingerprints"] == found["partialFingerprints"]


@pytest.mark.usefixtures("file")
def test_verbose_has_a_line_for_each_probe() -> None:
    result = run("check", "ops.py:Cube", *FEW, "--verbose")
    assert re.search(r"^  ok +forward-raises +PB501 ", result.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.py"], "file-missing [PB801]"),
        (["no.such.module"], "file-missing [PB801]"),
        (["ops.py:Cub"], "name-missing [PB805]: ops has no 'Cub'\n    help: did you mean 'Cube'?"),
        (["ops.py", "--probe", "PB1"], "wrong-check-option [PB402]"),
        (["ops.py", "--declare", "nothing"], "wrong-check-option [PB402]"),
        (["ops.py", "--format", "yaml"], "Invalid value for '--format'"),
        (["ops.py", "--baseline", "none.json"], "baseline-unread [PB807]"),
        (["ops.py", "--baseline", "stopping.py"], "baseline-unread [PB807]"),
        (["empty"], "nothing-to-check [PB804]"),
        (["stopping.py"], "file-stopped [PB802]"),
        (["empty.py"], "nothing-to-check [PB804]"),
    ],
)
def test_what_cannot_run_is_told(words: list[str], said: str, file: Path) -> None:
    (file.parent / "stopping.py").write_text("1 / 0\n", encoding="utf-8")
    (file.parent / "empty.py").write_text("from ops import Cube\n", encoding="utf-8")
    (file.parent / "empty").mkdir()
    result = run("check", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_probe_is_explained_by_its_page() -> None:
    for word in ("PB504", "pb504", "saved-tensor-overwritten"):
        result = run("explain", word)
        assert result.exit_code == 0
        assert result.output.startswith("# PB504 saved-tensor-overwritten\n\nBackward leaves")
        assert "## Cannot see" in result.output


def test_an_error_is_explained_in_a_line() -> None:
    result = run("explain", "PB404")
    assert result.output.startswith("# PB404 no-inputs\n\nno inputs were given")


def test_explain_lists_every_code() -> None:
    result = run("explain")
    assert result.exit_code == 0
    for code in ("PB101", "PB802", *(probe.code for probe in every_probe())):
        assert f"\n{code} " in result.output


def test_a_shell_completes_codes_and_names() -> None:
    words = {"COMP_WORDS": "pullback explain {}", "COMP_CWORD": "2"}
    for typed, found in (("PB50", "PB504"), ("saved-t", "saved-tensor-overwritten")):
        env = {name: value.format(typed) for name, value in words.items()}
        result = CliRunner().invoke(
            app, [], env=env | {"_PULLBACK_COMPLETE": "complete_bash"}, prog_name="pullback"
        )
        assert found in result.output.split()


def test_a_code_that_there_is_not_is_told() -> None:
    result = run("explain", "PB5O4")
    assert result.exit_code == 2
    assert "unknown-code [PB806]: there is no code 'PB5O4'" in result.stderr
