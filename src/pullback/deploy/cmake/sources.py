"""An author's kernels in a project: their files copied, the generated text around them beside."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pullback.deploy.files import copy, write
from pullback.deploy.shipped import Kernel
from pullback.kernels.glue import CSRC, author_code
from pullback.kernels.plan import by_folder

# Headers of the machine, which every machine has where its compiler looks, or its author says.
OF_THE_MACHINE = (Path("/usr"), Path("/opt"))
# Flags that are for the linker.
LINKING = ("-l", "-L", "-Wl,")


@dataclass(frozen=True)
class Sources:
    """The kernels of a project."""

    kernels: Sequence[Kernel]

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The author's files, headers among them."""
        found = [path for k in self.kernels for path in (k.file, *k.headers) if path]
        return tuple(dict.fromkeys(path for path in found if not is_of_the_machine(path)))

    @cached_property
    def root(self) -> Path:
        """The folder that all files are in, so that one is found from another as before."""
        folders = [path.parent for path in self.files]
        folders += [f for k in self.kernels for f in k.folders if not is_of_the_machine(f)]
        return Path(os.path.commonpath(folders)) if folders else Path("/")

    def place(self, path: Path) -> Path:
        """Return where a file or folder is in the project."""
        return Path("kernels", "source", path.relative_to(self.root))

    def write(self, folder: Path) -> None:
        """Write everything into a project."""
        for path in self.files:
            copy(path, folder / self.place(path))
        for kernel in self.kernels:
            if kernel.file is None:
                write(folder / inline(kernel), f"{kernel.source.text}\n")
            write(folder / unit(kernel), self.text(kernel))

    def text(self, kernel: Kernel) -> str:
        """Return the translation unit of a kernel, with paths inside of the project."""
        code = author_code(kernel.line, kernel.source)
        file = self.place(kernel.file) if kernel.file else inline(kernel)
        return kernel.text.replace(code, f'#include "{file}"', 1).replace(f"{CSRC}/", "pullback/")

    def options(self, kernel: Kernel) -> list[str]:
        """Return an author's flags for compiling."""
        flags = list(by_folder(kernel.source.flags))
        folders = [path for _, path in flags if path and not is_of_the_machine(path)]
        own = [
            word
            for words, path in flags
            if path not in folders and not words[0].startswith(LINKING)
            for word in words
        ]
        return [*own, *(f"-I${{CMAKE_CURRENT_SOURCE_DIR}}/{self.place(path)}" for path in folders)]

    def libraries(self) -> list[str]:
        """Return an author's flags for linking."""
        flags = [flag for kernel in self.kernels for flag in kernel.source.flags]
        return list(dict.fromkeys(f for f in flags if f.startswith((*LINKING, "-fopenmp"))))


def is_of_the_machine(path: Path) -> bool:
    """Tell whether a file is the system's."""
    return any(path.is_relative_to(folder) for folder in OF_THE_MACHINE)


def unit(kernel: Kernel) -> Path:
    """Return the file of a kernel's translation unit."""
    suffix = "cu" if kernel.device == "cuda" else "cpp"
    return Path("kernels", f"{stem(kernel)}.{suffix}")


def inline(kernel: Kernel) -> Path:
    """Return the file of a kernel that was given as text."""
    suffix = "cuh" if kernel.device == "cuda" else "h"
    return Path("kernels", "source", f"{stem(kernel)}.{suffix}")


def stem(kernel: Kernel) -> str:
    """Return a name that is a kernel's alone."""
    return f"{kernel.line.namespace}_{kernel.line.name}_{kernel.device}"
