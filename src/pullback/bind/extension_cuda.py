"""PyTorch extensions in CUDA: built by nvcc where there is a GPU, and for the CPU elsewhere."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch

from pullback.bind import extension_cuda_headers, gpu, loading, runtime
from pullback.bind.build import Build, include_flags, text_of, unit_of
from pullback.bind.notice import notice
from pullback.bind.on_cpu import CudaOnCpuNotice
from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.cuda_on_cpu import library, mode, runtimes, units
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.plan import BuildPlan, TranslationUnit, folders_in

IN_CUDA = (".cu", ".cuh")
# What shows that C++ is part of an extension in CUDA.
MARKS = re.compile(
    r"<<<|#\s*include\s*[<\"](cuda\w*\.h|c10/cuda/|ATen/cuda/|ATen/native/cuda/|THC/|cub/|thrust/)"
)
# PyTorch's own flags for .cu files: conversions that are explicit there are explicit here.
OF_TORCH = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
EXTENSION = "-DTORCH_API_INCLUDE_EXTENSION_H"
# The author's flags for the standard, optimising and the like are meant for nvcc.
NOT_HERE = re.compile(r"-std=|-O|-g\d?$|-l|-L|-W(?!l,)|-ccbin|-march=|-mtune=")
SUFFIXES_OF_CPP = (".cpp", ".cc", ".cxx", ".c", ".cp", ".c++")


def is_cuda(files: Sequence[str | Path]) -> bool:
    """Return whether any part of an extension is CUDA."""
    return any(
        (isinstance(file, Path) and file.suffix in IN_CUDA) or MARKS.search(text_of(file) or "")
        for file in files
    )


def compile(build: Build, *, precompiled: bool = True) -> Path:
    """Return the library of an extension, compiled if need be; it may be for another process.

    Raises:
        PullbackError: PB201 to PB206, it does not compile; PB234, it cannot run on the CPU.
    """
    if not mode.is_chosen() and gpu.is_available():
        return compilation.compile(plan_for_gpu(build), announce=runtime.announce)
    now = mode.current_mode()
    # The runtime library first, so that messages come in the order of the work.
    library.runtime(now.check, runtime.announce)
    plan = plan_on_cpu(build, now)
    ahead = (
        functools.partial(extension_cuda_headers.precompile_headers, plan) if precompiled else None
    )
    return compilation.compile(plan, announce=runtime.announce, ahead=ahead)


def load(build: Build, *, precompiled: bool = True) -> ModuleType:
    """Return the Python module of an extension, or an `Extension`, compiled if need be.

    Raises:
        PullbackError: as `compile`; PB214, PB215, loading it fails; PB236, the memory check needs
            a process that was started for it.
    """
    made = compile(build, precompiled=precompiled)
    if mode.is_chosen() or not gpu.is_available():
        runtimes.load(mode.current_mode())
        _announce(build.name)
    return loading.load(made)


def plan_on_cpu(build: Build, now: Mode) -> BuildPlan:
    """Return the build plan with which an extension in CUDA runs on the CPU.

    Raises:
        PullbackError: PB201, no compiler; PB311, no Python.h.
    """
    # PyTorch's own tools give some of these; given twice, they need another precompiled header.
    ours = {*OF_TORCH, EXTENSION, build.module}
    flags = [
        flag
        for flag in library.take_flags(build.compiling)
        if flag not in ours and not NOT_HERE.match(flag)
    ]
    folders = dict.fromkeys([*build.folders, *folders_in(flags)])
    plain = library.flags(now.check)
    if now.check == "none":
        # PyTorch's headers take most of the time, and -O3 and line tables would double it. Lines of
        # deadlocks, assertions and launches are known without; the checks have line tables.
        plain = (*("-O1" if flag == "-O3" else flag for flag in plain), "-g0")
    return BuildPlan(
        name=f"{build.word}-cuda-on-cpu",
        compiler=toolchain.find("c++"),
        units=tuple(_unit(index, file) for index, file in enumerate(build.files)),
        sources=build.paths,
        flags=(
            f"-I{extension_cuda_headers.FOLDER}",
            *plain,
            *units.AS_BY_NVCC,
            *_torch_flags(build, flags),
        ),
        compile_flags=library.SANITIZE[now.check],
        link=(*library.link(now.check), *runtime.link_flags(), *_link_flags(build)),
        translation=library.translation(folders, torch=True),
        abi=f"{runtime.abi()} {library.abi()}",
    )


def plan_for_gpu(build: Build) -> BuildPlan:
    """Return the build plan for nvcc, with the flags of `torch.utils.cpp_extension`."""
    major, minor = torch.cuda.get_device_capability()
    architecture = f"{major}{minor}"
    return BuildPlan(
        name=f"{build.word}-cuda",
        compiler=toolchain.find("cuda"),
        units=tuple(_unit_for_gpu(index, file) for index, file in enumerate(build.files)),
        sources=build.paths,
        flags=(
            *("-std=c++20", "-O3", "-shared", "--expt-relaxed-constexpr", "--cudart", "shared"),
            *("-Xcompiler", "-fPIC,-fvisibility=hidden"),
            f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
            *_torch_flags(build, _translate_flags(build.compiling)),
        ),
        link=(
            *runtime.link_flags(),
            *("-ltorch_cuda", "-lc10_cuda"),
            *_translate_flags(build.linking),
        ),
        abi=runtime.abi(),
    )


def _torch_flags(build: Build, given: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that PyTorch's own builds have, and the author's."""
    own = (*include_flags(), *OF_TORCH, EXTENSION)
    return (*own, *build.quoted, *given, build.module)


def _unit(index: int, file: str | Path) -> TranslationUnit:
    """Include a file as nvcc does: the CUDA runtime first, and no CUDA in files of C++."""
    # An author's header may define functions for .cu files alone.
    of_host = isinstance(file, Path) and file.suffix in SUFFIXES_OF_CPP
    host = "#undef __CUDACC__\n" if of_host else ""
    return unit_of(index, file, begin=f"#include <cuda_runtime.h>\n{host}")


def _unit_for_gpu(index: int, file: str | Path) -> TranslationUnit:
    in_cuda = isinstance(file, str) or file.suffix in IN_CUDA
    return unit_of(index, file, suffix="cu" if in_cuda else "cpp")


def _translate_flags(flags: Sequence[str]) -> list[str]:
    """Pass on to g++ the flags that nvcc does not know."""
    found: list[str] = []
    for flag in flags:
        host = re.match(r"-(f|m(?!axrreg)|W|pthread)", flag)
        found.extend(
            ("-Xlinker", flag[4:])
            if flag.startswith("-Wl,")
            else ("-Xcompiler", flag)
            if host
            else (flag,)
        )
    return found


def _link_flags(build: Build) -> list[str]:
    """Leave out the libraries that only a GPU needs."""
    gone = ("-lcudart", "-lcuda", "-lc10_cuda", "-ltorch_cuda", "-lcudadevrt", "-lnvToolsExt")
    return [flag for flag in build.linking if flag not in gone]


_announced: set[str] = set()


def _announce(name: str) -> None:
    """Say once for each extension that its kernels run on the CPU, unless that was asked for."""
    if name not in _announced and not mode.is_chosen():
        _announced.add(name)
        notice(f"{name}: its CUDA kernels run on the CPU, for want of a GPU", CudaOnCpuNotice)
