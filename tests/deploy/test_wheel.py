"""A wheel works where there is no compiler and no source, and gives the same numbers."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from building import SAMPLE, Runs, command
from torch import Tensor

import pullback as pb
from pullback.bind.dense.elements import FormulaNotice
from pullback.bind.loops import compiled, gpu, interpreted
from pullback.define.math import notation
from pullback.define.parse import parse
from pullback.define.source import Source
from pullback.deploy import definitions, libraries, shipped, target
from pullback.deploy.wheel import TORCH, ShippingNotice, insert_import, platform_of
from pullback.diagnostic import PullbackError
from pullback.kernels import identity, prebuilt, processor, toolchain
from pullback.kernels.glue import Device
from pullback.kernels.loops.pointwise import Loop

pytestmark = pytest.mark.compiler


@pytest.fixture(scope="module")
def away(installed: Path, run_away: Runs) -> dict[str, Any]:
    return run_away(installed)


def test_a_wheel_has_libraries_and_definitions_and_no_source(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    suffixes = {Path(name).suffix for name in names if name.startswith("sample_ops/")}
    assert suffixes == {".py", ".so", ".json"}
    assert {"sample_ops/__init__.py", "sample_ops/sample_ops.py"} <= set(names)


def test_its_name_says_any_python_3_and_the_platform(wheel: Path) -> None:
    name, version, python, abi, platform = wheel.stem.split("-")
    assert (name, version, python, abi) == ("sample_ops", "1.2", "py3", "none")
    assert platform.startswith("manylinux_2_")


@pytest.mark.thorough
def test_auditwheel_finds_nothing_but_pytorchs_libraries_outside_of_it(wheel: Path) -> None:
    show = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    found = json.loads(subprocess.run(show, capture_output=True, check=True).stdout)
    assert found["sym_tag"] in wheel.name
    needs = found["policy_upgrades"][found["sym_tag"]]["libs_to_eliminate"]
    assert set(needs) <= {"libc10.so", "libtorch_cpu.so", "libtorch_python.so"}


def test_without_auditwheel_the_platform_is_linux(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # type: ignore[misc]
    with pytest.warns(ShippingNotice, match="its platform is linux"):
        assert platform_of(wheel) is None


def test_it_asks_for_pytorch_and_pullback(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    assert "Requires-Dist: pullback" in text
    assert "Requires-Dist: torch<2.16,>=2.11" in text


def test_the_range_of_pytorch_is_pullbacks_own() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'"{TORCH}"' in project.read_text()


@pytest.mark.ci
def test_nothing_is_compiled_there(away: dict[str, Any], installed: Path) -> None:
    assert away["file"] == str(installed / "sample_ops" / "__init__.py")
    assert away["version"] == "1.2"
    assert not away["compiled"]


def test_no_loop_is_missed_there_up_to_the_second_derivative(away: dict[str, Any]) -> None:
    assert away["notices"] == []


@pytest.mark.filterwarnings(f"ignore::{FormulaNotice.__module__}.{FormulaNotice.__name__}")
def test_every_loop_that_a_call_asks_for_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()

    def note(loop: Loop, device: Device) -> tuple[object, Any]:
        asked.add(identity.of_loop(loop, device))
        return interpreted.interpret_loop(
            loop, toolchain.CompilerMissing.error("it is noted alone")
        )

    monkeypatch.setattr(compiled, "load_loop", note)
    line = "shippedloops::coupled(x[..., n], s[n]?) -> y[..., n] = exp(-x*x) + s*x"
    operator = pb.operator(line)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x, s = torch.rand(2, 3, dtype=dtype), torch.rand(3, dtype=dtype)
        for given in ((x, s), (x,)):
            call_in_all_ways(operator, *given)
    jobs = libraries.list_jobs(shipped.collect([operator]), target.target())
    assert len(asked) >= 40
    assert asked <= {entry.identity for job in jobs for entry in job.entries}


def call_in_all_ways(operator: pb.Operator, *given: Tensor) -> None:
    """Ask for the value, its tangent, each gradient and all, and their gradients."""
    operator(*given)
    torch.func.jvp(operator, given, given)
    leaves = [tensor.clone().requires_grad_() for tensor in given]
    for some in (leaves, leaves[:1], leaves[-1:]):
        grads = torch.autograd.grad(operator(*leaves).sum(), some, create_graph=True)
        if given[0].dtype in (torch.float32, torch.float64):
            total = torch.stack([grad.square().sum() for grad in grads]).sum()
            torch.autograd.grad(total, leaves, allow_unused=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("absent", [False, True])
def test_a_formula_and_its_gradient_give_the_numbers_of_here(
    away: dict[str, Any], dtype: str, absent: bool
) -> None:
    kind = getattr(torch, dtype)
    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(kind).requires_grad_()
    s = torch.linspace(0, 1, 4).to(kind).requires_grad_()
    y = torch.exp(-(x.double() ** 2)) + (0 if absent else s.double())
    grads = torch.autograd.grad(y.sum(), [x] if absent else [x, s])
    for found, right in zip(away[f"bell {dtype} {absent}"], (y, *grads), strict=True):
        allowed = 8 * torch.finfo(kind).eps
        torch.testing.assert_close(
            torch.tensor(found, dtype=torch.float64), right.double(), rtol=allowed, atol=allowed
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_kernel_in_cpp_gives_the_numbers_of_here(away: dict[str, Any], dtype: str) -> None:
    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(getattr(torch, dtype))
    y, grad = away[f"scale {dtype}"]
    assert torch.equal(torch.tensor(y, dtype=x.dtype), 3 * x)
    assert torch.equal(torch.tensor(grad, dtype=x.dtype), torch.full_like(x, 3))


def test_derivatives_of_all_orders_are_there(away: dict[str, Any]) -> None:
    x = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(2, 4)
    bell = torch.exp(-(x**2))
    fourth = (16 * x**4 - 48 * x**2 + 12) * bell
    torch.testing.assert_close(torch.tensor(away["fourth"], dtype=torch.float64), fourth)
    assert away["second"]
    assert math.isclose(away["hessian"], ((4 * x**2 - 2) * bell).sum().item())


def test_an_operator_in_python_comes_along(away: dict[str, Any]) -> None:
    assert away["doubled"] == [2.0, 2.0]


def test_index_notation_comes_along_with_its_loops(away: dict[str, Any]) -> None:
    x, y = torch.linspace(-1, 1, 5).requires_grad_(), torch.linspace(0, 2, 4)
    sums = ((x[:, None] - y) ** 3).sum(1)
    (grad,) = torch.autograd.grad(sums.sum(), x, create_graph=True)
    (curved,) = torch.autograd.grad(grad.sum(), x)
    found = (*away["sums"], away["curved"])
    for value, right in zip(found, (sums, grad, curved), strict=True):
        torch.testing.assert_close(torch.tensor(value), right.detach())
    assert len(away["plans"]) == 8
    for plan in away["plans"]:
        assert "u: own loop, pairwise sum" in plan
        assert "grad_x: own loop, pairwise sum" in plan


def test_the_processor_chooses_among_the_libraries(installed: Path) -> None:
    libraries = prebuilt.read(installed / "sample_ops" / "kernels").libraries
    levels = {library.level for library in libraries if library.operator == "sample::scale"}
    assert levels == set(target.target().levels)
    assert processor.levels()[0] == "baseline"


def test_an_import_comes_after_those_from_the_future() -> None:
    text = '"""Doc."""\nfrom __future__ import annotations\nimport os\n'
    assert insert_import(text, "import a").splitlines()[1:3] == [
        "from __future__ import annotations",
        "import a",
    ]
    assert insert_import("", "import a") == "import a\n"


# --- what is not as it was built


@pytest.fixture
def kernels(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of its own, whose manifest and libraries a test may change: the only one."""
    monkeypatch.setattr(prebuilt, "_folders", {})
    package = tmp_path / "sample_ops"
    shutil.copytree(installed / "sample_ops", package)
    return package / "kernels"


