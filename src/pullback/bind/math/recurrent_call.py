"""Calls of a recurrence in which the same tensors are None: its states, loops and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.bind.loops.backends import Backend, CudaBackend, find_backend
from pullback.bind.loops.chunks import Loops, find_chunks
from pullback.bind.loops.nests import NoLoops
from pullback.bind.loops.scans import Scan, ScanCall, find_scan
from pullback.bind.loops.specialise import round_sizes, usual_sizes
from pullback.bind.math import agree, choose
from pullback.bind.math.call import IndexedCall, call_of, compute_by_pytorch
from pullback.bind.math.execute import Executor
from pullback.bind.memo import Memo
from pullback.define.math import steps
from pullback.define.math.checkpoints import Walks, find_walks, names_of
from pullback.define.math.cumulative import Cumulative, find_cumulative
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.hoist import Hoisted, divide, find_nested, hoist
from pullback.define.math.node import READ, Node
from pullback.define.math.recurrence import reads_of
from pullback.define.math.sink import sink
from pullback.define.operator import Definition
from pullback.kernels import prebuilt

Key = tuple[frozenset[str], tuple[bool, ...]]
Found = TypeVar("Found", bound=Loops | NoLoops)
# In place of that of a group: all states in one kernel, which keeps few steps of the first ones.
ALL = -1


@dataclass(frozen=True)
class RecurrentCall:
    """All calls in which the same tensors are None, and the same outputs are wanted.

    Attributes:
        present: their formula, without those.
        hoisted: the same, and what is computed before its steps.
        names: of the states, as the outputs' formula reads them.
        copied: the outputs that are a state as it is, by their place.
        wanted: which outputs are.
        may_divide: whether earlier groups may be computed apart from later ones.
        scans: the loops of each group, by what they are made for.
        agreed: the groups, and dtypes, whose cumulative functions are known to be their steps.
    """

    present: Formula
    hoisted: Hoisted
    names: dict[str, str]
    copied: dict[int, str]
    wanted: tuple[bool, ...]
    may_divide: bool = True
    scans: Memo[tuple[object, ...], Loops | NoLoops] = field(
        default_factory=Memo[tuple[object, ...], Loops | NoLoops]
    )
    agreed: set[tuple[int, torch.dtype]] = field(default_factory=set[tuple[int, torch.dtype]])

    @staticmethod
    def of(
        formula: Formula,
        missing: frozenset[str],
        wanted: tuple[bool, ...],
        *,
        is_hoisted: bool = True,
    ) -> RecurrentCall:
        """Return it; `is_hoisted`: whether something may be computed before the steps."""
        present = steps.present(formula, missing, wanted)
        hoisted = hoist(present, find_nested(present)) if is_hoisted else Hoisted(formula=present)
        found = RecurrentCall.of_hoisted(present, hoisted, wanted)
        return replace(found, may_divide=is_hoisted)

    @staticmethod
    def of_hoisted(present: Formula, hoisted: Hoisted, wanted: tuple[bool, ...]) -> RecurrentCall:
        """Return it for a formula of what is there."""
        own = hoisted.formula
        free = FreeNames(own.line)
        names = {name: free.fresh(f"{name}_") for name in own.states}
        outputs = enumerate(zip(own.line.outputs, own.nodes, strict=True))
        copied = {k: n.name for k, (o, n) in outputs if wanted[k] and _is_copy(n, o.labels, own)}
        return RecurrentCall(present, hoisted, names, copied, wanted)

    @staticmethod
    def of_call(call: IndexedCall) -> RecurrentCall:
        """Return what it is for one call."""
        return RecurrentCall.of(call.indexed, *key_of(call))

    @property
    def formula(self) -> Formula:
        """Without what is None, and what is computed before its steps is a parameter."""
        return self.hoisted.formula

    @cached_property
    def sunk(self) -> RecurrentCall | None:
        """The same with more that is computed with the steps; None if there is nothing."""
        asked = [k for k, own in enumerate(self.wanted) if own and k not in self.copied]
        formula = sink(self.present, asked)
        if formula is None:
            return None
        hoisted = hoist(formula, find_nested(self.present))
        return RecurrentCall.of_hoisted(formula, hoisted, self.wanted)

    def sink_if_loops(
        self, find: Callable[[RecurrentCall, int], Found]
    ) -> tuple[RecurrentCall, dict[int, Found]]:
        """Return it with as much as is better computed with the steps, and the loops of these.

        Step by step, PyTorch's operations would take longer for that than for all steps at once.

        Args:
            find: returns the loops of a group.
        """
        if self.sunk is None:
            return self, {}
        scans = {k: find(self.sunk, k) for k in range(len(self.sunk.formula.groups))}
        if any(isinstance(scan, NoLoops) for scan in scans.values()):
            return self, {}
        return self.sunk, scans

    @cached_property
    def late(self) -> tuple[int, RecurrentCall] | None:
        """From which group on it is another call, which is given the states before; None if none.

        What these decide of the steps of later groups is computed between the two.
        """
        found = divide(self.formula) if self.may_divide else None
        if found is None:
            return None
        place, hoisted = found
        return place, RecurrentCall.of_hoisted(self.formula, hoisted, self.wanted)

    @cached_property
    def before(self) -> Executor | None:
        """Computes what comes before the steps."""
        formula = self.hoisted.before
        definition = formula and Definition(line=formula.line, formula=formula)
        return definition and Executor(definition, choose.choose_executors)

    def before_arguments(self, call: IndexedCall) -> tuple[object, ...]:
        """Return what is given to what computes before the steps."""
        assert self.before
        given = (call.flat.get(p.name) for p in self.before.definition.line.parameters)
        return tuple(widen(value, compute_dtype(call)) for value in given)

    def before_call(self, call: IndexedCall) -> IndexedCall | None:
        """Return the call that computes what comes before the steps."""
        if not self.before:
            return None
        definition, given = self.before.definition, self.before_arguments(call)
        return call_of(definition, kernel.fill_defaults(definition, given, None))

    def with_empty_parts(self, call: IndexedCall) -> IndexedCall:
        """Return a call that has tensors like what comes before the steps."""
        before = self.before_call(call)
        if before is None:
            return call
        shapes = zip(before.outputs.shapes, before.outputs.dtypes, strict=True)
        device = before.outputs.device
        return self.with_parts(
            call, [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in shapes]
        )

    def with_parts(self, call: IndexedCall, parts: Sequence[object]) -> IndexedCall:
        """Return a call that also has what comes before the steps."""
        found = zip(self.hoisted.parts, parts, strict=True)
        return replace(call, named={**call.named, **dict(found)})

    @cached_property
    def wholes(self) -> tuple[Cumulative | None, ...]:
        """Which cumulative function each group is."""
        return tuple(find_cumulative(self.formula, group) for group in self.formula.groups)

    @cached_property
    def walks(self) -> Walks | None:
        """Its states, if they are run over there and back, and those of the way there are parts."""
        found, copied = find_walks(self.formula), {*self.copied.values()}
        return None if found and copied & {*names_of(found.there)} else found

    @property
    def left(self) -> set[int]:
        """The outputs that are neither states nor come with them, if no loop computes these."""
        names = {name for whole in self.wholes if whole for name in whole.outputs}
        lines = enumerate(self.formula.line.outputs)
        known = {k for k, line in lines if line.name in names} | self.copied.keys()
        return {k for k, asked in enumerate(self.wanted) if asked} - known

    @cached_property
    def rest(self) -> Executor:
        """Computes the other outputs from the states."""
        formula = steps.rest_of(self.formula, self.names)
        definition = Definition(line=formula.line, formula=formula)
        return Executor(definition, choose.choose_executors)

    def rest_arguments(self, call: IndexedCall, states: Mapping[str, Tensor]) -> list[object]:
        """Return the arguments from which the other outputs are computed.

        The states of halves are wider, so that the other tensors have to be, too.
        """
        shared = {own: states[name] for name, own in self.names.items() if name in states}
        compute, line = compute_dtype(call), self.rest.definition.line
        found = (shared.get(p.name, call.flat.get(p.name)) for p in line.parameters)
        return [widen(value, compute) for value in found]

    def rest_call(self, call: IndexedCall, states: Mapping[str, Tensor]) -> IndexedCall:
        """Return the call that computes the other outputs."""
        definition = self.rest.definition
        given = tuple(self.rest_arguments(call, states))
        return call_of(definition, kernel.fill_defaults(definition, given, None))

    def compute_rest(
        self, call: IndexedCall, states: Mapping[str, Tensor], left: list[bool]
    ) -> Sequence[object]:
        """Return the other outputs of a small call, for which no loop is compiled."""
        rest = self.rest_call(call, states)
        wanted = kernel.select_wanted(rest.outputs, left)
        return compute_by_pytorch(replace(rest, outputs=wanted, is_kernel=call.is_kernel))

    def with_group(self, place: int) -> tuple[dict[int, Node], tuple[Node, ...]]:
        """Return the outputs that may be computed with a group, and what else reads its states.

        It has to be the last group that they need; none are if the states are given to a call of
        later groups.
        """
        later = [s for g in self.formula.groups[place + 1 :] for s in g.states]
        names = {state.name for state in later}
        wanted = {k: n for k, n in enumerate(self.formula.nodes) if self.wanted[k]}
        is_early = self.late is not None and place < self.late[0]
        own = {
            k: node
            for k, node in wanted.items()
            if not is_early
            and k not in self.copied
            and not any(True for _ in reads_of([node], names))
        }
        others = (node for k, node in wanted.items() if k not in own)
        return own, (*others, *(state.node for state in later))

    def scan(self, place: int, call: IndexedCall, compute: torch.dtype) -> Loops | NoLoops:
        """Return the loops of a group, made once for calls of about the same sizes.

        Where there is no compiler, they are those that a package brought.
        """
        device = call.outputs.device
        backend = find_backend(device)
        if backend is None:
            return NoLoops(reason=f"on {device.type}")
        kind = "cuda" if isinstance(backend, CudaBackend) else "cpu"
        none = NoLoops(reason=f"there is no {backend.language} compiler")
        if not backend.can_compile() and not prebuilt.has_index_loops(kind):
            return none

        def of(sizes: Mapping[str, int]) -> Loops | NoLoops:
            asked = self.ask_for(place, call, compute, sizes, backend)
            key = (place, backend, asked.compute, *sizes.items(), *asked.dtypes.items())
            return self.scans.get_or_make(key, lambda: self.find_scan(asked, place, call.present))

        found = of(round_sizes(self.formula, call.sizes, backend.parts))
        if isinstance(found, Loops) and not found.is_available:
            usual = (usual_sizes(call.sizes, own) for own in prebuilt.find_sizes(call.sizes))
            others = (other for other in map(of, usual) if isinstance(other, Scan))
            return next((other for other in others if other.own.brought), none)
        return found

    def kind(self, call: IndexedCall, compute: torch.dtype) -> tuple[object, ...]:
        """Return what decides which loops the groups of a call have."""
        backend = find_backend(call.outputs.device)
        sizes = round_sizes(self.formula, call.sizes, backend.parts if backend else 1)
        tensors = ((n, v.dtype) for n, v in call.named.items() if isinstance(v, Tensor))
        return (key_of(call), backend, compute, *tensors, *sizes.items())

    def candidate(
        self, place: int, call: IndexedCall, compute: torch.dtype, backend: Backend
    ) -> Loops | NoLoops:
        """Return the loops that a group would have, which are not compiled."""
        sizes = round_sizes(self.formula, call.sizes, backend.parts)
        asked = self.ask_for(place, call, compute, sizes, backend)
        return find_chunks(asked) or find_scan(asked)

    def ask_for(
        self,
        place: int,
        call: IndexedCall,
        compute: torch.dtype,
        sizes: Mapping[str, int],
        backend: Backend,
    ) -> ScanCall:
        """Return what decides which loops a group has in a call."""
        dtypes = {
            name: str(value.dtype).removeprefix("torch.")
            for name, value in call.named.items()
            if isinstance(value, Tensor)
        }
        return self.ask(place, sizes, dtypes, str(compute).removeprefix("torch."), backend)

    def ask(
        self,
        place: int,
        sizes: Mapping[str, int],
        dtypes: Mapping[str, str],
        width: str,
        backend: Backend,
    ) -> ScanCall:
        """Return what decides which loops a group has.

        Args:
            place: of the group, or ALL.
            sizes: of every index, rounded.
            dtypes: of the tensors, by name.
            width: the dtype of real states.
            backend: what runs the loops.
        """
        formula, walks = self.formula, self.walks if place == ALL else None
        place %= len(formula.groups)
        earlier = {s.name: s for g in formula.groups[:place] for s in g.states}
        if walks:
            formula = replace(formula, groups=(walks.there, walks.back))
        of_states = {n: width if s.node.type == "real" else "int64" for n, s in earlier.items()}
        outputs, later = self.with_group(place)
        return ScanCall(
            formula=formula,
            group=walks.back if walks else formula.groups[place],
            there=walks and walks.there,
            dtypes={**dtypes, **of_states},
            compute=width,
            sizes=sizes,
            outputs=outputs,
            later=later,
            backend=backend,
        )

    def require_cumulative(self, place: int, call: IndexedCall, compute: torch.dtype) -> None:
        """Stop if a cumulative function of PyTorch's, where it is one, is not what steps compute.

        Raises:
            PullbackError: PB147, they differ.
        """
        if self.wholes[place] and (place, compute) not in self.agreed:
            agree.require_cumulative(self.formula, place, call.present, compute)
            self.agreed.add((place, compute))

    def find_scan(self, asked: ScanCall, place: int, present: frozenset[str]) -> Loops | NoLoops:
        """Return the loops of a group; if they can run, they have been compared with its steps.

        Raises:
            PullbackError: PB147, they differ.
        """
        # Packages bring none in chunks.
        chunked = find_chunks(asked) if asked.backend.can_compile() else None
        found = chunked or find_scan(asked)
        if isinstance(found, Loops) and found.is_available:
            last = place % len(self.formula.groups)
            agree.require_agreement(found, self.formula, last, present)
        return found


def key_of(call: IndexedCall) -> Key:
    """Return which tensors are None, and which outputs are wanted."""
    missing = frozenset(name for name, value in call.named.items() if value is None)
    return missing, tuple(call.outputs.wanted)


def compute_dtype(call: IndexedCall) -> torch.dtype:
    """Return the dtype of real states: that of the call, and float32 for the half ones."""
    tensors = [v for v in call.named.values() if isinstance(v, Tensor)]
    dtypes = [*(t.dtype for t in tensors if t.is_floating_point()), *call.outputs.dtypes]
    return torch.float64 if torch.float64 in dtypes else torch.float32


def widen(value: object, dtype: torch.dtype) -> object:
    """Return a real tensor in the dtype of states, and anything else as it is."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype)
    return value


def _is_copy(node: Node, labels: tuple[str, ...], formula: Formula) -> bool:
    """Return whether an output is a state at its own indices."""
    if node.op != READ or node.name not in formula.states:
        return False
    return tuple(place.index for place in node.places) == labels and (
        formula.states[node.name].indices == labels
    )
