"""The examples as a newcomer runs them, and their CUDA kernels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from loading import EXAMPLES, FOR_A_GPU, SCRIPTS, example

import pullback as pb
from pullback.kernels import glue
from pullback.kernels.compile import compile, open_library
from pullback.kernels.toolchain import Compiler, survey

HAVE = {seen.language for seen in survey() if isinstance(seen, Compiler)}


def run(script: Path) -> str:
    """Run a script as a newcomer does, warnings being errors; return what it prints."""
    # One thread: what is tested is that it runs, and other tests run beside it.
    package = str(Path(pb.__file__).parents[1])
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": package}
    command = [sys.executable, "-W", "error", str(script)]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", env=variables
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.compiler
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_a_script_runs_from_any_folder_without_a_warning(script: Path) -> None:
    assert run(script)


@pytest.mark.compiler
def test_the_graph_of_a_module_names_operators_lines_and_what_is_saved() -> None:
    text = run(EXAMPLES / "module_graph" / "module_graph.py")
    assert text.count("examples::linear (pullback)") == 2
    assert "in forward: return self.out(hidden).mean()" in text
    assert "saved weight (4, 3) float32, 48 B, the memory of hidden.weight" in text
    assert "hidden.bias: parameter (4,) float32" in text


def test_a_kernel_includes_nothing_of_pytorch_or_python() -> None:
    every = [*EXAMPLES.rglob("*.cpp"), *EXAMPLES.rglob("*.cu")]
    programs = (FOR_A_GPU, EXAMPLES / "cpp_train")
    kernels = [path for path in every if not any(path.is_relative_to(own) for own in programs)]
    assert kernels
    for path in kernels:
        included = re.findall(r"#include (.+)", path.read_text())
        assert set(included) <= {"<cmath>"}


@pytest.mark.compiler
@pytest.mark.nvcc
@pytest.mark.skipif("cuda" not in HAVE, reason="no CUDA toolkit here")
def test_nvcc_compiles_the_kernel_of_add2() -> None:
    add2 = example("add_model/add2").add2
    plan = glue.plan_of(add2.line, add2.definition.cuda, "cuda")
    library = open_library(compile(plan))
    assert getattr(library, glue.symbol_of(add2.line, "cuda"))


@pytest.mark.compiler
@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_add2_on_a_gpu_is_add2_on_the_cpu_to_the_last_bit(seed: int) -> None:
    add2 = example("add_model/add2").add2
    for n in (0, 1, 1023, 1024, 1025, 100_000):
        a, b = torch.randn(2, n)
        assert torch.equal(add2(a.cuda(), b.cuda()).cpu(), add2(a, b))
    with torch.cuda.stream(torch.cuda.Stream()):  # pyright: ignore[reportUnknownArgumentType]
        a, b = torch.randn(2, 1 << 22, device="cuda")
        assert torch.equal(add2(a, b), a + b)


@pytest.mark.compiler
@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_add_model_trains_on_a_gpu(seed: int) -> None:
    module = example("add_model/train")
    losses = list(module.train(module.AddModel().cuda()).values())
    assert losses[1] / losses[0] == pytest.approx(0.98**50, rel=1e-5)