def source(kernels: Path, call: str = "scale(y, x, k, numel(x))") -> Source:
    """Return the sample's kernel as the package's definition says it; the file is not there."""
    return Source(file="scale.cpp", text=None, folder=str(kernels.parent), call=call)


LINE = parse("sample::scale(x[...], k: float = 2.0) -> y[...]")


def test_a_library_is_found_by_what_it_computes(kernels: Path) -> None:
    prebuilt.add(kernels)
    found = prebuilt.find_kernel(LINE, source(kernels), "cpu", None)
    assert found
    assert found.symbol == "pullback_sample_scale_cpu"


def test_a_damaged_library_is_not_loaded(kernels: Path) -> None:
    prebuilt.add(kernels)
    for library in kernels.glob("sample-scale*.so"):
        library.write_bytes(library.read_bytes()[:-1])
    with pytest.raises(PullbackError, match="not the one that was built") as caught:
        prebuilt.find_kernel(LINE, source(kernels), "cpu", None)
    assert caught.value.finding.code == "PB701"


@pytest.mark.parametrize("text", ["", "[]", '{"manifest": 99}', '{"manifest": 1}'])
def test_a_manifest_that_cannot_be_read_is_said(kernels: Path, text: str) -> None:
    (kernels / "manifest.json").write_text(text)
    with pytest.raises(PullbackError, match="prebuilt-damaged"):
        prebuilt.add(kernels)


