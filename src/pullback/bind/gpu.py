"""Which GPU there is: in truth, whatever `pullback.cuda` makes PyTorch say."""

from __future__ import annotations

import torch

from pullback.kernels.glue import Device


def is_available() -> bool:
    """Tell whether PyTorch can use a GPU."""
    asked = torch.cuda.is_available
    # `pullback.cuda.pretend` leaves what it replaces here.
    return bool(getattr(asked, "__wrapped__", asked)())


def architecture(device: Device) -> str | None:
    """Return the GPU to compile for, such as "sm_90"; None for the CPU, or without a GPU."""
    if device == "cpu" or not is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"
