"""PyTorch extensions in CUDA: built by nvcc where there is a GPU, and for the CPU elsewhere."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from pullback.bind import extension, extension_cuda_headers, gpu, loading, runtime
from pullback.bind.notice import notice
from pullback.bind.on_cpu import CudaOnCpuNotice
from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.cuda_on_cpu import library, mode, runtimes, units
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.plan import Plan, Unit

IN_CUDA = (".cu", ".cuh")
# What shows that C++ is part of an extension in CUDA.
MARKS = re.compile(
    r"<<<|#\s*include\s*[<\"](cuda\w*\.h|c10/cuda/|ATen/cuda/|ATen/native/cuda/|THC/|cub/|thrust/)"
)
# PyTorch's own for .cu files: conversions that are explicit there are explicit here.
OF_TORCH = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
EXTENSION = "-DTORCH_API_INCLUDE_EXTENSION_H"
# What the author says of the standard and of optimising is for nvcc and its version.
NOT_HERE = re.compile(r"-std=|-O|-g\d?$|-l|-L|-W(?!l,)|-ccbin|-march=|-mtune=")
SUFFIXES_OF_CPP = (".cpp", ".cc", ".cxx", ".c", ".cp", ".c++")


@dataclass(frozen=True, kw_only=True)
class Build:
    """An extension to build.

    Attributes:
        name: of the Python module.
        files: the author's; or C++ itself.
        folder: where text finds the headers that it names in quotes.
        compiling: the author's flags, in the words of g++ or nvcc; folders in them are absolute.
        linking: the same for linking.
    """

    name: str
    files: tuple[str | Path, ...]
    folder: str
    compiling: tuple[str, ...] = ()
    linking: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The author's files."""
        return tuple(file for file in self.files if isinstance(file, Path))


def asked_for() -> bool:
    """Tell whether someone chose the CPU, rather than being left with it."""
    return mode.wanted() or bool(mode._entered)


def is_cuda(files: Sequence[str | Path]) -> bool:
    """Tell whether an extension has anything of CUDA in it."""
    return any(
        (isinstance(file, Path) and file.suffix in IN_CUDA) or MARKS.search(_text(file))
        for file in files
    )


def compile(build: Build, *, precompiled: bool = True) -> Path:
    """Return the library of an extension, compiled if need be; it may be for another process.

    Raises:
        PullbackError: PB201 to PB206, it does not compile; PB234, it cannot run on the CPU.
    """
    if not asked_for() and gpu.there_is():
        return compilation.compile(plan_for_gpu(build), announce=runtime.announce)
    now = mode.current()
    # The runtime library first, so that what is said comes in the order of what is done.
    library.runtime(now.check, runtime.announce)
    plan = plan_on_cpu(build, now)
    ahead = (
        functools.partial(extension_cuda_headers.made, plan)
        if precompiled and now.check == "none"
        else None
    )
    return compilation.compile(plan, announce=runtime.announce, ahead=ahead)


def load(build: Build, *, precompiled: bool = True) -> ModuleType:
    """Return the Python module of an extension, or an `Extension`, compiled if need be.

    Raises:
        PullbackError: as `compile`; PB214, PB215, loading it fails; PB236, the memory check needs
            a process that was started for it.
    """
    made = compile(build, precompiled=precompiled)
    if asked_for() or not gpu.there_is():
        runtimes.load(mode.current())
        _announce(build.name)
    return loading.load(made)


def plan_on_cpu(build: Build, now: Mode) -> Plan:
    """Return what to compile so that an extension in CUDA runs on the CPU.

    Raises:
        PullbackError: PB201, no compiler; PB311, no Python.h.
    """
    # PyTorch's own tools say some of it as well; said twice it would be another precompiled header.
    said = {*OF_TORCH, EXTENSION, extension.MODULE + build.name.rpartition(".")[2]}
    given = [
        flag
        for flag in library.taken(build.compiling)
        if flag not in said and not NOT_HERE.match(flag)
    ]
    plain = library.flags(now.check)
    if now.check == "none":
        # PyTorch's headers are what takes time, and -O3 and line tables would double it. The lines
        # of deadlocks, assertions and launches are known without; the checks have them all.
        plain = (*("-O1" if flag == "-O3" else flag for flag in plain), "-g0")
    return Plan(
        name=f"{_word(build.name)}-cuda-on-cpu",
        compiler=toolchain.find("c++"),
        units=tuple(_unit(index, file) for index, file in enumerate(build.files)),
        sources=build.paths,
        flags=(
            f"-I{extension_cuda_headers.FOLDER}",
            *plain,
            *units.AS_BY_NVCC,
            *extension.include_flags(),
            *OF_TORCH,
            EXTENSION,
            *_quoted(build),
            *given,
            extension.MODULE + build.name.rpartition(".")[2],
        ),
        compile_flags=library.SANITIZE[now.check],
        link=(*library.link(now.check), *runtime.link_flags(), *_linking(build)),
        translation=library.translation(_folders(build, given), torch=True),
        abi=f"{runtime.abi()} {library.abi()}",
    )