def test_a_definition_that_was_changed_is_not_what_was_compiled(kernels: Path) -> None:
    prebuilt.add(kernels)
    with pytest.raises(PullbackError, match="not what the package's library") as caught:
        prebuilt.find_kernel(LINE, source(kernels, "scale(y, x, 2 * k, numel(x))"), "cpu", None)
    evidence = dict(caught.value.finding.evidence)
    assert caught.value.finding.code == "PB702"
    assert "2 * k" in evidence["defined"]
    assert "2 * k" not in evidence["compiled"]
    assert "pullback build sample_ops.py --as wheel" in str(caught.value)


def test_other_flags_make_another_kernel(kernels: Path) -> None:
    prebuilt.add(kernels)
    own = dataclasses.replace(source(kernels), flags=("-DSIGN=-1",))
    with pytest.raises(PullbackError, match="PB702") as caught:
        prebuilt.find_kernel(LINE, own, "cpu", None)
    assert "-DSIGN=-1" in dict(caught.value.finding.evidence)["defined"]


@pytest.mark.parametrize("edited", ["scale.cpp", "scale.h"])
def test_a_source_that_is_there_and_was_edited_is_compiled_instead(
    kernels: Path, edited: str
) -> None:
    prebuilt.add(kernels)
    for name in ("scale.cpp", "scale.h"):
        shutil.copyfile(SAMPLE / name, kernels.parent / name)
    assert prebuilt.find_kernel(LINE, source(kernels), "cpu", None)
    (kernels.parent / edited).write_text("// another")
    assert prebuilt.find_kernel(LINE, source(kernels), "cpu", None) is None


def test_a_loop_with_an_optional_tensor_is_none_without_it(kernels: Path) -> None:
    bell = notation.parse(parse("sample::bell(x[..., n], s[n]?) -> y[..., n] = exp(-x*x) + s"))
    prebuilt.add(kernels)
    both = [
        prebuilt.find_loop(Loop(formula=bell, dtype="float64", wanted=1, present=present), "cpu")
        for present in (0b01, 0b11)
    ]
    assert all(both)
    assert both[0] != both[1]


