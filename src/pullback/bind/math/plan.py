"""What `op.plan(...)` shows: who computes which output of a call and of its backward, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from pullback.bind import kernel, notebook
from pullback.bind.dense import cumulative
from pullback.bind.kinds.kind import Kind
from pullback.bind.loops import backends, gpu, nests
from pullback.bind.loops.backends import CudaBackend, unit_of
from pullback.bind.loops.chunks import Loops
from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.loops.own_call import prepare_call
from pullback.bind.math import choose, derive, recur
from pullback.bind.math.call import Choice, IndexedCall, call_of
from pullback.bind.math.recurrent_call import ALL, RecurrentCall, compute_dtype
from pullback.define.math import cost, derived, steps
from pullback.define.math.checkpoints import names_of
from pullback.define.math.cumulative import Cumulative
from pullback.define.math.draft import is_real
from pullback.define.math.recurrence import Group
from pullback.define.operator import Definition
from pullback.kernels.loops.nest import KernelText


@dataclass(frozen=True, kw_only=True)
class Step:
    """One group of outputs that are computed together.

    Attributes:
        operator: whose outputs they are: the operator itself, or the one of its gradients.
        outputs: their names.
        way: "own loop", with its family; "PyTorch", "PyTorch, by blocks" or "PyTorch, fused".
        reason: why.
        flops: the operations that are needed, if each value is computed once.
        bytes: the least that has to be read and written.
    """

    operator: str
    outputs: tuple[str, ...]
    way: str
    reason: str
    flops: float
    bytes: float

    def __str__(self) -> str:
        names = ", ".join(self.outputs)
        amount = f"{self.flops / 1e6:.3g} Mflop, {self.bytes / 1e6:.3g} MB"
        return f"{names}: {self.way} ({self.reason}); {amount}"


@dataclass(frozen=True)
class Plan:
    """How one call is computed, and its backward.

    Attributes:
        steps: of both.
        kept: what the call keeps for its backward if it is recorded: statistics of rows, or its
            gradients for a gradient of 1.
    """

    steps: tuple[Step, ...]
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows: list[str] = []
        for operator in dict.fromkeys(step.operator for step in self.steps):
            rows.append(operator)
            rows += [f"    {step}" for step in self.steps if step.operator == operator]
            if self.kept and operator == self.steps[0].operator:
                rows.append(f"    keeps {', '.join(self.kept)}")
        return "\n".join(rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show in a notebook what each step needs, as bars."""
        return notebook.show_steps(self.steps)


def plan(kind: Kind, given: tuple[object, ...], device: str | None = None) -> Plan:
    """Return how a call is computed; loops are compiled and compared as for the call itself.

    Args:
        kind: the operator.
        given: its arguments.
        device: "cuda" asks for the loops of a GPU, wherever the arguments are.
    """
    definition = kind.definition
    assert definition.formula
    if device not in (None, "cuda"):
        raise ValueError(f"plan: device is {device!r}; it is None or 'cuda'")
    steps_of = steps_on_gpu if device == "cuda" else steps_here
    if definition.formula.groups:
        steps_of = partial(steps_of_states, steps_of)
    call = call_of(definition, kernel.fill_defaults(definition, given, None))
    steps = list(steps_of(call))
    kept = None if device else kind.keeping(call.named.values())
    forward = call_of(kept.forward, tuple(call.named.values())) if kept else call
    if kept:
        backward = kept.backward
        if kept.is_scaled:
            steps += [step_of(forward, choice) for choice in choose.choose_blocks(forward)]
    elif found := derived.backward(definition.formula):
        backward = derive.operator_of(found.formula, type(kind)).definition
    else:
        return Plan(tuple(steps))
    steps += steps_of(call_of(backward, gradient_arguments(backward, forward)))
    outputs = kept.forward.line.outputs[len(definition.line.outputs) :] if kept else ()
    return Plan(tuple(steps), kept=tuple(output.name for output in outputs))


def gradient_arguments(backward: Definition, call: IndexedCall) -> tuple[object, ...]:
    """Return arguments of a call's backward, with ones for what arrives."""
    lines, outputs = call.indexed.line.outputs, call.outputs
    first = next(line.name for line in lines if is_real(line))
    arriving = {
        name: torch.ones(shape, dtype=dtype, device=outputs.device)
        for line, shape, dtype in zip(lines, outputs.shapes, outputs.dtypes, strict=True)
        for name in (line.name, f"grad_{line.name}", *(["grad"] if line.name == first else []))
    }
    known = {**arriving, **call.named}
    # Where an input has the name, that of what arrives ends with `_`.
    given = tuple(
        known[p.name] if p.name in known else arriving[p.name.rstrip("_")]
        for p in backward.line.parameters
    )
    return kernel.fill_defaults(backward, given, None)


