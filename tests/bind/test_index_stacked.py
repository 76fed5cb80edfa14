"""Loops in CUDA that compute several rows one below the other, and share what they read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pullback.bind.loops import nests
from pullback.bind.loops.backends import CudaOnCpuBackend
from pullback.bind.loops.nests import Own
from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.define.math.formula import Formula
from pullback.kernels.cuda_on_cpu.mode import Mode
from tests.bind.test_index_loops import arguments, expected, sizes_for
from tests.telling import telling

pytestmark = pytest.mark.compiler

LINES = {
    "a stencil": "(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])",
    "a border": "(x[h, w], k[p, q]) -> y[h, w] = sum[p, q](pad(x[h + p - 1, w + q - 1])*k[p, q])",
    "a greatest neighbour": "(x[h, w]) -> y[h, w]"
    " = max[p < 3, q < 3](pad(x[h + p - 1, w + q - 1], -inf))",
    "backwards": "(x[h, w], k[p, q]) -> y[h, w]"
    " = sum[p, q](pad(x[2*size(h) - h - p, 2*w - q])*k[p, q])",
    "of each channel": "(x[b, h, w], k[b, p, q]) -> y[b, i, j]"
    " = sum[p, q](x[b, i + p, j + q]*k[b, p, q])",
    "two outputs": "(x[h, w], k[p, q]) -> (y[h, w], z[h, w])"
    " = sum[p, q](pad(x[h + p, w + q])*k[p, q]), where(h < w, 2*x, pad(x[h - 1, w]))",
    "pairs": "(x[h, p], y[w, p]) -> z[h, w] = sum[p]((x[h, p] - y[w, p])**2)",
    "a loop": "(x[h, m], y[w, m]) -> z[h, w] = max[m](abs(x[h, m] - y[w, m]))",
    "rows that data picks": "(x[h, w], g[w], index[h]: int64) -> y[h, w]"
    " = x[index[h], w]*exp(g[w]) + pad(x[h + 1, w])",
    "elements that data picks": "(x[h, w], g[w], index[h, w]: int64) -> y[h, w]"
    " = x[index[h, w], w]*exp(g[w])",
    "whole numbers": "(x[h, w]: int64) -> y[h, w]: int64"
    " = x + pad(x[h + 1, w])*h - pad(x[h - 1, w])",
}
ALWAYS = ("a border",)
# Rows around those of a block, and columns around the threads of a task.
AROUND = ((1, 5), (7, 140), (8, 127), (9, 128), (23, 300))
SMALL = {"p": 3, "q": 3, "b": 2, "m": 20}


def loops_of(case: str, dtype: torch.dtype, mode: Mode) -> Iterator[Own]:
    """Yield the loops for large tensors of a line and of its gradient."""
    indexed: Formula | None = notation.parse(parse.parse(f"demo::stacked{LINES[case]}"))
    assert indexed
    backward = derived.backward(indexed)
    backend = CudaOnCpuBackend("sm_80", mode=mode)
    for each in (indexed, backward and backward.formula):
        if each is None:
            continue
        sizes = sizes_for(each, {**SMALL, "h": 4096, "w": 4096})
        present = frozenset(parameter.name for parameter in each.line.parameters)
        for group in nests.group_outputs(each, range(len(each.nodes)), sizes):
            own = nests.generate(each, dtype, group, present, sizes, backend)
            if isinstance(own, Own) and any(s.kernel.nest.is_stacked for s in own.steps):
                yield own


def compare(case: str, mode: Mode, dtype: torch.dtype = torch.float32) -> int:
    """Compare loops of several rows at a time with PyTorch; return how many there are."""
    found = 0
    for own in loops_of(case, dtype, mode):
        found += 1
        for h, w in AROUND:
            sizes = sizes_for(own.indexed, {**SMALL, "h": h, "w": w})
            if min(sizes.values()) < 1:
                continue
            given = arguments(own.indexed, sizes, dtype)
            wanted = expected(own.indexed, given, sizes)
            doubles = [torch.float64] * len(own.outputs)
            for k, got in zip(own.outputs, own.run(given, sizes, doubles), strict=True):
                torch.testing.assert_close(got, wanted[k].double(), rtol=1e-5, atol=1e-4)
    return found


@pytest.mark.parametrize("case", telling({case: case for case in LINES}, ALWAYS))
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.thorough)]
)
def test_rows_below_one_another_have_the_values_of_pytorch(case: str, dtype: torch.dtype) -> None:
    assert compare(case, Mode(), dtype)


@pytest.mark.thorough
@pytest.mark.parametrize("case", LINES)
def test_no_two_threads_write_one_row(case: str) -> None:
    assert compare(case, Mode(check="race", order="random:3"))


WATCHED = """
from tests.bind.test_index_stacked import LINES, compare
from pullback.kernels.cuda_on_cpu.mode import Mode
for case in LINES:
    compare(case, Mode(check="memory"))
"""


@pytest.mark.thorough
def test_rows_beyond_the_last_one_are_not_read(tmp_path: Path) -> None:
    script = tmp_path / "watched.py"
    script.write_text(WATCHED)
    command = [sys.executable, "-m", "pullback", "cuda", "memory", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no fault found" in done.stdout + done.stderr
