"""Programs that AOTInductor compiled call the library's operators, by C functions of theirs."""

from __future__ import annotations

import json
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from building import command
from torch import Tensor

import pullback as pb
from pullback.deploy import shims
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler

COMPILE = """
import sys, torch
torch.ops.load_library(sys.argv[1])
import pullback as pb
ship = torch.ops.shiplib

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))

    def forward(self, x):
        x = ship.affine(x, self.weight, 0.5, True, "up") + ship.affine(x, None, 3.0)
        a, b = ship.plane(ship.bias(x, self.weight), ship.multiply(x, self.weight))
        return ship.repeat(a, 2), b, ship.polar(x.sum())

torch.manual_seed(0)
model, x = Model(), torch.randn(4, 3)
program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
with torch.no_grad():
    torch.save((x[:3], model(x[:3])), "wanted.pt")
pb.compile_and_package(program, "direct.pt2")
"""
RUN = """
import sys, torch
torch.ops.load_library(sys.argv[1])
x, wanted = torch.load("wanted.pt")
for got, want in zip(torch._inductor.aoti_load_package("direct.pt2")(x), wanted, strict=True):
    torch.testing.assert_close(got, want)
try:
    torch._inductor.aoti_load_package("direct.pt2")(x[:, :2])
except RuntimeError as error:
    print("refused")
assert "pullback" not in sys.modules
"""


def process(code: str, library: Path, folder: Path, **variables: str) -> str:
    ran = command("-W", "ignore", "-c", code, library, folder=folder, **variables)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def package(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that was compiled in a process of its own."""
    folder = tmp_path_factory.mktemp("aoti")
    process(COMPILE, library, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["direct.pt2", "wanted.pt"]
    return folder / "direct.pt2"


@pytest.mark.thorough
def test_a_package_runs_in_a_fresh_process_without_pullback(package: Path, library: Path) -> None:
    assert process(RUN, library, package.parent, PYTHONPATH="") == "refused\n"


@pytest.mark.thorough
def test_it_calls_the_operators_directly_but_for_one_that_pytorch_has_too(package: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
        (text,) = (archive.read(name).decode() for name in names if name.endswith(".wrapper.cpp"))
        (nodes,) = (json.loads(archive.read(n)) for n in names if n.endswith(".wrapper.json"))
    for name in ("affine", "bias", "multiply", "plane", "repeat"):
        assert f'__asm__("pullback_shim.cpu.shiplib.{name}")' in text
        assert f"(aoti_torch_cpu_{name}(" in text
    # aoti_torch_cpu_polar is PyTorch's, of another kind.
    assert [node["node"]["target"] for node in nodes["nodes"]] == ["shiplib::polar"]


class Twice(torch.nn.Module):
    def __init__(self, *operators: Callable[..., Tensor]) -> None:
        super().__init__()
        self.operators = operators

    def forward(self, x: Tensor) -> Tensor:
        for operator in self.operators:
            x = operator(x)
        return x


def exported(*operators: pb.Operator) -> torch.export.ExportedProgram:
    calls = [operator.overload for operator in operators]
    return torch.export.export(Twice(*calls), (torch.ones(3),))


def refused(folder: Path, program: Any, name: str = "model.pt2", **options: Any) -> str:
    with pytest.raises(PullbackError) as caught:
        pb.compile_and_package(program, folder / name, **options)
    assert list(folder.iterdir()) == []
    return str(caught.value)


def test_what_it_cannot_package_is_said(tmp_path: Path) -> None:
    twin = pb.operator("aotilib::twin(x[...]) -> y[...] = x*2")
    other = pb.operator("aotilibtoo::twin(x[...]) -> y[...] = x*3")
    sort = pb.operator("aotilib::cummax(x[...]) -> y[...] = x*3")
    assert "not-exported [PB738]" in refused(tmp_path, torch.nn.Linear(2, 2))
    assert "no-package-name [PB741]" in refused(tmp_path, exported(twin), "model.so")
    missing = refused(tmp_path, exported(twin), operators=["aotilib::twim"])
    assert "not-in-program [PB740]: aotilib::twim" in missing
    assert "did you mean 'aotilib::twin'" in missing
    taken = refused(tmp_path, exported(sort), operators=[sort])
    assert "no-shim [PB739]" in taken
    assert "aoti_torch_cpu_cummax" in taken
    both = refused(tmp_path, exported(twin, other), operators=[twin, other])
    assert "same-base-name [PB736]: aotilib::twin and aotilibtoo::twin" in both


def test_an_operator_of_pullbacks_own_is_left_to_the_proxy_executor() -> None:
    pb.operator("aotilib::alone(x[...]) -> y[...] = x*2")
    assert not shims.is_loaded("aotilib::alone", "cpu")
    assert shims.declaration(shims.schema_of("aotilib::alone"), "cpu") == textwrap.dedent(
        "AOTITorchError aoti_torch_cpu_alone(AtenTensorHandle x, AtenTensorHandle* ret0)"
    )
