"""States of recurrences by PyTorch's operations: one step after the other, on every device.

It takes some microseconds for each operation of each step, so loops of their own are faster; but it
needs no compiler, and a step that is a product of matrices is PyTorch's product.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.bind.dense import cumulative, evaluate
from pullback.bind.dense.value import is_traced
from pullback.define.math import bounds, steps
from pullback.define.math.cumulative import Cumulative
from pullback.define.math.extents import evaluate_size
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine
from pullback.define.math.node import EQUAL, Node
from pullback.define.math.recurrence import Group, State, find_stages
from pullback.define.math.steps import Step

# The formulas of steps that are remembered, for all operators together.
MOST_STEPS = 512


@dataclass(frozen=True, kw_only=True)
class StatesCall:
    """What the states of one call are computed from.

    Attributes:
        formula: with states; all of its tensors are there.
        arguments: by name; the batch of each tensor is one dimension.
        sizes: of every index.
        compute: the dtype of real states.
        device: of the tensors.
    """

    formula: Formula
    arguments: Mapping[str, object]
    sizes: Mapping[str, int]
    compute: torch.dtype
    device: torch.device

    def number(self, place: Affine) -> int:
        """Return a size, or a place without indices, as a number."""
        value = evaluate_size(place, self.sizes)
        assert value is not None, place
        return int(value)

    def dtype(self, type: str) -> torch.dtype:
        """Return the dtype of a state."""
        return {"real": self.compute, "int": torch.int64, "bool": torch.bool}[type]

    def empty_state(self, state: State) -> Tensor:
        """Return the memory of a state."""
        shape = [max(self.number(extent), 0) for extent in state.extents]
        return torch.zeros(shape, dtype=self.dtype(state.node.type), device=self.device)


def compute_group(
    call: StatesCall, group: Group, known: Mapping[str, Tensor], whole: Cumulative | None = None
) -> dict[str, Tensor]:
    """Return the states of one group, by name, and the outputs that come with them.

    Args:
        call: whose states.
        group: which ones.
        known: the states of earlier groups.
        whole: the cumulative function of PyTorch's that computes them; None: step by step.
    """
    is_empty = any(call.number(e) <= 0 for state in group.states for e in state.extents)
    if whole and not is_empty and not (whole.starts or whole.ends):
        return _Run(call, group, {**call.arguments, **known}).accumulate(whole)
    found = {state.name: call.empty_state(state) for state in group.states}
    run = _Run(call, group, {**call.arguments, **known, **found})
    if not is_empty:
        if whole:
            return run.accumulate(whole)
        if len(group.weights) == 1:
            run.times()
        else:
            run.fronts()
    return {state.name: run.state(state) for state in group.states}


class _Run:
    """The computation of one group.

    Attributes:
        values: the arguments and states by name.
        known: the states at each time so far.
        missing: those of them that `values` do not have yet.
        unbound: inputs at each time.
        conditions: on the time, of states that are computed at once.
        is_recorded: whether autograd sees the operations, so that nothing may be written to twice.
    """

    def __init__(self, call: StatesCall, group: Group, values: Mapping[str, object]) -> None:
        self.call, self.group, self.values = call, group, dict(values)
        self.known: dict[str, dict[int, Tensor]] = {state.name: {} for state in group.states}
        self.missing: dict[str, dict[int, Tensor]] = {state.name: {} for state in group.states}
        self.unbound: dict[tuple[str, int], tuple[Tensor, ...]] = {}
        self.conditions: dict[Group, list[_Condition]] = {}
        self.is_recorded = torch.is_grad_enabled()

    def state(self, state: State) -> Tensor:
        value = self.values[state.name]
        assert isinstance(value, Tensor)
        return value

    def times(self) -> None:
        """Compute states of one sequential index, time by time."""
        call, group = self.call, self.group
        ((time, direction),) = group.weights
        where = [state.indices.index(time) for state in group.states]
        length = call.number(group.states[0].extents[where[0]])
        times = range(length) if direction > 0 else range(length - 1, -1, -1)
        for t, stage in itertools.product(times, _stages(call.formula, group)):
            for state, value in zip(stage.states, self.compute_step(stage, t), strict=True):
                self.known[state.name][t] = self.missing[state.name][t] = value
        for state, dim in zip(group.states, where, strict=True):
            own = self.known[state.name]
            self.values[state.name] = torch.stack([own[t] for t in range(length)], dim)

    def compute_step(self, group: Group, t: int) -> list[Tensor]:
        """Return what some states become at one time."""
        ((time, _),) = group.weights
        known = tuple(condition.holds(t) for condition in self.conditions_of(group))
        step = _step(self.call.formula, group, known)
        whole = {p.name for p in step.formula.line.parameters}
        for state in (s for s in self.group.states if s.name in whole):
            self.complete(state, state.indices.index(time))
        given = {each.name: self.take(each, time, t) for each in step.slices}
        return self.evaluate(step.formula, {**given, str(step.time): t}, {}, group.states)

    def conditions_of(self, group: Group) -> list[_Condition]:
        """Return the conditions on the time."""
        if group not in self.conditions:
            time, nodes = group.weights[0][0], steps.conditions_of(group)
            self.conditions[group] = [_Condition(self.call, node, time) for node in nodes]
        return self.conditions[group]

    def accumulate(self, whole: Cumulative) -> dict[str, Tensor]:
        """Return what a cumulative function of PyTorch's computes: the states that are read."""
        call, group, state = self.call, self.group, self.group.states[whole.place]
        ((time, direction),) = group.weights
        dim = state.indices.index(time)
        first, last = (0, -1) if direction > 0 else (-1, 0)
        length = call.number(state.extents[dim])
        asked = [
            place % length for place, own in ((first, whole.starts), (last, whole.ends)) if own
        ]
        own = {t: self.compute_step(group, t)[whole.place] for t in asked}
        formula = whole.elements
        labels = formula.line.outputs[0].labels
        given = cumulative.view_read(formula.nodes[0], labels, self.values)
        [values] = [given] if given is not None else self.evaluate(formula, {}, {}, [state])
        values = values.to(call.dtype(state.node.type))
        start = {t: own[t] for t in asked[: whole.starts]}
        end = {t: own[t] for t in asked[whole.starts :]}
        is_free = not self.is_recorded
        values = cumulative.put(values, dim, start, in_place=is_free and given is None)
        values = cumulative.accumulate(whole.op, values, dim, is_reversed=direction < 0)
        found = dict.fromkeys(whole.outputs, values)
        if whole.is_read:
            is_free &= not found
            found[state.name] = cumulative.put(values, dim, end, in_place=is_free)
        if whole.others:
            others = [each for each in group.states if each is not state and each.name not in found]
            made = self.evaluate(whole.others, found, {}, others)
            found |= {other.name: value for other, value in zip(others, made, strict=True)}
        return found

    def complete(self, state: State, dim: int) -> None:
        """Have a state hold all times so far: a step reads it as a whole."""
        for t, value in self.missing[state.name].items():
            if self.is_recorded:
                self.values[state.name] = self.state(state).select_scatter(value, dim, t)
            else:
                self.state(state).select(dim, t).copy_(value)
        self.missing[state.name].clear()

    def take(self, each: steps.Slice, time: str, t: int) -> Tensor:
        """Return a tensor at one time; what is outside is not selected, and may be anything."""
        value, dim = self.values[each.of], 0
        alone = sum(place is not None for place in each.places) == 1
        # A state that steps read as a whole changes.
        of_input = alone and each.of not in self.known
        assert isinstance(value, Tensor)
        for place in each.places:
            if place is None:
                dim += 1
                continue
            at = self.call.number(place.replaced({time: Affine(t)}))
            if at in self.known.get(each.of, ()):
                return self.known[each.of][at]
            if not value.shape[dim]:
                return value.new_zeros([n for k, n in enumerate(value.shape) if k != dim])
            at = min(max(at, 0), value.shape[dim] - 1)
            value = self.rows(each.of, dim)[at] if of_input else value.select(dim, at)
        return value

    def rows(self, name: str, dim: int) -> tuple[Tensor, ...]:
        """Return an input at each time; all at once take no longer than a few one by one."""
        if (name, dim) not in self.unbound:
            value = self.values[name]
            assert isinstance(value, Tensor)
            self.unbound[name, dim] = value.unbind(dim)
        return self.unbound[name, dim]

    def fronts(self) -> None:
        """Compute states of several sequential indices, front by front."""
        call, group = self.call, self.group
        stages = [(stage, _front(call.formula, stage)) for stage in _stages(call.formula, group)]
        # The places of a front are data to it, and are inside.
        is_inside = not any(bounds.find_gathers(state.node) for state in group.states)
        for columns, (stage, step) in itertools.product(self.split_fronts(), stages):
            given = dict(zip(step.places, columns, strict=True))
            sizes = {step.along: len(columns[0])}
            results = self.evaluate(step.formula, given, sizes, stage.states, is_inside=is_inside)
            places = dict(zip(dict(stage.weights), columns, strict=True))
            for state, value in zip(stage.states, results, strict=True):
                own = self.state(state)
                own = own.clone() if self.is_recorded else own
                _put(own, state.indices, places, value)
                self.values[state.name] = own

    def split_fronts(self) -> Iterable[tuple[Tensor, ...]]:
        """Yield the places of each front: of each sequential index."""
        call, first = self.call, self.group.states[0]
        weights, device = dict(self.group.weights), call.device
        extents = [call.number(first.extents[first.indices.index(i)]) for i in weights]
        ranges = [torch.arange(extent, device=device) for extent in extents]
        if is_traced(ranges[0]):
            return _list_fronts(tuple(extents), tuple(weights.values()), device)
        places = torch.cartesian_prod(*ranges)
        order = (places * torch.tensor(list(weights.values()), device=device)).sum(1)
        many = order.unique(sorted=True, return_counts=True)[1].tolist()
        return (own.unbind(1) for own in places[order.argsort(stable=True)].split(many))

    def evaluate(
        self,
        formula: Formula,
        given: Mapping[str, object],
        sizes: Mapping[str, int],
        states: Sequence[State],
        *,
        is_inside: bool = False,
    ) -> list[Tensor]:
        """Return the new elements of some states."""
        call, line = self.call, formula.line
        known = {**self.values, **given}
        # The only parameter without a value says how large the batch is.
        arguments = {
            p.name: known[p.name]
            if p.name in known
            else torch.empty(call.sizes[BATCH], device=call.device)
            for p in line.parameters
        }
        found = evaluate.evaluate(
            formula,
            arguments,
            {**call.sizes, **sizes},
            [True] * len(line.outputs),
            [call.dtype(state.node.type) for state in states],
            call.device,
            reuse=not self.is_recorded,
            is_inside=is_inside,
        )
        return [value for value in found if value is not None]


