"""The kernel of an operator with states: the states, by loops or step by step, then the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pullback.bind import autocast, kernel
from pullback.bind.dense import arrange
from pullback.bind.dense.cumulative import RECORDED, is_faster
from pullback.bind.dense.elements import no_division_by_zero
from pullback.bind.dense.places import IndexOutside
from pullback.bind.dense.record import Records
from pullback.bind.dense.steps import StatesCall, compute_group
from pullback.bind.loops.checkpoints import count_elements
from pullback.bind.loops.chunks import LANES, Loops
from pullback.bind.loops.nests import NoLoops
from pullback.bind.math import execute
from pullback.bind.math.call import IndexedCall, call_of, compute_by_pytorch
from pullback.bind.math.recurrent_call import ALL, Key, RecurrentCall, compute_dtype, key_of
from pullback.bind.memo import Memo
from pullback.define.line import Line
from pullback.define.math.checkpoints import EVERY
from pullback.define.math.recurrence import Group
from pullback.define.operator import Definition
from pullback.diagnostic import PullbackError
from pullback.kernels.cuda_on_cpu import mode

GroupFunction = Callable[[StatesCall, Group, Mapping[str, Tensor]], dict[str, Tensor]]
# With fewer elements of its states, no loop is compiled for a call; nor with fewer steps than LONG,
# each of which takes PyTorch's operations as long as thousands of elements. But when such calls
# have taken OFTEN steps, that has taken about as long as a compiler does.
FEW = 4096
LONG = 64
OFTEN = 4096
# From so many bytes on, few steps are kept of states that a gradient computes again. In the caches
# these are computed twice sooner than all are written and read: already from half of that on.
LARGE = 2**22
# With fewer steps than this, few would be hardly fewer: two blocks of them are in memory as well.
MANY_STEPS = 4 * EVERY


class RecurrentExecutor:
    """The kernel of one operator, on every device.

    Attributes:
        changed: is called when calls of some kind are computed in another way from now on.
        prepared: what follows from the shapes and dtypes of calls.
        stepped: how many steps short calls have taken.
        looped: the kinds of calls that have loops.
    """

    def __init__(self, definition: Definition, changed: Callable[[], None]) -> None:
        self.definition, self.changed = definition, changed
        self.known: Memo[Key, RecurrentCall] = Memo()
        self.prepared: Memo[execute.Key, PreparedStates] = Memo()
        self.stepped: Memo[execute.Key, int] = Memo()
        self.looped: Memo[tuple[object, ...], None] = Memo()
        self.counts = execute.find_counts(definition)

    def __call__(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the outputs, None for those that are not wanted."""
        given = kernel.fill_defaults(self.definition, arguments, output_mask)
        # Autograd and autocast are above this kernel: nothing in it is recorded or cast.
        with torch.no_grad(), autocast.disable_autocast():
            key = execute.key_of(given, self.counts)
            known = self.prepared.get(key)
            if known is None:
                known = self.prepare(given)
                # What is captured is not what later calls shall be.
                if not execute.is_captured(known.call.outputs.device):
                    self.prepared[key] = known
            elif known.short:
                known = self.once_more(key, known, given)
            return kernel.unwrap_single(known.compute(arrange.name_arguments(known.line, given)))

    def by_pytorch(
        self,
        *arguments: object,
        output_mask: list[bool] | None = None,
        states: GroupFunction | None = None,
    ) -> object:
        """Return the same by PyTorch's operations alone, which autograd and tracers see through.

        Args:
            arguments: of the operator.
            output_mask: which outputs are wanted.
            states: computes those of a group; step by step without it.
        """
        given = kernel.fill_defaults(self.definition, arguments, output_mask)
        call = replace(call_of(self.definition, given), is_kernel=False)
        # Its sizes may be symbols, so that nothing is asked that depends on how large they are.
        known = PreparedStates(known=self.find(call), call=call)
        return kernel.unwrap_single(known.outputs_of(call, states))

    def forget(self) -> None:
        """Choose again."""
        for known in (self.known, self.prepared, self.stepped, self.looped):
            known.clear()

    def once_more(
        self, key: execute.Key, known: PreparedStates, given: tuple[object, ...]
    ) -> PreparedStates:
        """Return what computes a short call: from some time on, loops."""
        many = self.stepped[key] = (self.stepped.get(key) or 0) + known.short
        if many >= OFTEN:
            known = self.prepared[key] = self.prepare(given, is_often=True)
            self.changed()
        return known

    def find(self, call: IndexedCall) -> RecurrentCall:
        """Return what follows from which tensors a call has, and which outputs are wanted."""
        return self.known.get_or_make(key_of(call), lambda: RecurrentCall.of_call(call))

    def prepare(self, given: tuple[object, ...], *, is_often: bool = False) -> PreparedStates:
        """Return what follows from the shapes and dtypes of a call; of a short one, if it is often.

        A short one has the loops that a longer one has.
        """
        call = call_of(self.definition, given)
        known = self.find(call)
        plain = states_call(known, call)
        captured, on_gpu = execute.is_captured(plain.device), is_for_gpu(plain.device)
        groups = known.formula.groups
        candidates = [
            not captured
            and _has_elements(plain, group)
            and not is_faster(plain, group, whole, on_gpu=on_gpu)
            for group, whole in zip(groups, known.wholes, strict=True)
        ]
        short = [
            group
            for group, fits in zip(groups, candidates, strict=True)
            if fits and is_short(plain, group)
        ]
        kind = known.kind(call, plain.compute)
        if is_often := is_often or kind in self.looped:
            short = []
        elif any(candidates) and not short:
            self.looped[kind] = None
        worth = [
            fits and group not in short for group, fits in zip(groups, candidates, strict=True)
        ]
        scans: dict[int, Loops | NoLoops] = {}
        if all(worth):
            known, scans = known.sink_if_loops(
                lambda own, place: own.scan(place, own.with_empty_parts(call), plain.compute)
            )
        extents = (e for state in known.formula.states.values() for e in [state.extents])
        many = sum(math.prod(map(plain.number, own)) for own in extents)
        is_small = many < FEW and not is_often
        # Until small calls are often, PyTorch's operations compute what is no state.
        waiting = groups if is_small and any(worth) else short
        late = None if captured else prepare_late(known, call, worth, is_small=is_small)
        return PreparedStates(
            known=known,
            call=replace(call, named={}),
            late=late,
            worth=tuple(worth),
            short=sum(count_steps(plain, group) for group in waiting),
            keeps_few=all(worth) and not late and has_large_states(known, call, on_gpu=on_gpu),
            is_small=is_small,
            is_recorded=not any(worth) and (many < FEW or not known.left),
            scans=scans,
        )


