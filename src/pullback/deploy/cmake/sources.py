"""The translation units of a project: an author's kernels, and the loops of formulas."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pullback.bind.build import FOR_LINKING
from pullback.deploy.shipped import FLOATING, PRECISE, Shipped, ShippedKernel
from pullback.deploy.staging import copy, write
from pullback.kernels.glue import Device
from pullback.kernels.loops import pointwise, pointwise_cuda
from pullback.kernels.loops.pointwise import Loop
from pullback.kernels.plan import by_folder

# Headers of the system, which other machines have where the compiler looks or its flags say.
OF_THE_MACHINE = (Path("/usr"), Path("/opt"))
SUFFIXES: dict[Device, str] = {"cpu": ".cpp", "cuda": ".cu"}


@dataclass(frozen=True)
class Sources:
    """The kernels of a project."""

    kernels: Sequence[ShippedKernel]

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The author's files, headers among them."""
        found = [path for k in self.kernels for path in k.files]
        return tuple(dict.fromkeys(path for path in found if not is_of_the_machine(path)))

    @cached_property
    def root(self) -> Path:
        """The folder that all files are in, so that they still find one another."""
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
                write(folder / inline_file(kernel), f"{kernel.source.text}\n")
            file = self.place(kernel.file) if kernel.file else inline_file(kernel)
            write(folder / unit_file(kernel), kernel.moved(file))

    def options(self, kernel: ShippedKernel) -> list[str]:
        """Return an author's flags for compiling."""
        flags = list(by_folder(kernel.source.flags))
        folders = [path for _, path in flags if path and not is_of_the_machine(path)]
        own = [
            word
            for words, path in flags
            if path not in folders and not words[0].startswith(FOR_LINKING)
            for word in words
        ]
        return [*own, *(f"-I${{CMAKE_CURRENT_SOURCE_DIR}}/{self.place(path)}" for path in folders)]

    def libraries(self) -> list[str]:
        """Return an author's flags for linking."""
        flags = [flag for kernel in self.kernels for flag in kernel.source.flags]
        return list(dict.fromkeys(f for f in flags if f.startswith((*FOR_LINKING, "-fopenmp"))))


def is_of_the_machine(path: Path) -> bool:
    """Tell whether a file is the system's."""
    return any(path.is_relative_to(folder) for folder in OF_THE_MACHINE)


def unit_file(kernel: ShippedKernel) -> Path:
    """Return the file of a kernel's translation unit."""
    return Path("kernels", f"{kernel_stem(kernel)}{SUFFIXES[kernel.device]}")


def inline_file(kernel: ShippedKernel) -> Path:
    """Return the file of a kernel that was given as text."""
    suffix = "cuh" if kernel.device == "cuda" else "h"
    return Path("kernels", "source", f"{kernel_stem(kernel)}.{suffix}")


def kernel_stem(kernel: ShippedKernel) -> str:
    """Return a file's stem that no other kernel has."""
    return f"{kernel.line.namespace}_{kernel.line.name}_{kernel.device}"


PARAMETERS = {
    "cpu": "char** data, const int64_t* strides, int64_t n, const pullback::Scalar* scalars",
    "cuda": "const pullback::Launch* launch, char* message, uint64_t capacity",
}
RETURNS = {"cpu": "void", "cuda": "int"}


@dataclass(frozen=True, kw_only=True)
class BuiltLoop:
    """A loop of the library.

    Attributes:
        loop: what it computes.
        device: where it runs.
        symbol: its C name; loops of the same text have one.
    """

    loop: Loop
    device: Device
    symbol: str

    @property
    def declaration(self) -> str:
        """Its declaration in C++."""
        return f'extern "C" {RETURNS[self.device]} {self.symbol}({PARAMETERS[self.device]});'


def dtypes_of(shipped: Shipped) -> tuple[str, ...]:
    """Return the dtypes that a formula has loops for."""
    return FLOATING if shipped.order < 2 else PRECISE


def choose_loops(shipped: Shipped) -> list[Loop]:
    """Return the loops of a pointwise formula that the library gets."""
    loops = shipped.loops(dtypes_of(shipped))
    return [loop for loop in loops if is_chosen(shipped, loop.wanted, loop.present)]


def is_chosen(shipped: Shipped, wanted: int, present: int) -> bool:
    """Tell whether the library has a loop for some outputs and inputs, so that it is not too large.

    An output is computed alone or with all others. For a second derivative all are, and one of the
    optional inputs is given, or all of them. In any other case the library takes a loop that
    computes more than is asked for, and reads zeros for what is None.
    """
    everything = (1 << len(shipped.line.outputs)) - 1
    optional = sum(1 << k for k, tensor in enumerate(shipped.line.tensors) if tensor.optional)
    first, given = shipped.order < 2, present & optional
    chosen = wanted == everything or (first and wanted.bit_count() == 1)
    return chosen and (first or given == optional or given.bit_count() == 1)


def build_loops(shipped: Shipped, devices: Sequence[Device]) -> list[BuiltLoop]:
    """Return the loops of an operator on some devices."""
    stem = f"pullback_{shipped.line.namespace}_{shipped.line.name}"
    numbered = pointwise.name_loops(choose_loops(shipped), "")
    return [
        BuiltLoop(loop=loop, device=device, symbol=f"{stem}_{device}_{number}")
        for device in devices
        for number, loop in numbered
    ]


def write_units(shipped: Shipped, loops: Sequence[BuiltLoop]) -> Iterator[tuple[str, str]]:
    """Yield the file and the text of each translation unit: one for each device and type."""

    def kind(built: BuiltLoop) -> tuple[Device, str]:
        return built.device, built.loop.compute

    for (device, compute), group in itertools.groupby(sorted(loops, key=kind), key=kind):
        distinct = {built.symbol: built.loop for built in group}
        ulp = next(iter(distinct.values())).formula.accuracy
        stem = f"{shipped.line.namespace}_{shipped.line.name}_{compute}"
        if device == "cpu":
            yield (
                f"{stem}.cpp",
                variant_namespace(f"{compute}_{ulp}") + pointwise.generate_together(distinct),
            )
        else:
            yield (
                f"{stem}.cu",
                variant_namespace(compute) + pointwise_cuda.generate_together(distinct),
            )


def variant_namespace(variant: str, *names: str) -> str:
    """Return the lines that keep variants of the headers' functions apart in one library.

    Args:
        variant: what the names of their namespaces end with.
        names: of the namespaces; without any it is `formula`.
    """
    defined = "".join(f"#define {name} {name}_{variant}\n" for name in names or ("formula",))
    return (
        "// What the headers define depends on the type that is computed in: this library has\n"
        f"// several, so each has a namespace of its own.\n{defined}"
    )
