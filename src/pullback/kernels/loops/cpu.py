"""Loops on the CPU: vectors, and threads that share tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.kernels.loops.pointwise import CSRC, write_beginning
from pullback.kernels.loops.target import NAME, Target

# How much longer one thread takes than several.
ALONE = 4.0
# Vector operations that a thread should have to do at least: about 20 microseconds.
GRAIN = 40_000
# Vector operations of a chunk at least.
CHUNK = GRAIN
# Chunks that a long sum is cut into, whatever the number of threads: the result is always the same.
CHUNKS_AT_MOST = 32
# Totals of fewer rows cost about as much as the rows; but a few chunks are made of any.
ROWS_OF_CHUNK, CHUNKS_OF_FEW = 16, 4
HEADERS = (CSRC / "kernel_abi.h", CSRC / "index/index.h")
# The lanes of a register of 64 bytes.
WIDEST = {"float": 16, "double": 8}
# What a library says: how many lanes a vector of its kernels has.
LANES = "pullback_index_lanes"


@dataclass(frozen=True)
class Cpu(Target):
    """A CPU; the lanes are those of the widest registers."""

    pushed = 24
    ahead = 16
    entered = 30
    shortest = 8
    beside = 4
    notes_outside = True

    @classmethod
    def of(cls, compute: str) -> Cpu:
        """Return the target for a type."""
        return cls(compute, WIDEST[compute])

    @property
    def name(self) -> str:
        """Its name."""
        return "cpu" if self.lanes == WIDEST[self.compute] else f"cpu, {self.lanes} lanes"

    @property
    def tiles(self) -> Sequence[tuple[int, int]]:
        """As many sums as fit the 16 registers of AVX2, with what they read."""
        return ((4, 2),)

    def for_rows(self, length: int) -> Target:
        """Return one with narrower registers: a part of a wide one reads beyond its cache line."""
        lanes = self.lanes
        while lanes // 2 >= max(length, self.lanes // 4):
            lanes //= 2
        return replace(self, lanes=lanes)

    def slow_down(self, tasks: int, abreast: int, rows: Sequence[int]) -> float:
        """Return how much slower one thread is, if there is one task only."""
        del abreast, rows
        return 1.0 if tasks > 1 else ALONE

    def count_chunks(self, operations: float, tasks: int, length: int) -> int:
        """Return as many chunks as are worth a task each."""
        del tasks
        enough = max(length // ROWS_OF_CHUNK, min(length, CHUNKS_OF_FEW))
        return max(1, min(CHUNKS_AT_MOST, enough, int(operations / CHUNK) + 1))

    def count_share(self, tasks: int, operations: float, rows: Sequence[int]) -> int:
        """Return how many tasks are worth a thread."""
        del rows
        return max(1, int(GRAIN * tasks / max(operations, 1)))

    def keeps(self, rows: Sequence[int]) -> bool:
        """Return that there is: a kernel allocates it."""
        del rows
        return True

    def write_scratch(self, sizes: Sequence[str]) -> list[str]:
        """Return the statements that allocate the memory."""
        total = " + ".join(f"{size} + 64" for size in sizes)
        return [f"Scratch scratch({total});", "if (!scratch.memory) return no_memory;"]

    def write_cleared(self, total: str, count: str) -> str:
        """Return a loop that clears them."""
        return f"for (int64_t k = 0; k < {count}; ++k) {total}[k] = 0;"

    def write_function(
        self,
        addresses: Mapping[str, bool],
        opening: Sequence[str],
        task: Sequence[str],
        *,
        together: int,
    ) -> str:
        """Return a function that runs a range of tasks."""
        lines = [
            "[[maybe_unused]] bool outside = false;",
            *(f"char* const {name} = call->data[{k}];" for k, name in enumerate(addresses)),
            *opening,
            f"for (int64_t task = begin; task < end; task += {together}) {{",
            *task,
            "}",
            "return outside ? index_outside : ok;",
        ]
        return (
            'extern "C" __attribute__((visibility("default")))\n'
            "int @name(const Call* call, int64_t begin, int64_t end) {\n"
            + "\n".join(line for line in lines if line)
            + "\n}\n"
        )


class LibraryCpu(Cpu):
    """A CPU on which a library without Python runs: there is nothing but its loops."""

    has_rival = False


def name_kernels(kernels: Iterable[str]) -> dict[str, str]:
    """Return kernels by their entry points: `NAME` and their place."""
    return {NAME.format(place): text for place, text in enumerate(kernels)}


def macros_of(target: Target, accuracy: int) -> dict[str, object]:
    """Return what the headers of loops have to know first."""
    widest = 64 * target.lanes // WIDEST[target.compute]
    return {
        "PULLBACK_COMPUTE": target.compute,
        "PULLBACK_WIDEST": widest,
        "PULLBACK_ULP": accuracy,
    }


def write_unit(
    kernels: Mapping[str, str], target: Target, accuracy: int, lanes: str = LANES
) -> str:
    """Return the translation unit of some kernels.

    Args:
        kernels: by the names of their entry points.
        target: that they are written for.
        accuracy: of functions, in units in the last place.
        lanes: the name of the number of lanes that they have.
    """
    functions = "\n".join(text.replace("@name", name) for name, text in kernels.items())
    return f"""{write_beginning(macros_of(target, accuracy), HEADERS)}
using namespace pullback::index;
extern "C" __attribute__((visibility("default"))) const int64_t {lanes};
const int64_t {lanes} = pullback::index::lanes;
{functions}"""
