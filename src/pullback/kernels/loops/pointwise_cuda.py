"""A formula -> the text of its GPU kernels, for nvcc or NVRTC, and of the latter's host half.

All three are the body of `pointwise.write_body` between two headers of csrc/formula/cuda: the first
has the functions that it calls, the last what is compiled of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pullback.kernels.loops import pointwise
from pullback.kernels.loops.pointwise import CSRC, Loop

FOLDER = CSRC / "formula" / "cuda"


def generate_nvcc(loop: Loop) -> str:
    """Return the translation unit for nvcc: the kernels and their launcher."""
    return write_unit(loop, "runtime.cuh")


def generate_nvrtc(loop: Loop) -> str:
    """Return the translation unit for NVRTC: the kernels alone."""
    return write_unit(loop, "kernels.cuh")


def generate_host(loop: Loop) -> str:
    """Return the translation unit for g++ that loads and launches what NVRTC compiled.

    `generate_cubin` has to be included before it.
    """
    return write_unit(loop, "driver.h")


def generate_on_cpu(loop: Loop) -> str:
    """Return the translation unit for CUDA on the CPU, called as a loop on the CPU is."""
    return write_unit(loop, "on_cpu.cuh")


def generate_cubin(content: bytes) -> str:
    """Return a header that holds a compiled module."""
    numbers = ",".join(map(str, content))
    return f"alignas(16) static const unsigned char pullback_cubin[] = {{{numbers}}};\n"


def generate_together(loops: Mapping[str, Loop]) -> str:
    """Return one translation unit for nvcc of several loops, by the names of their launchers.

    They compute in one type.
    """
    first, *others = loops.values()
    assert all(loop.compute == first.compute for loop in others)
    functions = "".join(write_entry_point(name, loop) for name, loop in loops.items())
    return f"""#define PULLBACK_COMPUTE {first.compute}
#include "{FOLDER}/formula.cuh"
#include "{FOLDER}/launcher.cuh"
{functions}"""


def write_entry_point(name: str, loop: Loop) -> str:
    """Return the C launcher of a loop, with its body in a namespace of its own."""
    body = pointwise.write_body(loop, inline="PULLBACK_INLINE", first="using scalars::real;")
    return f"""namespace pullback::formula::of_{name} {{
{body}using Operands = {pointwise.stored_types(loop)};
}}
extern "C" __attribute__((visibility("default")))
int {name}(const pullback::Launch* launch, char* message, uint64_t capacity) {{
  using namespace pullback::formula;
  return launch_loop<of_{name}::Operands, of_{name}::Body>(*launch, message, capacity);
}}
"""


def write_unit(loop: Loop, last: str) -> str:
    """Return the body of a loop, with `last` of the headers at its end."""
    # Inside of the namespace, where its functions hide those of the same name that CUDA declares.
    body = pointwise.write_body(loop, inline="PULLBACK_INLINE", first="using scalars::real;")
    return f"""#define PULLBACK_COMPUTE {loop.compute}
#include "{FOLDER}/formula.cuh"
namespace pullback::formula {{
{body}using Operands = {pointwise.stored_types(loop)};
}}
#include "{FOLDER}/{last}"
"""
