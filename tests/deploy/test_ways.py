"""`pb.build` and `pullback build --as`: what is asked for wrongly, and what is interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from building import ENVIRONMENT, SAMPLE
from typer.testing import CliRunner, Result

import pullback as pb
from pullback.bind import environment, on_cpu
from pullback.cli import app
from pullback.deploy import definitions, shipped, staging, target, wheel
from pullback.deploy.wheel import ShippingNotice
from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain

pytestmark = pytest.mark.compiler
HAS_NVCC = any(
    isinstance(seen, toolchain.Compiler) and seen.language == "cuda" for seen in toolchain.survey()
)

TWICE = """
import pullback as pb
twice = pb.operator("{name}::twice(x[...]) -> y[...]", python=lambda x: 2 * x)
"""
GPU = """
import pullback as pb
fill = pb.operator(
    "{name}::fill(x[...]) -> y[...]",
    cuda=pb.source("void fill(float* y) {{}}", call="fill(y)"),
)
"""


def written(folder: Path, text: str = TWICE) -> Path:
    """Return a file that defines operators, in a namespace of its own."""
    name = f"n{abs(hash(folder)):x}"
    file = folder / f"{name}.py"
    file.write_text(text.format(name=name))
    return file


def typed(*words: str | Path) -> Result:
    """Run the command line."""
    return CliRunner().invoke(app, [*map(str, words)])


def code_of(caught: pytest.ExceptionInfo[PullbackError]) -> str:
    return caught.value.finding.code


@pytest.mark.parametrize("word", ["wheels", "make", "", "JIT"])
def test_another_way_is_an_error_that_lists_the_choices(tmp_path: Path, word: str) -> None:
    with pytest.raises(PullbackError, match="not a way to build") as caught:
        pb.build(written(tmp_path), as_=word)
    assert code_of(caught) == "PB700"
    assert dict(caught.value.finding.evidence)["have"] == "jit, wheel, setup, cmake"


def test_the_command_lists_them_too(tmp_path: Path) -> None:
    file = written(tmp_path)
    answer = typed("build", file, "--as", "wheels")
    assert answer.exit_code == 2
    assert "unknown-way [PB700]" in answer.stderr
    assert "did you mean 'wheel'?" in answer.stderr


def test_an_option_that_a_way_does_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PullbackError, match="does not read it") as caught:
        pb.build(written(tmp_path), as_="jit", into=tmp_path / "out")
    assert code_of(caught) == "PB714"
    assert dict(caught.value.finding.evidence)["read_by"] == "wheel, setup, cmake"


def test_what_is_compiled_into_the_cache_is_not_checked(tmp_path: Path) -> None:
    answer = typed("build", written(tmp_path), "--check")
    assert answer.exit_code == 2
    assert "option-unused [PB714]" in answer.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PullbackError, match="there is no file") as caught:
        pb.build(tmp_path / "nope.py", as_="wheel")
    assert code_of(caught) == "PB801"


def test_a_file_that_stops_is_shown_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "stops.py"
    file.write_text("import pullback\n1 / 0\n")
    with pytest.raises(PullbackError, match="ZeroDivisionError") as caught:
        pb.build(file, as_="wheel")
    assert "stops.py:2" in str(caught.value)


def test_a_file_without_operators(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("import pullback\n")
    with pytest.raises(PullbackError, match="defines no operator") as caught:
        pb.build(file, as_="wheel")
    assert code_of(caught) == "PB708"
    with pytest.raises(PullbackError, match="no operator is given"):
        pb.build([], as_="wheel")


def test_operators_of_a_notebook_have_no_file_to_ship(tmp_path: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(TWICE.format(name="notebook"), namespace)
    made = namespace["twice"]
    assert isinstance(made, pb.Operator)
    assert made.file is None
    with pytest.raises(PullbackError, match="needs the one file") as caught:
        pb.build(made, as_="wheel", into=tmp_path)
    assert code_of(caught) == "PB709"
    assert pb.build(made).is_dir()  # what has no text in it can be built all the same


def test_operators_of_two_files_are_not_one_package(tmp_path: Path) -> None:
    made: list[pb.Operator] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made += definitions.of_file(written(tmp_path / name)).operators
    with pytest.raises(PullbackError, match="there are several") as caught:
        pb.build(made, as_="wheel", into=tmp_path)
    assert code_of(caught) == "PB709"


@pytest.mark.parametrize("name", ["json", "torch", "my-ops", "class", "1st"])
def test_a_name_that_no_package_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(PullbackError, match="cannot be called") as caught:
        pb.build(written(tmp_path), as_="wheel", name=name, into=tmp_path / "dist")
    assert code_of(caught) == "PB710"
    assert not (tmp_path / "dist").exists()


def test_what_compiles_is_put_into_the_cache(tmp_path: Path) -> None:
    file = tmp_path / "cached.py"
    file.write_text(
        'import pullback as pb\ncube = pb.operator("jit_build::cube(x[...]) -> y[...] = x**3")\n'
    )
    assert pb.build(file).is_dir()
    assert pb.build(definitions.of_file(file).operators[0], as_="jit").is_dir()


# --- GPUs


@pytest.mark.nvcc
@pytest.mark.skipif(not HAS_NVCC, reason="no CUDA toolkit here")
def test_architectures_are_named_as_nvcc_or_pytorch_do() -> None:
    assert target.gpus(["sm_90", "8.0", "80"]) == ("sm_80", "sm_90", "compute_90")
    assert target.gpus(["9.0a"]) == ("sm_90a",)
    assert set(target.gpus(None)) > {"sm_80", "sm_90"}


@pytest.mark.nvcc
@pytest.mark.skipif(not HAS_NVCC, reason="no CUDA toolkit here")
@pytest.mark.parametrize("word", ["sm_20", "sm_9000", "hopper", "9"])
def test_an_architecture_that_nvcc_does_not_know(tmp_path: Path, word: str) -> None:
    with pytest.raises(PullbackError, match="not a GPU architecture") as caught:
        pb.build(written(tmp_path), as_="wheel", arch=f"sm_80,{word}", into=tmp_path / "dist")
    assert code_of(caught) == "PB705"
    assert not (tmp_path / "dist").exists()


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the CUDA compiler, wherever it is."""
    monkeypatch.setattr(target, "compiler", lambda: None)


