"""The examples as a newcomer runs them, and their CUDA kernels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from loading import EXAMPLES, FOR_A_GPU, SCRIPTS, example

from pullback.kernels import glue
from pullback.kernels.compile import compile, open_library
from pullback.kernels.toolchain import Compiler, survey
from tests import fresh
from tests.telling import telling

HAVE = {seen.language for seen in survey() if isinstance(seen, Compiler)}


# The mains of the others are called where their figures are looked at.
TYPICAL = ("cube/cube.py", "functions/linear_f.py")
NAMES = {name: name for name in (str(path.relative_to(EXAMPLES)) for path in SCRIPTS)}
# All of its lines take minutes.
WORDS = {"attention/gallery.py": ["window"]}


@pytest.mark.compiler
@pytest.mark.parametrize("name", telling(NAMES, TYPICAL))
def test_a_script_runs_from_any_folder_without_a_warning(name: str) -> None:
    answer = fresh.python("-W", "error", EXAMPLES / name, *WORDS.get(name, []), folder=Path("/"))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout


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
@pytest.mark.thorough
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
    example("add_model/add2")  # which the model imports when it is made
    module = example("add_model/train")
    losses = list(module.train(module.AddModel().cuda()).values())
    assert losses[1] / losses[0] == pytest.approx(0.98**50, rel=1e-5)
