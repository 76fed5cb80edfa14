"""A setuptools project builds without pullback and PyTorch, and takes what its author edits."""

from __future__ import annotations

import ast
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from building import PACKAGE, SAMPLE, Once, command, pullback

import pullback as pb
from pullback.bind.loops import compiled
from pullback.bind.register import RedefinitionNotice
from pullback.deploy.wheel import TEMPLATES
from pullback.diagnostic import PullbackError
from pullback.kernels import plan
from pullback.kernels.processor import LEVELS

pytestmark = pytest.mark.compiler

# An interpreter that has setuptools, and nothing else that could be imported by mistake.
ISOLATED = """
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "pullback"):
            raise ImportError(f"{name} is hidden")
sys.meta_path.insert(0, Refuse())
sys.argv = ["setup.py", *sys.argv[1:]]
runpy.run_path("setup.py", run_name="__main__")
"""


# What `pip install --no-build-isolation .` calls, and `pip install -e .`.
BUILD = 'from setuptools import build_meta; build_meta.build_wheel("made")'
EDITABLE = 'from setuptools import build_meta; build_meta.build_editable("made")'


def written(folder: Path, namespace: str, *, options: str = "") -> Path:
    """Write the small sample under another namespace, with options of its kernel."""
    text = (SAMPLE / "small_ops.py").read_text().replace("small::", f"{namespace}::")
    file = folder / f"{namespace}_ops.py"
    file.write_text(text.replace("call=", f"{options}call=", 1))
    for name in ("scale.cpp", "scale.h"):
        shutil.copyfile(SAMPLE / name, folder / name)
    return file


@pytest.fixture(scope="session")
def project(once: Once) -> Path:
    """A project of the sample."""

    def write(folder: Path) -> None:
        written(folder, "small")
        pullback("build", "small_ops.py", "--as", "setup", folder=folder)

    return once("setup-project", write) / "small_ops-setup"


@pytest.fixture(scope="session")
def site(project: Path, once: Once) -> Path:
    """A folder in which the project is installed, with the runtime; few of its loops are."""

    def build(folder: Path) -> None:
        few = with_formulas(
            shutil.copytree(project, folder / "project"),
            "small-smooth-cpu-double.cpp",
            "small-_smooth_grad-cpu-double.cpp",
        )
        answer = command("-c", BUILD, folder=few)
        assert answer.returncode == 0, answer.stderr
        (built,) = (few / "made").iterdir()
        shutil.unpack_archive(built, folder / "site", format="zip")

    return once("setup-site", build) / "site"


@pytest.fixture
def whole(project: Path, tmp_path: Path) -> Path:
    """A project of its own."""
    return Path(shutil.copytree(project, tmp_path / "project"))


@pytest.fixture
def copied(whole: Path) -> Path:
    """A project of its own, which a test may edit; its formulas are left out, to build sooner."""
    return with_formulas(whole)


def with_formulas(project: Path, *units: str) -> Path:
    """Leave out other formulas: they take long to compile."""
    file = project / "generated" / "kernels.json"
    listed = json.loads(file.read_text())
    kept = [k for k in listed["kernels"] if k["kind"] != "formula" or k["unit"] in units]
    listed["kernels"] = kept
    file.write_text(json.dumps(listed))
    return project