def test_a_gpu_that_the_package_has_no_code_for_is_named(kernels: Path) -> None:
    manifest = json.loads((kernels / "manifest.json").read_text())
    own = source(kernels)
    row = next(row for row in manifest["libraries"] if row["operator"] == "sample::scale")
    row |= {"identity": identity.of_kernel(LINE, own, "cuda"), "architectures": ["sm_80"]}
    manifest["libraries"] = [row]
    (kernels / "manifest.json").write_text(json.dumps(manifest))
    prebuilt.add(kernels)
    assert prebuilt.find_kernel(LINE, own, "cuda", "sm_86")
    with pytest.raises(PullbackError, match="no code of sample::scale for this GPU") as caught:
        prebuilt.find_kernel(LINE, own, "cuda", "sm_90")
    assert "--arch sm_80,sm_90" in str(caught.value)
    # Built for GPUs alone: nothing is said on a machine without one, until it is called.
    assert prebuilt.is_left_out(LINE, own, "cpu")


CUBE = Path(__file__).parent / "sample" / "small_ops.py"


@pytest.mark.nvcc
@pytest.mark.skipif(target.compiler() is None, reason="no CUDA toolkit here")
def test_loops_for_gpus_are_built_if_gpus_are_asked_for() -> None:
    found = definitions.of_file(CUBE)
    travelling = shipped.collect(found.operators)
    for asked, there in ((None, False), (["sm_80"], True)):
        jobs = list(libraries.list_jobs(travelling, target.target(asked)))
        on_gpus = [job for job in jobs if job.entries[0].identity.startswith("formula-2 cuda")]
        assert bool(on_gpus) == there
        for job in on_gpus:
            assert job.entries[0].architectures == ("sm_80", "compute_80")
            assert "arch=compute_80,code=sm_80" in job.plan.flags


def test_loops_that_a_package_brought_run_where_nvcc_is_not(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = parse("sample::bell(x[..., n], s[n]?) -> y[..., n] = exp(-x*x) + s")
    monkeypatch.setattr(gpu, "is_there", lambda: True)
    monkeypatch.setattr(gpu, "is_usable", lambda: False)
    assert compiled.devices(line) == ("cpu",)
    manifest = (kernels / "manifest.json").read_text()
    (kernels / "manifest.json").write_text(manifest.replace("formula-2 cpu", "formula-2 cuda"))
    prebuilt.add(kernels)
    assert compiled.devices(line) == ("cpu", "cuda")


@pytest.mark.parametrize(
    ("have", "of", "runs"),
    [
        (["sm_80"], "sm_80", True),
        (["sm_80"], "sm_86", True),
        (["sm_86"], "sm_80", False),
        (["sm_80"], "sm_90", False),
        (["compute_80"], "sm_90", True),
        (["compute_90"], "sm_80", False),
        (["sm_90a"], "sm_90", True),
        (["sm_90a"], "sm_100", False),
        (["sm_100", "compute_120"], "sm_103", True),
        ([], "sm_80", False),
    ],
)
def test_which_code_runs_on_which_gpu(have: list[str], of: str, runs: bool) -> None:
    assert processor.covers(have, of) == runs


NO_RUNTIME = """
import json, sys, warnings
from pathlib import Path
manifest = Path(sys.argv[1], "sample_ops/kernels/manifest.json")
rows = json.loads(manifest.read_text())
for row in rows["libraries"]:
    row["identity"] = row["identity"].replace("torch 2.", "torch 9.")
manifest.write_text(json.dumps(rows))
import sample_ops
"""


def test_without_a_runtime_for_this_pytorch_the_versions_are_named(kernels: Path) -> None:
    site = kernels.parents[1]
    bare = {"PATH": str(site), "PULLBACK_CACHE": str(site / "cache")}
    path = f"{site}:{Path(pb.__file__).parents[1]}"
    answer = command("-c", NO_RUNTIME, site, folder=site, PYTHONPATH=path, **bare)
    assert "no-runtime [PB704]" in answer.stderr
    assert "have: torch 9." in answer.stderr
