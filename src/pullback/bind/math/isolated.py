"""Work of ours in the middle of a user's call, apart from all that surrounds the call.

A loop is compiled, compared and timed when it is first called: inside of `vmap`, in forward mode,
under autocast or a tracer. None of that may reach it, and it all belongs to the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from pullback.bind.levels import BELOW

Result = TypeVar("Result")


def run_isolated(function: Callable[[], Result]) -> Result:
    """Return what a function returns in a thread of its own, where nothing is recorded.

    The arguments may be dual numbers, whose tangents autograd would compute: it is left out.
    """

    def run() -> Result:
        with torch.no_grad(), BELOW():
            return function()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run).result()
