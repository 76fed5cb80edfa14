"""Loops in CUDA on the CPU: what a GPU would run, checked where there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pullback.bind import runtime
from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.cuda_on_cpu import library, runtimes
from pullback.kernels.cuda_on_cpu.mode import EACH_ORDER, Mode, OrderMatters
from pullback.kernels.identity import FORMULA_ABI, of_headers
from pullback.kernels.loops import pointwise_cuda
from pullback.kernels.loops.pointwise import CSRC, Loop
from pullback.kernels.plan import BuildPlan, Translation, TranslationUnit

# A loop's own headers for CUDA are translated as an author's are; those of functions are C++ too.
KEPT = (CSRC / "cuda_on_cpu",)


def compile_unit(name: str, text: str, now: Mode, abi: str) -> Path:
    """Return the path of the library of a translation unit in CUDA, compiled if need be.

    Args:
        name: of the library.
        text: of the unit.
        now: how it is to run, and what is checked.
        abi: what the library has to agree with.
    """
    check = now.check
    library.runtime(check, runtime.announce)
    path = compilation.compile(
        BuildPlan(
            name=f"{name}-on-cpu",
            compiler=toolchain.find("c++"),
            units=(TranslationUnit("loops.cpp", f"#include <cuda_runtime.h>\n{text}"),),
            sources=(),
            flags=(*library.flags(check), "-ffp-contract=off"),
            compile_flags=library.SANITIZE[check],
            link=library.link(check),
            translation=Translation(folders=(), keep=KEPT, torch=False),
            abi=f"{abi} {library.abi()}",
        )
    )
    runtimes.load(now)
    return path


def launch_in_every_order(launch: Callable[..., object], now: Mode) -> Callable[..., object]:
    """Return what runs a kernel in every order of its threads; its results have to be the same.

    A loop reads nothing that it writes, and its sums have an order of their own. What is returned
    raises PB232.
    """

    def run(address: int, tensors: tuple[Tensor, ...], *rest: Any) -> object:  # noqa: ANN401
        forward: list[Tensor] = []
        try:
            for order in EACH_ORDER:
                runtimes.load(replace(now, order=order))
                if said := launch(address, tensors, *rest):
                    return said
                results = [tensor.clone() for tensor in tensors]
                forward = forward or results
                if not all(map(is_equal, forward, results)):
                    word = order.partition(":")[0]
                    raise OrderMatters.error(
                        f"in order {word} a loop does not compute what it does in order forward",
                        help='look for the race: check="race"',
                    )
        finally:
            runtimes.load(now)
        return None

    return run


def is_equal(a: Tensor, b: Tensor) -> bool:
    """Return whether all elements are the same; NaN is NaN."""
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def load_loop(loop: Loop, now: Mode) -> ctypes.CDLL:
    """Return the library of a pointwise formula's kernels, which is called as its loop is."""
    line = loop.formula.line
    text = pointwise_cuda.generate_on_cpu(loop)
    path = compile_unit(f"{line.namespace}-{line.name}-cuda", text, now, of_headers(FORMULA_ABI))
    return compilation.open_library(path)