@functools.lru_cache(maxsize=MOST_STEPS)
def _step(formula: Formula, group: Group, known: tuple[bool, ...]) -> Step:
    """Return the formula of the steps for which the same conditions hold."""
    conditions = steps.conditions_of(group)
    return steps.write_step(formula, group, dict(zip(conditions, known, strict=True)))


@functools.lru_cache(maxsize=MOST_STEPS)
def _stages(formula: Formula, group: Group) -> tuple[Group, ...]:
    """Return the parts of a group that are computed at once."""
    return find_stages(group, formula.ranges)


_front = functools.lru_cache(maxsize=MOST_STEPS)(steps.write_front)


class _Condition:
    """A condition on the time, `0 <= t + c < n` or `t + c == 0`, with the numbers of one call."""

    def __init__(self, call: StatesCall, node: Node, time: str) -> None:
        place = node.places[0]
        self.factor = place.factor(time)
        self.rest = call.number(place.replaced({time: Affine(0)}))
        self.end = 1 if node.op == EQUAL else call.number(node.size)

    def holds(self, t: int) -> bool:
        """Return whether it holds at a time."""
        return 0 <= self.factor * t + self.rest < self.end


def _list_fronts(
    extents: tuple[int, ...], weights: tuple[int, ...], device: torch.device
) -> Iterable[tuple[Tensor, ...]]:
    """Yield the places of each front as constants: a tracer cannot see how many there are."""

    def front(place: tuple[int, ...]) -> int:
        return sum(map(operator.mul, place, weights))

    places = sorted(itertools.product(*map(range, extents)), key=front)
    for _, own in itertools.groupby(places, key=front):
        columns = zip(*own, strict=True)
        yield tuple(torch.tensor(column, device=device) for column in columns)


def _put(
    whole: Tensor, indices: Sequence[str], columns: Mapping[str, Tensor], value: Tensor
) -> None:
    """Write the elements of a front, whose index is the last one of `value`."""
    free = [k for k, index in enumerate(indices) if index not in columns]
    bound = [k for k, index in enumerate(indices) if index in columns]
    places = (columns[indices[k]] for k in bound)
    whole.permute(*free, *bound)[..., *places] = value
