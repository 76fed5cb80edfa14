"""What `torch.autocast` does to an operator's inputs: the policy that its author declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Autocast, Definition

DEVICES = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU).add(
    torch._C.DispatchKey.AutocastCUDA
)
is_enabled = torch._C._is_any_autocast_enabled


def disable_autocast() -> Any:  # noqa: ANN401
    """Return a context in which autocast is off, whoever turned it on."""
    return torch._C._ExcludeDispatchKeyGuard(KEYS)


def register(
    definition: Definition, library: torch.library.Library, overload: Callable[..., Any]
) -> None:
    """Register the casts of an operator's policy; without one, its inputs stay as they are.

    pullback calls its own kernels outside of autocast anyway; the kernel of an operator that was
    taken over has to be moved there.
    """
    if definition.autocast == "as_is" and definition.taken == "no":
        return
    for device, key in DEVICES.items():
        library.impl(definition.line.name, make_kernel(definition, overload, device), key)


def make_kernel(
    definition: Definition, overload: Callable[..., Any], device: str
) -> Callable[..., Any]:
    """Return a kernel that casts the inputs and calls the operator outside of autocast."""

    def run(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        with disable_autocast():
            if definition.autocast == "as_is":
                return overload(*arguments, **keywords)
            dtype = dtype_for(definition.autocast, definition.line, arguments, device)
            return overload(*cast(definition.line, arguments, dtype), **keywords)

    return run


def dtype_for(
    policy: Autocast, line: Line, arguments: Sequence[Any], device: str
) -> torch.dtype | None:
    """Return the dtype that the shared tensors are cast to."""
    match policy:
        case "lower":
            return torch.get_autocast_dtype(device)
        case "float32":
            return torch.float32
        case _:
            dtypes = [tensor.dtype for tensor in shared_tensors(line, arguments) if is_cast(tensor)]
            widest: torch.dtype | None = None
            for dtype in dtypes:
                widest = dtype if widest is None else torch.promote_types(widest, dtype)
            return widest


def cast(line: Line, arguments: Sequence[Any], dtype: torch.dtype | None) -> list[Any]:
    """Return the arguments, with every tensor of the shared dtype cast to `dtype`."""

    def one(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, list | tuple):
            return [one(each) for each in value]
        return value.to(dtype) if isinstance(value, Tensor) and is_cast(value) else value

    pairs = zip(line.parameters, arguments, strict=False)
    return [one(value) if is_shared(parameter) else value for parameter, value in pairs]


def shared_tensors(line: Line, arguments: Sequence[Any]) -> list[Tensor]:
    """Return the tensors of the shared dtype."""
    tensors: list[Tensor] = []
    for parameter, value in zip(line.parameters, arguments, strict=False):
        if is_shared(parameter):
            each = value if isinstance(value, list | tuple) else [value]
            tensors += [tensor for tensor in each if isinstance(tensor, Tensor)]
    return tensors


def is_shared(parameter: object) -> bool:
    """Return whether a parameter is a tensor without a dtype of its own."""
    return isinstance(parameter, TensorSpec) and parameter.dtype is None


def is_cast(tensor: Tensor) -> bool:
    """Return whether autocast casts a tensor: as in PyTorch, it leaves float64 alone."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64
