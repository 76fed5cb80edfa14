"""The random state of a run: every generator that a forward may draw from starts from a seed."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch

# Users seed with small numbers, 0 above all, and draw their inputs then. A direction that is the
# input itself hides what it should show: a quadratic form looks right along it.
OWN = 0x5EED_0FF5


def drawing(seed: int) -> torch.Generator:
    """Return a generator for the CPU whose numbers no user has drawn with the same seed."""
    return torch.Generator().manual_seed(own(seed))


def own(seed: int) -> int:
    """Return a seed that is ours alone."""
    return (seed + OWN) % 2**32


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Seed PyTorch's, NumPy's and Python's generators, each as ours; put them back afterwards."""
    seed = own(seed)
    python, numpy = random.getstate(), np.random.get_state()
    with torch_seeded(seed):
        np.random.seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def torch_seeded(seed: int) -> Generator[None]:
    """Seed PyTorch's generators; put them back afterwards.

    `torch.manual_seed` notes a stack trace for each kind of device that is not in use yet, which
    costs milliseconds and is kept: a derivative by differences has a hundred runs.
    """
    if torch.cuda.is_initialized():
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
        return
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
