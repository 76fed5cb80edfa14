"""Tensors for "cuda" are CPU tensors: translates the devices in calls of PyTorch's functions.

A mode of PyTorch sees each call of a function or a method, so we need not know which of them take a
device. It does not see calls of types (`torch.Generator`), functions that PyTorch does not let us
override (`torch.load`), and C++.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

CUDA = re.compile(r"cuda(:\d+)?")
CPU = torch.device("cpu")
SEEN = torch.device("cuda", 0)
TYPE = "torch.cuda."


def to_cpu_device(device: object) -> object:
    """Return the CPU for a GPU, and everything else as it is."""
    if isinstance(device, torch.device):
        return CPU if device.type == "cuda" else device
    if isinstance(device, str):
        if CUDA.fullmatch(device):
            return "cpu"
        return device.replace(TYPE, "torch.") if device.startswith(TYPE) else device
    return device


class Devices(TorchFunctionMode):
    """Gives the CPU to callers that ask for a GPU, and says that tensors are on one."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Answer, or call with the CPU for every GPU among the arguments."""
        del types
        known = _ANSWERS.get(func)
        if known is not None:
            return known(*args, **(kwargs or {}))
        args = tuple(to_cpu_device(each) for each in args)
        if kwargs:
            kwargs = {name: to_cpu_device(value) for name, value in kwargs.items()}
            # A number means a GPU.
            if isinstance(kwargs.get("device"), int):
                kwargs["device"] = CPU
        return func(*args, **(kwargs or {}))


def _device(tensor: Tensor) -> torch.device:
    found = tensor.device
    return SEEN if found.type == "cpu" else found


def _is_cuda(tensor: Tensor) -> bool:
    return tensor.device.type in ("cpu", "cuda")


def _is_cpu(tensor: Tensor) -> bool:
    return not _is_cuda(tensor)


def _index(tensor: Tensor) -> int:
    return 0 if _is_cuda(tensor) else tensor.get_device()


def _to_cuda(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
    del args
    kept = kwargs.get("memory_format", torch.preserve_format)
    return cast("Any", tensor).to(CPU, memory_format=kept)


def _to(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
    words = [to_cpu_device(each) for each in args]
    if words and isinstance(words[0], int) and not isinstance(words[0], bool):
        words[0] = CPU
    named = {name: to_cpu_device(value) for name, value in kwargs.items()}
    if isinstance(named.get("device"), int):
        named["device"] = CPU
    return cast("Any", tensor).to(*words, **named)


def _type(tensor: Tensor, dtype: object = None, *args: object, **kwargs: object) -> object:
    if dtype is None:
        return tensor.type().replace("torch.", TYPE, 1)
    return cast("Any", tensor).type(to_cpu_device(dtype), *args, **kwargs)


def _same(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
    del args, kwargs
    return tensor


def _nothing(*args: object, **kwargs: object) -> None:
    del args, kwargs


def _no(*args: object, **kwargs: object) -> bool:
    del args, kwargs
    return False


_T = cast("Any", Tensor)
# The functions under which PyTorch announces an attribute are those of its descriptor.
_ANSWERS: dict[object, Callable[..., object]] = {
    # A device itself stays as it is: authors compare it with a tensor's.
    torch.device: torch.device,
    _T.device.__get__: _device,
    _T.is_cuda.__get__: _is_cuda,
    _T.is_cpu.__get__: _is_cpu,
    _T.get_device: _index,
    torch.get_device: _index,
    _T.cuda: _to_cuda,
    _T.to: _to,
    _T.type: _type,
    _T.pin_memory: _same,
    _T.is_pinned: _no,
    _T.record_stream: _nothing,
}
