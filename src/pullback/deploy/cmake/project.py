"""What is shipped -> the files of a CMake project."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from pullback.bind import runtime
from pullback.bind.formula import gpu, loops
from pullback.define.schema import schema
from pullback.deploy import shims
from pullback.deploy.cmake import definitions, functions, sources
from pullback.deploy.cmake.definitions import quoted
from pullback.deploy.cmake.sources import BuiltLoop, Sources, unit
from pullback.deploy.files import copy, write
from pullback.deploy.shipped import Kernel, Shipped
from pullback.kernels import plan
from pullback.kernels.glue import CSRC, Device

LIBRARY = ("register", "built", "meta", "strides", "autocast")
# What CMake says itself, and what decides for which CPU.
SAID_BY_CMAKE = ("-march=native", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-pipe")


@dataclass(frozen=True)
class Project:
    """A CMake project that builds one library.

    Attributes:
        shipped: the operators, each before what its derivatives call.
        architectures: the GPUs that its kernels for GPUs are compiled for.
    """

    shipped: Sequence[Shipped]
    architectures: tuple[str, ...]

    @cached_property
    def name(self) -> str:
        """What the library is called: by the namespaces of its operators."""
        own = [each.line.namespace for each in self.shipped if each.order == 0]
        return "_".join(dict.fromkeys(own))

    @cached_property
    def kernels(self) -> list[Kernel]:
        """The kernels that authors wrote."""
        return [kernel for each in self.shipped for kernel in each.kernels]

    @cached_property
    def sources(self) -> Sources:
        """Their files."""
        return Sources(self.kernels)

    @cached_property
    def loops(self) -> dict[str, list[BuiltLoop]]:
        """The loops of each formula, by its operator's name."""
        devices: tuple[Device, ...] = ("cpu", "cuda")
        made = {s.line.qualname: sources.built(s, devices) for s in self.shipped}
        return {name: loops for name, loops in made.items() if loops}

    @cached_property
    def units(self) -> dict[Path, str]:
        """The translation units of loops, by their files."""
        return {
            Path("loops", file): text.replace(f"{CSRC}/", "pullback/")
            for each in self.shipped
            for file, text in sources.units(each, self.loops.get(each.line.qualname, []))
        }

    def write(self, folder: Path) -> None:
        """Write all files."""
        self.sources.write(folder)
        for path, text in self.units.items():
            write(folder / path, text)
        write(folder / "operators.cpp", self.operators())
        write(folder / "include" / f"{self.name}.h", functions.header(self.name, self.shipped))
        for path in self.ours():
            copy(CSRC / path, folder / "pullback" / path)
        write(folder / "exports.map", self.exports())
        write(folder / "CMakeLists.txt", self.instructions())

    def ours(self) -> Iterable[Path]:
        """Return our own files that the project needs."""
        yield from (Path("kernel_abi.h"), Path("glue.h"))
        for part in ("runtime", "library"):
            files = [path for path in sorted((CSRC / part).glob("*")) if path.is_file()]
            yield from (f.relative_to(CSRC) for f in files if f.suffix in (".cpp", ".h"))
        if self.loops:
            files = [path for path in (CSRC / "formula").rglob("*") if path.is_file()]
            yield from (path.relative_to(CSRC) for path in files)

    def operators(self) -> str:
        """Return operators.cpp."""
        every = [loop for loops in self.loops.values() for loop in loops]
        declared = [
            *(
                f'extern "C" int {k.symbol}(const pullback::Call*, char*, uint64_t);'
                for k in self.kernels
            ),
            *dict.fromkeys(loop.declaration for loop in every),
        ]
        made = [
            definitions.definition(s, self.loops.get(s.line.qualname, [])) for s in self.shipped
        ]
        called = [functions.function(each.line) for each in functions.public(self.shipped)]
        return "\n".join(
            [
                "/// What the operators are: written by `pullback build --as cmake`.",
                f'#include "{self.name}.h"\n',
                '#include "pullback/library/library.h"',
                '#include "pullback/library/shim.h"\n',
                *declared,
                "\nnamespace pullback {\n\nnamespace {\n",
                *made,
                "}  // namespace\n\n}  // namespace pullback\n",
                *self.registrations(),
                *called,
                *self.shims(),
            ]
        )

    def registrations(self) -> Iterable[str]:
        """Return what registers the operators of each namespace.

        A fragment, since a process may load several libraries of one namespace.
        """
        own = sorted(self.shipped, key=lambda each: each.line.namespace)
        for namespace, group in groupby(own, key=lambda each: each.line.namespace):
            rows = "".join(f"      {registered(each)},\n" for each in group)
            yield (
                f"TORCH_LIBRARY_FRAGMENT({namespace}, library) {{\n"
                f"  pullback::register_operators(library, {{\n{rows}  }});\n}}\n"
            )

    def shims(self) -> Iterable[str]:
        """Return the C functions for AOTInductor, where it can call one."""
        yield "namespace { using pullback::given; }\n"
        for each in functions.public(self.shipped):
            devices = ["cpu", *(["cuda"] if self.has_cuda(each) else [])]
            for device in devices:
                if has_shim(each):
                    rows = definitions.guarded(device, [functions.shim(each.line, device)])
                    yield "\n".join(rows)

    def has_cuda(self, shipped: Shipped) -> bool:
        """Tell whether an operator runs on GPUs."""
        return any(k.device == "cuda" for k in shipped.kernels) or any(
            loop.device == "cuda" for loop in self.loops.get(shipped.line.qualname, [])
        )

    def exports(self) -> str:
        """Return what of the library others see: its functions in C++, and AOTInductor's in C."""
        own = {each.line.namespace for each in functions.public(self.shipped)}
        names = "".join(f" {shims.spelled(namespace)}::*;" for namespace in sorted(own))
        inside = f' extern "C++" {{{names} }};' if names else ""
        return f"{{ global: aoti_torch_*; pullback_shim.*;{inside} local: *; }};\n"

    def instructions(self) -> str:
        """Return CMakeLists.txt."""
        halves = [[f for f in half if "/" not in f] for half in runtime.HALVES]
        first = [f"pullback/runtime/{file}.cpp" for file in halves[0]]
        second = [f"pullback/runtime/{file}.cpp" for file in halves[1]]
        second += [f"pullback/library/{file}.cpp" for file in LIBRARY]
        cpu = [str(unit(kernel)) for kernel in self.kernels if kernel.device == "cpu"]
        cpu += [str(path) for path in self.units if path.suffix == ".cpp"]
        options = [flag for flag in plan.CXX_FLAGS if flag not in SAID_BY_CMAKE]
        filled = {
            "NAME": self.name,
            "OPERATORS": ", ".join(s.line.qualname for s in self.shipped if s.order == 0),
            "KERNELS": listed(cpu),
            "KERNEL_OPTIONS": ";".join(options),
            "FLAGS": self.flags(),
            "RUNTIME": listed([*first, *second]),
            "FIRST_HALF": listed(first),
            "SECOND_HALF": listed(second),
            "LIBRARIES": " ".join(["mvec", "m"] * bool(self.loops) + self.sources.libraries()),
            **self.cuda(),
        }
        text = (CSRC / "library" / "CMakeLists.txt").read_text(encoding="utf-8")
        return re.sub("@([A-Z_]+)@", lambda match: filled[match[1]], text)

    def flags(self) -> str:
        """Return the flags of single files."""
        rows: list[str] = []
        for kernel in self.kernels:
            if own := self.sources.options(kernel):
                rows.append(flagged([str(unit(kernel))], own))
        if cpu := [str(path) for path in self.units if path.suffix == ".cpp"]:
            rows.append(flagged(cpu, loops.FLAGS))
        return "\n".join(rows)

    def cuda(self) -> dict[str, str]:
        """Return the parts of CMakeLists.txt that are for GPUs."""
        files = [str(unit(kernel)) for kernel in self.kernels if kernel.device == "cuda"]
        formulas = [str(path) for path in self.units if path.suffix == ".cu"]
        names = ("CUDA_OPTION", "CUDA", "CUDA_DEFINITION")
        if not files and not formulas:
            return dict.fromkeys(names, "")
        option = f"""
include(CheckLanguage)
check_language(CUDA)
set(found OFF)
if(CMAKE_CUDA_COMPILER AND TARGET torch_cuda)
  set(found ON)
endif()
option(PULLBACK_CUDA "Compile the kernels for GPUs, by nvcc" ${{found}})
if(PULLBACK_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES {" ".join(map(architecture, self.architectures))})
  endif()
  enable_language(CUDA)
endif()
"""
        flags = flagged(formulas, [gpu.NOT_CONTRACTED]) if formulas else ""
        kernels = f"""
if(PULLBACK_CUDA)
  target_sources(@NAME@_kernels PRIVATE
{listed([*files, *formulas])})
  target_compile_options(@NAME@_kernels PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -O3 -Xcompiler=-fvisibility=hidden>)
  {flags}
endif()
""".replace("@NAME@", self.name)
        definition = "$<$<BOOL:${PULLBACK_CUDA}>:PULLBACK_CUDA>"
        return dict(zip(names, (option, kernels, definition), strict=True))


