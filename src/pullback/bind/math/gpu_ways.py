"""How a GPU computes a call for which there are PyTorch's operations, other than by these alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from pullback.bind.dense.matrices import find_half
from pullback.bind.dense.space import NO_GPU, GpuWays
from pullback.bind.loops import nests
from pullback.bind.loops.backends import find_backend, has_gpu_loops
from pullback.bind.loops.nests import Own
from pullback.bind.math import verify
from pullback.define.math import cost
from pullback.define.math.formula import Formula
from pullback.kernels.loops import worth


def find_ways(
    arguments: Iterable[object],
    dtypes: Iterable[torch.dtype],
    device: torch.device,
    accuracy: int,
) -> GpuWays:
    """Return how matrices are multiplied, and who computes what is between their products.

    Args:
        arguments: of the call.
        dtypes: of its results.
        device: where it is.
        accuracy: of functions in loops, in units in the last place.
    """
    if not has_gpu_loops(device):
        return NO_GPU
    half = find_half(arguments, dtypes, device)
    return GpuWays(half=half, find_loops=find_loops, accuracy=accuracy)


def find_loops(
    formula: Formula, sizes: Mapping[str, int], device: torch.device, times: float
) -> Own | None:
    """Return the loops of a formula with one output.

    None if there are none, if they would compute values many times, or are wrong.

    Args:
        formula: what they compute.
        sizes: of every index.
        device: a GPU.
        times: how many times the work they may do that loops of their family may.
    """
    present = frozenset(parameter.name for parameter in formula.line.parameters)
    own = nests.find(formula, torch.float32, (0,), present, sizes, find_backend(device))
    if not isinstance(own, Own) or does_too_much(own, sizes, times) or not own.is_available:
        return None
    return None if verify.why_unusable(own, present) else own


def does_too_much(own: Own, sizes: Mapping[str, int], times: float) -> bool:
    """Return whether loops do so many times the necessary operations."""
    needed = cost.cost(own.indexed, sizes, [True], torch.float32.itemsize)
    least = max(needed.flops, needed.read + needed.written)
    most = times * worth.most_work(own.family) * least
    return own.work(sizes) > max(most, own.backend.little)
