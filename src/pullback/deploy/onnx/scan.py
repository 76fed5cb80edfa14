"""The steps of one group of states -> a function of the model with a `Scan`, and one for its body.

The step's function is exported from PyTorch's operations, as other bodies are. `Scan` calls it with
the last elements of each state, and with what the tensors are at that step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype
from torch import Tensor
from torch.export import Dim

from pullback.bind.dense import evaluate
from pullback.define.line import Scalar
from pullback.define.math.index import BATCH
from pullback.define.math.scan_steps import ScanStep
from pullback.deploy.onnx import call, reference
from pullback.deploy.onnx.body import Body, BodyBuilder, Underivable

if TYPE_CHECKING:
    from pullback.deploy.onnx.exporter import Exporter

# The attribute by which the node of a group's steps is found again.
MARK = "pullback_scan"

Role = Literal["window", "step", "fixed", "size", "shape"]
OF_STEP: tuple[Role, ...] = ("window", "step", "fixed", "size")


@dataclass(frozen=True)
class ScanInput:
    """One input of the node of a group's steps.

    Attributes:
        name: of the parameter of the step that it is for, or of the size.
        value: in the trace.
        role: the start of a window; what has an element for each step; what all steps read; a
            tensor without elements that has a size, or all of a state's and one more.
        axis: along which the steps are.
    """

    name: str
    value: Tensor
    role: Role
    axis: int = 0

    def recorded(self) -> Recorded:
        """Return what remains of it after the trace."""
        return Recorded(
            name=self.name,
            role=self.role,
            axis=self.axis,
            dtype=self.value.dtype,
            shape=[
                size if type(size) is int else (int(size.node.hint),)  # pyright: ignore
                for size in self.value.shape
            ],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """An input after the trace: sizes that vary are tuples of one example."""

    name: str
    role: Role
    axis: int
    dtype: torch.dtype
    shape: Sequence[int | tuple[int]]

    @property
    def label(self) -> str:
        """What it is called in the model."""
        return f"size_{self.name.strip('.')}" if self.role == "size" else self.name

    @property
    def in_step(self) -> list[int | tuple[int]]:
        """The sizes of what a step is given."""
        return [n for k, n in enumerate(self.shape) if self.role != "step" or k != self.axis]

    def example(self) -> Tensor:
        """Return an example for the step, whose varying sizes a trace does not specialise on."""
        sizes = [n if isinstance(n, int) else max(*n, reference.SMALLEST) for n in self.in_step]
        return torch.ones(sizes, dtype=self.dtype)


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The steps of one group in an exported model.

    Attributes:
        step: its formula.
        states: their names.
        axes: of each state, the dimension that the steps are along.
        dtypes: of the states.
        scalars: of the call.
        sizes: those that do not vary.
        inputs: of the node.
    """

    step: ScanStep
    states: Sequence[str]
    axes: Sequence[int]
    dtypes: Sequence[torch.dtype]
    scalars: Mapping[str, object]
    sizes: Mapping[str, int]
    inputs: Sequence[Recorded]

    @property
    def name(self) -> str:
        """What the node is called."""
        return f"{self.step.formula.line.name}s"

    def only(self, *roles: Role) -> list[Recorded]:
        """Return the inputs with some roles."""
        return [each for each in self.inputs if each.role in roles]

    def finish(self, node: ir.Node, exporter: Exporter) -> list[ir.Value | None]:
        """Give a node its function, and return those of its inputs that this needs.

        Raises:
            Underivable: the step cannot be exported for sizes that vary.
        """
        domain = self.step.formula.line.namespace
        step, unused = self.export_step(exporter)
        name = exporter.library.add((domain, self.step.formula.line.name), step)
        used = replace(self, inputs=[each for each in self.inputs if each not in unused])
        body = used.write(name, step, exporter.opset)
        node.domain, node.op_type = domain, exporter.library.add((domain, self.name), body)
        pairs = zip(self.inputs, node.inputs, strict=True)
        return [value for each, value in pairs if each not in unused]

    def export_step(self, exporter: Exporter) -> tuple[Body, list[Recorded]]:
        """Return the function of one step, and the inputs that it does without."""
        inputs = self.only(*OF_STEP)
        examples = tuple(each.example() for each in inputs)
        varying = tuple(
            {k: Dim.AUTO for k, size in enumerate(each.in_step) if not isinstance(size, int)}
            for each in inputs
        )
        traced = torch.export.export(_Step(self), examples, dynamic_shapes=(varying,))
        graph = exporter.program_of(traced, ()).model.graph
        self.require_varying(graph.inputs)
        builder = BodyBuilder()
        formal, returned, nodes = reference.take_apart(graph, builder)
        builder.nodes += nodes
        pairs = list(zip(inputs, formal, strict=True))
        for each, value in pairs:
            value.name = each.label
        unused = [e for e, value in pairs if e.role in ("fixed", "size") and not value.uses()]
        formal = [value for each, value in pairs if each not in unused]
        windows = [f"next_{each.name}" for each in self.only("window")]
        names = [*windows, *(output.name for output in self.step.formula.line.outputs)]
        return builder.body(formal, returned, names, exporter.opset), unused

    def require_varying(self, traced: Sequence[ir.Value]) -> None:
        """Stop where the step has fixed a size that varies."""
        for each, formal in zip(self.only(*OF_STEP), traced, strict=True):
            for size, fixed in zip(each.in_step, call.sizes_of(formal), strict=True):
                if not isinstance(size, int) and isinstance(fixed, int):
                    raise Underivable(
                        f"a step only works for {fixed} elements in a dimension of '{each.name}', "
                        "and that size varies in the model"
                    )

    def write(self, step: str, body: Body, opset: int) -> Body:
        """Return the function with the `Scan`, which calls that of a step."""
        builder = BodyBuilder()
        formal = [ir.Value(name=each.label) for each in self.inputs]
        values = dict(zip(self.inputs, formal, strict=True))
        shapes = [builder.op("Shape", values[each], end=-1) for each in self.only("shape")]
        sizes = [builder.op("ReduceProd", shape, keepdims=0) for shape in shapes]
        count = functools.reduce(lambda one, other: builder.op("Add", one, other), sizes)
        # Where the states have no elements: ONNX Runtime divides by their number.
        is_empty = builder.op("Equal", count, builder.constant(0, ir.DataType.INT64))
        without = [
            ir.node("ConstantOfShape", [shape], {"value": ir.tensor([0], from_torch_dtype(dtype))})
            for shape, dtype in zip(shapes, self.dtypes, strict=True)
        ]
        found = self.scan(step, body, values)
        branch = ir.node(
            "If",
            [is_empty],
            {
                "then_branch": graph_of("empty", [each.outputs[0] for each in without], without),
                "else_branch": graph_of("steps", found.outputs[-len(self.axes) :], [found]),
            },
            num_outputs=len(self.axes),
        )
        builder.nodes.append(branch)
        states = [output.name for output in self.step.formula.line.outputs]
        return builder.body(formal, branch.outputs, states, opset)

    def scan(self, step: str, body: Body, values: Mapping[Recorded, ir.Value]) -> ir.Node:
        """Return the node that repeats the step."""
        windows, steps = self.only("window"), self.only("step")
        inner = {
            each: ir.Value(
                name=f"each_{each.label}", type=ir.TensorType(from_torch_dtype(each.dtype))
            )
            for each in (*windows, *steps)
        }
        called = ir.Node(
            self.step.formula.line.namespace,
            step,
            [inner.get(each, values[each]) for each in self.only(*OF_STEP)],
            num_outputs=len(body.function.outputs),
        )
        direction = int(self.step.time[1] < 0)
        return ir.node(
            "Scan",
            [values[each] for each in (*windows, *steps)],
            {
                "body": graph_of(step, called.outputs, [called], [*inner.values()]),
                "num_scan_inputs": len(steps),
                "scan_input_axes": [each.axis for each in steps],
                "scan_input_directions": [direction] * len(steps),
                "scan_output_axes": list(self.axes),
                "scan_output_directions": [direction] * len(self.axes),
            },
            num_outputs=len(windows) + len(self.axes),
        )


