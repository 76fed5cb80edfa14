"""The loops of formulas in a library: which are compiled ahead, and their translation units."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pullback.deploy.shipped import FLOATING, PRECISE, Shipped
from pullback.kernels import codegen, codegen_cuda
from pullback.kernels.codegen import Loop
from pullback.kernels.glue import Device

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


def chosen(shipped: Shipped) -> list[Loop]:
    """Return the loops of an operator: what calls can ask for, in a fair time and size.

    An output is computed alone or with all others. Of a second derivative only all are, and of what
    may be None one is given, or everything. For any other choice the library takes a loop that
    computes more than is asked for, and reads zeros for what is None.
    """
    everything = (1 << len(shipped.line.outputs)) - 1
    optional = sum(1 << k for k, tensor in enumerate(shipped.line.tensors) if tensor.optional)
    loops: list[Loop] = []
    for loop in shipped.loops(FLOATING if shipped.order < 2 else PRECISE):
        first, given = shipped.order < 2, loop.present & optional
        wanted = loop.wanted == everything or (first and loop.wanted.bit_count() == 1)
        if wanted and (first or given == optional or given.bit_count() == 1):
            loops.append(loop)
    return loops


def built(shipped: Shipped, devices: Sequence[Device]) -> list[BuiltLoop]:
    """Return the loops of an operator on some devices."""
    stem = f"pullback_{shipped.line.namespace}_{shipped.line.name}"
    numbered = codegen.named(chosen(shipped), "")
    return [
        BuiltLoop(loop=loop, device=device, symbol=f"{stem}_{device}_{number}")
        for device in devices
        for number, loop in numbered
    ]


def units(shipped: Shipped, loops: Sequence[BuiltLoop]) -> Iterator[tuple[str, str]]:
    """Yield the file and the text of each translation unit: one a device and type computed in."""

    def kind(built: BuiltLoop) -> tuple[Device, str]:
        return built.device, built.loop.compute

    for (device, compute), group in itertools.groupby(sorted(loops, key=kind), key=kind):
        distinct = {built.symbol: built.loop for built in group}
        stem = f"{shipped.line.namespace}_{shipped.line.name}_{compute}"
        if device == "cpu":
            ulp = shipped.definition.formula.accuracy if shipped.definition.formula else 0
            yield f"{stem}.cpp", apart(f"{compute}_{ulp}") + codegen.together(distinct)
        else:
            yield f"{stem}.cu", apart(compute) + codegen_cuda.together(distinct)


def apart(variant: str) -> str:
    """Return what keeps variants of the headers' functions apart in one library."""
    return (
        "// What the headers define depends on the type that is computed in: this library has\n"
        f"// several, so each has a namespace of its own.\n#define formula formula_{variant}\n"
    )