def steps_on_gpu(call: IndexedCall) -> Iterator[Step]:
    """Yield the steps of one operator on a GPU: nothing is compiled but to count registers."""
    backend = backends.find_gpu()
    for group in nests.group_outputs(call.indexed, call.places, call.sizes):
        part = call.wanting(group)
        own = choose.find_candidate(part, backend)
        if isinstance(own, NoLoops):
            choice = Choice(outputs=group, own=None, reason=own.reason)
        else:
            moved = part.needed.read + part.needed.written
            reason = describe_launches(own, part.sizes, moved, backend.architecture)
            choice = Choice(outputs=group, own=own, reason=reason, takes_own=True)
        yield step_of(call, choice)


def describe_launches(own: Own, sizes: Mapping[str, int], moved: float, architecture: str) -> str:
    """Return how the kernels of some loops lie on a GPU, and how long they take at least.

    Args:
        own: the loops.
        sizes: of a call.
        moved: how many bytes have to be read and written.
        architecture: of the GPU.
    """
    kernels = prepare_call(own, sizes, [0] * len(own.steps)).kernels
    registers = gpu.count_registers(unit_of([own]), architecture) or [None] * len(kernels)
    parts: list[str] = []
    for step, each, count in zip(own.steps, kernels, registers, strict=True):
        tasks = "1 task" if each.count == 1 else f"{each.count} tasks"
        rows = describe_rows(step.kernel, each.share)
        used = "" if count is None else f", {count} registers"
        parts.append(f"{tasks} of {own.target.lanes} threads{rows}{used}")
    rates, work = own.backend.rates(), own.work(sizes)
    limit = "arithmetic" if rates.seconds(work, 0) > rates.seconds(0, moved) else "memory"
    least = f"{1e3 * rates.seconds(work, moved):.2g} ms at least on {rates.device}, by its {limit}"
    return f"{'; '.join(parts)}; {least}"


def describe_rows(kernel: KernelText, shared: int) -> str:
    """Return how often a kernel of several passes reads a row, and what a task keeps of it."""
    kept = f", {shared / 1024:.3g} KB shared" if shared else ""
    if kernel.passes > 1:
        return f"{kept}, rows read {kernel.passes} times"
    return f"{kept}, rows read once" if kept else ""


def steps_of_states(
    steps_of: Callable[[IndexedCall], Iterator[Step]], call: IndexedCall
) -> Iterator[Step]:
    """Yield the steps of a recurrence: its groups of states, then the outputs that are left.

    Args:
        steps_of: returns those of an operator without states.
        call: of the recurrence.
    """
    compute, whole_call = compute_dtype(call), call
    there = backends.find_gpu() if steps_of is steps_on_gpu else None

    def find(own: RecurrentCall, place: int) -> Loops | NoLoops:
        shaped = own.with_empty_parts(whole_call)
        if there:
            return own.candidate(place, shaped, compute, there)
        return own.scan(place, shaped, compute)

    known, _ = RecurrentCall.of_call(call).sink_if_loops(find)
    yield from _steps_before(steps_of, known, call)
    call = known.with_empty_parts(call)
    while known.late:
        place, late = known.late
        yield from islice(_steps_of_groups(known, call, [], find, there), place)
        whole_call = replace(call, named={**call.named, **_empty_states(known, call)})
        known = late
        yield from _steps_before(steps_of, known, whole_call)
        call = known.with_empty_parts(whole_call)
    left = [k for k in call.places if k not in known.copied]
    yield from _steps_of_groups(known, call, left, find, there)
    if left:
        rest = known.rest_call(call, _empty_states(known, call)).wanting(left)
        for step in steps_of(rest):
            yield replace(step, operator=call.indexed.line.qualname)


def _empty_states(known: RecurrentCall, call: IndexedCall) -> dict[str, Tensor]:
    """Return tensors like the states of a call, by name."""
    plain = recur.states_call(known, call)
    return {name: plain.empty_state(state) for name, state in known.formula.states.items()}


def _steps_before(
    steps_of: Callable[[IndexedCall], Iterator[Step]], known: RecurrentCall, call: IndexedCall
) -> Iterator[Step]:
    """Yield the steps of what is computed before those of states."""
    if before := known.before_call(call):
        for step in steps_of(before):
            yield replace(step, operator=call.indexed.line.qualname)


