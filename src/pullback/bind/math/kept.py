"""Operators in index notation whose recorded calls keep what their gradients read.

Statistics, as the maxima and sums of rows; or, of a line with one number as its output, the
gradients themselves, where that saves products of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pullback.bind.kinds.kind import Kind
from pullback.bind.math import derive
from pullback.bind.math.lazy import Lazy
from pullback.bind.native import NativeKeeping, NativeRows
from pullback.define.math import derived, state_sums, statistics, unit_gradients
from pullback.define.math.formula import Formula
from pullback.define.math.statistics import Keeping, Rows
from pullback.kernels import toolchain

# Of shorter rows, of fewer and of smaller tensors two outputs more make a call 3 % slower.
LEAST_LENGTH, LEAST_ROWS, LEAST_ELEMENTS = 8, 17, 2**16
# Of a tensor in which maxima have their places: how many pairs its rows make it does not say.
LEAST_SEARCHED = 2**10
# By what are kept: statistics of products of matrices, without blocks the places of maxima alone.
STATISTICS, PLACES = (), ("~places",)
# Elements of a matrix that each step multiplies states by: with rows as long, to sum up again takes
# longer than to keep the sums.
LEAST_MATRIX = 2**10
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class ByBlocks:
    """How calls by blocks keep statistics of products of matrices.

    Attributes:
        keeps: whether a call does, if there are any.
        kind: of the operator that returns them too.
        saves: whether a call that keeps gradients multiplies less than one that keeps statistics.
    """

    keeps: Callable[..., bool]
    kind: type[Kind]
    saves: Callable[[Keeping, Keeping], bool]


class Ways(NamedTuple):
    """How what is kept is found.

    Attributes:
        find: returns the tensor whose rows decide whether a call keeps anything.
        keep: returns the formulas that keep it and read it.
        least_elements: of that tensor.
    """

    find: Callable[[Formula], Rows | None]
    keep: Callable[..., Keeping | None]
    least_elements: int


class LazyKeeping(Lazy):
    """One operator in index notation, whose recorded calls may keep statistics of rows.

    Attributes:
        kind_of_rows: of the operator that returns statistics of rows, or sums over states, too.
        by_blocks: how it keeps others, unless it is a recurrence.
        has_unit_gradients: whether its calls may keep gradients.
        by_wanted: how calls of products keep something, by the tensors whose gradients are wanted,
            or what else is kept, and by whether it is in single precision for tensors in half.
        is_new: whether no call has been recorded yet.
    """

    is_new = True

    def __init__(
        self, kind: Kind, kind_of_rows: type[Kind], by_blocks: ByBlocks | None = None
    ) -> None:
        super().__init__(kind)
        assert kind.definition.formula
        self.formula: Formula = kind.definition.formula
        self.kind_of_rows = kind_of_rows
        self.by_blocks = by_blocks
        self.has_unit_gradients = unit_gradients.has_unit_gradients(self.formula)
        self.by_wanted: dict[tuple[tuple[str, ...], bool], NativeKeeping | None] = {}
        if not kind.definition.masked:
            self.supply = replace(self.supply, keep=self.keep)

    def keep(self, *given: object) -> int | None:
        """Return the place of how a call keeps what it does; the runtime asks for each it records.

        Of rows it knows for itself, once these have been kept.
        """
        found = self.keeping_of(given)
        if found is None:
            return None
        return next(place for place, each in enumerate(self.keepings) if each is found)

    def keeping_of(self, given: tuple[object, ...]) -> NativeKeeping | None:
        """Return how a call keeps statistics, or gradients."""
        with derive.lock:
            if self.is_new:
                self.is_new = False
                if not statistics.has_products(self.formula):
                    self.rows = self.find_rows()
                    if self.rows is None:
                        self.ask_no_more()
                    self.install()
        if self.supply.keep is None:
            return None
        if self.rows:
            return self.of_rows(self.rows, given)
        return self.of_products(self.by_blocks, given) if self.by_blocks else None

    def of_products(self, by_blocks: ByBlocks, given: tuple[object, ...]) -> NativeKeeping | None:
        """Return how a call keeps statistics of products of matrices, or the gradients."""
        if not by_blocks.keeps(*given):
            return self.of_places(given)
        dtype = find_dtype(given)
        in_single = dtype in HALF
        # Gradients for 1 may be below the least float16, which is what a loss is scaled for.
        may_keep = self.has_unit_gradients and dtype != torch.float16
        wanted = self.wanted_of(given) if may_keep else ()
        with derive.lock:
            if (wanted, in_single) not in self.by_wanted:
                own = self.make_gradients(by_blocks, wanted)
                own = own or self.make_statistics(by_blocks, in_single=in_single)
                self.by_wanted[wanted, in_single] = own
                keeps = own or self.has_unit_gradients or statistics.keep_maxima(self.formula)
                if not keeps:
                    self.ask_no_more()
                self.install()
        return self.by_wanted[wanted, in_single]

    def of_places(self, given: tuple[object, ...]) -> NativeKeeping | None:
        """Return how a call that goes by no blocks keeps places of maxima."""
        tensors = [value for value in given if isinstance(value, Tensor)]
        is_large = max(value.numel() for value in tensors) >= LEAST_SEARCHED
        if not (is_large and all(value.is_cpu for value in tensors) and toolchain.has("c++")):
            return None
        with derive.lock:
            if (PLACES, False) not in self.by_wanted:
                found = statistics.keep_maxima(self.formula)
                own = self.added(derive.register_kept(self.kind, found, self.kind_of_rows))
                self.by_wanted[PLACES, False] = own
                self.install()
        return self.by_wanted[PLACES, False]

    def wanted_of(self, given: tuple[object, ...]) -> tuple[str, ...]:
        """Return the tensors whose gradients a call may keep: all, if none is asked for yet.

        Elsewhere than on a CPU no pass reads products that another one holds.
        """
        named = zip(self.kind.definition.line.parameters, given, strict=True)
        tensors = [(own.name, value) for own, value in named if isinstance(value, Tensor)]
        if not all(value.is_cpu for _, value in tensors):
            return ()
        every = tuple(name for name, value in tensors if value.is_floating_point())
        return tuple(n for n, value in tensors if value.requires_grad) or every

    def make_gradients(self, by_blocks: ByBlocks, wanted: tuple[str, ...]) -> NativeKeeping | None:
        """Return how calls keep the gradients of some tensors; None if that saves nothing."""
        found = unit_gradients.keep_gradients(self.formula, {*wanted}) if wanted else None
        gradients = derived.backward(self.formula)
        if found is None or gradients is None:
            return None
        plain = Keeping(forward=self.formula, backward=gradients)
        if not by_blocks.saves(found, statistics.keep_statistics(self.formula) or plain):
            return None
        made = derive.register_kept(self.kind, found, by_blocks.kind, is_scaled=True)
        return self.added(made)

    def make_statistics(self, by_blocks: ByBlocks, *, in_single: bool) -> NativeKeeping | None:
        """Return how calls keep statistics of products of matrices; of half precision in single."""
        if (STATISTICS, in_single) not in self.by_wanted:
            found = statistics.keep_statistics(self.formula, in_single=in_single)
            own = self.added(derive.register_kept(self.kind, found, by_blocks.kind))
            self.by_wanted[STATISTICS, in_single] = own
        return self.by_wanted[STATISTICS, in_single]

    def added(self, made: NativeKeeping | None) -> NativeKeeping | None:
        """Return how some calls keep something, which the runtime is handed too."""
        if made:
            self.keepings.append(made)
        return made

    def of_rows(self, rows: NativeRows, given: tuple[object, ...]) -> NativeKeeping | None:
        """Return how a call keeps statistics of rows."""
        dtype = find_dtype(given) if is_worth_it(rows, given[rows.argument]) else None
        if dtype is None:
            return None
        place = int(dtype in HALF)
        with derive.lock:
            self.keepings = self.keepings or [None, None]
            if self.keepings[place] is None:
                found = self.ways.keep(self.formula, in_single=dtype in HALF)
                kept = derive.register_kept(self.kind, found, self.kind_of_rows)
                self.keepings[place] = kept
                if kept is None:
                    self.rows = None
                    self.ask_no_more()
                self.install()
        return self.keepings[place]

    def find_rows(self) -> NativeRows | None:
        """Return which calls keep statistics of rows, or sums over states; None if there are none.

        A package brings the loops of an operator and its gradients alone.
        """
        ways = self.ways
        found = ways.find(self.formula) if toolchain.has("c++") else None
        names = [parameter.name for parameter in self.kind.definition.line.parameters]
        return found and NativeRows(
            argument=names.index(found.tensor),
            reduced=found.reduced,
            least_length=LEAST_LENGTH if found.reduced else 1,
            least_rows=LEAST_ROWS,
            least_elements=ways.least_elements if found.reduced else LEAST_SEARCHED,
        )

    @property
    def ways(self) -> Ways:
        """How what it keeps is found: of a recurrence, sums over states."""
        if self.formula.groups:
            return Ways(state_sums.find_factor, state_sums.keep_sums, LEAST_MATRIX)
        return Ways(statistics.find_rows, statistics.keep_rows, LEAST_ELEMENTS)

    def ask_no_more(self) -> None:
        """Let the runtime call without a question: there are no statistics."""
        self.supply = replace(self.supply, keep=None)


def is_worth_it(rows: NativeRows, tensor: object) -> bool:
    """Return whether a tensor has enough rows, and long ones: as in csrc/runtime/autograd.cpp."""
    if not isinstance(tensor, Tensor) or not tensor.is_cpu:
        return False
    if any(not -tensor.dim() <= d < tensor.dim() for d in rows.reduced):
        return False
    length, elements = math.prod(tensor.shape[d] for d in rows.reduced), tensor.numel()
    is_long = length >= rows.least_length and elements >= rows.least_elements
    return is_long and elements // length >= rows.least_rows


def find_dtype(given: tuple[object, ...]) -> torch.dtype | None:
    """Return the one dtype of a call's real tensors; None if they have several."""
    dtypes = {t.dtype for t in given if isinstance(t, Tensor) and t.is_floating_point()}
    known = dtypes <= {torch.float32, torch.float64, *HALF}
    return dtypes.pop() if len(dtypes) == 1 and known else None