@pytest.mark.usefixtures("no_nvcc")
def test_architectures_without_nvcc(tmp_path: Path) -> None:
    with pytest.raises(PullbackError, match="there is no nvcc") as caught:
        pb.build(written(tmp_path), as_="wheel", arch="sm_80", into=tmp_path / "dist")
    assert code_of(caught) == "PB706"


@pytest.mark.usefixtures("no_nvcc")
def test_a_kernel_in_cuda_alone_is_nothing_without_nvcc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_cpu, "plan_of", lambda definition: None)  # type: ignore[misc]
    with pytest.raises(PullbackError, match="in CUDA alone") as caught:
        pb.build(written(tmp_path, GPU), as_="wheel", into=tmp_path / "dist")
    assert code_of(caught) == "PB711"
    assert not list((tmp_path / "dist").glob("*"))


# --- other PyTorch and Python versions


def test_a_python_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(PullbackError, match="cannot be started") as caught:
        pb.build(written(tmp_path), as_="wheel", pythons=["/nowhere/python"])
    assert code_of(caught) == "PB703"


def test_a_python_without_pytorch(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -S -c 'import torch_is_not_here'\n")
    python.chmod(0o755)
    with pytest.raises(PullbackError, match="does not say which PyTorch") as caught:
        environment.query_environment(str(python))
    assert code_of(caught) == "PB703"


def test_an_interpreter_tells_its_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = environment.current_environment()
    # What another interpreter is asked, asked here.
    exec(environment.QUESTION, {})
    answer = capsys.readouterr().out
    assert json.loads(answer) == [here.torch, str(here.root), str(here.headers), here.soabi]
    same, other = tmp_path / "same", tmp_path / "other"
    for python, said in ((same, answer), (other, answer.replace("cpython-3", "cpython-9"))):
        python.write_text(f"#!/bin/sh\necho '{said.strip()}'\n")
        python.chmod(0o755)
    assert environment.query_environment(str(same)) == here
    found = target.target(pythons=[str(same), str(other)]).environments
    assert found == (here, environment.query_environment(str(other)))


# --- the target


@pytest.mark.parametrize("way", ["wheel", "setup", "cmake"])
def test_a_target_that_is_not_empty_is_left_as_it_is(tmp_path: Path, way: str) -> None:
    into = tmp_path / "out"
    into.mkdir()
    (into / "mine.txt").write_text("mine")
    with pytest.raises(PullbackError, match="is not empty") as caught:
        pb.build(written(tmp_path), as_=way, into=into)
    assert code_of(caught) == "PB707"
    assert [path.name for path in into.iterdir()] == ["mine.txt"]


def test_a_target_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    for way in ("wheel", "setup"):
        with pytest.raises(PullbackError, match="is not empty"):
            pb.build(written(tmp_path), as_=way, into=tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.thorough
def test_a_version_that_is_none_is_setuptools_to_refuse(tmp_path: Path) -> None:
    with pytest.raises(PullbackError, match="setuptools did not make a wheel") as caught:
        pb.build(written(tmp_path), as_="wheel", version="not one", into=tmp_path / "dist")
    assert code_of(caught) == "PB712"
    assert not list((tmp_path / "dist").iterdir())


def test_what_setuptools_says_is_the_error(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("raise ValueError('no such version')")
    with pytest.raises(PullbackError, match="no such version") as caught:
        wheel.pack_wheel(tmp_path, "linux_x86_64")
    assert code_of(caught) == "PB712"


def test_a_file_that_needs_another_beside_it_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("factor = 2\n")
    file = written(tmp_path, "import beside\n" + TWICE)
    with pytest.raises(PullbackError, match="cannot be imported where") as caught:
        pb.build(file, as_="wheel", into=tmp_path / "dist")
    assert code_of(caught) == "PB713"
    assert "No module named 'beside'" in str(caught.value)
    assert not list((tmp_path / "dist").iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package folder with an operator that has a kernel for each device."""
    package = tmp_path / f"package_of_{tmp_path.name}"
    (package / "data").mkdir(parents=True)
    (package / "data" / "table.txt").write_text("1")
    on_both = GPU.replace("cuda=", "cpu=pb.source('fill.cpp', call='fill(y)'), cuda=")
    (package / "part.py").write_text(on_both.format(name=package.name))
    (package / "fill.cpp").write_text("void fill(float* y) { *y = 1; }")
    (package / "__init__.py").write_text('"""Doc."""\nfrom .part import fill as fill\n')
    return package


def test_a_package_folder_is_shipped_whole_without_kernels_sources(
    folder: Path, tmp_path: Path
) -> None:
    found = definitions.of_file(folder)
    package = wheel.package_of(found, shipped.collect(found.operators), None, None)
    wheel.write_package(package, tmp_path / "packed")
    paths = [path for path in (tmp_path / "packed").rglob("*") if path.is_file()]
    names = {str(path.relative_to(tmp_path / "packed")) for path in paths}
    assert names == {"__init__.py", "_prebuilt.py", "part.py", "data/table.txt"}
    first, second, *_ = (tmp_path / "packed" / "__init__.py").read_text().splitlines()
    assert (first, second) == ('"""Doc."""', "from . import _prebuilt as _prebuilt")


@pytest.mark.usefixtures("no_nvcc")
def test_what_is_left_out_without_nvcc_is_said(folder: Path) -> None:
    found = definitions.of_file(folder)
    with pytest.warns(ShippingNotice, match="for the CPU only, since there is no nvcc: .*::fill"):
        wheel.require_kernels(shipped.collect(found.operators), target.target())


@pytest.mark.thorough
@pytest.mark.usefixtures("no_nvcc")
def test_the_wheel_of_a_package_folder_may_lie_beside_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = folder.parent / "dist"
    dist.mkdir()
    (dist / "other-1.0-py3-none-any.whl").touch()
    monkeypatch.chdir(folder.parent)
    answer = typed("build", folder, "--as", "wheel")
    assert answer.exit_code == 0, answer.stderr
    assert f"for the CPU only, since there is no nvcc: {folder.name}::fill" in answer.stdout
    (built,) = (path for path in dist.iterdir() if path.name.startswith("package"))
    assert f"built dist/{built.name}" in answer.stdout
    names = zipfile.ZipFile(built).namelist()
    for name in ("__init__.py", "_prebuilt.py", "part.py", "data/table.txt"):
        assert f"{folder.name}/{name}" in names
    assert f"{folder.name}/kernels/manifest.json" in names


# --- interruptions


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f".pullback-{ended.pid}-abcdef"
    kept = tmp_path / f".pullback-{os.getpid()}-abcdef"
    for folder in (left, kept):
        folder.mkdir()
    with staging.stage_beside(tmp_path / "out") as work:
        assert work.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def write_and_stop() -> None:
        with staging.stage_folder(tmp_path / "out") as work:
            (work / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_stop()
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_wheel(tmp_path: Path, sent: signal.Signals) -> None:
    folder = Path(shutil.copytree(SAMPLE, tmp_path / "author"))
    words = ["-m", "pullback", "build", "sample_ops.py", "--as", "wheel"]
    running = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not list(folder.glob("dist/.pullback-*")):  # it has begun to write
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(sent)
    assert running.wait() != 0
    have = [path.name for path in (folder / "dist").iterdir()]
    assert not [name for name in have if not name.startswith(".pullback-")]
    if sent == signal.SIGINT:
        assert not have
