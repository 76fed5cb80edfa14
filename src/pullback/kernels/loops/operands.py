"""The tensors of a kernel: how each lies in memory, and where an element of it is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pullback.kernels.loops.pointwise import STORED


@dataclass(frozen=True)
class Operand:
    """One tensor as a kernel reads or writes it.

    Attributes:
        name: of the tensor.
        unit: the dimension whose elements are next to each other; None if any stride will do.
        dtype: in memory, such as "float32".
        dimensions: how many it has.
        packed: elements from one value of an index to the next, of dimensions whose strides the
            kernel knows.
        aligned: bytes that its address is a multiple of.
        is_spread: whether a kernel goes down its columns again and again. Of rows that are a power
            of two apart a cache keeps few.
    """

    name: str
    unit: int | None
    dtype: str
    dimensions: int
    packed: tuple[tuple[int, int], ...] = ()
    aligned: int = 1
    is_spread: bool = False

    @property
    def stored(self) -> str:
        """The type of its elements in C++."""
        return STORED[self.dtype]


@dataclass
class Operands:
    """The operands of one kernel, in the order in which a call gives them."""

    all: dict[Operand, int] = field(default_factory=dict[Operand, int])

    def place(self, operand: Operand) -> int:
        """Return which one it is."""
        return self.all.setdefault(operand, len(self.all))

    def address(self, operand: Operand, places: list[str]) -> str:
        """Return the address of an element."""
        own = self.place(operand)
        parts = [f"data{own}"]
        for d, place in enumerate(places):
            if place == "0":
                continue
            parts.append(f"({place}) * {self.step(operand, d)}")
        return " + ".join(parts)

    def step(self, operand: Operand, d: int) -> str:
        """Return the bytes from an element to the next one of a dimension."""
        own = self.place(operand)
        size = f"int64_t{{sizeof({operand.stored})}}"
        if d == operand.unit:
            return size
        known = dict(operand.packed).get(d)
        return f"step{own}_{d}" if known is None else f"({known} * {size})"

    def addresses(self, outputs: Collection[str] | None) -> dict[str, bool]:
        """Return the names of the operands' addresses, and what may be read early.

        Args:
            outputs: the names of what the kernel writes, and may read too; None if nothing is to be
                read early.
        """
        return {
            f"data{own}": outputs is not None and operand.name not in outputs
            for operand, own in self.all.items()
        }

    def declarations(self) -> list[str]:
        """Return the statements that take the operands' strides out of a call."""
        lines: list[str] = []
        first = 0
        for operand, own in self.all.items():
            for d in range(operand.dimensions):
                if d != operand.unit:
                    taken = f"step{own}_{d} = call->strides[{first + d}]"
                    lines.append(f"[[maybe_unused]] const int64_t {taken};")
            first += operand.dimensions
        return lines
