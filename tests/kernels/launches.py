"""What the tests of a formula's CUDA side share: loops, host libraries, calls of a launcher."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

from torch import Tensor

from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.loops.pointwise import Loop
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags
from pullback.kernels.toolchain import Compiler, survey

HAVE = {seen.language for seen in survey() if isinstance(seen, Compiler)}


def loop_of(text: str, dtype: str = "float32", *, backward: bool = False) -> Loop:
    made = notation.parse(parse.parse(text))
    if backward:
        found = derived.backward(made)
        assert found
        made = found.formula
    line = made.line
    wanted, present = (1 << len(line.outputs)) - 1, (1 << len(line.tensors)) - 1
    return Loop(formula=made, dtype=dtype, wanted=wanted, present=present)


def on_host(name: str, text: str) -> ctypes.CDLL:
    compiler = toolchain.find("c++")
    plan = BuildPlan(
        name=name,
        compiler=compiler,
        units=(TranslationUnit("host.cpp", text),),
        sources=(),
        flags=(*kernel_flags(compiler), "-O1", "-Wall", "-Wextra", "-Werror"),
        link=("-ldl",),
        abi="formula-test",
    )
    return compilation.open_library(compilation.compile(plan))


class Launch(ctypes.Structure):
    """`Launch` of kernel_abi.h."""

    _fields_ = (
        *(("version", ctypes.c_int32), ("ndim", ctypes.c_int32), ("shape", ctypes.c_void_p)),
        *(("strides", ctypes.c_void_p), ("data", ctypes.c_void_p), ("operands", ctypes.c_int32)),
        *(("n", ctypes.c_int64), ("scalars", ctypes.c_void_p), ("stream", ctypes.c_void_p)),
    )


class Number(ctypes.Union):
    """`Scalar` of kernel_abi.h."""

    _fields_ = (("integer", ctypes.c_int64), ("real", ctypes.c_double))


def launch_of(
    operands: Sequence[Tensor], shape: Sequence[int], scalars: Sequence[Number]
) -> Launch:
    """Return what the runtime would hand to a launcher."""
    rows = [[s * x.element_size() for s in reversed(x.stride())] for x in operands]
    strides = [(ctypes.c_int64 * len(shape))(*row) for row in rows]
    held = (
        (ctypes.c_int64 * len(shape))(*reversed(shape)),
        (ctypes.c_void_p * len(operands))(*map(ctypes.addressof, strides)),
        (ctypes.c_void_p * len(operands))(*(x.data_ptr() for x in operands)),
        (Number * len(scalars))(*scalars),
    )
    where = [ctypes.addressof(each) for each in held]
    launch = Launch(version=1, ndim=len(shape), n=math.prod(shape), operands=len(operands))
    launch.shape, launch.strides, launch.data, launch.scalars = where
    launch.kept = (held, strides)  # the addresses hold nothing alive
    return launch


def answer(library: ctypes.CDLL, launch: Launch) -> str:
    """Call a launcher; return the status and the message where it is not well."""
    message = ctypes.create_string_buffer(200)
    status = library.pullback_launch(ctypes.byref(launch), message, ctypes.c_uint64(200))
    return f"{status}: {message.value.decode()}" if status else ""
