"""What was compiled for a GPU is refused where one is only pretended, whoever loads it."""

from __future__ import annotations

import _ctypes
import ctypes
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pullback.bind.on_cpu import CudaOnCpuNotice
from pullback.cuda import gpu_code
from pullback.cuda.pretend import pretend_gpu
from pullback.diagnostic import PullbackError
from pullback.kernels import compile as compilation

# The section is what nvcc makes; what is in it nobody reads.
FOR_GPUS = '__attribute__((section(".nv_fatbin"), used)) static const int code[4] = {1};\n'
pytestmark = pytest.mark.compiler


def library(folder: Path, name: str, text: str = "", *flags: str) -> Path:
    """Compile a C library."""
    source, made = folder / f"{name}.c", folder / f"lib{name}.so"
    source.write_text(f"int {name}_f(void) {{ return 7; }}\n{text}")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", made, *flags], check=True)
    return made


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("for_gpus"), "kernels", FOR_GPUS)


@pytest.fixture(scope="module")
def linked(kernels: Path) -> Path:
    """A library without code for GPUs that is linked to one which has some."""
    flags = ("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", f"-L{kernels.parent}", "-lkernels")
    return library(kernels.parent, "linked", "", *flags)


def imported(path: str) -> object:
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec
    return importlib.util.module_from_spec(spec)


WAYS: dict[str, Callable[[str], object]] = {
    "torch.ops": lambda path: torch.ops.load_library(Path(path)),
    "torch.classes": lambda path: torch.classes.load_library(f"{path}"),
    "ctypes": ctypes.CDLL,
    "ctypes with Python's lock": ctypes.PyDLL,
    "ctypes.cdll": ctypes.cdll.LoadLibrary,
    "import": imported,
}


@pytest.mark.parametrize("way", WAYS)
def test_code_for_gpus_is_refused_where_one_is_pretended(way: str, kernels: Path) -> None:
    with pretend_gpu(), pytest.raises(PullbackError) as raised:
        WAYS[way](str(kernels))
    text = str(raised.value)
    assert "compiled-for-gpu [PB239]: libkernels.so was compiled for a GPU" in text
    assert "python -m pullback.cuda setup.py" in text


def test_so_is_a_library_that_is_linked_to_some(linked: Path) -> None:
    with pretend_gpu(), pytest.raises(PullbackError, match=r"and liblinked.so is linked to it"):
        torch.ops.load_library(linked)


def test_what_is_for_the_cpu_loads(tmp_path: Path) -> None:
    plain = library(tmp_path, "plain")
    with pretend_gpu():
        assert ctypes.CDLL(str(plain)).plain_f() == 7
        assert ctypes.CDLL("libc.so.6").abs(-3) == 3
        assert ctypes.CDLL(None).abs(-3) == 3
        with pytest.raises(OSError, match="cannot open shared object file"):
            ctypes.CDLL(str(tmp_path / "missing.so"))


def test_an_operators_own_library_for_gpus_loads(kernels: Path) -> None:
    with pretend_gpu():
        opened = compilation.open_library(kernels)
        assert opened.kernels_f() == 7
    _ctypes.dlclose(opened._handle)


def test_one_that_was_there_before_is_named(tmp_path: Path) -> None:
    early = library(tmp_path, "early", FOR_GPUS)
    opened = ctypes.CDLL(str(early))
    with pytest.warns(CudaOnCpuNotice, match="libearly.so was compiled for a GPU"), pretend_gpu():
        pass
    _ctypes.dlclose(opened._handle)


@pytest.mark.nvcc
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no CUDA toolkit here")
def test_nvcc_leaves_the_mark_that_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "fill.cu").write_text(
        "__global__ void fill(float* x) { *x = 1; }\n"
        'extern "C" void launch(float* x) { fill<<<1, 1>>>(x); }\n'
    )
    made = tmp_path / "fill.so"
    words = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "fill.cu", "-o", made]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    assert gpu_code.read(made).for_gpus
    with pretend_gpu(), pytest.raises(PullbackError, match="PB239"):
        ctypes.CDLL(str(made))