def _steps_of_groups(
    known: RecurrentCall,
    call: IndexedCall,
    left: list[int],
    find: Callable[[RecurrentCall, int], Loops | NoLoops],
    there: CudaBackend | None,
) -> Iterator[Step]:
    """Yield a step for each group of states.

    Args:
        known: what follows from which tensors there are.
        call: with tensors like what is computed before.
        left: the outputs that are no states; those that come with a group are taken out.
        find: returns the loops of a group.
        there: a GPU that is asked about.
    """
    compute = compute_dtype(call)
    joint, states = steps.with_states(known.formula)
    names, plain = [name for name, _ in states], recur.states_call(known, call)
    on_gpu = there is not None or recur.is_for_gpu(plain.device)
    groups = dict(enumerate(known.formula.groups))
    keeps_few = not known.late and recur.has_large_states(known, call, on_gpu=on_gpu)
    walks = known.walks if keeps_few else None
    both = find(known, ALL) if walks else None
    if walks and isinstance(both, Loops):
        groups = {ALL: replace(walks.back, states=walks.states)}
    for place, group in groups.items():
        whole = known.wholes[place]
        if place != ALL and cumulative.is_faster(plain, group, whole, on_gpu=on_gpu):
            scan = NoLoops(reason="")
        else:
            scan = find(known, place)
        own = {state.name for state in group.states}
        asked = [name in own for name in names] + [False] * len(call.outputs.wanted)
        needed = cost.cost(joint, call.sizes, asked, compute.itemsize)
        computed = [state.name for state in group.states]
        beside = scan.names if isinstance(scan, Loops) else whole.outputs if whole else ()
        lines = call.indexed.line.outputs
        more = [k for k in left if lines[k].name in beside and lines[k].name not in own]
        computed += [lines[k].name for k in more]
        left[:] = [k for k in left if k not in more]
        way, reason = _describe_way(scan, group, whole, call.sizes)
        if walks and isinstance(both, NoLoops) and own <= {*names_of(walks.there)}:
            reason += f", all steps are kept: {both.reason}"
        if isinstance(scan, Loops) and not on_gpu and recur.is_short(plain, group):
            reason += f"; it is short: PyTorch's operations take the first {recur.OFTEN} steps"
        if there and isinstance(scan, Loops):
            moved, numbers = needed.read + needed.written, scan.add_sizes(call.sizes)
            reason += f"; {describe_launches(scan.own, numbers, moved, there.architecture)}"
        yield Step(
            operator=call.indexed.line.qualname,
            outputs=tuple(computed),
            way=way,
            reason=reason,
            flops=needed.flops,
            bytes=needed.read + needed.written,
        )


def _describe_way(
    scan: Loops | NoLoops, group: Group, whole: Cumulative | None, sizes: Mapping[str, int]
) -> tuple[str, str]:
    """Return what computes a group of states, and how."""
    if isinstance(scan, Loops):
        return "own loop, recurrence", scan.describe(sizes)
    if whole:
        (time, direction), *_ = group.weights
        order = "" if direction > 0 else ", in reverse order"
        return "PyTorch", f"{cumulative.name_of(whole.op)} along '{time}'{order}"
    return "PyTorch, step by step", scan.reason


def steps_here(call: IndexedCall) -> Iterator[Step]:
    """Yield the steps of one operator."""
    with torch.no_grad():
        found = choose.choose_executors(call) or [
            Choice(outputs=group, own=None, reason=f"on {call.outputs.device.type}")
            for group in nests.group_outputs(call.indexed, call.places, call.sizes)
        ]
    for choice in join_blocks(found):
        yield step_of(call, choice)


def join_blocks(choices: Sequence[Choice]) -> list[Choice]:
    """Return choices in which outputs that the same passes compute are one."""
    found: dict[int, Choice] = {}
    for choice in choices:
        is_shared = choice.passing is not None and not choice.takes_own
        key = id(choice.passing) if is_shared else id(choice)
        known = found.get(key)
        outputs = (*known.outputs, *choice.outputs) if known else choice.outputs
        found[key] = replace(choice, outputs=outputs)
    return list(found.values())


def _name_way(choice: Choice) -> str:
    if choice.own and choice.takes_own:
        return f"own loop, {choice.own.family}"
    if choice.fused:
        return "PyTorch, fused"
    return "PyTorch, by blocks" if choice.passing else "PyTorch"


def step_of(call: IndexedCall, choice: Choice) -> Step:
    """Return what is shown of a choice."""
    line, needed = call.indexed.line, call.wanting(choice.outputs).needed
    return Step(
        operator=line.qualname,
        outputs=tuple(line.outputs[k].name for k in choice.outputs),
        way=_name_way(choice),
        reason=choice.reason,
        flops=needed.flops,
        bytes=needed.read + needed.written,
    )
