"""Operators in index notation on GPUs, in a library that CMake built.

Where there is no GPU the library has its loops by CUDA on the CPU: what it launches has to be what
Python launches of the same loops, and to give the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from build_indexed_gpu import NAMESPACE, collect
from building import Once, command
from indexed_ops import CASES, FOR_GPUS, ON_GPUS, TWICE_ON_GPUS
from test_cmake_indexed import arguments, compare
from torch import Tensor

from pullback.bind import gpu
from pullback.bind.loops.backends import ON_CPU, CudaOnCpuBackend, Runner
from pullback.bind.memo import Memo
from pullback.define.math import extents
from pullback.define.math.index import BATCH
from pullback.deploy import audit
from pullback.deploy.cmake.index_loops import IndexedOperator
from pullback.kernels.cuda_on_cpu import runtimes
from pullback.kernels.cuda_on_cpu.mode import Mode
from tests.quickly import LAUNCHER

pytestmark = [pytest.mark.compiler, pytest.mark.thorough]
HERE = Path(__file__).parent


class Library:
    """The operators of the library, and what they launch."""

    def __init__(self, file: Path) -> None:
        torch.ops.load_library(str(file))
        runtimes.load(Mode())
        self.operators: Any = getattr(torch.ops, NAMESPACE)
        self.read = ctypes.CDLL(str(file)).indexgpu_notes
        self.read.restype = ctypes.c_char_p

    def notes(self) -> list[str]:
        """Return what was launched since they were read."""
        return self.read().decode().splitlines()


@pytest.fixture(scope="session")
def library(once: Once) -> Library:
    def build(folder: Path) -> None:
        variables = {**LAUNCHER, "CUDACXX": "/nowhere/nvcc"}
        ran = command(HERE / "build_indexed_gpu.py", folder / "made", folder=folder, **variables)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return Library(once("indexgpu-cmake", build) / "made" / "lib" / f"lib{NAMESPACE}.so")


@pytest.mark.parametrize("name", ON_GPUS)
def test_values_and_gradients_are_those_of_pytorch(name: str, library: Library, seed: int) -> None:
    compare(getattr(library.operators, name), CASES[name], torch.float32, 1, seed)
    assert library.notes()


@pytest.mark.parametrize("name", TWICE_ON_GPUS)
def test_second_derivatives_are_those_of_pytorch(name: str, library: Library, seed: int) -> None:
    compare(getattr(library.operators, name), CASES[name], torch.float32, 2, seed)
    assert any(f"_{name}_grad_grad_" in note for note in library.notes())


def test_rows_that_do_not_fit_are_read_again(
    library: Library, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    softmax, case = library.operators.softmax, CASES["softmax"]
    monkeypatch.setenv("INDEXGPU_SHARED", "0")
    compare(softmax, case, torch.float32, 1, seed)
    assert {scratch(note) for note in library.notes()} == {0}
    x = torch.randn(2, 1000)
    monkeypatch.setenv("INDEXGPU_SHARED", "10000")
    torch.testing.assert_close(softmax(x), x.softmax(-1))
    # The task of a block has a row, and what the last of its threads read beyond it.
    [note] = library.notes()
    assert 4 * 1000 < scratch(note) <= 10000
    x = torch.randn(2, 2600)
    torch.testing.assert_close(softmax(x), x.softmax(-1))
    assert scratch(*library.notes()) == 0


def scratch(note: str) -> int:
    return int(note.split()[2])


@cache
def operators() -> dict[str, IndexedOperator]:
    """Return the same operators in Python, by their names."""
    found = {s.line.name: IndexedOperator(s, (), "cuda") for s in collect("indexgpupython")}
    for operator in found.values():
        list(operator.units())  # it names the kernels
    return found


@dataclass(frozen=True)
class NotingBackend(CudaOnCpuBackend):
    """CUDA on the CPU, with notes of what Python launches, as the library makes them."""

    notes: list[str] = field(default_factory=list[str], compare=False)

    def runner(self) -> Runner:
        """Return what notes a kernel and launches it."""
        launch = super().runner()

        def run(address: int, tensors: tuple[Tensor, ...], sizes: Any, *rest: Any) -> object:
            strides = [step * t.element_size() for t in tensors for step in t.stride()]
            _, tasks, bytes_ = rest
            self.notes.append(" ".join(map(str, (tasks, bytes_, *sizes, *strides))))
            return launch(address, tensors, sizes, *rest)

        return run


@pytest.mark.parametrize("derived", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", ON_GPUS)
def test_it_launches_what_python_does_and_gets_the_same_bits(
    name: str, derived: bool, library: Library, seed: int
) -> None:
    given = named(operators()[name], arguments(CASES[name], torch.float32, seed))
    with torch.no_grad():
        output = getattr(library.operators, name)(*given.values())
        given |= {"y": output, "grad": torch.ones_like(output)} | given
        operator = operators()[f"_{name}_grad"] if derived else operators()[name]
        line = operator.formula.line
        values = {p.name: given[p.name] for p in line.parameters}
        library.notes()
        results = getattr(library.operators, operator.shipped.line.name)(*values.values())
    launched = [note.replace("_indexgpu_", "_indexgpupython_") for note in library.notes()]
    results = results if isinstance(results, tuple | list) else [results]
    flat = values | {t.name: flatten(values[t.name], t.labels) for t in line.tensors}
    expected: list[str] = []
    widest = max(operator.choices, key=lambda choice: (choice.wanted, choice.present))
    for group in widest.groups:
        backend = NotingBackend(ON_CPU)
        own = replace(group.own, backend=backend, known=Memo())
        wanted = [results[k] for k in own.outputs]
        found = own.run(flat, sizes_of(operator, flat), [each.dtype for each in wanted])
        assert all(torch.equal(f.view_as(w), w) for f, w in zip(found, wanted, strict=True))
        kernels = [operator.symbol(own.target, step.kernel.text) for step in own.steps]
        expected += [f"{k} {n}" for k, n in zip(kernels, backend.notes, strict=True)]
    own_kernels = {note.split()[0] for note in expected}
    # Others say where data points, which Python asks PyTorch's operations.
    assert [note for note in launched if note.split()[0] in own_kernels] == expected


def named(operator: IndexedOperator, values: Sequence[Any]) -> dict[str, Any]:
    names = [parameter.name for parameter in operator.formula.line.parameters]
    return {
        name: value.detach() if isinstance(value, Tensor) else value
        for name, value in zip(names, values, strict=True)
    }


def flatten(value: Tensor, labels: Sequence[str]) -> Tensor:
    """Return a tensor with its batch, which comes first, as one dimension."""
    return value.flatten(0, -len(labels)) if BATCH in labels else value


def sizes_of(operator: IndexedOperator, values: Mapping[str, Any]) -> dict[str, int]:
    formula = operator.formula
    sizes: dict[str, int] = {}
    for tensor in formula.line.tensors:
        sizes |= zip(tensor.labels, values[tensor.name].shape, strict=True)
    for index, extent in formula.sizes.items():
        if (size := extents.evaluate_size(extent, sizes)) is not None:
            sizes[index] = int(size)
    return sizes


@pytest.fixture(scope="session")
def for_gpus(once: Once) -> Path:
    """A library that nvcc compiled."""

    def build(folder: Path) -> None:
        ran = command(HERE / "build_for_gpus.py", folder / "made", folder=folder, **LAUNCHER)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    file = once("forgpus-cmake", build) / "made" / "lib" / "libforgpus.so"
    torch.ops.load_library(str(file))
    return file


@pytest.mark.nvcc
@pytest.mark.usefixtures("for_gpus")
def test_nvcc_compiles_them_for_several_gpus_and_later_ones(for_gpus: Path, seed: int) -> None:
    [row] = audit.audit(for_gpus).rows
    assert sorted(row.gpu.split(", ")) == ["compute_90", "sm_80", "sm_90"]
    for name in FOR_GPUS:
        compare(getattr(torch.ops.forgpus, name), CASES[name], torch.float32, 1, seed)


@pytest.mark.cuda
@pytest.mark.skipif(not gpu.is_available(), reason="no GPU here")
@pytest.mark.usefixtures("for_gpus")
@pytest.mark.parametrize("name", FOR_GPUS)
def test_on_a_gpu_values_and_gradients_are_those_of_pytorch(name: str, seed: int) -> None:
    operator = getattr(torch.ops.forgpus, name)
    compare(operator, CASES[name], torch.float32, 1, seed, device="cuda")
    compare(operator, CASES[name], torch.bfloat16, 0, seed, device="cuda")


@pytest.mark.cuda
@pytest.mark.skipif(not gpu.is_available(), reason="no GPU here")
@pytest.mark.usefixtures("for_gpus")
def test_on_a_gpu_an_index_outside_is_said_and_the_current_stream_is_taken() -> None:
    x = torch.ones(9, 4, device="cuda")
    with pytest.raises(RuntimeError, match=r"PB149.*'x' is read at 9"):
        torch.ops.forgpus.bag(x, torch.tensor([[9]], device="cuda"))
    graph = torch.cuda.CUDAGraph()
    torch.ops.forgpus.softmax(x)
    with torch.cuda.graph(graph):
        y = torch.ops.forgpus.softmax(x)
    x.copy_(torch.randn(9, 4))
    graph.replay()
    torch.testing.assert_close(y, x.softmax(-1))
