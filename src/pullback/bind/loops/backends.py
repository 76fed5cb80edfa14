"""Who compiles and runs loops over indices: the CPU, a GPU, or the CPU in a GPU's place."""

from __future__ import annotations

import ctypes
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind import gpu as current
from pullback.bind import runtime
from pullback.bind.loops import gpu, on_cpu
from pullback.bind.loops.compiled import FLAGS, compile_with_headers, define, vector_functions
from pullback.bind.loops.gpu import GpuUnit
from pullback.bind.loops.rates import Rates, cpu_rates, gpu_rates
from pullback.diagnostic import PullbackError, Rule, parse
from pullback.kernels import prebuilt, toolchain
from pullback.kernels.cuda_on_cpu import mode
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.identity import INDEX_ABI, of_headers
from pullback.kernels.loops import cpu, cuda
from pullback.kernels.loops.cpu import Cpu, LibraryCpu
from pullback.kernels.loops.cuda import Cuda, LibraryCuda
from pullback.kernels.loops.target import Target
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags
from pullback.kernels.prebuilt import FoundLibrary

if TYPE_CHECKING:
    from pullback.bind.loops.nests import Own

KernelFailed = Rule("PB304", "kernel-raised")
PLAIN = Mode()


# Takes address, tensors, sizes, scalars, the number of tasks, and what `Target.count_share` says;
# returns None, or what went wrong.
Runner = Callable[[int, tuple[Tensor, ...], tuple[int, ...], tuple[float, ...], int, int], object]


class Backend(ABC):
    """What loops are compiled by and run on. Equal ones share compiled loops."""

    # Whether a loop is called wherever there is one, and the clock is not asked.
    is_preferred = False
    # What its compiler compiles.
    language = "C++"
    # How finely sizes of long rows are told apart.
    parts = 1
    # Operations that are done sooner than PyTorch calls a few of its own, whatever is necessary.
    little = 10_000_000.0

    @property
    def name(self) -> str:
        """What it is called where loops are remembered that have been compared."""
        return type(self).__name__

    @abstractmethod
    def targets(self, compute: str) -> Sequence[Target]:
        """Return the targets that loops may be written for; the cheapest one is taken."""

    def fit(self, target: Target) -> Target:
        """Return a chosen target with the limits of the machine that is there."""
        return target

    @property
    def home(self) -> torch.device:
        """Where tensors are that its loops take."""
        return torch.device("cpu")

    @abstractmethod
    def rates(self) -> Rates:
        """Return how fast it is."""

    def time(self, run: Callable[[], object]) -> float:
        """Return the seconds that a call takes."""
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def find_brought(self, own: Own) -> FoundLibrary | None:
        """Return the library of some kernels, if a package brought it."""
        return prebuilt.find(own.identity)

    @abstractmethod
    def can_compile(self) -> bool:
        """Return whether there is a compiler."""

    @abstractmethod
    def compile(self, own: Own) -> Path:
        """Return the library of some kernels, compiled first if need be."""

    @abstractmethod
    def runner(self) -> Runner:
        """Return what runs one kernel."""

    @abstractmethod
    def failure(self, own: Own, said: object) -> Exception:
        """Return the error for what a runner returned."""

    def count_lanes(self, own: Own) -> int:
        """Return how many lanes the compiled kernels have."""
        return own.target.lanes


@dataclass(frozen=True)
class CpuBackend(Backend):
    """g++ and PyTorch's threads."""

    def targets(self, compute: str) -> Sequence[Target]:
        """Return the one of the CPU."""
        return (Cpu.of(compute),)

    def rates(self) -> Rates:
        """Return those of PyTorch's threads."""
        return cpu_rates()

    def can_compile(self) -> bool:
        """Return whether there is a C++ compiler."""
        return toolchain.has("c++")

    def compile(self, own: Own) -> Path:
        """Return the library, compiled for this processor."""
        return compile_with_headers(plan_of([own]), cpu.HEADERS)

    def count_lanes(self, own: Own) -> int:
        """Return those of a vector of this processor."""
        return count_lanes(own.library)

    def runner(self) -> Runner:
        """Return what runs a kernel in PyTorch's threads."""
        return runtime.load().parallel

    def failure(self, own: Own, said: object) -> Exception:
        """Return that there was no memory: nothing else can fail."""
        del own, said
        return MemoryError()


