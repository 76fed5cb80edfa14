"""The edges of rows in loops: the lanes that are inside are read and written, and no others."""

from __future__ import annotations

import ctypes
import mmap
import platform

import pytest
import torch
from vector_library import CSRC, STORED, WARNINGS

from pullback.bind.loops.compiled import FLAGS
from pullback.kernels.compile import compile, open_library
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags
from pullback.kernels.toolchain import find

pytestmark = pytest.mark.compiler

DTYPES = {
    "float": [
        *(torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int16, torch.uint8),
    ]
}
DTYPES["double"] = [torch.float64, torch.int64, torch.int16]
# Masks of AVX-512, those of AVX2, and neither.
NARROWER = ["-mno-avx512f", "-mno-avx"] if platform.machine() == "x86_64" else []
COPY = """
extern "C" __attribute__((visibility("default")))
void copy_{stored}(const char* from, char* to, int64_t first, int64_t size, bool is_edge) {{
  const auto value = load_edge<{stored}>(from, first, size);
  if (is_edge) store_edge<{stored}>(to, value, size - first);
  if (!is_edge) store<{stored}>(to, value);
}}
"""


def build(compute: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """Return functions that copy a vector from an edge to another, or to a whole one."""
    head = f"""\
#define PULLBACK_COMPUTE {compute}
#define PULLBACK_WIDEST 64
#define PULLBACK_ULP 4
#include "{CSRC}/kernel_abi.h"
#include "{CSRC}/index/index.h"
using namespace pullback::index;
extern "C" __attribute__((visibility("default"))) const int64_t many_lanes;
const int64_t many_lanes = lanes;
"""
    compiler = find("c++")
    copies = [COPY.format(stored=STORED[dtype]) for dtype in DTYPES[compute]]
    plan = BuildPlan(
        name="edges",
        compiler=compiler,
        units=(TranslationUnit("edges.cpp", head + "".join(copies)),),
        sources=(),
        flags=(*kernel_flags(compiler), *FLAGS, *WARNINGS, *flags),
        abi="test",
    )
    return open_library(compile(plan))


@pytest.mark.parametrize("flags", [(), *((flag,) for flag in NARROWER)], ids=str)
@pytest.mark.parametrize("compute", DTYPES)
def test_what_is_beyond_an_edge_is_neither_read_nor_written(
    compute: str, flags: tuple[str, ...], seed: int
) -> None:
    """What is read ends where memory does. Costs 1 s of the compiler each."""
    library = build(compute, flags)
    lanes = ctypes.c_int64.in_dll(library, "many_lanes").value
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    beyond = ctypes.c_void_p(start + mmap.PAGESIZE)
    assert not libc.mprotect(beyond, mmap.PAGESIZE, 0)  # nobody may read there
    for dtype in DTYPES[compute]:
        row = torch.frombuffer(memory, dtype=dtype, count=mmap.PAGESIZE // dtype.itemsize)
        row.copy_(torch.randint(1, 100, row.shape))
        copy = library[f"copy_{STORED[dtype]}"]
        for first, size in [(f, s) for f in range(-lanes, lanes) for s in range(lanes + 1)]:
            inside = [k for k in range(lanes) if 0 <= first + k < size]
            end = row[len(row) - size :]  # the row of `size` elements that ends with the memory
            wanted = torch.zeros(lanes, dtype=dtype)
            wanted[inside] = end[[first + k for k in inside]]
            lane0 = ctypes.c_void_p(row.data_ptr() + (len(row) - size + first) * dtype.itemsize)
            places = ctypes.c_int64(first), ctypes.c_int64(size)
            found = torch.full((3 * lanes,), 77, dtype=dtype)
            to = ctypes.c_void_p(found[lanes:].data_ptr())
            copy(lane0, to, *places, ctypes.c_bool(False))
            assert torch.equal(found[lanes : 2 * lanes], wanted), (dtype, first, size)
            if not 0 <= first < size:
                continue
            found.fill_(77)
            copy(lane0, to, *places, ctypes.c_bool(True))
            untouched = torch.full_like(found, 77)
            untouched[lanes : lanes + len(inside)] = wanted[inside]
            assert torch.equal(found, untouched), (dtype, first, size)
