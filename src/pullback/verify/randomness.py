"""The random state of a run: every generator that a forward may draw from starts from a seed."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.random import mtrand

# Users seed with small numbers, 0 above all, and draw their inputs then. A direction that is the
# input itself hides what it should show: a quadratic form looks right along it.
OWN = 0x5EED_0FF5

# NumPy's generator is exchanged in each run: to read and to write its state takes 90 µs. Those that
# nobody uses, for one is as dear to make.
spare: list[np.random.MT19937] = []


def drawing(seed: int) -> torch.Generator:
    """Return a generator for the CPU whose numbers no user has drawn with the same seed."""
    return torch.Generator().manual_seed(own(seed))


def own(seed: int) -> int:
    """Return a seed that is ours alone."""
    return (seed + OWN) % 2**32


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Seed PyTorch's, NumPy's and Python's generators, each as ours; put them back afterwards.

    Around all runs there is `numpy_kept`.
    """
    seed = own(seed)
    python, numpy = random.getstate(), mtrand.get_bit_generator()
    generator = spare.pop() if spare else np.random.MT19937()
    with torch_seeded(seed):
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
def numpy_kept() -> Generator[None]:
    """Put back what an exchange of generators forgets: the second number of a normal pair."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)


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
