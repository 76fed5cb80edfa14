"""A tutorial's CUDA project, unchanged, without a GPU: compiled at run time, and by setup.py."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from loading import FOR_A_GPU

import pullback as pb

pytestmark = pytest.mark.compiler

LOSS = re.compile(r"epoch +(\d+): loss = +([\d.]+)")
CUDA_ON_CPU = [sys.executable, "-m", "pullback.cuda"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("add_model") / "project"
    shutil.copytree(FOR_A_GPU, folder, ignore=shutil.ignore_patterns("build", "__pycache__"))
    return folder


def run(project: Path, *arguments: str) -> str:
    package = str(Path(pb.__file__).parents[1])
    answer = subprocess.run(
        [*CUDA_ON_CPU, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def losses_of(output: str) -> list[float]:
    return [float(loss) for _, loss in LOSS.findall(output)]


def require_losses_of_the_tutorial(losses: list[float], number: int = 20) -> None:
    """Every 25 epochs the loss shrinks by 0.98 to the power of 50."""
    assert len(losses) == number
    for before, after in itertools.pairwise(losses):
        assert after == pytest.approx(before * 0.98**50, rel=2e-3, abs=6e-4)


@pytest.mark.thorough
def test_it_trains_compiled_at_run_time(project: Path) -> None:
    require_losses_of_the_tutorial(losses_of(run(project, "train.py")))


@pytest.mark.thorough
def test_it_trains_built_by_its_own_setup(project: Path) -> None:
    run(project, "setup.py", "build_ext", "--inplace")
    assert list(project.glob("add2*.so"))
    require_losses_of_the_tutorial(losses_of(run(project, "train.py", "--compiler", "setup")))


def test_it_trains_as_an_operator_of_its_kernel_alone() -> None:
    add2 = pb.operator(
        "add_model_cuda::add2(a[...], b[...]) -> c[...]",
        cuda=pb.source(
            FOR_A_GPU / "add2_kernel.cu",
            call="launch_add2(c, a, b, numel(c))",
            flags=[f"-I{FOR_A_GPU / 'include'}"],
        ),
        backward={"a": "grad", "b": "grad"},
    )
    torch.manual_seed(0)
    a, b = (torch.randn(1024, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.SGD([a, b], lr=0.01)
    losses: list[float] = []
    for epoch in range(100):
        optimizer.zero_grad()
        loss = add2(a**2, b**2).sum()
        loss.backward()
        optimizer.step()
        if epoch % 25 == 0:
            losses.append(loss.item())
    require_losses_of_the_tutorial(losses, 4)
