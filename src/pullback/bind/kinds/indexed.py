"""Operators in index notation without states."""

from __future__ import annotations

from functools import cached_property

from pullback.bind.kinds.notation import IndexNotation
from pullback.bind.math import choose, derive, products, verify
from pullback.bind.math.execute import Executor
from pullback.bind.math.kept import ByBlocks, LazyKeeping
from pullback.bind.math.lazy import Lazy
from pullback.bind.operator import Operator
from pullback.define.math.formula import Formula


class Indexed(IndexNotation):
    """One operator whose elements need none of each other."""

    def prepare(self) -> None:
        """Compare the two ways to compute it."""
        verify.verify_at_definition(self.definition)
        super().prepare()

    def make_executor(self) -> Executor:
        """Return what chooses how each call is computed."""
        return Executor(self.definition, choose.choose_executors)

    def operator_of(self, formula: Formula) -> Operator:
        """Return the operator of a formula that processes compute on the way."""
        with derive.lock:
            return derive.operator_of(formula, OfProcesses)

    @cached_property
    def supplied(self) -> Lazy:
        """What the runtime asks for: whether statistics are kept, too."""
        return LazyKeeping(self, Kept, ByBlocks(self.keeps, KeptByBlocks, products.saves_products))

    def keeps(self, *given: object) -> bool:
        """Return whether a call that is recorded keeps statistics of rows."""
        assert isinstance(self.executor, Executor)
        return self.executor.keeps(*given)


class Kept(Indexed):
    """One operator that returns statistics too."""

    @cached_property
    def supplied(self) -> Lazy:
        """What the runtime asks for."""
        return Lazy(self)


class KeptByBlocks(Kept):
    """One that returns statistics of products of matrices, or gradients: for calls by blocks."""

    def make_executor(self) -> Executor:
        """Return what computes each call by blocks, wherever that can be done."""
        return Executor(self.definition, choose.choose_blocks)


class OfProcesses(Indexed):
    """One formula of those by which processes compute a call, most of which are short."""

    def prepare(self) -> None:
        """Compare nothing yet: loops are compared when they are compiled."""
        IndexNotation.prepare(self)

    def make_executor(self) -> Executor:
        """Return what compiles loops only where there is work for them."""
        return Executor(self.definition, choose.choose_for_work)
