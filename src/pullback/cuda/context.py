"""`pb.cuda.on_cpu`: CUDA runs on the CPU within a block."""

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
    """Give the CPU to whatever asks for a GPU: operators, extensions and PyTorch itself.

    Under it `torch.utils.cpp_extension` builds for the CPU, `torch.cuda` says that there is a GPU,
    and tensors for "cuda" are CPU tensors that claim to be on it, as all tensors do.
    A real GPU is not used.

    Args:
        check: "race" finds accesses that nothing orders, "memory" those out of bounds; "none"
            runs as fast as it can.
        order: of the threads of a block: "forward", "reverse", "random" or "random:SEED".
        workers: CPU threads that run blocks; 0 means as many as there are cores.
        timeout: seconds until a launch is stopped; 0 means no limit. The default is no limit, and
            60 in the checks.

    Raises:
        PullbackError: PB201 to PB206, the library that runs kernels does not compile; PB235, an
            unknown check or order.
    """
    wanted = Mode(check=check, order=order, workers=workers, timeout=timeout)
    with operators.set_mode_everywhere(wanted), toolkit.build_for_cpu(), pretend.pretend_gpu():
        yield wanted