def prepare_late(
    known: RecurrentCall, call: IndexedCall, worth: Sequence[bool], *, is_small: bool
) -> PreparedStates | None:
    """Return what computes the groups that are given the states of earlier ones; None if none are.

    Args:
        known: what follows from which tensors there are.
        call: one.
        worth: whether each group has enough elements, or steps, for a loop.
        is_small: whether PyTorch's operations compute what is no state.
    """
    if not known.late:
        return None
    place, own = known.late
    return PreparedStates(
        known=own,
        call=replace(call, named={}),
        late=prepare_late(own, call, worth[place:], is_small=is_small),
        worth=tuple(worth[place:]),
        is_small=is_small,
    )


@dataclass(frozen=True, kw_only=True)
class PreparedStates:
    """All that follows from the shapes and dtypes of a call.

    Attributes:
        known: what follows from which tensors are there.
        call: without its arguments.
        late: of the groups that are given the states of earlier ones; None if there are none.
        worth: whether each group has enough elements, or steps, for a loop.
        short: how many steps a call takes that is computed by loops if there are more like it.
        keeps_few: whether only some steps are kept of states that are computed twice.
        is_small: whether PyTorch's operations compute what is no state.
        is_recorded: whether they compute everything, and are recorded.
        scans: the loops of each group that is, once they have been looked for.
        records: the operations of a call without loops.
    """

    known: RecurrentCall
    call: IndexedCall
    late: PreparedStates | None = None
    worth: tuple[bool, ...] = ()
    short: int = 0
    keeps_few: bool = False
    is_small: bool = True
    is_recorded: bool = False
    scans: dict[int, Loops | NoLoops] = field(default_factory=dict[int, "Loops | NoLoops"])
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
        if not self.is_recorded:
            return self.outputs_of(self.call_of(named))
        with no_division_by_zero(self.line.called):
            return self.records.outputs(named, (), lambda own: self.outputs_of(self.call_of(own)))

    def outputs_of(self, call: IndexedCall, by: GroupFunction | None = None) -> list[Tensor | None]:
        """Return the outputs of a call; `by` computes the states of a group, if given."""
        outputs, known = call.outputs, self.known
        call = self.compute_before(call)
        if self.late and known.late:
            early = self.compute_states(call, by, known.late[0])
            return self.late.outputs_of(replace(call, named={**call.named, **early}))
        found = self.compute_states(call, by)
        values: list[Tensor | None] = [None] * len(outputs.wanted)
        for k, spec in enumerate(self.line.outputs):
            name = known.copied.get(k, spec.name)
            if outputs.wanted[k] and name in found:
                value = found[name].reshape(outputs.shapes[k]).to(outputs.dtypes[k])
                values[k] = value.contiguous()
        left = [
            asked and value is None for asked, value in zip(outputs.wanted, values, strict=True)
        ]
        if any(left):
            for k, value in self.compute_rest(call, found, left).items():
                values[k] = value
        return values

    def compute_before(self, call: IndexedCall) -> IndexedCall:
        """Return a call with what is computed before the steps."""
        known = self.known
        if call.is_kernel and not self.is_small and known.before:
            found = known.before(*known.before_arguments(call))
            return known.with_parts(call, found if isinstance(found, tuple) else (found,))
        before = known.before_call(call)
        if before is None:
            return call
        parts = compute_by_pytorch(replace(before, is_kernel=call.is_kernel))
        return known.with_parts(call, parts)

    def compute_states(
        self, call: IndexedCall, by: GroupFunction | None, many: int | None = None
    ) -> dict[str, Tensor]:
        """Return the states of a call, and the outputs that came with them, by name.

        Args:
            call: with what is computed before the steps.
            by: computes those of a group, if it is given.
            many: of how many groups; None for all.
        """
        plain = states_call(self.known, call)
        found: dict[str, Tensor] = {}
        if call.is_kernel and self.keeps_few:
            values = self.compute_by_loops(ALL, call, plain.compute, found)
            if values is not None:
                return values
        for place, group in enumerate(self.known.formula.groups[:many]):
            values = by(plain, group, found) if by else None
            if call.is_kernel and self.worth[place]:
                values = self.compute_by_loops(place, call, plain.compute, found)
            if values is None:
                whole = self.known.wholes[place]
                if call.is_kernel:
                    self.known.require_cumulative(place, call, plain.compute)
                elif whole and whole.op not in RECORDED:
                    whole = None
                values = compute_group(plain, group, found, whole)
            found |= values
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
        if not call.is_kernel or self.is_small:
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


