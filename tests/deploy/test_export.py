"""Exported programs run in a process that has imported the package of a wheel, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from building import PACKAGE, command

pytestmark = [pytest.mark.compiler, pytest.mark.thorough]

EXPORT = """
import torch, sample_ops, pullback as pb

class Model(torch.nn.Module):
    def forward(self, x, s):
        return sample_ops.doubled(sample_ops.bell(sample_ops.scale(x, 3.0), s))

x, s = torch.randn(4, 3), torch.randn(3)
rows = torch.export.Dim("rows")
program = torch.export.export(Model(), (x, s), dynamic_shapes=({0: rows}, None))
torch.export.save(program, "program.pt2")
pb.compile_and_package(program, "compiled.pt2")
torch.save((x[:2], s, Model()(x[:2], s)), "wanted.pt")
"""
RUN = """
import torch, sample_ops
x, s, wanted = torch.load("wanted.pt")
exported = torch.export.load("program.pt2").module()
compiled = torch._inductor.aoti_load_package("compiled.pt2")
for run in (exported, compiled):
    torch.testing.assert_close(run(x, s), wanted)
"""


def test_a_program_runs_where_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    found = f"{installed}{os.pathsep}{PACKAGE}"
    # AOTInductor compiles what it packages; running it needs no compiler.
    made = command("-W", "ignore", "-c", EXPORT, folder=tmp_path, PYTHONPATH=found)
    assert made.returncode == 0, made.stderr
    empty = {"PATH": str(tmp_path), "PULLBACK_CACHE": str(tmp_path / "cache")}
    ran = command("-W", "ignore", "-c", RUN, folder=tmp_path, PYTHONPATH=found, **empty)
    assert ran.returncode == 0, ran.stderr
