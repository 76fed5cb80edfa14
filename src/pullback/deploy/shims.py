"""The C functions by which a program that AOTInductor compiled calls an operator directly.

AOTInductor makes the name from the base name alone, `aoti_torch_cpu_add2`. So the library has a
second name for it, with the namespace, and what we declare to AOTInductor is bound to that: another
library's `add2` is never called instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache

import torch

from pullback.bind import program, runtime
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels.glue import CPP_KEYWORDS

SameBaseName = Rule("PB736", "same-base-name")

TYPES = {
    **{"Tensor": "AtenTensorHandle", "Optional[Tensor]": "AtenTensorHandle*"},
    **{"int": "int64_t", "float": "double", "bool": "int32_t", "str": "const char*"},
}


def schema_of(qualname: str) -> torch._C.FunctionSchema:
    """Return the schema of a registered operator."""
    schema = program.find_schema(qualname, "")
    assert schema
    return schema


def symbol(qualname: str, device: str) -> str:
    """Return the name that AOTInductor gives an operator's C function."""
    return f"aoti_torch_{device}_{qualname.partition('::')[2]}"


def unique_symbol(qualname: str, device: str) -> str:
    """Return the function's second name, which no other operator's function has."""
    return f"pullback_shim.{device}.{qualname.replace('::', '.')}"


def can_have(schema: torch._C.FunctionSchema) -> bool:
    """Tell whether AOTInductor can pass an operator's arguments to a C function."""
    return all(str(argument.type) in TYPES for argument in schema.arguments)


def declaration(schema: torch._C.FunctionSchema, device: str) -> str:
    """Return the declaration of an operator's C function."""
    arguments = [f"{TYPES[str(a.type)]} {format_name(a.name)}" for a in schema.arguments]
    results = [f"AtenTensorHandle* ret{k}" for k in range(len(schema.returns))]
    return f"AOTITorchError {symbol(schema.name, device)}({', '.join([*arguments, *results])})"


def bind_declaration(schema: torch._C.FunctionSchema, device: str) -> str:
    """Return the declaration, bound to the name that no other operator's function has."""
    return f'{declaration(schema, device)} __asm__("{unique_symbol(schema.name, device)}")'


def format_name(name: str) -> str:
    """Return a parameter's name as C++ can have it."""
    return f"{name}_" if name in CPP_KEYWORDS else name


def devices() -> list[str]:
    """Return the devices that this PyTorch has C functions for."""
    libraries = (
        (device, runtime.ROOT / "lib" / f"libtorch_{device}.so") for device in ("cpu", "cuda")
    )
    return [device for device, library in libraries if library.exists()]


@cache
def is_of_pytorch(qualname: str) -> bool:
    """Tell whether PyTorch has a C function of the name that an operator's would have."""
    libraries = {d: ctypes.CDLL(str(runtime.ROOT / "lib" / f"libtorch_{d}.so")) for d in devices()}
    return any(hasattr(library, symbol(qualname, d)) for d, library in libraries.items())


def is_loaded(qualname: str, device: str) -> bool:
    """Tell whether a library of this process has an operator's C function."""
    return hasattr(ctypes.CDLL(None), unique_symbol(qualname, device))


def require_base_names(qualnames: Iterable[str]) -> None:
    """Stop at two operators that AOTInductor cannot tell apart.

    Raises:
        PullbackError: PB736.
    """
    seen: dict[str, str] = {}
    for name in dict.fromkeys(qualnames):
        base = name.partition("::")[2]
        if base in seen:
            raise same_base_name(seen[base], name)
        seen[base] = name


def same_base_name(one: str, other: str) -> PullbackError:
    """Return the error for two operators with one base name."""
    return SameBaseName.error(
        f"{one} and {other} have one base name, and AOTInductor calls both by {symbol(one, 'cpu')}",
        help="give one of them another name",
    )
