"""The kernel of an operator with states: the states, by loops or step by step, then the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from pullback.bind import autocast, kernel
from pullback.bind.dense import arrange
from pullback.bind.dense.places import IndexOutside
from pullback.bind.dense.record import Records
from pullback.bind.dense.steps import StatesCall, compute_group
from pullback.bind.loops.backends import CpuBackend
from pullback.bind.loops.nests import NoLoops
from pullback.bind.loops.scans import Scan, ScanCall, find_scan
from pullback.bind.loops.specialise import round_sizes, usual_sizes
from pullback.bind.math import agree, execute
from pullback.bind.math.call import IndexedCall, call_of, compute_by_pytorch
from pullback.bind.math.execute import Executor
from pullback.bind.memo import Memo
from pullback.define.line import Line
from pullback.define.math import steps
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.node import READ, Node
from pullback.define.math.recurrence import Group, reads_of
from pullback.define.operator import Definition
from pullback.diagnostic import PullbackError
from pullback.kernels import prebuilt
from pullback.kernels.cuda_on_cpu import mode

GroupFunction = Callable[[StatesCall, Group, Mapping[str, Tensor]], dict[str, Tensor]]
Key = tuple[frozenset[str], tuple[bool, ...]]
# With fewer elements of its states, no loop is compiled for a call; nor with fewer steps than LONG,
# each of which takes PyTorch's operations as long as thousands of elements.
FEW = 4096
LONG = 64
NO_COMPILER = NoLoops(reason="there is no C++ compiler")


@dataclass(frozen=True)
class RecurrentCall:
    """All calls in which the same tensors are None, and the same outputs are wanted.

    Attributes:
        formula: without those.
        names: of the states, as the outputs' formula reads them.
        copied: the outputs that are a state as it is, by their place.
        wanted: which outputs are.
        scans: the loops of each group, by what they are made for.
    """

    formula: Formula
    names: dict[str, str]
    copied: dict[int, str]
    wanted: tuple[bool, ...]
    scans: Memo[tuple[object, ...], Scan | NoLoops] = field(
        default_factory=Memo[tuple[object, ...], Scan | NoLoops]
    )

    @staticmethod
    def of(formula: Formula, missing: frozenset[str], wanted: tuple[bool, ...]) -> RecurrentCall:
        """Return it."""
        own = steps.present(formula, missing, wanted)
        free = FreeNames(formula.line)
        names = {name: free.fresh(f"{name}_") for name in own.states}
        outputs = enumerate(zip(own.line.outputs, own.nodes, strict=True))
        copied = {k: n.name for k, (o, n) in outputs if wanted[k] and _is_copy(n, o.labels, own)}
        return RecurrentCall(own, names, copied, wanted)

    @staticmethod
    def of_call(call: IndexedCall) -> RecurrentCall:
        """Return what it is for one call."""
        return RecurrentCall.of(call.indexed, *key_of(call))

    @cached_property
    def rest(self) -> Executor:
        """Computes the other outputs from the states."""
        formula = steps.rest_of(self.formula, self.names)
        return Executor(Definition(line=formula.line, formula=formula))

    def rest_arguments(self, call: IndexedCall, states: Mapping[str, Tensor]) -> list[object]:
        """Return the arguments from which the other outputs are computed.

        The states of halves are wider, so that the other tensors have to be, too.
        """
        shared = {own: states[name] for name, own in self.names.items() if name in states}
        compute, line = compute_dtype(call), self.rest.definition.line
        found = (shared.get(p.name, call.flat.get(p.name)) for p in line.parameters)
        return [
            value.to(compute) if isinstance(value, Tensor) and value.is_floating_point() else value
            for value in found
        ]

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

        It has to be the last group that they need.
        """
        later = [s for g in self.formula.groups[place + 1 :] for s in g.states]
        names = {state.name for state in later}
        wanted = {k: n for k, n in enumerate(self.formula.nodes) if self.wanted[k]}
        own = {
            k: node
            for k, node in wanted.items()
            if k not in self.copied and not any(True for _ in reads_of([node], names))
        }
        others = (node for k, node in wanted.items() if k not in own)
        return own, (*others, *(state.node for state in later))

    def scan(self, place: int, call: IndexedCall, compute: torch.dtype) -> Scan | NoLoops:
        """Return the loops of a group, made once for calls of about the same sizes.

        Where there is no compiler, they are those that a package brought.
        """
        backend = CpuBackend()
        if call.outputs.device.type != "cpu" or mode.is_chosen():
            return NoLoops(reason=f"on {call.outputs.device.type}")
        if not backend.can_compile() and not prebuilt.has_index_loops("cpu"):
            return NO_COMPILER
        width = str(compute).removeprefix("torch.")
        dtypes = {
            name: str(value.dtype).removeprefix("torch.")
            for name, value in call.named.items()
            if isinstance(value, Tensor)
        }

        def of(sizes: Mapping[str, int]) -> Scan | NoLoops:
            asked = self.ask(place, sizes, dtypes, width, backend)
            key = (place, width, *sizes.items(), *dtypes.items())
            return self.scans.get_or_make(key, lambda: self.find_scan(asked, place, call.present))

        found = of(round_sizes(self.formula, call.sizes))
        if isinstance(found, Scan) and not found.own.is_available:
            usual = (usual_sizes(call.sizes, own) for own in prebuilt.find_sizes(call.sizes))
            others = (other for other in map(of, usual) if isinstance(other, Scan))
            return next((other for other in others if other.own.brought), NO_COMPILER)
        return found

    def ask(
        self,
        place: int,
        sizes: Mapping[str, int],
        dtypes: Mapping[str, str],
        width: str,
        backend: CpuBackend,
    ) -> ScanCall:
        """Return what decides which loops a group has.

        Args:
            place: of the group.
            sizes: of every index, rounded.
            dtypes: of the tensors, by name.
            width: the dtype of real states.
            backend: what runs the loops.
        """
        earlier = {s.name: s for g in self.formula.groups[:place] for s in g.states}
        of_states = {n: width if s.node.type == "real" else "int64" for n, s in earlier.items()}
        outputs, later = self.with_group(place)
        return ScanCall(
            formula=self.formula,
            group=self.formula.groups[place],
            dtypes={**dtypes, **of_states},
            compute=width,
            sizes=sizes,
            outputs=outputs,
            later=later,
            backend=backend,
        )

    def find_scan(self, asked: ScanCall, place: int, present: frozenset[str]) -> Scan | NoLoops:
        """Return the loops of a group; if they can run, they have been compared with its steps.

        Raises:
            PullbackError: PB147, they differ.
        """
        found = find_scan(asked)
        if isinstance(found, Scan) and found.own.is_available:
            agree.require_agreement(found, self.formula, place, present)
        return found


