"""A recurrence -> the body of its node: ONNX's `Scan` for each group of states, of any length.

The formula is traced with a node in place of each group's steps. That node becomes a function of
the model with a `Scan`, whose body calls another function: the step, by PyTorch's operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind.dense.steps import StatesCall, compute_group
from pullback.bind.math.recur import RecurrentExecutor
from pullback.define.line import Scalar
from pullback.define.math.extents import evaluate_size
from pullback.define.math.index import Affine
from pullback.define.math.node import EQUAL, Node
from pullback.define.math.recurrence import Group, find_stages
from pullback.define.math.scan_steps import ScanStep, write_scan_step
from pullback.define.math.steps import Slice
from pullback.define.shape import Size
from pullback.deploy.onnx import reference
from pullback.deploy.onnx.body import Body
from pullback.deploy.onnx.call import OnnxCall
from pullback.deploy.onnx.scan import MARK, Scan, ScanInput

if TYPE_CHECKING:
    from pullback.deploy.onnx.exporter import Exporter


def has_scans(call: OnnxCall) -> bool:
    """Return whether a call is of a recurrence with a sequential index."""
    formula = call.definition.formula
    return formula is not None and any(len(group.weights) == 1 for group in formula.groups)


def body_of(call: OnnxCall, exporter: Exporter) -> Body:
    """Return the body of a recurrence.

    Raises:
        Underivable: it cannot be traced.
    """
    states = partial(states_by_scan, exporter=exporter)
    function = partial(RecurrentExecutor(call.definition, lambda: None).by_pytorch, states=states)
    return reference.body_of(call, function, exporter)


def states_by_scan(
    call: StatesCall, group: Group, known: Mapping[str, Tensor], *, exporter: Exporter
) -> dict[str, Tensor]:
    """Return the states of a group, in a trace: the outputs of one node.

    Those along fronts are computed step by step, so that their number is fixed. So are those of
    which a window has the step itself: one of `Scan`'s has what is before it.
    """
    if len(group.weights) != 1 or len(find_stages(group, call.formula.ranges)) > 1:
        return compute_group(call, group, known)
    step = write_scan_step(call.formula, group)
    traced = _Traced(call, group, step, {**call.arguments, **known})
    inputs = [
        *traced.windows(),
        *traced.each_step(),
        *traced.fixed(),
        *traced.sizes(),
        *traced.shapes(),
    ]
    extents = [[traced.size(extent) for extent in state.extents] for state in group.states]
    dtypes = [call.dtype(state.node.type) for state in group.states]
    scan = Scan(
        step=step,
        states=[state.name for state in group.states],
        axes=[state.indices.index(step.time[0]) for state in group.states],
        dtypes=dtypes,
        scalars={
            p.name: call.arguments[p.name]
            for p in step.formula.line.parameters
            if isinstance(p, Scalar)
        },
        sizes={name: size for name, size in call.sizes.items() if type(size) is int},
        inputs=[each.recorded() for each in inputs],
    )
    exporter.scans.append(scan)
    made = torch.onnx.ops.symbolic_multi_out(
        f"{step.formula.line.namespace}::{scan.name}",
        [each.value for each in inputs],
        {MARK: len(exporter.scans) - 1},
        dtypes=dtypes,
        shapes=extents,
        version=1,
    )
    return {state.name: value for state, value in zip(group.states, made, strict=True)}


class _Traced:
    """What the node of a group is given, while the formula is traced."""

    def __init__(
        self, call: StatesCall, group: Group, step: ScanStep, values: Mapping[str, object]
    ) -> None:
        self.call, self.group, self.step, self.values = call, group, step, values
        first = group.states[0]
        self.length = self.size(first.extents[first.indices.index(step.time[0])])

    def size(self, extent: Affine) -> Size:
        """Return a size, which may be a symbol."""
        value = evaluate_size(extent, self.call.sizes)
        assert value is not None, extent
        return value

    def tensor(self, name: str) -> Tensor:
        value = self.values[name]
        assert isinstance(value, Tensor)
        return value

    def windows(self) -> list[ScanInput]:
        """Return what the states are before the first step, which is never selected."""
        found: list[ScanInput] = []
        for state in self.group.states:
            if window := self.step.windows.get(state.name):
                shape = [self.size(extent) for extent in state.extents]
                many = self.length if window.size is None else window.size
                shape = [many, *(n for k, n in enumerate(shape) if k != window.dim)]
                value = torch.zeros(shape, dtype=self.call.dtype(state.node.type))
                found.append(ScanInput(window.name, value, "window"))
        return found

    def each_step(self) -> list[ScanInput]:
        """Return what has an element for each step: conditions, the time, and slices."""
        times = torch.arange(self.length)
        found = [
            *(
                ScanInput(name, self.holds(node, times), "step")
                for name, node in self.step.conditions.items()
            ),
            *(self.slice(each, times) for each in self.step.slices),
        ]
        # Something has to say how many steps there are.
        is_needed = self.step.needs_clock or not found
        return [*([ScanInput(self.step.clock, times, "step")] if is_needed else []), *found]

    def place(self, place: Affine, times: Tensor) -> Tensor:
        """Return the numbers of a place at all times."""
        time = self.step.time[0]
        return times * place.factor(time) + self.size(place.replaced({time: Affine(0)}))

    def holds(self, node: Node, times: Tensor) -> Tensor:
        """Return when a condition holds."""
        place = self.place(node.places[0], times)
        return place == 0 if node.op == EQUAL else (place >= 0) & (place < self.size(node.size))

    def slice(self, each: Slice, times: Tensor) -> ScanInput:
        """Return a tensor in the order of its steps; what is outside is never selected."""
        value, time = self.tensor(each.of), self.step.time[0]
        dims = [k for k, place in enumerate(each.places) if place is not None]
        places = [place for place in each.places if place is not None]
        if len(dims) == 1 and places[0].index == time:
            return ScanInput(each.name, value, "step", dims[0])
        ends = [value.shape[dim] - 1 for dim in dims]
        inside = (
            self.place(place, times).clamp(min=0).clamp(max=end)
            for place, end in zip(places, ends, strict=True)
        )
        return ScanInput(each.name, value.movedim(dims, [*range(len(dims))])[*inside], "step")

    def fixed(self) -> list[ScanInput]:
        """Return the tensors that every step reads as a whole."""
        read = {parameter.name for parameter in self.step.formula.line.tensors}
        return [ScanInput(name, self.tensor(name), "fixed") for name in self.values if name in read]

    def sizes(self) -> list[ScanInput]:
        """Return tensors without elements that have the sizes which vary."""
        return [
            ScanInput(name, torch.zeros((size, 0)), "size")
            for name, size in self.call.sizes.items()
            if type(size) is not int
        ]

    def shapes(self) -> list[ScanInput]:
        """Return tensors without elements that have the sizes of the states, and one more."""
        return [
            ScanInput(
                f"shape_{state.name}", torch.zeros([*map(self.size, state.extents), 0]), "shape"
            )
            for state in self.group.states
        ]
