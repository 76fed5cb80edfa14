"""The random state of a run: every generator that a forward may draw from starts from a seed."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.random import mtrand

# Users seed with small numbers, 0 above all, and then draw their inputs. With the same seed a
# direction would be the input itself, along which a quadratic form looks right.
OWN = 0x5EED_0FF5

# Each run swaps NumPy's generator: reading and writing its state takes 90 µs. These are the unused
# ones, since making one is as expensive.
spare: list[np.random.MT19937] = []


def make_generator(seed: int) -> torch.Generator:
    """Return a generator for the CPU whose numbers no user has drawn with the same seed."""
    return torch.Generator().manual_seed(own_seed(seed))


def own_seed(seed: int) -> int:
    """Return a seed that only we use."""
    return (seed + OWN) % 2**32


@contextmanager
def seed_everything(seed: int) -> Generator[None]:
    """Seed PyTorch's, NumPy's and Python's generators with our seeds; restore them afterwards.

    `keep_numpy_state` has to be around all runs.
    """
    seed = own_seed(seed)
    python, numpy = random.getstate(), mtrand.get_bit_generator()
    generator = spare.pop() if spare else np.random.MT19937()
    with seed_torch(seed):
        mtrand.set_bit_generator(generator)
        np.random.seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            mtrand.set_bit_generator(numpy)
            spare.append(generator)


@contextmanager
def keep_numpy_state() -> Generator[None]:
    """Restore what swapping generators loses: the second number of a normal pair."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)


@contextmanager
def seed_torch(seed: int) -> Generator[None]:
    """Seed PyTorch's generators; restore them afterwards.

    `torch.manual_seed` records a stack trace for each kind of device that is not in use yet, which
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
