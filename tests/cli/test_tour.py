"""`pullback tour`: whole, as a newcomer runs it, and its quick chapters."""

from __future__ import annotations

import io
import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from pullback.cli import app
from pullback.cli.screen import WIDEST
from pullback.cli.tour import chapters, timing
from pullback.cli.tour.verify import compare
from tests import fresh

Answer = CompletedProcess[str]
NUMBER = r" +\d+\.\d\d"

# What is on lines of their own, chapter after chapter.
FIRST = (
    r"tour::add2\(a\[...\], b\[...\]\) -> c\[...\]",
    r"add2\(\[1, 2\], \[10, 20\]\) = \[11.0, 22.0\]",
    r"^ok +add2 ",
    r"^ok +legendre3 ",
    r"^FAIL +wrong, on purpose ",
    r"(^ +\d+ +\S+ +0\.36417 *\n){8}",
    r"loss 8.944 after 2000 steps",
    r"b = -2\.20852\d+, c = \S+e-\d+, d = 0\.255486",
    r"├─ pow \(PowBackward0\)",
    r"add2.py:24 in forward: return add2\(self.a\*\*2, self.b\*\*2\)",
    rf"^add2, by pullback{NUMBER * 3} *$",
)
LAST = (
    r"grad_x = ",
    r"its second derivative at 0 is 0.64, by another loop",
    rf"^pullback{NUMBER * 2} *$",
    r"after 100 steps",
    r"which is 0.017588 of it \(0.98\^200 = 0.017588\)",
    r"elements wrong\.\nWhich lines are at fault\?",
    r"cuda-race \[PB221\]: tour::turned: turn: thread ",
    r"reads at turned.cu:6 what thread",
    r"^9  What is wrong with a backward",
    r"FAIL  wrong-for-an-option  PB558  Squared: right for reduction='mean'",
    r"^  Mended\([^$]*^  ok[:,] ",
    r"^10  Sums over pairs, without a matrix of them",
    r"grad_v\[m\] ",
    r"^PyTorch +\d+\.\d +\d+\.\d +144 MB *$",
    r"own loop, pairwise sum",
)


def require_lines(text: str, *wanted: str) -> None:
    """Find each after the one before."""
    for pattern in wanted:
        found = re.search(pattern, text, re.MULTILINE)
        assert found, pattern
        text = text[found.start() :]


def tour(folder: Path, **environment: str) -> Answer:
    # Not in the repository: the tour has only what the package ships.
    source = str(Path(__file__).parents[2] / "src")
    words = ("-W", "error", "-m", "pullback", "tour", "--folder", folder)
    return fresh.python(*words, folder=folder.parent, PYTHONPATH=source, **environment)


@pytest.mark.compiler
@pytest.mark.thorough
def test_the_tour_defines_verifies_trains_shows_and_times(tmp_path: Path) -> None:
    answer = tour(tmp_path / "tour")
    assert answer.returncode == 0, answer.stderr
    assert "\x1b" not in answer.stdout
    require_lines(answer.stdout, *FIRST, *LAST)
    names = [
        *("add2.cpp", "add2.py", "gpu_add2.cu", "gpu_add2.py"),
        *("legendre3.cpp", "legendre3.py", "loss.py", "turned.cu", "turned.py"),
    ]
    assert sorted(path.name for path in (tmp_path / "tour").glob("*.*")) == names


@pytest.mark.compiler
def test_its_first_chapters_say_what_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody reads the times.
    monkeypatch.setattr(timing, "CALLS", 3)
    monkeypatch.setattr(timing, "ROUNDS", 3)
    torch.manual_seed(0)
    console = Console(file=io.StringIO(), width=WIDEST, highlight=False)
    add2 = chapters.define(console, tmp_path)
    legendre3 = chapters.load(tmp_path, "legendre3")
    assert not chapters.verify(console, add2, legendre3)
    chapters.train(console, add2)
    chapters.fit(console, legendre3)
    chapters.show_graph(console, add2)
    chapters.show_times(console, add2)
    assert isinstance(console.file, io.StringIO)
    require_lines(console.file.getvalue(), *FIRST)


def test_the_tour_without_a_compiler_says_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CXX", "")
    answer = CliRunner().invoke(app, ["tour", "--folder", str(tmp_path / "tour")])
    assert answer.exit_code == 2
    assert answer.stderr.startswith("compiler-missing [PB201]: no C++ compiler can be used\n")
    assert "What works without a C++ compiler: operators in Python" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.compiler
def test_the_tour_overwrites_no_file(tmp_path: Path) -> None:
    (tmp_path / "add2.cpp").write_text("// mine", encoding="utf-8")
    answer = CliRunner().invoke(app, ["tour", "--folder", str(tmp_path)])
    assert answer.exit_code == 2
    assert "file-in-the-way [PB803]: the tour would overwrite add2.cpp" in answer.stderr
    assert (tmp_path / "add2.cpp").read_text(encoding="utf-8") == "// mine"


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
