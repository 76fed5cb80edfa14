"""What to compile, as data: no file is read and no process started here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pullback.kernels.toolchain import Compiler


@dataclass(frozen=True)
class TranslationUnit:
    """A generated translation unit; it includes the author's files by absolute path."""

    file: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Translation:
    """How units in CUDA become C++: what `cuda_on_cpu.tree` needs to know.

    Attributes:
        folders: where the author's headers are, beside the folder of each file.
        keep: folders whose headers are read as they are.
        torch: whether PyTorch's names for GPUs are to become those for the CPU.
    """

    folders: tuple[Path, ...]
    keep: tuple[Path, ...]
    torch: bool


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """One shared library: everything that decides its content, except the author's own text.

    Attributes:
        name: for messages and file names, such as "demo-add2-cpu".
        compiler: what compiles and links it.
        units: compiled side by side where there are several.
        sources: the author's files; what they include is found out by compiling.
        flags: for compiling and for linking. Folders in them must be absolute: compilers run
            in a folder of their own.
        compile_flags: for compiling alone.
        link: after the objects, such as "-lm".
        link_for: before those, where an object names something that begins so: the linker takes a
            tenth of a second, most of its time, to read what PyTorch's library has.
        translation: for units in CUDA that are to run on the CPU.
        abi: what the library has to match, such as "kernel-1" or "torch 2.13.0 cp311".
        is_shared: whether a library of another name will do that has the same content: nothing in
            it is an author's, who may keep something in a variable of its own.
    """

    name: str
    compiler: Compiler
    units: tuple[TranslationUnit, ...]
    sources: tuple[Path, ...]
    flags: tuple[str, ...]
    compile_flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    link_for: tuple[str, tuple[str, ...]] | None = None
    translation: Translation | None = None
    abi: str
    is_shared: bool = False

    def __post_init__(self) -> None:
        assert re.fullmatch(r"\w[\w.+-]*", self.name), f"{self.name!r} cannot name a file"
        assert self.units, "a plan without a unit makes no library"
        assert len({Path(unit.file).stem for unit in self.units}) == len(self.units)
        assert all(Path(unit.file).name == unit.file for unit in self.units)
        assert all(source.is_absolute() for source in self.sources)

    @cached_property
    def key(self) -> str:
        """The name of its cache entry. The author's texts vary within one entry."""
        content = [
            "" if self.is_shared else self.name,
            self.compiler.language,
            self.compiler.identity,
            [[unit.file, unit.text] for unit in self.units],
            [str(source) for source in self.sources],
            self.flags,
            self.compile_flags,
            self.link,
            self.link_for,
            repr(self.translation),
            self.abi,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def kernel_flags(compiler: Compiler, architecture: str | None = None) -> tuple[str, ...]:
    """Return the flags for a kernel: as fast as floating-point rules allow, no faster.

    Args:
        compiler: C++ or CUDA.
        architecture: the GPU for nvcc's `-arch`, such as "sm_90"; None leaves it to nvcc.
            The cache cannot tell one machine's "native" from another's.
    """
    if compiler.language == "cuda":
        chosen = () if architecture is None else (f"-arch={architecture}",)
        return (*CUDA_FLAGS, *chosen)
    return CXX_FLAGS


# "-I folder" is two words, or one.
WITH_FOLDER = ("-I", "-isystem", "-iquote")


def folders_in(flags: Iterable[str]) -> list[Path]:
    """Return the folders of headers that flags name, absolute."""
    return [folder for _, folder in by_folder(flags) if folder]


def by_folder(flags: Iterable[str]) -> Iterator[tuple[tuple[str, ...], Path | None]]:
    """Yield each flag, of one word or two, and the folder of headers that it names."""
    words = iter(flags)
    for word in words:
        flag = next((each for each in WITH_FOLDER if word.startswith(each)), None)
        if flag is None:
            yield (word,), None
            continue
        name = word.removeprefix(flag)
        after = () if name else (next(words, ""),)
        yield (word, *after), Path(name or "".join(after)).absolute()


CXX_FLAGS = (
    "-std=c++20",
    "-O3",
    "-march=native",
    # Neither changes a value; PyTorch's own kernels are compiled so. Without them a loop with
    # a square root or a comparison is not vectorised.
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-pipe",
    "-shared",
)

CUDA_FLAGS = ("-std=c++20", "-O3", "-shared", "-Xcompiler", "-fPIC,-fvisibility=hidden")
