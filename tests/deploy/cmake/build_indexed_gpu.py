"""Build the loops for GPUs of operators in index notation, with CUDA on the CPU in place of nvcc.

python build_indexed_gpu.py FOLDER

The library runs them on tensors of the CPU. Whatever is launched goes through `launched.cpp`, which
notes it; a test says how much shared memory there is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from indexed_ops import CASES, ON_GPUS, TWICE_ON_GPUS

import pullback as pb
from pullback.bind.loops import on_cpu
from pullback.deploy import shipped
from pullback.deploy.cmake import build, index_loops
from pullback.deploy.cmake.index_loops import IndexedOperator
from pullback.deploy.cmake.project import Project
from pullback.deploy.shipped import Shipped
from pullback.kernels.cuda_on_cpu import library
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.glue import CSRC
from pullback.kernels.identity import INDEX_ABI

NAMESPACE = "indexgpu"
SYMBOL = re.compile(r"pullback_\w+?_cuda_index_\d+")
LAUNCHER = re.compile(r"PULLBACK_INDEX_LAUNCHER\((\w+), (\d+), (\d+), (\d+), (\d+)\)")


def collect(namespace: str) -> list[Shipped]:
    """Return the operators with their gradients, in one dtype, some with second derivatives."""
    index_loops.dtypes_of = lambda _: ("float32",)
    made = {name: pb.operator(f"{namespace}::{name}{CASES[name].text}") for name in ON_GPUS}
    twice = [made.pop(name) for name in TWICE_ON_GPUS]
    every = [*shipped.collect(twice, orders=2), *shipped.collect([*made.values()], orders=1)]
    return [each for each in every if "_tangent" not in each.line.name]


def write_notes(units: Sequence[str]) -> str:
    """Return the entry points that the tables name: each notes a launch and makes it."""
    lines = [
        '#include "pullback/kernel_abi.h"',
        "#include <stdlib.h>\n#include <string>",
        "static std::string notes;",
        'extern "C" __attribute__((visibility("default"))) const char* indexgpu_notes() {',
        "  static std::string last; last.swap(notes); notes.clear(); return last.c_str(); }",
        "namespace pullback { int64_t shared_memory() {",
        '  const char* bytes = getenv("INDEXGPU_SHARED");',
        "  return bytes ? atoll(bytes) : 1 << 17; } }",
        "static void note(int64_t n) { notes += ' ' + std::to_string(n); }",
    ]
    for name, _, strides, sizes, _ in (found for text in units for found in LAUNCHER.findall(text)):
        given = "const pullback::IndexLaunch* launch, char* message, uint64_t capacity"
        lines += [
            f'extern "C" int {name}_made({given});',
            f'extern "C" int {name}({given}) {{',
            f'  notes += "{name}"; note(launch->tasks); note(launch->scratch);',
            f"  for (int k = 0; k < {sizes}; ++k) note(launch->call.sizes[k]);",
            f"  for (int k = 0; k < {strides}; ++k) note(launch->call.strides[k]);",
            f'  notes += "\\n"; return {name}_made(launch, message, capacity); }}',
        ]
    return "\n".join(lines) + "\n"


def compile_unit(place: int, text: str) -> Path:
    """Return the library of a unit's kernels, on the CPU."""
    return on_cpu.compile_unit(
        f"indexgpu-{place}", SYMBOL.sub(r"\g<0>_made", text), Mode(), INDEX_ABI
    )


def write_project(folder: Path) -> None:
    """Write the project for GPUs, and let it be one for the CPU."""
    project = Project(collect(NAMESPACE), ("sm_80",), devices=("cuda",))
    project.write(folder)
    operators: list[IndexedOperator] = project.indexed
    units = [text for operator in operators for _, text in operator.units()]
    library.runtime("none")
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(compile_unit, range(len(units)), units))
    (folder / "launched.cpp").write_text(write_notes(units))
    file = folder / "operators.cpp"
    file.write_text(file.read_text().replace("    .cuda = &", "    .cpu = &"))
    exports = folder / "exports.map"
    exports.write_text(exports.read_text().replace("global:", "global: indexgpu_notes;"))
    tables = " ".join(str(path) for path in project.tables)
    libraries = " ".join(map(str, made))
    with (folder / "CMakeLists.txt").open("a") as instructions:
        instructions.write(
            f"target_sources({NAMESPACE} PRIVATE launched.cpp {tables})\n"
            f"target_compile_definitions({NAMESPACE} PRIVATE PULLBACK_CUDA)\n"
            f"target_link_options({NAMESPACE} PRIVATE LINKER:--no-as-needed {libraries})\n"
        )


if __name__ == "__main__":
    assert CSRC.is_dir()
    folder = Path(sys.argv[1])
    folder.mkdir()
    write_project(folder)
    build.run(NAMESPACE, folder, build.find_tools(), cuda=False)
