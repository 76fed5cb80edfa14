"""Where it runs: on a GPU, or as a rehearsal by CUDA on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DEVICE = "cuda"
# Bytes that a rotation of inputs goes through at least: more than any GPU's caches have.
ROTATED = 100e6


@dataclass(frozen=True)
class Place:
    """A GPU, or the CPU in its place.

    Attributes:
        rehearsal: whether all of it runs on the CPU, at small sizes and by the host's clock.
    """

    rehearsal: bool

    @property
    def cores(self) -> int:
        """How many processors there are."""
        return os.cpu_count() or 1

    @contextmanager
    def entered(self, **how: Any) -> Iterator[None]:
        """Let tensors for `DEVICE` be made and used within the block.

        Args:
            how: arguments of `pb.cuda.on_cpu`.
        """
        if not self.rehearsal:
            yield
            return
        import pullback as pb  # noqa: PLC0415  (its first import compiles)

        with pb.cuda.on_cpu(**how):
            yield

    def hold(self, nanoseconds: float) -> None:
        """Keep the GPU busy, so that what follows is queued before it begins."""
        if not self.rehearsal:
            torch.cuda._sleep(int(2 * nanoseconds))

    def free(self) -> float:
        """Return how many bytes of the GPU's memory are free."""
        if self.rehearsal:
            return 2.0**30
        torch.cuda.empty_cache()
        return float(torch.cuda.mem_get_info()[0])

    def watch(self) -> Callable[[], int]:
        """Return what says how many bytes more than now there were at a time since then."""
        if self.rehearsal:
            return lambda: 0
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        return lambda: torch.cuda.max_memory_allocated() - before


def bytes_of(tensors: tuple[Tensor, ...] | list[Tensor]) -> int:
    """Return how many bytes some tensors have."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
