"""Operators in index notation whose recorded calls keep statistics for their gradients."""

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
from pullback.define.math import state_sums, statistics
from pullback.define.math.formula import Formula
from pullback.define.math.statistics import Keeping, Rows
from pullback.kernels import toolchain

# Of shorter rows, of fewer and of smaller tensors two outputs more make a call 3 % slower.
LEAST_LENGTH, LEAST_ROWS, LEAST_ELEMENTS = 32, 17, 2**16
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
    """

    keeps: Callable[..., bool]
    kind: type[Kind]


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
        if not kind.definition.masked:
            self.supply = replace(self.supply, keep=self.keep)

    def keep(self, *given: object) -> bool:
        """Return whether a call keeps statistics; the runtime calls this for each it records.

        Of rows it knows for itself, once these have been kept.
        """
        return self.keeping_of(given) is not None

    def keeping_of(self, given: tuple[object, ...]) -> NativeKeeping | None:
        """Return how a call keeps statistics."""
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
        """Return how a call keeps statistics of products of matrices."""
        if not by_blocks.keeps(*given):
            return None
        with derive.lock:
            if self.keeping is None:
                found = statistics.keep_statistics(self.formula)
                self.keeping = derive.register_statistics(self.kind, found, by_blocks.kind)
                if self.keeping is None:
                    self.ask_no_more()
                self.install()
        return self.keeping

    def of_rows(self, rows: NativeRows, given: tuple[object, ...]) -> NativeKeeping | None:
        """Return how a call keeps statistics of rows."""
        dtype = find_dtype(given) if is_worth_it(rows, given[rows.argument]) else None
        if dtype is None:
            return None
        name = "keeping_of_half" if dtype in HALF else "keeping"
        with derive.lock:
            if getattr(self, name) is None:
                found = self.ways.keep(self.formula, in_single=dtype in HALF)
                kept = derive.register_statistics(self.kind, found, self.kind_of_rows)
                setattr(self, name, kept)
                if kept is None:
                    self.rows = None
                    self.ask_no_more()
                self.install()
        return getattr(self, name)

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
            least_length=LEAST_LENGTH,
            least_rows=LEAST_ROWS,
            least_elements=ways.least_elements,
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
