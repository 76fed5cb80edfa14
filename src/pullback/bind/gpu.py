"""Which GPU there really is, whatever `pullback.cuda` makes PyTorch say."""

from __future__ import annotations

import torch

from pullback.kernels.glue import Device


def is_available() -> bool:
    """Return whether PyTorch can use a GPU."""
    function = torch.cuda.is_available
    # `pullback.cuda.pretend` keeps the function that it replaces as `__wrapped__`.
    return bool(getattr(function, "__wrapped__", function)())


def architecture(device: Device) -> str | None:
    """Return the GPU to compile for, such as "sm_90"; None for the CPU, or without a GPU."""
    if device == "cpu" or not is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"