def key_of(call: IndexedCall) -> Key:
    """Return which tensors are None, and which outputs are wanted."""
    missing = frozenset(name for name, value in call.named.items() if value is None)
    return missing, tuple(call.outputs.wanted)


def _is_copy(node: Node, labels: tuple[str, ...], formula: Formula) -> bool:
    """Return whether an output is a state at its own indices."""
    if node.op != READ or node.name not in formula.states:
        return False
    return tuple(place.index for place in node.places) == labels and (
        formula.states[node.name].indices == labels
    )


class RecurrentExecutor:
    """The kernel of one operator, on every device."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.known: Memo[Key, RecurrentCall] = Memo()
        self.prepared: Memo[execute.Key, PreparedStates] = Memo()
        self.counts = execute.find_counts(definition)

    def __call__(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the outputs, None for those that are not wanted."""
        given = kernel.fill_defaults(self.definition, arguments, output_mask)
        # Autograd and autocast are above this kernel: nothing in it is recorded or cast.
        with torch.no_grad(), autocast.disable_autocast():
            key = execute.key_of(given, self.counts)
            known = self.prepared.get_or_make(key, lambda: self.prepare(given))
            return kernel.unwrap_single(known.compute(arrange.name_arguments(known.line, given)))

    def by_pytorch(
        self,
        *arguments: object,
        output_mask: list[bool] | None = None,
        states: GroupFunction = compute_group,
    ) -> object:
        """Return the same by PyTorch's operations alone, which autograd and tracers see through.

        Args:
            arguments: of the operator.
            output_mask: which outputs are wanted.
            states: computes those of a group.
        """
        given = kernel.fill_defaults(self.definition, arguments, output_mask)
        known = self.prepare(given)
        call = replace(known.call_of(arrange.name_arguments(known.line, given)), is_kernel=False)
        return kernel.unwrap_single(known.outputs_of(call, states))

    def forget(self) -> None:
        """Choose again."""
        self.known.clear()
        self.prepared.clear()

    def prepare(self, given: tuple[object, ...]) -> PreparedStates:
        """Return what follows from the shapes and dtypes of a call."""
        call = call_of(self.definition, given)
        known = self.known.get_or_make(key_of(call), lambda: RecurrentCall.of_call(call))
        plain = states_call(known, call)
        worth = [_is_worth_a_loop(plain, group) for group in known.formula.groups]
        return PreparedStates(known=known, call=replace(call, named={}), worth=tuple(worth))


