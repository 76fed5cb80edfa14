"""What `op.plan(...)` shows: who computes which output of a call and of its backward, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.bind.formula import arrange, derive
from pullback.bind.index import choose
from pullback.bind.index.choose import Choice
from pullback.bind.index.execute import Executor, Prepared
from pullback.define.formula import cost, indexed_derived
from pullback.define.line import Scalar
from pullback.define.operator import Definition


@dataclass(frozen=True, kw_only=True)
class Step:
    """One group of outputs that are computed together.

    Attributes:
        operator: whose outputs they are: the operator itself, or the one of its gradients.
        outputs: their names.
        way: "own loop", with its family, or "PyTorch".
        reason: why.
        flops: the operations that are needed, if each value is computed once.
        bytes: what has to be read and written at least.
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
    """How one call is computed, and its backward."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        rows: list[str] = []
        for operator in dict.fromkeys(step.operator for step in self.steps):
            rows.append(operator)
            rows += [f"    {step}" for step in self.steps if step.operator == operator]
        return "\n".join(rows)

    __repr__ = __str__


def plan(definition: Definition, given: tuple[object, ...]) -> Plan:
    """Return how a call is computed; loops are compiled and compared as the call would have them.

    Args:
        definition: the operator.
        given: its arguments.
    """
    assert definition.indexed
    executor = Executor(definition)
    arguments = kernel.completed(definition, given, None)
    known = executor.known(arguments)
    steps = list(steps_of(executor, arguments, known))
    if found := indexed_derived.backward(definition.indexed):
        backward = derive.operator_of(found.formula).definition
        executor = Executor(backward)
        arguments = gradient_arguments(definition, backward, arguments, known)
        steps += steps_of(executor, arguments, executor.known(arguments))
    return Plan(tuple(steps))


def gradient_arguments(
    definition: Definition, backward: Definition, given: Sequence[object], known: Prepared
) -> tuple[object, ...]:
    """Return arguments of a backward: ones for what arrives, and no output that it does not have."""
    named = arrange.named(definition.line, given)
    shapes = dict(zip((o.name for o in definition.line.outputs), known.outputs.shapes, strict=True))
    dims = {o.dims: o.name for o in definition.line.outputs}
    values: list[object] = []
    for parameter in backward.line.parameters:
        if parameter.name in named:
            values.append(named[parameter.name])
        else:
            assert not isinstance(parameter, Scalar)
            name = parameter.name if parameter.name in shapes else dims[parameter.dims]
            dtype, device = known.outputs.dtypes[0], known.outputs.device
            values.append(torch.ones(shapes[name], dtype=dtype, device=device))
    return tuple(values)


def steps_of(executor: Executor, given: Sequence[object], known: Prepared) -> Iterator[Step]:
    """Yield the steps of one operator."""
    found = known.choices or [
        Choice(outputs=group, own=None, reason=f"no own loops for {known.outputs.device.type}")
        for group in choose.groups(executor, known.outputs)
    ]
    tensors = [value for value in given if isinstance(value, Tensor)]
    itemsize = max(tensor.itemsize for tensor in tensors)
    line = executor.indexed.line
    for choice in found:
        wanted = [k in choice.outputs for k in range(len(line.outputs))]
        needed = cost.cost(executor.indexed, known.sizes, wanted, itemsize)
        way = f"own loop, {choice.own.family}" if choice.own and choice.takes_own else "PyTorch"
        yield Step(
            operator=line.qualname,
            outputs=tuple(line.outputs[k].name for k in choice.outputs),
            way=way,
            reason=choice.reason,
            flops=needed.flops,
            bytes=needed.read + needed.written,
        )