def built(project: Path, *words: str) -> Path:
    """Build a wheel with setuptools alone; return the package's folder, unpacked from it."""
    dist, unpacked = project / "dist", project / "unpacked"
    answer = subprocess.run(
        [sys.executable, "-c", ISOLATED, "-q", "bdist_wheel", "--dist-dir", str(dist), *words],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert answer.returncode == 0, answer.stderr
    (wheel,) = dist.iterdir()
    shutil.unpack_archive(wheel, unpacked, format="zip")
    return unpacked / "small_ops"


def call(site: Path, expression: str, folder: Path, **variables: str) -> str:
    """Import the package from a folder, and print a value."""
    text = f"import torch, warnings; import small_ops as s; print({expression})"
    path = f"{site}{os.pathsep}{PACKAGE}"
    answer = command("-W", "ignore", "-c", text, folder=folder, PYTHONPATH=path, **variables)
    return answer.stdout.strip() or answer.stderr


@pytest.mark.ci
def test_an_installed_project_runs_without_a_compiler(site: Path, tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path), "PULLBACK_CACHE": str(tmp_path / "cache")}
    loss = "(s.smooth(s.scale(x, 3.0)).sum())"
    made = "torch.ones(2, dtype=torch.float64, requires_grad=True)"
    text = f"[g.item() for x in [{made}] for g in torch.autograd.grad({loss}, x)[0]]"
    found = json.loads(call(site, text, tmp_path, **bare))
    assert found == pytest.approx([3 / math.cosh(3) ** 2] * 2, rel=1e-12)
    assert not list(tmp_path.glob("cache/*/*.so"))


def test_no_source_of_a_kernel_is_installed(site: Path) -> None:
    suffixes = {path.suffix for path in (site / "small_ops").rglob("*") if path.is_file()}
    assert suffixes <= {".py", ".pyc", ".so", ".json"}


def test_pytorch_is_not_dragged_into_the_build(project: Path) -> None:
    assert 'requires = ["setuptools>=77"]' in (project / "pyproject.toml").read_text()


def test_its_flags_are_those_of_kernels_that_are_compiled_here() -> None:
    text = (TEMPLATES / "setup.py").read_text()
    values = {
        statement.targets[0].id: eval(ast.unparse(statement.value))
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id in ("CXX_FLAGS", "FORMULA_FLAGS", "NVCC_FLAGS", "LEVELS")
    }
    assert {*values["CXX_FLAGS"], "-pipe"} == {*plan.CXX_FLAGS, "-s"} - {"-march=native"}
    assert values["FORMULA_FLAGS"] == list(compiled.FLAGS)
    assert values["NVCC_FLAGS"] == list(plan.CUDA_FLAGS)
    levels = {m: {n: [f"-march={f}"] for n, f in own.items()} for m, own in LEVELS.items()}
    assert values["LEVELS"] == levels


@pytest.mark.thorough
def test_it_builds_where_pytorch_and_pullback_are_not(whole: Path) -> None:
    package = built(whole)
    manifest = json.loads((package / "kernels" / "manifest.json").read_text())
    operators = {row["operator"] for row in manifest["libraries"]}
    assert operators >= {"small::scale", "small::smooth", "small::_smooth_grad"}
    assert "" not in operators  # the runtime is not in it


def test_an_edited_kernel_is_built_by_the_project_alone(copied: Path, tmp_path: Path) -> None:
    header = copied / "src" / "small_ops" / "scale.h"
    header.write_text(header.read_text().replace("x * k", "x * k + 1"))
    package = built(copied)
    assert call(package.parent, "s.scale(torch.ones(2), 3.0).tolist()", tmp_path) == "[4.0, 4.0]"


@pytest.mark.thorough
def test_a_changed_call_asks_for_the_generated_part_anew(copied: Path, tmp_path: Path) -> None:
    definitions = copied / "src" / "small_ops" / "small_ops.py"
    changed = definitions.read_text().replace("scale(y, x, k, ", "scale(y, x, 5 * k, ")
    definitions.write_text(changed)
    said = call(built(copied).parent, "1", tmp_path)
    assert "other-definition [PB702]" in said
    again = "pullback build src/small_ops --as setup --into ."
    assert again in said
    shutil.rmtree(copied / "dist")
    pullback(*again.split()[1:], folder=copied)
    assert not list(copied.glob(".pullback-*"))
    assert (copied / "setup.py").is_file()
    package = built(with_formulas(copied))
    assert call(package.parent, "s.scale(torch.ones(1), 3.0).item()", tmp_path) == "15.0"


