"""CUDA kernels on CPU tensors: which operators have them, and in which mode."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pullback.bind import gpu, runtime
from pullback.bind.notice import notice
from pullback.bind.registry import operators
from pullback.define.operator import Definition
from pullback.diagnostic import PullbackError
from pullback.kernels import glue, prebuilt
from pullback.kernels.cuda_on_cpu import library, mode, runtimes
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.plan import BuildPlan


class CudaOnCpuNotice(UserWarning):
    """A CUDA kernel runs on the CPU, for want of one in C++."""


_announced: set[str] = set()


def plan_of(definition: Definition) -> BuildPlan | None:
    """Return the build plan with which an operator's CUDA kernel takes CPU tensors.

    None where there is a GPU and the kernel has no counterpart on the CPU: it is for that GPU.
    None as well for the kernel of an installed package, which brought a library and no source.
    """
    assert definition.cuda
    brought = bool(prebuilt.of_operator(definition.line, definition.cuda))
    if brought and not prebuilt.is_there(definition.cuda):
        return None
    now = mode.current_mode()
    try:
        library.runtime(now.check, runtime.announce)
        plan = glue.plan_on_cpu(definition.line, definition.cuda, now)
        runtimes.load(now)
    except PullbackError:
        if brought or gpu.is_available():
            return None
        raise
    announce(definition, now)
    return plan


def announce(definition: Definition, now: Mode) -> None:
    """Say once for each operator that its CUDA kernel runs on the CPU."""
    name = definition.line.qualname
    if name not in _announced and not gpu.is_available():
        _announced.add(name)
        checked = "" if now.check == "none" else f", watched for {now.check} faults"
        text = f"{name}: its CUDA kernel runs on the CPU{checked}; cpu= gives it a kernel in C++"
        notice(text, CudaOnCpuNotice)


@contextmanager
def set_mode_everywhere(wanted: Mode) -> Generator[Mode]:
    """Run the CUDA kernels of all operators in a mode for a while.

    Defined operators are compiled again for it, and at the end as they were before.
    """
    library.runtime(wanted.check, runtime.announce)
    try:
        with mode.set_mode(wanted):
            _compile_anew()
            runtimes.load(wanted)
            yield wanted
    finally:
        _compile_anew()
        runtimes.configure(mode.current_mode())


def _compile_anew() -> None:
    """Compile all operators for the current mode; one that no longer compiles stays as it was."""
    for operator in list(operators.values()):
        if operator.kind.runs_on_a_gpu:
            # Compiling again announces nothing: nobody has called the operator here.
            _announced.add(operator.line.qualname)
            try:
                operator.reload()
            except PullbackError as error:
                reason = str(error).partition("\n")[0]
                notice(f"{operator.line.qualname} stays as it was: {reason}", CudaOnCpuNotice)
