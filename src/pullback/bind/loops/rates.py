"""How fast a device is, roughly: what the model of costs divides by."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rates:
    """What a device does in a second.

    Attributes:
        device: its name.
        operations: on real numbers, in vectorised loops.
        bandwidth: bytes that are read or written.
    """

    device: str
    operations: float
    bandwidth: float

    def seconds(self, operations: float, moved: float) -> float:
        """Return how long it takes at least to do some operations and to move some bytes."""
        return max(operations / self.operations, moved / self.bandwidth)


# One thread of a CPU.
CPU_OPERATIONS = 8e9
CPU_BANDWIDTH = 5e9
# An H100 SXM, by its data sheet: 132 multiprocessors of 128 lanes at 1.755 GHz, 3.35 TB/s.
H100 = Rates("an H100", 132 * 128 * 1.755e9, 3.35e12)
# Lanes that a multiprocessor has for float32, by the major version of its architecture.
LANES = {8: 64, 9: 128, 10: 128, 12: 128}


def cpu_rates() -> Rates:
    """Return the rates of PyTorch's threads."""
    threads = torch.get_num_threads()
    return Rates("this CPU", CPU_OPERATIONS * threads, CPU_BANDWIDTH * threads)


@functools.cache
def gpu_rates(device: int | None) -> Rates:
    """Return the rates of a GPU, as the driver tells them; those of an H100 without one.

    Args:
        device: its number, or None.
    """
    if device is None:
        return H100
    found = torch.cuda.get_device_properties(device)
    clock = float(getattr(found, "clock_rate", 0)) * 1e3
    memory = float(getattr(found, "memory_clock_rate", 0)) * 1e3
    width = float(getattr(found, "memory_bus_width", 0)) / 8
    lanes = found.multi_processor_count * LANES.get(found.major, 64)
    # A version of PyTorch that does not say the clocks is told by the size of the chip.
    return Rates(
        found.name,
        lanes * clock or H100.operations * lanes / (132 * 128),
        2 * memory * width or H100.bandwidth,
    )