def count_lanes(library: ctypes.CDLL) -> int:
    """Return how many lanes a vector of compiled kernels has."""
    return ctypes.c_int64.in_dll(library, cpu.LANES).value


class LibraryBackend(CpuBackend):
    """The CPU in a library without Python, which has loops or nothing."""

    def targets(self, compute: str) -> Sequence[Target]:
        """Return the one of the CPU, whatever PyTorch's operations are better at."""
        return (LibraryCpu.of(compute),)


@dataclass(frozen=True)
class CudaBackend(Backend):
    """nvcc or NVRTC, and the current stream of a GPU.

    Attributes:
        architecture: such as "sm_90".
        device: its number; None where there is no GPU.
        shared: bytes of shared memory that a block may have.
    """

    architecture: str
    device: int | None = None
    shared: int = cuda.LARGEST
    language = "CUDA"
    # What a row keeps has to fit, and a size that stands for others is the largest of them.
    parts = 4
    # Threads without elements count. Even a few of PyTorch's operations, which are launched one by
    # one, take as long as this: 20 µs of an H100.
    little = 6e8

    def targets(self, compute: str) -> Sequence[Target]:
        """Return one for each number of threads that may share a task."""
        return tuple(Cuda(compute, lanes) for lanes in cuda.LANES)

    @property
    def name(self) -> str:
        """With the GPUs that it compiles for."""
        return f"{type(self).__name__} {self.architecture}"

    def fit(self, target: Target) -> Target:
        """Return it with the shared memory of this GPU."""
        assert isinstance(target, Cuda)
        return replace(target, shared=min(target.shared, self.shared))

    @property
    def home(self) -> torch.device:
        """The GPU."""
        return torch.device("cuda", self.device or 0)

    def rates(self) -> Rates:
        """Return those of the GPU."""
        return gpu_rates(self.device)

    def time(self, run: Callable[[], object]) -> float:
        """Return the seconds that a call takes on the GPU, which works on while Python does."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(self.device):
            start.record()
            run()
            end.record()
            end.synchronize()
        return start.elapsed_time(end) / 1e3

    def find_brought(self, own: Own) -> FoundLibrary | None:
        """Return the library with code for the GPU, if a package brought it."""
        return prebuilt.find(own.identity, architecture=self.architecture)

    def can_compile(self) -> bool:
        """Return whether there is nvcc or NVRTC."""
        return toolchain.has("cuda") or gpu.find_nvrtc() is not None

    def compile(self, own: Own) -> Path:
        """Return the library, compiled for the GPU."""
        return gpu.compile_unit(unit_of([own]), self.architecture, gpu.find_compiler())

    def runner(self) -> Runner:
        """Return what launches a kernel on the current stream of the tensors' device."""
        return runtime.load().launch

    def failure(self, own: Own, said: object) -> Exception:
        """Return what CUDA said; CUDA on the CPU reports findings of its own."""
        if found := parse(str(said)):
            return PullbackError(found)
        return KernelFailed.error(f"{own.indexed.line.called}: its kernel raised: {said}")


class LibraryCudaBackend(CudaBackend):
    """The GPUs in a library without Python, which has loops or nothing."""

    def targets(self, compute: str) -> Sequence[Target]:
        """Return those of a GPU, whatever PyTorch's operations are better at."""
        return tuple(LibraryCuda(compute, lanes) for lanes in cuda.LANES)


