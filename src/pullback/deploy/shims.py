"""The C functions by which a program that AOTInductor compiled calls an operator directly."""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from pullback.bind import program, runtime
from pullback.kernels.glue import CPP_KEYWORDS

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
    """Return the name of an operator's C function, which AOTInductor makes of its base name."""
    return f"aoti_torch_{device}_{qualname.partition('::')[2]}"


def can_have(schema: torch._C.FunctionSchema) -> bool:
    """Tell whether AOTInductor can pass an operator's arguments to a C function."""
    return all(str(argument.type) in TYPES for argument in schema.arguments)


def declaration(schema: torch._C.FunctionSchema, device: str) -> str:
    """Return the declaration of an operator's C function."""
    arguments = [f"{TYPES[str(a.type)]} {spelled(a.name)}" for a in schema.arguments]
    results = [f"AtenTensorHandle* ret{k}" for k in range(len(schema.returns))]
    return f"AOTITorchError {symbol(schema.name, device)}({', '.join([*arguments, *results])})"


def spelled(name: str) -> str:
    """Return a parameter's name as C++ can have it."""
    return f"{name}_" if name in CPP_KEYWORDS else name


@cache
def is_of_pytorch(qualname: str, device: str) -> bool:
    """Tell whether PyTorch has a C function of the name that an operator's would have."""
    library = runtime.ROOT / "lib" / f"libtorch_{device}.so"
    return library.exists() and hasattr(ctypes.CDLL(str(library)), symbol(qualname, device))
