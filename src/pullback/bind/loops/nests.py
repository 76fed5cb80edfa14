"""Own loops for formulas in index notation, if they belong to a family that has them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from pullback.bind import native
from pullback.bind.dense import evaluate
from pullback.bind.loops.backends import Backend, CpuBackend
from pullback.bind.loops.loop_plan import LoopPlan, plan_call
from pullback.bind.loops.order import Sorter, make_sorters
from pullback.bind.loops.own_call import LoopCall, convert_scalar, lay_out, prepare_call
from pullback.bind.loops.specialise import SMALL, choose_schedules, round_sizes, usual_sizes
from pullback.bind.memo import Memo
from pullback.define.math import absent, bounds
from pullback.define.math.formula import Formula
from pullback.define.math.node import in_order, may_divide_by_zero
from pullback.kernels import compile as compilation
from pullback.kernels import identity, prebuilt
from pullback.kernels.loops.cost import estimate_cost
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import Output
from pullback.kernels.loops.pointwise import STORED
from pullback.kernels.loops.schedule import Schedule, ScheduleStep
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import NAME, Target, place_of
from pullback.kernels.prebuilt import FoundLibrary

Key = tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class NoLoops:
    """Why there are no own loops for some outputs."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Own:
    """Loops that compute some outputs.

    Attributes:
        indexed: whose outputs they are.
        outputs: which ones, in the order in which the kernels write them.
        dtype: of tensors whose dtype the line leaves open.
        backend: what compiles and runs them.
        target: what they are written for.
        schedules: the kernels, for all outputs or one schedule for each.
        specialised: the sizes that they are made for.
        dtypes: of the tensors as the kernels read them.
        known: what follows from the sizes of earlier calls.
        searches: the loops that find where entries go.
    """

    indexed: Formula
    outputs: tuple[int, ...]
    dtype: torch.dtype
    backend: Backend
    target: Target
    schedules: tuple[Schedule, ...]
    specialised: dict[str, int]
    dtypes: dict[str, str]
    known: Memo[Key, LoopCall] = field(default_factory=Memo[Key, LoopCall], compare=False)
    searches: Memo[tuple[object, ...], Own | None] = field(
        default_factory=Memo[tuple[object, ...], "Own | None"], compare=False
    )

    @property
    def family(self) -> str:
        """Which loops they are: "row reduction", "pairwise sum" or "stencil"."""
        return self.schedules[0].family

    def work(self, sizes: Mapping[str, int]) -> float:
        """Return about how many scalar operations they do."""
        return sum(schedule.work(sizes) for schedule in self.schedules) * self.target.lanes

    @property
    def filled(self) -> float:
        """The share of their vectors that elements fill."""
        return max(schedule.filled for schedule in self.schedules)

    def cost(self, sizes: Mapping[str, int]) -> float:
        """Return the same with what it takes to lay tensors out and to move totals."""
        costs = (estimate_cost(schedule, self.target, sizes) for schedule in self.schedules)
        return sum(costs) * self.target.lanes

    @property
    def name(self) -> str:
        """What its library is called."""
        line = self.indexed.line
        return f"{line.namespace}-{line.name}-index"

    @property
    def identity(self) -> str:
        """What they compute, as a package's list of libraries says it."""
        texts = [step.kernel.text for step in self.steps]
        scalars = len(self.indexed.line.scalars)
        return identity.of_kernels(texts, self.target, scalars, self.indexed.accuracy)

    @cached_property
    def brought(self) -> FoundLibrary | None:
        """The library that a package brought."""
        return self.backend.find_brought(self)

    @property
    def is_available(self) -> bool:
        """Whether they are compiled, or can be."""
        return self.brought is not None or self.backend.can_compile()

    def has_room(self, sizes: Mapping[str, int]) -> bool:
        """Return whether there is memory for the rows that they keep, whatever made for."""
        extents = Extents(sizes)
        return all(
            self.target.keeps([extents.number(row) or 0 for row in step.kernel.rows])
            for step in self.steps
        )

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The kernels, loaded; compiled first if need be."""
        path = self.brought.path if self.brought else self.backend.compile(self)
        library = compilation.open_library(path)
        _loaded.append(library)
        return library

    @cached_property
    def addresses(self) -> tuple[int, ...]:
        """Where the kernels are."""
        first = place_of(self.brought.symbol) if self.brought else 0
        names = (NAME.format(first + place) for place in range(len(self.steps)))
        return tuple(native.address_of(getattr(self.library, name)) for name in names)

    @cached_property
    def lanes(self) -> int:
        """How many elements a statement of theirs computes."""
        return self.backend.count_lanes(self)

    def run(
        self,
        arguments: Mapping[str, object],
        sizes: Mapping[str, int],
        dtypes: Sequence[torch.dtype],
    ) -> list[Tensor]:
        """Return the outputs; `...` is one dimension, in tensors and in outputs.

        Raises:
            PullbackError: PB149, an index that data gives is outside its tensor.
        """
        assert all(sizes[name] == value for name, value in self.specialised.items())
        if not self.notes_outside:
            self.require_inside(arguments, sizes)
        call = self.prepared(sizes)
        tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
        device = next((value.device for value in tensors.values()), torch.device("cpu"))
        tensors |= self.sort(arguments, sizes)
        inputs = [lay_out(tensors[operand.name], operand) for operand in call.inputs]
        values = call.run(
            inputs, self.scalars(arguments), device, lambda: self.require_inside(arguments, sizes)
        )
        return [value.to(dtype) for value, dtype in zip(values, dtypes, strict=True)]

    @cached_property
    def notes_outside(self) -> bool:
        """Whether the kernels say that a place was outside; else it is looked up before."""
        # Where the entries of a segment go is computed before the kernels run.
        rows = (node for each in self.schedules for s in each.segments for node in s.place.nodes)
        return all(step.kernel.notes_outside for step in self.steps) and not any(
            map(bounds.find_gathers, rows)
        )

    def require_inside(self, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> None:
        """Stop at an index that data gives and that is outside its tensor, where it is selected.

        Raises:
            PullbackError: PB149.
        """
        evaluate.require_inside(self.indexed, arguments, sizes, self.outputs)

    def scalars(self, arguments: Mapping[str, object]) -> tuple[float, ...]:
        """Return the scalars of a call, as kernels take them."""
        return tuple(convert_scalar(s, arguments[s.name]) for s in self.indexed.line.scalars)

    @cached_property
    def steps(self) -> tuple[ScheduleStep, ...]:
        """All kernels, in order."""
        return tuple(step for schedule in self.schedules for step in schedule.steps)

    @cached_property
    def plan(self) -> LoopPlan:
        """What a call consists of, whatever its sizes."""
        return plan_call(self)

    @cached_property
    def sorters(self) -> tuple[Sorter, ...]:
        """They sort the entries of scatters by row."""
        return make_sorters(self.indexed, self.schedules)

    def sort(self, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> dict[str, Tensor]:
        """Return the tensors that say in which order entries are added."""
        found: dict[str, Tensor] = {}
        for sorter in self.sorters:
            found |= sorter.tensors(arguments, sizes, lambda f: self.search(f, arguments, sizes))
        return found

    def search(
        self, places: Formula, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> Tensor | None:
        """Return where entries go, which maxima decide; None if there are no loops for it."""
        present = frozenset(n for n, value in arguments.items() if isinstance(value, Tensor))

        def loops() -> Own | None:
            own = find(places, self.dtype, (0,), present, sizes, self.backend)
            return own if isinstance(own, Own) and own.is_available else None

        own = self.searches.get_or_make((id(places), present, *sizes.items()), loops)
        return own and own.run(arguments, sizes, (torch.int64,))[0]

    def prepared(self, sizes: Mapping[str, int]) -> LoopCall:
        """Return what follows from the sizes of a call, worked out once for each."""
        key = tuple(sizes.items())
        return self.known.get_or_make(key, lambda: prepare_call(self, sizes, self.addresses))


_loaded: list[object] = []  # never unloaded


def compile_together(several: Sequence[Own]) -> None:
    """Compile loops, each by its own compiler process; an error is raised again in the call."""
    missing = [own for own in several if "library" not in vars(own) and not own.brought]
    if len(missing) > 1:
        with ThreadPoolExecutor() as pool:
            for own in missing:
                pool.submit(own.backend.compile, own)


def find(  # noqa: PLR0913, PLR0917  (all that decides which loops there are)
    indexed: Formula,
    dtype: torch.dtype,
    outputs: tuple[int, ...],
    present: frozenset[str],
    sizes: Mapping[str, int],
    backend: Backend | None = None,
    *,
    for_any: bool = False,
) -> Own | NoLoops:
    """Return the loops that compute some outputs together, or why there are none.

    Args:
        indexed: whose outputs.
        dtype: of tensors whose dtype the line leaves open.
        outputs: their places, in any order.
        present: the names of the arguments that are not None.
        sizes: of one call. Loops may be made for the small ones, `Own.specialised`; the others are
            rounded, so that calls of about the same sizes have the same loops.
        backend: what runs them; None means the CPU. Where it cannot compile, loops that a package
            brought are taken: for these sizes, or for any.
        for_any: whether they have to be for any sizes.
    """
    backend = backend or CpuBackend()
    # Those of rows come before those that are added up from all rows.
    lines = indexed.line.outputs
    outputs = tuple(sorted(outputs, key=lambda k: -len(lines[k].labels)))

    def of(sizes: Mapping[str, int]) -> Own | NoLoops:
        typical = round_sizes(indexed, sizes, backend.parts)
        key = (id(indexed), dtype, outputs, present, backend, for_any, *typical.items())

        def made() -> Own | NoLoops:
            return generate(indexed, dtype, outputs, present, typical, backend, for_any=for_any)

        # With the operator, so that no other one gets its id.
        return _found.get_or_make(key, lambda: (indexed, made()))[1]

    own = of(sizes)
    if isinstance(own, Own) and not own.is_available:
        others = (of(usual_sizes(sizes, known)) for known in prebuilt.find_sizes(sizes))
        brought = (o for o in others if isinstance(o, Own) and o.brought)
        return next((o for o in brought if o.has_room(sizes)), own)
    return own


_found: Memo[tuple[object, ...], tuple[Formula, Own | NoLoops]] = Memo()


def generate(  # noqa: PLR0913, PLR0917  (as `find`)
    indexed: Formula,
    dtype: torch.dtype,
    outputs: tuple[int, ...],
    present: frozenset[str],
    sizes: Mapping[str, int],
    backend: Backend,
    *,
    for_any: bool = False,
) -> Own | NoLoops:
    """Generate the loops that compute some outputs together; as `find`."""
    missing = {t.name for t in indexed.line.tensors if t.name not in present}
    nodes = absent.drop_absent([indexed.nodes[k] for k in outputs], missing)
    if any(map(may_divide_by_zero, in_order(nodes))):
        return NoLoops(reason="whole numbers are divided, where PyTorch looks for zero")
    lines = [indexed.line.outputs[k] for k in outputs]
    shared = str(dtype).removeprefix("torch.")
    made = [
        Output(name=f"~out{k}", indices=line.labels, node=node, dtype=line.dtype or shared)
        for k, line, node in zip(outputs, lines, nodes, strict=True)
    ]
    dtypes = {t.name: t.dtype or shared for t in indexed.line.tensors if t.name in present}
    stored = {*dtypes.values(), *(output.dtype for output in made)}
    if strange := stored - STORED.keys():
        return NoLoops(reason=f"no own loops read or write {min(strange)}")
    compute = "double" if "float64" in stored else "float"
    found: list[tuple[float, Own]] = []
    reasons: list[str] = []
    for each in backend.targets(compute):
        try:
            chosen, known, target = choose_schedules(
                indexed, made, dtypes, each, sizes, for_any=for_any
            )
        except RefusedLoops as refused:
            reasons.append(str(refused))
            continue
        own = Own(
            indexed=indexed,
            outputs=outputs,
            dtype=dtype,
            backend=backend,
            target=target,
            schedules=chosen,
            specialised=known,
            dtypes=dtypes,
        )
        found.append((own.cost(sizes), own))
    if not found:
        return NoLoops(reason=f"no family: {reasons[0]}")
    return fit(min(found, key=lambda each: each[0])[1])


def fit(own: Own) -> Own:
    """Return the same loops, which keep no more of their rows than there is room for."""
    target = own.backend.fit(own.target)
    if target == own.target:
        return own
    written = tuple(schedule.written_for(target) for schedule in own.schedules)
    return replace(own, target=target, schedules=written)


def group_outputs(
    indexed: Formula, wanted: Sequence[int], sizes: Mapping[str, int]
) -> list[tuple[int, ...]]:
    """Return groups of outputs that can share loops: those over the same large indices."""
    found: dict[tuple[str, ...], list[int]] = {}
    for k in wanted:
        large = tuple(sorted(large_indices(indexed, k, sizes)))
        found.setdefault(large or indexed.line.outputs[k].labels, []).append(k)
    return [tuple(group) for group in found.values()]


def large_indices(
    indexed: Formula, output: int, sizes: Mapping[str, int], least: int = SMALL + 1
) -> set[str]:
    """Return the indices of an output that have a loop: with so many values at least."""
    ranges, extents = indexed.ranges, Extents(sizes)
    labels = indexed.line.outputs[output].labels
    return {i for i in labels if (extents.number(ranges.size(i)) or 0) >= least}
