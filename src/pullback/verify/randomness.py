"""The random state of a run: every generator that a forward may draw from starts from a seed."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Seed PyTorch's, NumPy's and Python's generators; put them back afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch_seeded(seed):
        np.random.seed(seed % 2**32)
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