def graph_of(
    name: str,
    outputs: Sequence[ir.Value],
    nodes: Sequence[ir.Node],
    inputs: Sequence[ir.Value] = (),
) -> ir.Graph:
    """Return a graph inside of a node."""
    return ir.Graph(list(inputs), list(outputs), nodes=nodes, name=name)


class _Step(torch.nn.Module):
    """One step by PyTorch's operations: windows, steps and fixed tensors -> windows and states."""

    def __init__(self, scan: Scan) -> None:
        super().__init__()
        self.scan = scan

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the windows of the next step, and the states of this one."""
        scan, step = self.scan, self.scan.step
        pairs = list(zip(scan.only(*OF_STEP), tensors, strict=True))
        given = {each.name: value for each, value in pairs if each.role != "size"}
        sizes = {each.name: value.shape[0] for each, value in pairs if each.role == "size"}
        sizes = {**scan.sizes, **sizes}
        for window in step.windows.values():
            sizes[window.label] = given[window.name].shape[0]
        found = evaluate.evaluate(
            step.formula,
            dict(self.arguments(given, sizes)),
            sizes,
            [True] * len(scan.dtypes),
            scan.dtypes,
            tensors[0].device,
        )
        states = [value for value in found if value is not None]
        return *self.moved(given, states), *states

    def arguments(
        self, given: Mapping[str, Tensor], sizes: Mapping[str, Any]
    ) -> Iterator[tuple[str, object]]:
        """Yield the arguments of the step's formula."""
        dims = {window.name: window.dim for window in self.scan.step.windows.values()}
        for parameter in self.scan.step.formula.line.parameters:
            name = parameter.name
            if isinstance(parameter, Scalar):
                yield name, self.scan.scalars[name]
            elif name in given:
                yield (
                    name,
                    given[name].movedim(0, dims.get(name, 0)) if name in dims else given[name],
                )
            else:  # it says how large the batch is
                yield name, torch.empty(sizes[BATCH])

    def moved(self, given: Mapping[str, Tensor], states: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the windows of the next step."""
        scan, step = self.scan, self.scan.step
        forwards, clock = step.time[1] > 0, given.get(step.clock)
        for name, value in zip(scan.states, states, strict=True):
            if window := step.windows.get(name):
                last = given[window.name]
                yield slide(last, value, None if window.size else clock, forwards=forwards)


def slide(last: Tensor, value: Tensor, clock: Tensor | None, *, forwards: bool) -> Tensor:
    """Return a window with one more element of its state, at a place of its own or at its end."""
    if clock is not None:
        here = torch.arange(last.shape[0]) == clock
        return torch.where(here.reshape(-1, *[1] * value.dim()), value[None], last)
    return torch.cat([last[1:], value[None]] if forwards else [value[None], last[:-1]])