@pytest.mark.filterwarnings(
    f"ignore::{RedefinitionNotice.__module__}.{RedefinitionNotice.__name__}"
)
def test_the_generated_part_is_written_anew_and_the_rest_is_left(tmp_path: Path) -> None:
    project = pb.build(written(tmp_path, "renewed"), as_="setup", into=tmp_path / "project")
    definitions = project / "src" / "renewed_ops" / "renewed_ops.py"
    changed = definitions.read_text().replace("scale(y, x, k, ", "scale(y, x, 5 * k, ")
    definitions.write_text(changed)
    (project / "setup.py").write_text("mine")
    assert pb.build(definitions.parent, as_="setup", into=project) == project
    assert "5 * k" in (project / "generated" / "renewed-scale-cpu.cpp").read_text()
    assert definitions.read_text() == changed
    assert (project / "setup.py").read_text() == "mine"
    assert not list(project.glob(".pullback-*"))


def test_flags_for_the_processor_of_this_machine_are_left_out(tmp_path: Path) -> None:
    file = written(
        tmp_path, "portable", options="flags=['-march=native', '-DSIGN=1', '-mtune=native'], "
    )
    project = pb.build(file, as_="setup", into=tmp_path / "project")
    listed = json.loads((project / "generated" / "kernels.json").read_text())
    (scale,) = [row for row in listed["kernels"] if row["kind"] == "c++"]
    assert scale["flags"] == ["-DSIGN=1"]


def test_a_kernel_that_does_not_compile_stops_the_build(copied: Path) -> None:
    (copied / "src" / "small_ops" / "scale.cpp").write_text("nonsense")
    answer = command("setup.py", "-q", "bdist_wheel", folder=copied)
    assert answer.returncode != 0
    assert "scale.cpp:1" in answer.stderr


@pytest.mark.thorough
def test_a_source_tree_has_the_kernels_of_an_editable_install(copied: Path, tmp_path: Path) -> None:
    answer = command("-c", EDITABLE, folder=copied)
    assert answer.returncode == 0, answer.stderr
    package = copied / "src" / "small_ops"
    assert list((package / "kernels").glob("*.so"))
    # What is edited there is compiled when it is next imported, as `jit` does.
    header = package / "scale.h"
    header.write_text(header.read_text().replace("x * k", "x * k + 2"))
    assert call(package.parent, "s.scale(torch.ones(1), 3.0).item()", tmp_path) == "5.0"


def test_its_source_distribution_has_all_that_a_build_needs(copied: Path, tmp_path: Path) -> None:
    answer = command("setup.py", "-q", "sdist", "--dist-dir", tmp_path / "sdist", folder=copied)
    assert answer.returncode == 0, answer.stderr
    (archive,) = (tmp_path / "sdist").iterdir()
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    (folder,) = (tmp_path / "unpacked").iterdir()
    assert {path.name for path in folder.rglob("*.h")} > {"scale.h", "glue.h", "loop.h"}
    for path in ("generated/kernels.json", "src/small_ops/scale.cpp", "setup.py", "README.md"):
        assert (folder / path).is_file()


def test_a_kernel_elsewhere_has_no_place_in_a_project(tmp_path: Path) -> None:
    (tmp_path / "far.cpp").write_text("void far_away(float* y) { *y = 1; }")
    folder = tmp_path / "author"
    folder.mkdir()
    (folder / "far_ops.py").write_text(
        "import pullback as pb\n"
        'far = pb.operator("far_ops::far(x[]) -> y[]", '
        'cpu=pb.source("../far.cpp", call="far_away(y)"))\n'
    )
    with pytest.raises(PullbackError, match="not in the folder of its definition") as caught:
        pb.build(folder / "far_ops.py", as_="setup", into=tmp_path / "out")
    assert caught.value.finding.code == "PB715"
    assert not (tmp_path / "out").exists()