@dataclass(frozen=True)
class CudaOnCpuBackend(CudaBackend):
    """The same CUDA by g++, on tensors of the CPU.

    Attributes:
        mode: how it runs, and what is checked.
    """

    mode: Mode = PLAIN
    language = "C++"
    is_preferred = True

    @property
    def home(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def find_brought(self, own: Own) -> FoundLibrary | None:
        """Return nothing: a package brings code for GPUs."""
        del own

    def can_compile(self) -> bool:
        """Return whether there is a C++ compiler."""
        return toolchain.has("c++")

    def runner(self) -> Runner:
        """Return what launches a kernel; in order "all" several times."""
        launch = super().runner()
        if self.mode.order != "all":
            return launch
        return on_cpu.launch_in_every_order(launch, self.mode)

    def compile(self, own: Own) -> Path:
        """Return the library, translated to C++."""
        unit = unit_of([own])
        return on_cpu.compile_unit(unit.name, unit.nvcc, self.mode, unit.abi)


def plan_of(several: Sequence[Own]) -> BuildPlan:
    """Return what to compile for loops of one operator and one target, one after another."""
    own = several[0]
    kernels = [step.kernel.text for own in several for step in own.steps]
    return plan_kernels(own.name, kernels, own.target, own.indexed.accuracy)


def plan_kernels(name: str, kernels: Sequence[str], target: Target, accuracy: int) -> BuildPlan:
    """Return what to compile for kernels over indices."""
    compiler = toolchain.find("c++")
    unit = cpu.write_unit(cpu.name_kernels(kernels), target, accuracy)
    return BuildPlan(
        name=name,
        compiler=compiler,
        units=(TranslationUnit("loops.cpp", unit),),
        sources=(),
        flags=(*kernel_flags(compiler), *FLAGS, *define(cpu.macros_of(target, accuracy))),
        link=("-lmvec", "-lm"),
        link_for=vector_functions(),
        abi=of_headers(INDEX_ABI),
        is_shared=True,
    )


def unit_of(several: Sequence[Own]) -> GpuUnit:
    """Return loops of one operator and one target for a GPU, one after another."""
    own = several[0]
    kernels = cuda.name_kernels(step.kernel for own in several for step in own.steps)
    scalars = len(own.indexed.line.scalars)
    return GpuUnit(
        name=f"{own.name}-cuda",
        nvcc=cuda.write_nvcc(kernels, own.target, scalars),
        nvrtc=cuda.write_nvrtc(kernels, own.target, scalars),
        host=cuda.write_host(kernels, own.target, scalars),
        abi=of_headers(INDEX_ABI),
    )


def find_backend(device: torch.device) -> Backend | None:
    """Return who runs loops for tensors of a device; None if only PyTorch's operations do."""
    if mode.is_chosen():
        return CudaOnCpuBackend(ON_CPU, mode=mode.current_mode())
    if device.type == "cpu":
        return CpuBackend()
    brought = prebuilt.has_index_loops("cuda") and gpu.is_there()
    if device.type == "cuda" and (brought or gpu.is_usable()):
        with torch.cuda.device(device):
            return find_gpu()
    return None


def has_gpu_loops(device: torch.device) -> bool:
    """Return whether loops on a GPU compute what is between products of matrices."""
    return mode.is_chosen() or (device.type == "cuda" and _has_gpu_loops(device))


@functools.cache
def _has_gpu_loops(device: torch.device) -> bool:
    """Ask once, for each call would ask."""
    return isinstance(find_backend(device), CudaBackend)


def find_gpu() -> CudaBackend:
    """Return who would run loops on a GPU: the one that is there, or an H100."""
    if not gpu.is_there():
        return CudaBackend("sm_90")
    device = torch.cuda.current_device()
    # Not every PyTorch says it.
    properties = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", cuda.LEAST)
    return CudaBackend(str(current.architecture("cuda")), device, shared)


# What a kernel is written for where there is no GPU.
ON_CPU = "sm_80"
