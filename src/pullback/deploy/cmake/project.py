"""What is shipped -> the files of a CMake project."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import jinja2

from pullback.bind import runtime
from pullback.bind.loops import compiled, gpu
from pullback.define.schema import schema
from pullback.deploy import shims
from pullback.deploy.cmake import definitions, functions, sources
from pullback.deploy.cmake.definitions import quote
from pullback.deploy.cmake.index_loops import IndexedOperator
from pullback.deploy.cmake.index_tables import write_tables
from pullback.deploy.cmake.sources import SUFFIXES, BuiltLoop, Sources, unit_file
from pullback.deploy.index_loops import Sizes
from pullback.deploy.shipped import Shipped, ShippedKernel
from pullback.deploy.staging import copy, write
from pullback.kernels import plan
from pullback.kernels.glue import CSRC, Device

LIBRARY = (
    *("register", "built", "meta", "strides", "autocast"),
    *("indexed", "index_loops", "index_sizes"),
)
SHARED_MEMORY = Path("library", "shared_memory.cu")
# Flags that CMake adds itself, and the one that chooses the CPU.
SAID_BY_CMAKE = ("-march=native", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-pipe")


@dataclass(frozen=True)
class Project:
    """A CMake project that builds one library.

    Attributes:
        shipped: the operators, each before what its derivatives call.
        architectures: the GPUs that its kernels for GPUs are compiled for.
        sizes: that loops over indices are made for, besides those for any sizes.
        devices: that it has loops over indices for: they are many.
    """

    shipped: Sequence[Shipped]
    architectures: tuple[str, ...]
    sizes: Sequence[Sizes] = ()
    devices: tuple[Device, ...] = ("cpu",)

    @cached_property
    def name(self) -> str:
        """The library's name, from the namespaces of its operators."""
        own = [each.line.namespace for each in self.shipped if each.order == 0]
        return "_".join(dict.fromkeys(own))

    @cached_property
    def kernels(self) -> list[ShippedKernel]:
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
        made = {s.line.qualname: sources.build_loops(s, devices) for s in self.shipped}
        return {name: loops for name, loops in made.items() if loops}

    @cached_property
    def indexed(self) -> list[IndexedOperator]:
        """The operators in index notation, with their loops.

        Raises:
            PullbackError: PB733, one has none.
        """
        every = (s for s in self.shipped if s.definition.formula and not s.definition.pointwise)
        operators = [
            IndexedOperator(e, self.sizes, device) for e in every for device in self.devices
        ]
        for operator in operators:
            assert operator.choices
        return operators

    @cached_property
    def units(self) -> dict[Path, str]:
        """The translation units of loops, by their files."""
        of_elements = (
            sources.write_units(each, self.loops.get(each.line.qualname, []))
            for each in self.shipped
        )
        over_indices = (operator.units() for operator in self.indexed)
        return {
            Path("loops", file): text.replace(f"{CSRC}/", "pullback/")
            for files in (*of_elements, *over_indices)
            for file, text in files
        }

    @cached_property
    def tables(self) -> dict[Path, str]:
        """What the runtime knows of the operators in index notation, by its files."""
        return {table_file(operator): write_tables(operator) for operator in self.indexed}

    def write(self, folder: Path) -> None:
        """Write all files, or none if an operator has no loops."""
        made = (*self.units.items(), *self.tables.items())
        self.sources.write(folder)
        for path, text in made:
            write(folder / path, text)
        write(folder / "operators.cpp", self.operators())
        write(
            folder / "include" / f"{self.name}.h", functions.write_header(self.name, self.shipped)
        )
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
        if "cuda" in self.devices:
            yield SHARED_MEMORY
        shared = ["formula"] * bool(self.units) + ["index"] * bool(self.indexed)
        for part in shared:
            files = [path for path in (CSRC / part).rglob("*") if path.is_file()]
            yield from (path.relative_to(CSRC) for path in files)

    def operators(self) -> str:
        """Return operators.cpp."""
        every = [loop for loops in self.loops.values() for loop in loops]
        declarations = [
            *(
                f'extern "C" int {k.symbol}(const pullback::Call*, char*, uint64_t);'
                for k in self.kernels
            ),
            *dict.fromkeys(loop.declaration for loop in every),
        ]
        tables = [
            f"extern const IndexTable {definitions.name_table(each.shipped, each.device)};"
            for each in self.indexed
        ]
        definitions_ = [
            definitions.write_definition(s, self.loops.get(s.line.qualname, []), self.devices)
            for s in self.shipped
        ]
        functions_ = [
            functions.write_function(each.line) for each in functions.public_operators(self.shipped)
        ]
        return "\n".join(
            [
                "/// What the operators are: written by `pullback build --as cmake`.",
                f'#include "{self.name}.h"\n',
                '#include "pullback/library/library.h"',
                '#include "pullback/library/shim.h"\n',
                *declarations,
                "\nnamespace pullback {\n",
                *tables,
                "\nnamespace {\n",
                *definitions_,
                "}  // namespace\n\n}  // namespace pullback\n",
                *self.registrations(),
                *functions_,
                *self.shims(),
            ]
        )

    def registrations(self) -> Iterable[str]:
        """Yield the code that registers the operators of each namespace.

        A fragment, since a process may load several libraries of one namespace.
        """
        own = sorted(self.shipped, key=lambda each: each.line.namespace)
        for namespace, group in groupby(own, key=lambda each: each.line.namespace):
            rows = "".join(f"      {write_registration(each)},\n" for each in group)
            yield (
                f"TORCH_LIBRARY_FRAGMENT({namespace}, library) {{\n"
                f"  pullback::register_operators(library, {{\n{rows}  }});\n}}\n"
            )

    def shims(self) -> Iterable[str]:
        """Yield the C functions for AOTInductor, where it can call one."""
        yield "namespace { using pullback::given; }\n"
        for each in functions.public_operators(self.shipped):
            devices = ["cpu", *(["cuda"] if self.has_cuda(each) else [])]
            for device in devices:
                if has_shim(each):
                    rows = definitions.guard_lines(
                        device, [functions.write_shim(each.line, device)]
                    )
                    yield "\n".join(rows)

    def has_cuda(self, shipped: Shipped) -> bool:
        """Tell whether an operator runs on GPUs."""
        found = {
            each.device for each in (*shipped.kernels, *self.loops.get(shipped.line.qualname, []))
        }
        found |= {each.device for each in self.indexed if each.shipped is shipped}
        return "cuda" in found

    def exports(self) -> str:
        """Return which symbols others see: the functions in C++, and AOTInductor's in C."""
        own = {each.line.namespace for each in functions.public_operators(self.shipped)}
        names = "".join(f" {shims.format_name(namespace)}::*;" for namespace in sorted(own))
        inside = f' extern "C++" {{{names} }};' if names else ""
        return f"{{ global: aoti_torch_*; pullback_shim.*;{inside} local: *; }};\n"

    def instructions(self) -> str:
        """Return CMakeLists.txt."""
        halves = [[f for f in half if "/" not in f] for half in runtime.HALVES]
        first, second = ([f"pullback/runtime/{file}.cpp" for file in half] for half in halves)
        second += [f"pullback/library/{file}.cpp" for file in LIBRARY]
        text = (CSRC / "library" / "CMakeLists.txt").read_text(encoding="utf-8")
        template = jinja2.Template(
            text, trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
        )
        return template.render(
            name=self.name,
            operators=", ".join(s.line.qualname for s in self.shipped if s.order == 0),
            sources=self.compiled("cpu"),
            cuda_sources=self.compiled("cuda"),
            architectures=" ".join(map(cmake_architecture, self.architectures)),
            options=";".join(flag for flag in plan.CXX_FLAGS if flag not in SAID_BY_CMAKE),
            flagged=list(self.flagged()),
            halves={"calls": first, "definitions": second},
            libraries=" ".join(["mvec", "m"] * bool(self.units) + self.sources.libraries()),
        )

    def compiled(self, device: Device) -> list[Path]:
        """Return the files compiled for a device: an author's kernels, and loops."""
        own = [unit_file(kernel) for kernel in self.kernels if kernel.device == device]
        own += [path for path in self.units if path.suffix == SUFFIXES[device]]
        here = [operator for operator in self.indexed if operator.device == device]
        own += map(table_file, here)
        return [*own, *[Path("pullback", SHARED_MEMORY)] * (device == "cuda" and bool(here))]

    def flagged(self) -> Iterable[tuple[Sequence[Path], str]]:
        """Yield files and the additional flags that they are compiled with."""
        for kernel in self.kernels:
            yield [unit_file(kernel)], ";".join(self.sources.options(kernel))
        of_loops: dict[Device, Sequence[str]] = {
            "cpu": compiled.FLAGS,
            "cuda": [gpu.NOT_CONTRACTED],
        }
        for device, flags in of_loops.items():
            own = [path for path in self.units if path.suffix == SUFFIXES[device]]
            yield own, ";".join(flags)


def table_file(operator: IndexedOperator) -> Path:
    """Return the file of an operator's tables."""
    return Path("tables", f"{operator.stem}.cpp")


def write_registration(shipped: Shipped) -> str:
    """Return an operator's entry in the list of what is registered."""
    definition = shipped.definition
    text = quote(schema(shipped.line, masked=definition.masked, symbols=definition.symbols))
    function = f"pullback::{definitions.name_of(shipped.line)}"
    policy = f", pullback::Autocast::{definition.autocast}" * (definition.autocast != "as_is")
    return f"{{{text}, {function}{policy}}}"


def has_shim(shipped: Shipped) -> bool:
    """Tell whether AOTInductor can call an operator by a C function of its own."""
    name = shipped.line.qualname
    schema = shims.schema_of(name)
    return shims.can_have(schema) and not shims.is_of_pytorch(name)


def cmake_architecture(name: str) -> str:
    """Return a GPU as CMake calls it: "90-real" for sm_90, "90-virtual" for compute_90."""
    kind, _, number = name.partition("_")
    return f"{number}-{'real' if kind == 'sm' else 'virtual'}"
