"""What travels with an operator: those that its derivatives call, programs, kernels, loops.

Every way to ship an operator reads this. A formula's derivatives, which the runtime asks for when
it needs them, are derived here ahead, up to an order.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pullback.bind.kinds.kind import Derivatives, Kind
from pullback.bind.operator import Operator
from pullback.bind.program import Program
from pullback.bind.registry import operators as registered
from pullback.bind.rule import DerivativeRule
from pullback.define.line import Line
from pullback.define.operator import Definition
from pullback.define.source import Source
from pullback.kernels import glue, plan
from pullback.kernels.glue import Device
from pullback.kernels.loops.pointwise import Loop

# The dtypes that a formula's loops are compiled for ahead of a call.
FLOATING = ("float32", "float64", "bfloat16", "float16")
# Second derivatives are compiled only for the dtypes in which they are usually taken.
PRECISE = ("float32", "float64")
# Double backward is the last derivative that is compiled ahead of a call.
ORDERS = 2
# How many choices of outputs and optional inputs of a loop are compiled ahead of a call.
MOST_CHOICES = 64

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ShippedKernel:
    """A kernel that an author wrote for one device.

    Attributes:
        line: of its operator.
        device: where it runs.
        source: where it is and how it is called.
    """

    line: Line
    device: Device
    source: Source

    @property
    def symbol(self) -> str:
        """The name of the C entry point: an `Entry` of kernel_abi.h."""
        return glue.symbol_of(self.line, self.device)

    @property
    def text(self) -> str:
        """The translation unit: it includes the author's file and our headers by their paths."""
        return glue.entry_point(self.line, self.source, self.device)

    def moved(self, file: Path | None) -> str:
        """Return the translation unit for a project, where our headers are in pullback/.

        Args:
            file: where the author's code is there; None where it is in the unit itself.
        """
        code = glue.author_code(self.line, self.source)
        included = code if file is None else f'#include "{file}"'
        return self.text.replace(code, included, 1).replace(f'"{glue.CSRC}/', '"pullback/')

    @property
    def file(self) -> Path | None:
        """The author's file; None where the code itself was given."""
        return glue.path_of(self.source)

    @cached_property
    def headers(self) -> tuple[Path, ...]:
        """The author's headers that it includes, directly or not."""
        file = self.file
        if file is not None:
            return tuple(path for path in iter_includes(file, self.folders) if path != file)
        return tuple(iter_includes_of(self.source.text or "", self.folders, set()))

    @property
    def files(self) -> tuple[Path, ...]:
        """The author's file, and those headers."""
        return (*([self.file] if self.file else []), *self.headers)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of headers that its flags name."""
        return tuple(plan.folders_in(self.source.flags))


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """One operator and all that it needs.

    Attributes:
        kind: what its author declared, or what was derived from a formula.
        order: 0 for an operator that was asked for; one more for what its derivative calls.
        backward: its gradients, wired; None if it has no derivative or that is left out.
        jvp: its tangents, likewise.
        left_out: whether its derivatives were left out, being of too high an order.
        rules: its derivatives that are Python functions, each an operator of its own.
    """

    kind: Kind
    order: int
    backward: Program | None
    jvp: Program | None
    left_out: bool
    rules: tuple[DerivativeRule, ...]

    @property
    def definition(self) -> Definition:
        """Its definition."""
        return self.kind.definition

    @property
    def line(self) -> Line:
        """Its line."""
        return self.definition.line

    @property
    def kernels(self) -> tuple[ShippedKernel, ...]:
        """The kernels that its author wrote."""
        return tuple(
            ShippedKernel(line=self.line, device=device, source=source)
            for device, source in self.definition.sources.items()
        )

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of its derivatives, as far as it has any."""
        return tuple(program for program in (self.backward, self.jvp) if program)

    @property
    def calls(self) -> tuple[str, ...]:
        """The operators that its derivatives call, PyTorch's own among them."""
        names = (call.operator for program in self.programs for call in program.calls)
        return tuple(dict.fromkeys(names))

    @property
    def is_bounded(self) -> bool:
        """Whether `loops` has every loop of a formula that a call can need."""
        return ways_of(self.definition) <= MOST_CHOICES

    def loops(self, dtypes: Sequence[str] = FLOATING) -> list[Loop]:
        """Return the loops that calls of a formula can need; none for an operator without one."""
        formula = self.definition.pointwise
        if formula is None:
            return []
        return [
            Loop(formula=formula, dtype=dtype, wanted=wanted, present=present)
            for dtype in dtypes
            for wanted, present in list_choices(self.definition)
        ]