def has_large_states(known: RecurrentCall, call: IndexedCall, *, on_gpu: bool) -> bool:
    """Return whether a call runs back over so large states that few steps of them are to be kept.

    Args:
        known: what follows from which tensors it has.
        call: with sizes.
        on_gpu: whether loops would be those of a GPU.
    """
    if known.walks is None:
        return False
    ((time, _),) = known.walks.there.weights
    states, width = known.walks.there.states, compute_dtype(call).itemsize
    if (length := call.sizes[time]) < MANY_STEPS:
        return False
    many = [count_elements(state, call.sizes) for state in states]
    lanes = max(many) // length
    if on_gpu and lanes < LANES:
        # What runs back may have chunks, which are all computed at once.
        return False
    return sum(many) * width >= LARGE


def is_for_gpu(device: torch.device) -> bool:
    """Return whether loops for tensors of a device are CUDA's."""
    return device.type != "cpu" or mode.is_chosen()


def is_short(call: StatesCall, group: Group) -> bool:
    """Return whether a group has so few elements, and steps, that no loop is compiled for it."""
    # On a GPU a launch for each operation of each step takes longer than all steps in a loop.
    if is_for_gpu(call.device) or count_steps(call, group) >= LONG:
        return False
    return sum(math.prod(map(call.number, state.extents)) for state in group.states) < FEW


def count_steps(call: StatesCall, group: Group) -> int:
    """Return how many steps, or fronts, a group has."""
    first = group.states[0]
    own = (first.extents[first.indices.index(index)] for index, _ in group.weights)
    return sum(map(call.number, own))


def _has_elements(call: StatesCall, group: Group) -> bool:
    return all(call.number(extent) > 0 for state in group.states for extent in state.extents)