def registered(shipped: Shipped) -> str:
    """Return an operator's entry in the list of what is registered."""
    definition = shipped.definition
    text = quoted(schema(shipped.line, masked=definition.masked))
    function = f"pullback::{definitions.name_of(shipped.line)}"
    policy = f", pullback::Autocast::{definition.autocast}" * (definition.autocast != "as_is")
    return f"{{{text}, {function}{policy}}}"


def has_shim(shipped: Shipped) -> bool:
    """Tell whether AOTInductor can call an operator by a C function of its own."""
    name = shipped.line.qualname
    schema = shims.schema_of(name)
    return shims.can_have(schema) and not shims.is_of_pytorch(name)


def listed(files: Iterable[str]) -> str:
    """Return files as CMake lists them, one a line."""
    return "\n".join(f"  {file}" for file in files)


def flagged(files: Iterable[str], flags: Iterable[str]) -> str:
    """Return the command that gives some files flags."""
    return (
        f"set_source_files_properties(\n{listed(files)}\n"
        f'  PROPERTIES COMPILE_OPTIONS "{";".join(flags)}")'
    )


def architecture(name: str) -> str:
    """Return a GPU as CMake calls it: "90-real" for sm_90, "90-virtual" for compute_90."""
    kind, _, number = name.partition("_")
    return f"{number}-{'real' if kind == 'sm' else 'virtual'}"