def collect(operators: Iterable[Operator], *, orders: int = ORDERS) -> tuple[Shipped, ...]:
    """Return the operators and all that their derivatives call, each before what it calls.

    Args:
        operators: what is asked for.
        orders: how often a formula is differentiated; a derivative that an author wrote comes
            along whatever its order.
    """
    waiting = [(operator.line.qualname, 0) for operator in operators]
    collected: dict[str, Shipped] = {}
    for qualname, order in waiting:  # it grows meanwhile
        if qualname in collected or qualname not in registered:
            continue
        collected[qualname] = shipped = _ship(registered[qualname], order, orders)
        waiting += [(name, order + 1) for name in shipped.calls]
    return tuple(collected.values())


def _ship(operator: Operator, order: int, orders: int) -> Shipped:
    left_out = operator.kind.is_differentiable_forever and order >= orders
    derivatives = Derivatives() if left_out else operator.kind.wired()
    return Shipped(
        kind=operator.kind,
        order=order,
        backward=derivatives.backward,
        jvp=derivatives.jvp,
        left_out=left_out,
        rules=derivatives.rules,
    )


def find_roots(operators: Iterable[Operator]) -> list[Operator]:
    """Return the operators that no derivative of the others calls: what an author meant.

    Args:
        operators: all that a file has registered, those derived from formulas among them.
    """
    given = {operator.line.qualname: operator for operator in operators}
    own = [operator for name, operator in given.items() if not _is_derived(name)]
    called = {shipped.line.qualname for shipped in collect(own)}
    return [*own, *(op for name, op in given.items() if name not in called)]


def _is_derived(qualname: str) -> bool:
    return qualname.partition("::")[2].startswith("_")


def list_choices(definition: Definition, most: int = MOST_CHOICES) -> list[tuple[int, int]]:
    """Return what calls of a formula can ask for: bits of wanted outputs, of tensors given.

    If there are more than so many choices, these are left: everything, each output alone, each
    optional input left out alone.
    """
    line = definition.line
    complete = ways_of(definition) <= most
    everything = (1 << len(line.outputs)) - 1, (1 << len(line.tensors)) - 1
    optional = [1 << place for place, tensor in enumerate(line.tensors) if tensor.optional]
    outputs = [1 << place for place in range(len(line.outputs))] if definition.masked else []
    if not complete:
        alone = [(wanted, everything[1]) for wanted in outputs]
        without = [(everything[0], everything[1] & ~bit) for bit in optional]
        return list(dict.fromkeys([everything, *alone, *without]))
    wanted = [sum(some) for some in _subsets(outputs) if some] or [everything[0]]
    present = [everything[1] - sum(some) for some in _subsets(optional)]
    return [(mask, given) for mask in reversed(wanted) for given in present]


def ways_of(definition: Definition) -> int:
    """Return how many choices calls of a formula have."""
    optional = sum(tensor.optional for tensor in definition.line.tensors)
    outputs = len(definition.line.outputs) if definition.masked else 0
    return 2 ** (optional + outputs)


def _subsets(bits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    sizes = range(len(bits) + 1)
    return itertools.chain.from_iterable(itertools.combinations(bits, size) for size in sizes)


def iter_includes(file: Path, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield a file and the headers that it names in quotes, read as text.

    No compiler is asked: what another machine includes, by another macro, travels as well.
    """
    yield from _reach(file.absolute(), folders, set())


def iter_includes_of(text: str, folders: Sequence[Path], seen: set[Path]) -> Iterator[Path]:
    """Yield the headers that a text names in quotes, and those that they name."""
    for name in INCLUDE.findall(text):
        for folder in folders:
            path = Path(folder, name)
            if path.is_file():
                yield from _reach(path.resolve(), folders, seen)
                break


def _reach(file: Path, folders: Sequence[Path], seen: set[Path]) -> Iterator[Path]:
    if file in seen or not file.is_file():
        return
    seen.add(file)
    yield file
    text = file.read_text(encoding="utf-8", errors="replace")
    yield from iter_includes_of(text, (file.parent, *folders), seen)
