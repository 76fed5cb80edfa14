"""A formula's loop in Python, in place of a compiled one, called by the runtime as if it were one.

An installed package brings the loops that are likely to be called. For another, a third derivative
say, on a machine without a compiler, PyTorch's operations do what the loop would.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from pullback.bind import check
from pullback.bind.dense.elements import FormulaNotice, Values, no_division_by_zero
from pullback.bind.notice import notice
from pullback.define.math.language import DivisionByZero
from pullback.diagnostic import PullbackError
from pullback.kernels.loops.pointwise import Loop

# `Loop` of kernel_abi.h: data, strides in bytes, the number of elements, scalars.
SIGNATURE = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int64,
    ctypes.c_void_p,
)
C_SCALARS: dict[str, Any] = {
    "float": ctypes.c_double,
    "int": ctypes.c_int64,
    "bool": ctypes.c_int64,
}


def interpret_loop(loop: Loop, reason: PullbackError) -> tuple[object, Any]:
    """Return what keeps the function in memory, and the function.

    Args:
        loop: what it computes.
        reason: why it is not compiled.
    """
    line = loop.formula.line
    text = f"a loop of {line.called} ({loop.dtype}) runs by PyTorch's operations\n{reason}"
    notice(text, FormulaNotice)
    function = SIGNATURE(functools.partial(run, loop))
    return function, function


def run(loop: Loop, data: Any, strides: Any, n: int, scalars: int | None) -> None:  # noqa: ANN401
    """Compute `n` elements."""
    memory = [
        view_memory(data[place], strides[place], n, operand.dtype or loop.dtype)
        for place, operand in enumerate((*loop.outputs, *loop.inputs))
    ]
    outputs, inputs = memory[: len(loop.outputs)], memory[len(loop.outputs) :]
    arguments: dict[str, object] = read_scalars(loop, scalars or 0)
    arguments |= {t.name: value for t, value in zip(loop.inputs, inputs, strict=True)}
    compute = torch.float64 if loop.compute == "double" else torch.float32
    values = Values(arguments, compute, torch.device("cpu"))
    try:
        with torch.no_grad(), no_division_by_zero(loop.formula.line.called):
            for node, output in zip(loop.nodes, outputs, strict=True):
                output.copy_(torch.as_tensor(values.of(node)))
    except PullbackError as error:
        if error.finding.code != DivisionByZero.code:
            raise
        # C cannot pass it on: it is noted, as a compiled loop does.
        behind = (scalars or 0) + 8 * len(loop.formula.line.scalars)
        ctypes.c_bool.from_address(ctypes.c_void_p.from_address(behind).value or 0).value = True


def view_memory(address: int, stride: int, n: int, dtype: str) -> Tensor:
    """Return memory as a tensor of one dimension."""
    kind = check.dtype_named(dtype)
    step = stride // kind.itemsize
    memory = (ctypes.c_char * ((n - 1) * stride + kind.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=kind).as_strided((n,), (step,))


def read_scalars(loop: Loop, address: int) -> dict[str, object]:
    """Return the scalars of a call: an array of `Scalar`, eight bytes each."""
    found: dict[str, object] = {}
    for place, scalar in enumerate(loop.formula.line.scalars):
        value = C_SCALARS[scalar.type].from_address(address + 8 * place).value
        found[scalar.name] = bool(value) if scalar.type == "bool" else value
    return found
