"""`pb.cuda.on_cpu`: CUDA runs on the CPU for a while."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pullback.bind import on_cpu as operators
from pullback.cuda import pretend, toolkit
from pullback.kernels.cuda_on_cpu.mode import Check, Mode


@contextmanager
def on_cpu(
    *,
    check: Check = "none",
    order: str = "forward",
    workers: int = 0,
    timeout: float | None = None,
) -> Generator[Mode]:
    """Let what asks for a GPU have the CPU: operators, extensions and PyTorch itself.

    Under it `torch.utils.cpp_extension` builds for the CPU, `torch.cuda` says that there is a GPU,
    and tensors for "cuda" are tensors of the CPU that say they were on it. All tensors do.
    A real GPU is not used.

    Args:
        check: "race" finds accesses that nothing orders, "memory" those out of bounds; "none"
            runs as fast as it can.
        order: of the threads of a block: "forward", "reverse", "random" or "random:SEED".
        workers: threads of the CPU that run blocks; 0 stands for its cores.
        timeout: seconds until a launch is stopped; 0 stands for none. Without it, none, and 60 in
            the checks.

    Raises:
        PullbackError: PB201 to PB206, the library that runs kernels does not compile; PB235, a
            check or an order that there is not.
    """
    wanted = Mode(check=check, order=order, workers=workers, timeout=timeout)
    with operators.entered(wanted), toolkit.building(), pretend.pretending():
        yield wanted
