"""Libraries that were compiled for GPUs: refused where a GPU is only pretended.

A kernel that nvcc compiled cannot be launched without a GPU, and few programs check the result of a
launch: they would take unwritten memory for the kernel's result.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from typing import Any, BinaryIO

import torch

from pullback.bind import gpu
from pullback.bind.notice import notice
from pullback.cuda.patches import Patches
from pullback.diagnostic import Rule
from pullback.kernels import compile as compilation
from pullback.kernels.cuda_on_cpu import runtimes

CompiledForGpu = Rule("PB239", "compiled-for-gpu")

# The sections in which CUDA's and ROCm's compilers put code for GPUs.
CODE = frozenset({".nv_fatbin", ".hip_fatbin"})
# PyTorch's own packages have CPU kernels for everything, and these are the ones called.
SITE = Path(torch.__file__).parent.parent
OF_PYTORCH = [SITE / name for name in ("torch", "torchvision", "torchaudio", "nvidia")]
ELF = b"\x7fELF\x02\x01"  # 64 bits, little-endian: CUDA supports no other
HEADER, SECTION, ENTRY = struct.Struct("<40xQ10xHHH"), struct.Struct("<II16xQQI20x"), "<qQ"
NEEDED, RPATH, RUNPATH = 1, 15, 29


def patch(patches: Patches) -> None:
    """Look at each library before ctypes, PyTorch or an import loads it."""
    load: Any = ctypes.CDLL.__init__

    @functools.wraps(load)
    def load_for_cpu(self: object, name: object, *args: object, **kwargs: object) -> None:
        if not isinstance(self, compilation.CompiledLibrary):
            refuse(name)
        load(self, name, *args, **kwargs)

    patches.set(ctypes.CDLL, "__init__", load_for_cpu)
    # It turns whatever ctypes raises into an error that names only the file.
    operators: Any = type(torch.ops)
    load_library: Callable[[Any, Any], None] = operators.load_library

    @functools.wraps(load_library)
    def load_library_for_cpu(self: object, path: object) -> None:
        refuse(path)
        load_library(self, path)

    patches.set(operators, "load_library", load_library_for_cpu)
    create: Callable[[ExtensionFileLoader, ModuleSpec], object] = ExtensionFileLoader.create_module

    @functools.wraps(create)
    def create_for_cpu(self: ExtensionFileLoader, spec: ModuleSpec) -> object:
        refuse(spec.origin)
        return create(self, spec)

    patches.set(ExtensionFileLoader, "create_module", create_for_cpu)
    # Does not exist yet if this module itself imports PyTorch, whose import sets this up.
    there_is = getattr(gpu, "is_available", None)
    if there_is and not there_is():
        announce_loaded()


def refuse(library: object) -> None:
    """Stop if a library, or one of the author's that it is linked to, has code for GPUs.

    Args:
        library: as the loader takes it: a path, the name of a system library, or None.

    Raises:
        PullbackError: PB239, it has.
    """
    if not isinstance(library, str | bytes | os.PathLike):
        return
    path = Path(os.fsdecode(library))
    if path.name == str(path):  # a system library, wherever that is
        return
    for each in with_needed(path):
        if not is_for_gpus(each):
            continue
        linked = "" if each == path else f", and {path.name} is linked to it"
        raise CompiledForGpu.error(
            f"{each.name} was compiled for a GPU, and the one here is only pretended{linked}",
            at=each,
            why="its kernels would not run, and nothing would say so",
            help="build it for the CPU: python -m pullback.cuda setup.py build_ext --inplace;"
            " of operators of pullback, import the Python file that defines them",
        )


def announce_loaded() -> None:
    """Say which libraries with code for GPUs were loaded before one was pretended."""
    for path in map(Path, runtimes.mapped_files()):
        if ".so" in path.name and is_for_gpus(path):
            text = f"{path.name} was compiled for a GPU: here its kernels would not run, silently"
            # Imported here, since that module itself may be importing PyTorch, which sets this up.
            from pullback.bind.on_cpu import CudaOnCpuNotice  # noqa: PLC0415

            notice(text, CudaOnCpuNotice)


def is_for_gpus(path: Path) -> bool:
    """Tell whether an author's library has code for GPUs."""
    own = not any(path.is_relative_to(folder) for folder in OF_PYTORCH)
    return own and read(path).for_gpus


@dataclass(frozen=True)
class SharedLibrary:
    """A shared library: whether it has code for GPUs, and what it is linked to."""

    for_gpus: bool = False
    needed: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()


def with_needed(path: Path) -> Iterator[Path]:
    """Yield a library, and those that it is linked to if it says itself in which folder."""
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        each = waiting.pop()
        if each in seen or not each.is_file():
            continue
        seen.add(each)
        yield each
        library = read(each)
        waiting += [folder / name for folder in library.folders for name in library.needed]


def read(path: Path) -> SharedLibrary:
    """Return what a library says about itself; nothing if the file is not a library."""
    try:
        with path.open("rb") as file:
            return _read(file, path)
    except (OSError, struct.error, ValueError, LookupError):
        return SharedLibrary()


def _read(file: BinaryIO, path: Path) -> SharedLibrary:
    header = file.read(64)
    if not header.startswith(ELF):
        return SharedLibrary()
    at, size, count, names = HEADER.unpack(header)
    file.seek(at)
    table = file.read(size * count)
    sections = [SECTION.unpack_from(table, size * index) for index in range(count)]
    texts = _content(file, sections[names])
    by_name = {_text(texts, section[0]): section for section in sections}
    needed: list[str] = []
    folders: list[Path] = []
    if dynamic := by_name.get(".dynamic"):
        strings = _content(file, sections[dynamic[4]])
        for tag, value in struct.iter_unpack(ENTRY, _content(file, dynamic)):
            if tag == NEEDED:
                needed.append(_text(strings, value))
            elif tag in (RPATH, RUNPATH):
                own = str(path.absolute().parent)
                said = _text(strings, value).replace("${ORIGIN}", own).replace("$ORIGIN", own)
                folders += [Path(folder) for folder in said.split(":") if folder]
    return SharedLibrary(not CODE.isdisjoint(by_name), tuple(needed), tuple(folders))


def _content(file: BinaryIO, section: tuple[int, ...]) -> bytes:
    file.seek(section[2])
    return file.read(section[3])


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode(errors="replace")
