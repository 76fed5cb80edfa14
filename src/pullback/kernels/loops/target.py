"""What runs a kernel, as far as its text and the choice of its loops depend on it.

The statements of a kernel are in words that every target defines: a `Real` is a vector of `lanes`
elements on a CPU, and one element in each of `lanes` threads on a GPU. What differs is asked here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Elements of a page of memory, about.
PAGE = 1024
# The entry points of a library, by the places of its kernels.
NAME = "pullback_index_{}"


def place_of(name: str) -> int:
    """Return the place of the kernel that an entry point belongs to."""
    return int(name.removeprefix(NAME.format("")))


@dataclass(frozen=True)
class Target(ABC):
    """One kind of machine, for one type that real numbers are computed in.

    Attributes:
        compute: that type in C++, "float" or "double".
        lanes: how many elements one statement computes.
    """

    compute: str
    lanes: int

    # As many vectors are added at a time, so that none waits for the one before.
    chains = 8
    # Whether elements of neighbouring lanes have to be neighbours in memory.
    needs_neighbours = True
    # What a vector costs that is gathered, one whose elements are not neighbours, one of neighbours
    # that several lanes share, one of every second element for each, and one of which another part
    # lies in a far place.
    gathered, apart, divided, every, far = 24, 0, 6, 1, 6
    # What it costs to add the elements of a vector where each says; 0 if tasks cannot do that.
    pushed = 0
    # What a vector costs that is stored where elements are apart, each in a page of its own or not.
    stored_far, stored_apart = 450, 16
    # Whether passes over a row keep what they read of it: else each reads the cache.
    keeps_reads = False
    # Whether a task adds up the totals of its chunk in the memory for rows, and writes them once.
    keeps_totals = False
    # What a sum in the lanes costs beside its vectors: what is left of its row, and to add them up.
    entered = 0
    # What it costs to read a vector of it again.
    again = 0
    # Vectors beyond the end of a row that is kept.
    spare = 4
    # Whether a value that is 0 without a condition is added where that holds: a product is then
    # added with one rounding.
    adds_guarded = False
    # Values of the lanes' index that a task of a scan has, where no step mixes them.
    block = 1024
    # Whether such a task has an element for each lane, so that states may be variables.
    keeps_states = False
    # Whether a step of a scan that may be none is read under a condition, which all lanes share.
    guards_steps = False
    # Of how many steps of a scan the inputs are read before the first; 0: each reads its own.
    fetched = 0
    # How many short rows are reduced side by side.
    beside = 1
    # How many turns of a loop before it is read a row is fetched that data picks; 0 if never.
    ahead = 0
    # Bytes that one instruction reads of neighbours with statements of their own; 0: each is read.
    pack = 0
    # Rows of so many elements have a loop, and are not written out, where what is added up from all
    # rows shares it, or where the lanes go along them.
    shortest = 17
    # Whether there are loops for fewer lanes, too: else those beyond a row are no work too many.
    has_narrower = False
    # Whether PyTorch's operations compute the same: then loops are refused that would do far more
    # work than those.
    has_rival = True
    # Whether a kernel says that a place which data gives was outside of its tensor.
    notes_outside = False

    @property
    def real(self) -> str:
        """The dtype of what is computed."""
        return "float64" if self.compute == "double" else "float32"

    def for_rows(self, length: int) -> Target:
        """Return the target for rows of so many elements that data picks."""
        del length
        return self

    def cost_apart(self, apart: int) -> int:
        """Return what it costs to store a vector whose elements are so many from each other."""
        return self.stored_far if apart >= PAGE else self.stored_apart

    def write_unrolled(self, vectors: int, body: str) -> str:
        """Return what stands before an inner loop that computes some vectors in each turn."""
        del vectors, body
        return ""

    def write_meeting(self) -> str:
        """Return the statement that lets all lanes see what each has written."""
        return ""

    @property
    def abreast(self) -> int:
        """How many values of the outputs are computed side by side to share what they read."""
        return self.chains

    @property
    def tiles(self) -> Sequence[tuple[int, int]]:
        """How many rows by how many vectors may be computed at a time, as sums of one loop."""
        return ()

    @property
    def stacks(self) -> Sequence[int]:
        """How many rows may be computed one below the other, to share what they read."""
        return ()

    def holds(self, values: int, abreast: int) -> bool:
        """Return whether there are registers.

        Args:
            values: that are kept through a loop of the lanes.
            abreast: how many are computed side by side.
        """
        del values, abreast
        return True

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in messages."""

    @abstractmethod
    def slow_down(self, tasks: int, abreast: int, rows: Sequence[int]) -> float:
        """Return how much longer than on a full machine a kernel takes.

        Args:
            tasks: of the kernel.
            abreast: how many values each lane of a task computes side by side.
            rows: how many values each row has that a task keeps.
        """

    @abstractmethod
    def count_chunks(self, operations: float, tasks: int, length: int) -> int:
        """Return into how many chunks a long sum is cut: by the sizes of the call alone.

        Args:
            operations: of the kernel, each for all lanes.
            tasks: without the chunks.
            length: of the sum.
        """

    @abstractmethod
    def count_share(self, tasks: int, operations: float, rows: Sequence[int]) -> int:
        """Return what whoever runs a kernel is told of its tasks.

        Args:
            tasks: how many there are.
            operations: of all of them, each for all lanes.
            rows: how many values each row has that a task keeps.
        """

    @abstractmethod
    def keeps(self, rows: Sequence[int]) -> bool:
        """Return whether there is memory for rows of so many values."""

    @abstractmethod
    def write_scratch(self, sizes: Sequence[str]) -> list[str]:
        """Return the statements that open the memory for kept rows of so many values."""

    @abstractmethod
    def write_cleared(self, total: str, count: str) -> str:
        """Return the statement that makes totals zero."""

    @abstractmethod
    def write_function(
        self,
        addresses: Mapping[str, bool],
        opening: Sequence[str],
        task: Sequence[str],
        *,
        together: int,
    ) -> str:
        """Return the function of a kernel; `@name` is for its name.

        Args:
            addresses: the names of the operands', and whether what is there may be read early: the
                kernel does not write it.
            opening: the other statements before the tasks, from the strides of operands on.
            task: those of one task, whose number is `task`.
            together: how many there are at most that a thread takes together: those before `end`.
        """
