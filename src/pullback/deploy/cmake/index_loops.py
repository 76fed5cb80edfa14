"""The loops over indices that a library gets, and their translation units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from pullback.bind.loops import nests
from pullback.bind.loops.backends import (
    ON_CPU,
    Backend,
    LibraryBackend,
    LibraryCudaBackend,
)
from pullback.bind.loops.nests import NoLoops, Own
from pullback.define.math import bounds
from pullback.define.math.bounds import Gather
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine
from pullback.define.math.node import names_read
from pullback.deploy import index_loops, step_loops
from pullback.deploy.cmake import index_places
from pullback.deploy.cmake.definitions import name_of
from pullback.deploy.cmake.sources import SUFFIXES, dtypes_of, is_chosen, variant_namespace
from pullback.deploy.index_loops import Sizes
from pullback.deploy.shipped import Shipped, list_choices
from pullback.deploy.step_loops import StepLoops, StepResult
from pullback.diagnostic import Rule
from pullback.kernels.glue import Device
from pullback.kernels.loops import cpu, cuda
from pullback.kernels.loops.nest import KernelText
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.segments import Segments
from pullback.kernels.loops.target import Target

NeedsPython = Rule("PB733", "needs-python")
# What kernels are written for. Those of a GPU keep rows in its shared memory, and are there without
# that too: for rows that do not fit.
BACKENDS: dict[Device, tuple[Backend, ...]] = {
    "cpu": (LibraryBackend(),),
    "cuda": (LibraryCudaBackend(ON_CPU), LibraryCudaBackend(ON_CPU, shared=cuda.ROOM)),
}
INSTEAD: dict[Device, str] = {
    "cpu": "write a kernel in C++, cpu=pb.source(...), and its backward; or ship it with "
    "--as wheel, where PyTorch's operations compute it",
    "cuda": "leave --arch out, and the library has its loops for the CPU alone; or ship it with "
    "--as wheel, where PyTorch's operations compute it",
}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Loops that compute some outputs together, and those that say where data points.

    Attributes:
        own: the loops.
        rows: for each sum over segments, what computes the row of each entry.
        checked: what gives the places that are outside, for each place that data gives.
        results: of a group of states, what becomes of what it computes.
        reads: the states that are read, by the names that they are read by.
    """

    own: Own
    rows: tuple[tuple[Segments, Own], ...]
    checked: tuple[tuple[Gather, Own], ...]
    results: tuple[StepResult, ...] = ()
    reads: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def parts(self) -> tuple[Own, ...]:
        """All loops."""
        return (self.own, *(own for _, own in (*self.rows, *self.checked)))

    @property
    def is_silent(self) -> bool:
        """Whether its kernels, or what sorts for them, do not say that a place was outside."""
        read = (self.own, *(own for _, own in self.rows))
        return not all(step.kernel.notes_outside for own in read for step in own.steps)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Loops for one kind of call.

    Attributes:
        dtype: of tensors whose dtype the line leaves open.
        wanted: a bit for each output that they compute.
        present: a bit for each input that is not None.
        made_for: the sizes that the call has to have.
        groups: the loops.
    """

    dtype: str
    wanted: int
    present: int
    made_for: Mapping[str, int]
    groups: tuple[Group, ...]

    @property
    def keeps_rows(self) -> bool:
        """Whether a kernel keeps rows of what it reads."""
        parts = (part for group in self.groups for part in group.parts)
        return any(step.kernel.rows for part in parts for step in part.steps)


@dataclass(frozen=True)
class IndexedOperator:
    """An operator in index notation, and the loops that a library has for it on one device.

    Attributes:
        shipped: the operator.
        sizes: that loops are made for, besides those for any sizes.
        device: where they run.
        symbols: the entry points of kernels, by their targets and texts.
        places: the loops for places that data gives; many groups have the same ones.
    """

    shipped: Shipped
    sizes: Sequence[Sizes]
    device: Device = "cpu"
    symbols: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    places: dict[object, Own] = field(default_factory=dict[object, Own])

    @property
    def formula(self) -> Formula:
        """What it computes."""
        formula = self.shipped.definition.formula
        assert formula
        return formula

    @property
    def stem(self) -> str:
        """What its names begin with."""
        return name_of(self.shipped.line) + "_cuda" * (self.device == "cuda")

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The loops for each kind of call.

        Raises:
            PullbackError: PB733, some outputs have none.
        """
        return tuple(self.find_choices())

    def find_choices(self) -> Iterator[Choice]:
        """Yield the loops for each kind of call."""
        for dtype in dtypes_of(self.shipped):
            for usual in index_loops.usual_calls(self.shipped, getattr(torch, dtype), self.sizes):
                found: dict[object, Choice] = {}
                for wanted, present in list_choices(self.shipped.definition):
                    if not is_chosen(self.shipped, wanted, present):
                        continue
                    for backend in BACKENDS[self.device]:
                        choice = self.choose(dtype, wanted, present, usual, backend)
                        known = tuple(choice.made_for.items())
                        found[known, wanted, present, choice.keeps_rows] = choice
                        if not choice.keeps_rows:
                            break
                yield from found.values()

    def choose(
        self, dtype: str, wanted: int, present: int, usual: Sizes, backend: Backend
    ) -> Choice:
        """Return the loops for a kind of call."""
        line = self.shipped.line
        tensors = (t.name for k, t in enumerate(line.tensors) if present >> k & 1)
        names = frozenset((*tensors, *(s.name for s in line.scalars)))
        asked = self.formula, getattr(torch, dtype), wanted, names, usual, backend
        groups: list[Group] = []
        if self.formula.groups:
            groups += map(self.group_of_steps, step_loops.find_all(*asked, is_hoisted=False))
        else:
            for own in step_loops.find_plain(*asked):
                if isinstance(own, NoLoops):
                    raise self.refuse(own)
                groups.append(self.group(own, names, usual))
        known = {name: n for group in groups for name, n in group.own.specialised.items()}
        return Choice(
            dtype=dtype,
            wanted=wanted,
            present=present,
            made_for=dict(sorted(known.items())),
            groups=tuple(groups),
        )

    def group(self, own: Own, names: frozenset[str], usual: Sizes) -> Group:
        """Return some loops with those that say where data points."""

        def find(formula: Formula) -> Own:
            read = names & {*names_read(formula.nodes), *(s.name for s in formula.line.scalars)}
            key = (formula.nodes, formula.line.outputs, own.dtype, read, own.backend)
            if key not in self.places:
                found = nests.find(formula, own.dtype, (0,), names, usual, own.backend)
                if isinstance(found, NoLoops):
                    raise self.refuse(found)
                self.places[key] = found
            return self.places[key]

        formula, outputs = self.formula, own.outputs
        segments = [each for schedule in own.schedules for each in schedule.segments]
        gathers = index_places.find_gathers(formula, outputs, names)
        outside = (index_places.formula_of_outside(formula, outputs, g) for g in gathers)
        return Group(
            own=own,
            rows=tuple((s, find(index_places.formula_of_rows(formula, s))) for s in segments),
            checked=tuple(zip(gathers, map(find, outside), strict=True)),
        )

    def group_of_steps(self, found: StepLoops | NoLoops) -> Group:
        """Return the loops of a recurrence's states, or of outputs that are left.

        Raises:
            PullbackError: PB733, there are none, or they need what is looked up before them.
        """
        if isinstance(found, NoLoops):
            raise self.refuse(found)
        own = found.own
        nodes = [own.indexed.nodes[k] for k in own.outputs]
        if any(map(bounds.find_gathers, nodes)) or any(each.segments for each in own.schedules):
            raise self.refuse(NoLoops(reason="data says what its steps read"))
        return Group(own=own, rows=(), checked=(), results=found.results, reads=found.reads)

    def refuse(self, reason: NoLoops) -> Exception:
        """Return the error for outputs without loops."""
        name = self.shipped.line.qualname
        return NeedsPython.error(
            f"{name} cannot be in a library without Python: it has no loops there"
            + " for GPUs" * (self.device == "cuda"),
            reason=reason.reason,
            help=INSTEAD[self.device],
        )

    @cached_property
    def sizes_of_indices(self) -> dict[str, Affine]:
        """How far indices run that are no dimensions: of the formula, and of its steps."""
        found = dict(self.formula.sizes)
        for own in self.owns if self.formula.groups else ():
            for name, extent in own.indexed.sizes.items():
                assert found.setdefault(name, extent) == extent, name
        return found

    @cached_property
    def owns(self) -> tuple[Own, ...]:
        """All loops."""
        groups = (group for choice in self.choices for group in choice.groups)
        return tuple(own for group in groups for own in group.parts)

    def symbol(self, target: Target, text: str) -> str:
        """Return the name of a kernel's entry point: those of one text have one."""
        name = f"pullback_{self.stem}_index_{len(self.symbols)}"
        return self.symbols.setdefault((self.kind(target), text), name)

    def kind(self, target: Target) -> str:
        """Return what tells the kernels for a target from others of the operator."""
        return f"{target.compute}_{target.lanes}"

    def lanes(self, target: Target) -> str:
        """Return the name of the number of lanes that the kernels for a target have."""
        return f"pullback_{self.stem}_lanes_{self.kind(target)}"

    def units(self) -> Iterator[tuple[str, str]]:
        """Yield the file and the text of each translation unit: one for each target.

        Raises:
            PullbackError: PB733, a GPU takes fewer arguments than a kernel has.
        """
        by_kind: dict[str, tuple[Target, dict[str, KernelText]]] = {}
        for own in self.owns:
            _, kernels = by_kind.setdefault(self.kind(own.target), (own.target, {}))
            for step in own.steps:
                kernels[self.symbol(own.target, step.kernel.text)] = step.kernel
        for kind, (target, kernels) in by_kind.items():
            yield f"{self.stem}_index_{kind}{SUFFIXES[self.device]}", self.unit(target, kernels)

    def unit(self, target: Target, kernels: Mapping[str, KernelText]) -> str:
        """Return the translation unit of the kernels for a target."""
        kind, accuracy = self.kind(target), self.formula.accuracy
        if self.device == "cpu":
            texts = {name: kernel.text for name, kernel in kernels.items()}
            opening = variant_namespace(f"{kind}_{accuracy}", "formula", "index")
            return opening + cpu.write_unit(texts, target, accuracy, self.lanes(target))
        try:
            text = cuda.write_nvcc(kernels, target, len(self.formula.line.scalars))
        except RefusedLoops as refused:
            raise self.refuse(NoLoops(reason=str(refused))) from None
        # An operator's own: how many arguments there is room for is its own too.
        return variant_namespace(f"{self.stem}_{kind}", "formula", "index") + text
