"""Compiles the kernels of the package. Yours to edit: the flags below, the kernels under src/.

What pullback wrote is in generated/: the entry points of the kernels and the headers they include.
It follows from the lines and calls in the Python file; write it anew after you changed those.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

CXX = os.environ.get("CXX", "g++").split()
NVCC = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"

CXX_FLAGS = [
    *("-std=c++20", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    *("-fPIC", "-fvisibility=hidden", "-pthread", "-shared", "-s"),
]
# A formula: nothing is contracted, so x*x - y*y is 0 for equal x and y; whole numbers wrap around.
FORMULA_FLAGS = ["-ffp-contract=off", "-fwrapv", "-Wno-psabi"]
NVCC_FLAGS = ["-std=c++20", "-O3", "-shared", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
# One library for every processor, and one for those since about 2015, chosen when it is loaded.
LEVELS = {
    "x86_64": {"baseline": ["-march=x86-64"], "x86-64-v3": ["-march=x86-64-v3"]},
    "aarch64": {"baseline": ["-march=armv8-a"]},
}
# "compute_90" is code that the driver compiles for later GPUs.
ARCHITECTURES = ["sm_80", "sm_90", "compute_90"]

Row = dict[str, Any]
ROOT = Path(__file__).parent.absolute()
GENERATED = ROOT / "generated"
PACKAGE = json.loads((GENERATED / "kernels.json").read_text())


def command(kernel: Row, flags: list[str], work: Path) -> list[str]:
    """Return the compiler's command for one library, except its output."""
    package = ROOT / "src" / PACKAGE["package"]
    includes = [f"-I{GENERATED}", f"-I{package}", *(f"-I{package / f}" for f in kernel["folders"])]
    includes += [f"-ffile-prefix-map={ROOT}=."] * (kernel["kind"] != "cuda")
    own = [*flags, *includes, *kernel["flags"], str(GENERATED / kernel["unit"])]
    if kernel["kind"] == "cuda":
        return [NVCC, *NVCC_FLAGS, *own, "-Xlinker", "-s"]
    if kernel["kind"] == "formula":
        # PyTorch has the vector functions; loading the library finds them in the PyTorch there.
        own += [*FORMULA_FLAGS, "-Wl,--no-as-needed", f"-L{work}", "-ltorch_cpu", "-lmvec", "-lm"]
    return [*CXX, *CXX_FLAGS, *own]


def libraries(kernel: Row) -> dict[str, list[str]]:
    """Return the libraries of a kernel, by level, each with its flags."""
    if kernel["kind"] != "cuda":
        return LEVELS.get(platform.machine(), {"baseline": []})
    code = [["-gencode", f"arch={a.replace('sm', 'compute')},code={a}"] for a in ARCHITECTURES]
    return {"baseline": [word for words in code for word in words]}


def compile_all(folder: Path) -> None:
    """Compile every kernel into the folder, and write which library computes what."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kernels = [k for k in PACKAGE["kernels"] if k["kind"] != "cuda" or Path(NVCC).exists()]
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor() as pool:
        # Its name alone: PyTorch need not be installed to build.
        stub = [*CXX, "-shared", "-Wl,-soname,libtorch_cpu.so", "-x", "c", os.devnull]
        subprocess.run([*stub, "-o", Path(work, "libtorch_cpu.so")], check=True)
        jobs = [
            (kernel, level, command(kernel, flags, Path(work)))
            for kernel in kernels
            for level, flags in libraries(kernel).items()
        ]
        files = [folder / f"{Path(kernel['unit']).stem}-{level}.so" for kernel, level, _ in jobs]
        run = [[*words, "-o", str(file)] for (*_, words), file in zip(jobs, files, strict=True)]
        list(pool.map(lambda words: subprocess.run(words, check=True), run))
    rows: list[Row] = []
    for (kernel, level, _), file in zip(jobs, files, strict=True):
        package = ROOT / "src" / PACKAGE["package"]
        sources = {name: digest(package / path) for name, path in kernel["sources"].items()}
        rest: Row = {"level": level, "file": file.name, "sha256": digest(file), "sources": sources}
        rest["architectures"] = ARCHITECTURES if kernel["kind"] == "cuda" else []
        rows += [{**entry, **rest} for entry in kernel["entries"]]
    add_runtime(folder, rows)
    manifest: Row = {"manifest": PACKAGE["manifest"], "machine": platform.machine()}
    manifest |= {"again": PACKAGE["again"], "libraries": rows}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def add_runtime(folder: Path, rows: list[Row]) -> None:
    """Add pullback's C++ runtime where PyTorch and pullback are: pip --no-build-isolation."""
    try:
        libraries = importlib.import_module("pullback.deploy.libraries")
    except ImportError:
        sys.stderr.write("without pullback's C++ runtime: the package's first use compiles it\n")
    else:
        rows += libraries.runtime_of_here(folder)


def digest(file: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


class WithKernels(build_py):
    """Compiles the kernels beside the Python files: in the source tree of an editable install."""

    def run(self) -> None:
        """Build the package, then the kernels."""
        super().run()
        tree = ROOT / "src" if self.editable_mode else Path(self.build_lib)
        compile_all(tree / PACKAGE["package"] / "kernels")


class OfOnePlatform(Distribution):
    """Not everything is Python, so it is installed where libraries are."""

    def has_ext_modules(self) -> bool:
        """Say so."""
        return True


class ForAnyPython(bdist_wheel):
    """A kernel is called through a C interface, so only the platform matters."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the wheel's tag."""
        return "py3", "none", super().get_tag()[2]


setup(distclass=OfOnePlatform, cmdclass={"build_py": WithKernels, "bdist_wheel": ForAnyPython})
