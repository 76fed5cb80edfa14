"""Loops in CUDA: a thread stands where the CPU has a lane, and a group of threads has a task.

The kernels are one text for nvcc, for NVRTC and, as CUDA on the CPU, for g++.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pullback.kernels.loops.nest import KernelText
from pullback.kernels.loops.pointwise import CSRC
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import NAME, Target

FOLDER = CSRC / "index" / "cuda"
# Threads that share a task: a part of a warp, a warp, or a block. Of equally good ones the first.
LANES = (128, 32, 512, 8)
# Values that fill a large GPU if they are computed at a time, in one thread or several: of an
# H200's warps, with four values in each thread, one alone issues in a quarter of the clocks.
FULL = 2**18
# Values side by side in a thread beyond which more do not wait for less.
ABREAST = 8
# Bytes of shared memory of a multiprocessor, and threads that keep it busy.
RESIDENT, BUSY = 200 * 1024, 1024
# Chunks that a long sum is cut into: by the sizes of the call and never by the number of
# multiprocessors, so that the result is the same on every GPU.
CHUNKS_AT_MOST = 1024
# Statements of a chunk at least.
CHUNK = 256
# Bytes of shared memory that a block may have on the largest GPU, for which loops are chosen, so
# that every GPU has the same ones; and where nothing is known of a GPU.
LARGEST, LEAST = 227 * 1024, 48 * 1024
# What the reductions of a block take of it.
ROOM = 1024
# Registers of a multiprocessor, and those that a thread may have of them.
REGISTERS, MOST_REGISTERS = 64 * 1024, 255
# What a thread keeps through a loop, times the values that it computes side by side, for each of
# its registers at most: these values read more. Found by compiling for two architectures.
HELD = 1.65
# Lines that a loop has at most by writing its turns out.
UNROLLED = 512
# Bytes of parameters that a kernel may have.
PARAMETERS = 4096


@dataclass(frozen=True)
class Cuda(Target):
    """A GPU; a task is shared by `lanes` threads.

    Attributes:
        shared: bytes of shared memory that a block may have.
    """

    shared: int = LARGEST
    # What is not kept comes from the memory again: the rows of all tasks fit no cache.
    keeps_reads = True
    # To add to the tensor is to wait for a far memory, and back, for each row.
    keeps_totals = True
    # An H100 issues as many instructions while it reads an element from memory.
    again = 36
    spare = 1
    needs_neighbours = False
    adds_guarded = True
    guards_steps = True
    keeps_states = True
    has_narrower = True
    pack = 16
    fetched = 16
    # Of elements apart, each costs the transfer of 32 bytes.
    gathered, apart, divided, every, far = 10, 6, 3, 1, 0
    stored_far = 16

    @property
    def block(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One for each thread, which keeps what is its own."""
        return self.lanes

    def write_meeting(self) -> str:
        """Return a barrier of the threads that share a task."""
        return "meet();"

    @property
    def abreast(self) -> int:
        """More than on a CPU, for what they share is read by every thread; it has registers."""
        return 16 // self.words

    @property
    def stacks(self) -> Sequence[int]:
        """A stencil of 7 rows reads 7, 2.5 and 1.75 rows for each of 1, 4 and 8 results."""
        return (8, 4)

    @property
    def words(self) -> int:
        """The registers of a value."""
        return 1 if self.compute == "float" else 2

    def holds(self, values: int, abreast: int) -> bool:
        """Return whether they leave registers for what is read for each of those side by side."""
        registers = min(MOST_REGISTERS, REGISTERS // (self.groups * self.lanes))
        return values * abreast * self.words <= HELD * registers

    def write_unrolled(self, vectors: int, body: str) -> str:
        """Return a pragma: in a short body, a tenth of the instructions only count iterations.

        A loop around others has none, for each turn would have copies of theirs: a norm over
        groups took a compiler two minutes.
        """
        if "for (" in body:
            return ""
        fit = UNROLLED // (body.count("\n") + 1)
        return f"#pragma unroll {max(1, min(16 // vectors, fit))}\n"

    @property
    def name(self) -> str:
        """Its name."""
        return f"cuda, {self.lanes} threads a task"

    @property
    def groups(self) -> int:
        """How many tasks a block has; csrc/index/cuda/call.h says the same."""
        return max(64, self.lanes) // self.lanes

    def slow_down(self, tasks: int, abreast: int, rows: Sequence[int]) -> float:
        """Return by how much a large GPU is idle, for want of tasks or of shared memory."""
        few = max(1.0, FULL / (tasks * self.lanes * min(abreast, ABREAST)))
        blocks = RESIDENT // max(1, self.count_scratch(rows) * self.groups)
        crowded = max(1.0, BUSY / (max(1, blocks) * self.groups * self.lanes))
        # Threads of several tasks in a warp read at as many places.
        return few * crowded * (1.0 if self.lanes >= 32 else 1.5)

    @property
    def enough(self) -> int:
        """How many tasks keep a large GPU busy: a sum is not cut into chunks beyond that."""
        return FULL // 2 // self.lanes

    def count_chunks(self, operations: float, tasks: int, length: int) -> int:
        """Return as many chunks as fill a large GPU, if each has enough to do."""
        wanted = -(-self.enough // max(1, tasks))
        return max(1, min(CHUNKS_AT_MOST, length, wanted, int(operations / CHUNK) + 1))

    def count_share(self, tasks: int, operations: float, rows: Sequence[int]) -> int:
        """Return the bytes of shared memory that a task takes."""
        del tasks, operations
        return self.count_scratch(rows)

    def count_scratch(self, rows: Sequence[int]) -> int:
        """Return the bytes that rows take, laid out as `kernel._KernelWriter.rows` does."""
        beyond, size = self.spare * self.lanes, 4 * self.words
        return sum(-(-(row + beyond) * size // 64) * 64 for row in rows)

    def keeps(self, rows: Sequence[int]) -> bool:
        """Return whether the rows of a block's tasks fit its shared memory."""
        return self.count_scratch(rows) * self.groups <= self.shared - ROOM

    def write_scratch(self, sizes: Sequence[str]) -> list[str]:
        """Return the statement that finds the task's part of the shared memory."""
        del sizes
        return ["Scratch scratch(call->scratch);"]

    def write_cleared(self, total: str, count: str) -> str:
        """Return a call: the threads of a task do it together."""
        return f"clear({total}, {count});"

    def write_function(
        self,
        addresses: Mapping[str, bool],
        opening: Sequence[str],
        task: Sequence[str],
        *,
        together: int,
    ) -> str:
        """Return a function of one task, which all threads that share it run.

        What may be read early is behind pointers that are `__restrict__`: a thread would wait for
        memory once for each store. In the steps of a scan, which wait for one another, nvcc then
        reads one operand at a time, and it takes a third longer.
        """
        assert together == 1
        lines = "\n".join(line for line in (*opening, *task) if line)
        parameters = "".join(
            f", {'const char* __restrict__ const' if is_read else 'char* const'} {name}"
            for name, is_read in addresses.items()
        )
        given = "".join(f", call->data[{k}]" for k in range(len(addresses)))
        task_of = "(const Call* call, int64_t task"
        return (
            f"__device__ __forceinline__ void @name_body{task_of}{parameters}) {{\n{lines}\n}}\n"
            f"__device__ __forceinline__ void @name_task{task_of}) {{\n"
            f"@name_body(call, task{given});\n}}\n"
        )


class LibraryCuda(Cuda):
    """A GPU on which a library without Python runs: there is nothing but its loops."""

    has_rival = False
    # Its loops are for any sizes, and of long rows totals do not fit beside what is kept of them.
    keeps_totals = False


Kernels = Mapping[str, KernelText]


def name_kernels(kernels: Iterable[KernelText]) -> Kernels:
    """Return kernels by their entry points: `NAME` and their place."""
    return {NAME.format(place): kernel for place, kernel in enumerate(kernels)}


def write_nvcc(kernels: Kernels, target: Target, scalars: int) -> str:
    """Return the translation unit for nvcc: the kernels and their launchers.

    Args:
        kernels: by the names of their entry points.
        target: that they are written for.
        scalars: how many the line has.
    """
    launchers = write_launchers(kernels, scalars, "runtime.cuh")
    return f"{write_kernels(kernels, target, scalars)}{launchers}"


def write_nvrtc(kernels: Kernels, target: Target, scalars: int) -> str:
    """Return the translation unit for NVRTC: the kernels alone."""
    return write_kernels(kernels, target, scalars)


def write_host(kernels: Kernels, target: Target, scalars: int) -> str:
    """Return the translation unit for g++ that loads and launches what NVRTC compiled.

    A header with the compiled kernels has to be included before it.
    """
    head = write_head(kernels, target, scalars)
    return f"{head}{write_launchers(kernels, scalars, 'driver.h')}"


def write_head(kernels: Kernels, target: Target, scalars: int) -> str:
    """Return the macros that headers read: how many threads share a task; the largest call."""
    counts = [count_arguments(kernel, scalars) for kernel in kernels.values()]
    most = [max(1, *(count[k] for count in counts)) for k in range(4)]
    if 8 * sum(most) + 16 > PARAMETERS:
        raise RefusedLoops("a kernel takes no more than 4096 bytes of arguments")
    names = ("OPERANDS", "STRIDES", "SIZES", "SCALARS")
    sizes = "".join(f"#define PULLBACK_{name} {n}\n" for name, n in zip(names, most, strict=True))
    return f"""#define PULLBACK_COMPUTE {target.compute}
#define PULLBACK_LANES {target.lanes}
{sizes}#include "{FOLDER}/call.h"
"""


def count_arguments(kernel: KernelText, scalars: int) -> tuple[int, int, int, int]:
    """Return how many operands, strides, sizes and scalars a kernel takes."""
    strides = sum(operand.dimensions for operand in kernel.operands)
    return len(kernel.operands), strides, len(kernel.sizes), scalars


def write_kernels(kernels: Kernels, target: Target, scalars: int) -> str:
    """Return the kernels, in our namespace: there `exp` is ours and not the C library's."""
    functions = "\n".join(
        f"{kernel.text}PULLBACK_INDEX_KERNEL(@name)".replace("@name", name)
        for name, kernel in kernels.items()
    )
    return f"""{write_head(kernels, target, scalars)}#include "{FOLDER}/index.cuh"
namespace pullback::index {{
{functions}
}}
"""


def write_launchers(kernels: Kernels, scalars: int, header: str) -> str:
    """Return the entry points."""
    launchers = "\n".join(
        f"PULLBACK_INDEX_LAUNCHER({name}, {', '.join(map(str, count_arguments(kernel, scalars)))})"
        for name, kernel in kernels.items()
    )
    return f'#include "{FOLDER}/{header}"\n{launchers}\n'