def plan_for_gpu(build: Build) -> Plan:
    """Return what nvcc is to compile: with the flags of `torch.utils.cpp_extension`."""
    major, minor = torch.cuda.get_device_capability()
    architecture = f"{major}{minor}"
    return Plan(
        name=f"{_word(build.name)}-cuda",
        compiler=toolchain.find("cuda"),
        units=tuple(_unit_for_gpu(index, file) for index, file in enumerate(build.files)),
        sources=build.paths,
        flags=(
            *("-std=c++20", "-O3", "-shared", "--expt-relaxed-constexpr", "--cudart", "shared"),
            *("-Xcompiler", "-fPIC,-fvisibility=hidden"),
            f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
            *extension.include_flags(),
            *OF_TORCH,
            EXTENSION,
            *_quoted(build),
            *_for_nvcc(build.compiling),
            extension.MODULE + build.name.rpartition(".")[2],
        ),
        link=(
            *runtime.link_flags(),
            *("-ltorch_cuda", "-lc10_cuda"),
            *_for_nvcc(build.linking),
        ),
        abi=runtime.abi(),
    )


def _unit(index: int, file: str | Path) -> Unit:
    """Include a file as nvcc does: the runtime first, and no CUDA in what is C++."""
    begin = "#include <cuda_runtime.h>\n"
    if isinstance(file, str):
        return Unit(f"{index}-inline.cpp", f'{begin}#line 1 "source of the extension"\n{file}\n')
    # A header of the author's may define functions for .cu files alone.
    host = "#undef __CUDACC__\n" if file.suffix in SUFFIXES_OF_CPP else ""
    return Unit(f"{index}-{file.stem}.cpp", f'{begin}{host}#include "{file}"\n')


def _unit_for_gpu(index: int, file: str | Path) -> Unit:
    if isinstance(file, str):
        return Unit(f"{index}-inline.cu", f'#line 1 "source of the extension"\n{file}\n')
    suffix = "cu" if file.suffix in IN_CUDA else "cpp"
    return Unit(f"{index}-{file.stem}.{suffix}", f'#include "{file}"\n')


def _folders(build: Build, compiling: Sequence[str]) -> list[Path]:
    """Return where the author's headers are: beside the files, and in the folders of the flags."""
    found = [path.parent for path in build.paths]
    if len(found) < len(build.files):
        found.append(Path(build.folder))
    words = iter(compiling)
    for word in words:
        for flag in ("-I", "-isystem", "-iquote"):
            if word.startswith(flag):
                found.append(Path(word.removeprefix(flag) or next(words, "")))
                break
    return list(dict.fromkeys(found))


def _quoted(build: Build) -> tuple[str, ...]:
    inline = len(build.paths) < len(build.files)
    return (extension.BESIDE_TEXT + build.folder,) if inline else ()


def _for_nvcc(flags: Sequence[str]) -> list[str]:
    """Hand on to g++ what nvcc does not know itself."""
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


def _linking(build: Build) -> list[str]:
    """Leave out the libraries that are only there for a GPU."""
    gone = ("-lcudart", "-lcuda", "-lc10_cuda", "-ltorch_cuda", "-lcudadevrt", "-lnvToolsExt")
    return [flag for flag in build.linking if flag not in gone]


def _text(file: str | Path) -> str:
    if isinstance(file, str):
        return file
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


_announced: set[str] = set()


def _announce(name: str) -> None:
    """Say once for each extension that its kernels run on the CPU, unless that was asked for."""
    if name not in _announced and not asked_for():
        _announced.add(name)
        notice(f"{name}: its CUDA kernels run on the CPU, for want of a GPU", CudaOnCpuNotice)