@dataclass(frozen=True, kw_only=True)
class PreparedStates:
    """All that follows from the shapes and dtypes of a call.

    Attributes:
        known: what follows from which tensors are there.
        call: without its arguments.
        worth: whether each group has enough elements, or steps, for a loop.
        scans: the loops of each group that is, once they have been looked for.
        records: the operations of a call without loops.
    """

    known: RecurrentCall
    call: IndexedCall
    worth: tuple[bool, ...]
    scans: dict[int, Scan | NoLoops] = field(default_factory=dict[int, "Scan | NoLoops"])
    records: Records = field(default_factory=Records)

    @property
    def line(self) -> Line:
        """The operator's."""
        return self.call.indexed.line

    def call_of(self, named: Mapping[str, object]) -> IndexedCall:
        """Return a call with its arguments."""
        call = self.call
        return IndexedCall(
            indexed=call.indexed, named=named, outputs=call.outputs, sizes=call.sizes
        )

    def compute(self, named: Mapping[str, object]) -> list[Tensor | None]:
        """Return the outputs of a call; a small one's operations are recorded and replayed."""
        if any(self.worth):
            return self.outputs_of(self.call_of(named))
        return self.records.outputs(named, (), lambda given: self.outputs_of(self.call_of(given)))

    def outputs_of(
        self, call: IndexedCall, by_steps: GroupFunction = compute_group
    ) -> list[Tensor | None]:
        """Return the outputs of a call."""
        outputs, known = call.outputs, self.known
        found = self.compute_states(call, by_steps)
        values: list[Tensor | None] = [None] * len(outputs.wanted)
        for k, spec in enumerate(self.line.outputs):
            name = known.copied.get(k, spec.name)
            if outputs.wanted[k] and name in found:
                values[k] = found[name].reshape(outputs.shapes[k]).to(outputs.dtypes[k])
        left = [
            asked and value is None for asked, value in zip(outputs.wanted, values, strict=True)
        ]
        if any(left):
            for k, value in self.compute_rest(call, found, left).items():
                values[k] = value
        return values

    def compute_states(self, call: IndexedCall, by_steps: GroupFunction) -> dict[str, Tensor]:
        """Return the states of a call, and the outputs that came with them, by name."""
        plain = states_call(self.known, call)
        found: dict[str, Tensor] = {}
        for place, group in enumerate(self.known.formula.groups):
            values = None
            if call.is_kernel and self.worth[place]:
                values = self.compute_by_loops(place, call, plain.compute, found)
            found |= by_steps(plain, group, found) if values is None else values
        return found

    def compute_by_loops(
        self, place: int, call: IndexedCall, compute: torch.dtype, found: Mapping[str, Tensor]
    ) -> dict[str, Tensor] | None:
        """Return what the loops of a group compute; None without them, or if data is outside."""
        scan = self.scans.get(place)
        if scan is None:
            scan = self.scans[place] = self.known.scan(place, call, compute)
        if isinstance(scan, NoLoops):
            return None
        try:
            return scan.run({**call.flat, **found}, call.sizes)
        except PullbackError as error:
            if error.finding.code != IndexOutside.code:
                raise
            # Step by step it is seen whether a place that is outside is selected.
            return None

    def compute_rest(
        self, call: IndexedCall, states: Mapping[str, Tensor], left: list[bool]
    ) -> dict[int, Tensor]:
        """Return the outputs that are computed from the states."""
        outputs, known = call.outputs, self.known
        if not call.is_kernel or sum(value.numel() for value in states.values()) < FEW:
            several = known.compute_rest(call, states, left)
        else:
            given = known.rest_arguments(call, states)
            mask = left if known.rest.definition.masked else None
            found = known.rest(*given, **({"output_mask": mask} if mask else {}))
            several = found if isinstance(found, tuple) else (found,)
        return {
            k: value.reshape(outputs.shapes[k]).to(outputs.dtypes[k])
            for k, value in enumerate(several)
            if left[k] and isinstance(value, Tensor)
        }


def states_call(known: RecurrentCall, call: IndexedCall) -> StatesCall:
    """Return what the states of a call are computed from."""
    return StatesCall(
        formula=known.formula,
        arguments=call.flat,
        sizes=call.sizes,
        compute=compute_dtype(call),
        device=call.outputs.device,
    )


def _is_worth_a_loop(call: StatesCall, group: Group) -> bool:
    """Return whether a group has enough elements, or steps."""
    states = [[call.number(extent) for extent in state.extents] for state in group.states]
    many = sum(math.prod(own) for own in states)
    first = group.states[0]
    steps = sum(states[0][first.indices.index(index)] for index, _ in group.weights)
    return (many >= FEW or steps >= LONG) and all(min(own, default=1) > 0 for own in states)


def compute_dtype(call: IndexedCall) -> torch.dtype:
    """Return the dtype of real states: that of the call, and float32 for the half ones."""
    tensors = [v for v in call.named.values() if isinstance(v, Tensor)]
    dtypes = [*(t.dtype for t in tensors if t.is_floating_point()), *call.outputs.dtypes]
    return torch.float64 if torch.float64 in dtypes else torch.float32
