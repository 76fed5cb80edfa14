"""`pullback tour`, in a process of its own as a newcomer runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pullback.cli.tour.verify import compare

Answer = subprocess.CompletedProcess[str]


def tour(folder: Path, **environment: str) -> Answer:
    # Not in the repository: the tour has only what the package ships.
    source = str(Path(__file__).parents[2] / "src")
    variables = {**os.environ, "PYTHONPATH": source, **environment}
    command = [sys.executable, "-W", "error", "-m", "pullback", "tour", "--folder", str(folder)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder.parent, env=variables
    )


@pytest.mark.compiler
@pytest.mark.slow
def test_the_tour_defines_verifies_trains_shows_and_times(tmp_path: Path) -> None:
    answer = tour(tmp_path / "tour")
    text = answer.stdout
    assert answer.returncode == 0, answer.stderr
    assert "\x1b" not in text
    assert "tour::add2(a[...], b[...]) -> c[...]" in text
    assert "add2([1, 2], [10, 20]) = [11.0, 22.0]" in text
    assert re.search(r"^ok +add2 ", text, re.M)
    assert re.search(r"^ok +legendre3 ", text, re.M)
    assert re.search(r"^FAIL +wrong, on purpose ", text, re.M)
    assert re.findall(r"^ +\d+ +\S+ +(0\.3641\d)", text, re.M) == ["0.36417"] * 8
    assert "loss 8.944 after 2000 steps" in text
    assert re.search(r"b = -2\.20852\d+, c = \S+e-\d+, d = 0\.255486", text)
    assert "├─ pow (PowBackward0)" in text
    assert "add2.py:24 in forward: return add2(self.a**2, self.b**2)" in text
    assert re.search(
        r"^add2, by pullback +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d$", text.replace(" \n", "\n"), re.M
    )
    assert "grad_x = " in text
    assert "its second derivative at 0 is 0.64, by another loop" in text
    assert re.search(r"^pullback +\d+\.\d\d +\d+\.\d\d$", text.replace(" \n", "\n"), re.M)
    assert "after 100 steps" in text
    assert "which is 0.017588 of it (0.98^200 = 0.017588)" in text
    assert re.search(r"elements wrong\.\nWhich lines are at fault\?", text)
    assert "cuda-race [PB221]: tour::turned: turn: thread " in text
    assert "reads at turned.cu:6 what thread" in text
    checked = text.partition("9  What is wrong with a backward")[2]
    assert "FAIL  wrong-for-an-option  PB558  Squared: right for reduction='mean'" in checked
    assert re.search(r"^  Mended\(.*?^  ok[:,] ", checked, re.M | re.S)
    indexed = text.partition("10  Sums over pairs, without a matrix of them")[2]
    assert "grad_v[m] " in indexed
    assert "own loop, pairwise sum" in indexed
    assert re.search(r"^PyTorch +\d+\.\d +\d+\.\d +144 MB$", indexed.replace(" \n", "\n"), re.M)
    names = [
        *("add2.cpp", "add2.py", "gpu_add2.cu", "gpu_add2.py"),
        *("legendre3.cpp", "legendre3.py", "loss.py", "turned.cu", "turned.py"),
    ]
    assert sorted(path.name for path in (tmp_path / "tour").glob("*.*")) == names


def test_the_tour_without_a_compiler_says_what_works(tmp_path: Path) -> None:
    answer = tour(tmp_path / "tour", PATH="/nowhere", CXX="")
    assert answer.returncode == 2
    assert answer.stderr.startswith("compiler-missing [PB201]: no C++ compiler can be used\n")
    assert "What works without a C++ compiler: operators in Python" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.compiler
def test_the_tour_overwrites_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "tour"
    folder.mkdir()
    (folder / "add2.cpp").write_text("// mine", encoding="utf-8")
    answer = tour(folder)
    assert answer.returncode == 2
    assert "file-in-the-way [PB803]: the tour would overwrite add2.cpp" in answer.stderr
    assert (folder / "add2.cpp").read_text(encoding="utf-8") == "// mine"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("off", [0.0, 0.01])
def test_a_gradient_is_compared_with_differences(dtype: torch.dtype, off: float, seed: int) -> None:
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(
            ctx: torch.autograd.function.BackwardCFunction, *grads: torch.Tensor
        ) -> torch.Tensor:
            return grads[0] * (ctx.saved_tensors[0].cos() + off)

    step = 2**-7 if dtype == torch.float32 else 2**-17
    x = torch.randn(64, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    assert compare(Sine.apply, (x,), step=step, seed=seed).agrees == (off == 0)
