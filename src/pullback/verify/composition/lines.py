"""The promises of the line of pullback's own operator, and calls that test them."""

from __future__ import annotations

import torch
from torch import Tensor

from pullback.define.dimension import Batch
from pullback.define.line import Line
from pullback.verify.call import Call, Run
from pullback.verify.composition.composed import CallResult, describe_tensors
from pullback.verify.probe import NotApplicable

COUNT = 3


def line_of(call: Call) -> Line:
    """Return the line.

    Raises:
        NotApplicable: the target has none.
    """
    if call.target.operator is None:
        raise NotApplicable("it is not an operator of pullback")
    return call.target.operator.line


def batch_axes(call: Call, line: Line) -> list[int | None]:
    """Return where each leaf's `...` begins; None for a leaf without."""
    specs = {spec.name: spec for spec in line.tensors}
    found: list[int | None] = []
    for leaf in call.leaves:
        spec = specs.get(leaf.name.partition("[")[0])
        found.append(spec.dims.index(Batch()) if spec and spec.has_batch else None)
    return found


def compare_batch(call: Call) -> str | None:
    """Say where a batch of three differs from one call for each, if anywhere.

    Raises:
        NotApplicable: the line has no `...`, or the operator refuses such a call.
    """
    line = line_of(call)
    axes = batch_axes(call, line)
    if all(axis is None for axis in axes):
        raise NotApplicable("its line has no '...'")
    call, count = pad_batch(call, line, axes)
    singles = [
        call.with_values([vary_leaf(call, i, axes, k) for i in range(len(axes))])
        for k in range(COUNT)
    ]
    whole = call.with_values(
        [
            leaf.value
            if axis is None
            else torch.stack([single.leaves[i].value for single in singles], axis)
            for i, (leaf, axis) in enumerate(zip(call.leaves, axes, strict=True))
        ]
    )
    try:
        runs = [single.forward() for single in singles]
        together = whole.forward()
    except Exception as error:
        raise NotApplicable("it refuses a batch of three") from error
    out = [spec.dims.index(Batch()) if spec.has_batch else None for spec in line.outputs]
    if len(out) != len(together.outputs):
        raise NotApplicable("its outputs are not those of the line")
    return compare(call, runs, together, axes, out) or compare_parts(call, axes, out, count)


def compare_parts(
    call: Call, axes: list[int | None], out: list[int | None], count: int
) -> str | None:
    """Say where a part of the given batch differs from the whole, if anywhere."""
    values = [leaf.value for leaf in call.leaves]
    whole = call.values(values)
    for k in range(count):
        parts = [
            v if axis is None or v.shape[axis + k] < 2 else v.narrow(axis + k, 1, 1)
            for v, axis in zip(values, axes, strict=True)
        ]
        sizes = [v.shape[a + k] for v, a in zip(values, axes, strict=True) if a is not None]
        if max(sizes) < 2:
            continue
        try:
            found = call.with_values(parts).values(parts)
        except Exception:
            continue
        wanted = [
            None if axis is None else t.narrow(axis + k, 1, 1)
            for t, axis in zip(whole, out, strict=True)
        ]
        own = [None if axis is None else t for t, axis in zip(found, out, strict=True)]
        if said := describe_tensors(own, wanted, [f"output {i}" for i in range(len(own))]):
            return said
    return None


def pad_batch(call: Call, line: Line, axes: list[int | None]) -> tuple[Call, int]:
    """Return the call with equally many batch dimensions everywhere, and their number."""
    specs = {spec.name: spec for spec in line.tensors}
    own = [
        None if axis is None else leaf.value.ndim - len(specs[leaf.name.partition("[")[0]].dims) + 1
        for leaf, axis in zip(call.leaves, axes, strict=True)
    ]
    most = max((n for n in own if n is not None), default=0)
    values: list[Tensor] = []
    for leaf, axis, count in zip(call.leaves, axes, own, strict=True):
        shape = list(leaf.value.shape)
        if axis is not None and count is not None:
            shape[axis:axis] = [1] * (most - count)
        values.append(leaf.value.reshape(shape))
    return call.with_values(values), most


def compare(
    call: Call, runs: list[Run], together: Run, axes: list[int | None], out: list[int | None]
) -> str | None:
    """Say where the runs differ: outputs first, then gradients of the leaves with `...`."""
    grads = [run.random_grads(seed=k) for k, run in enumerate(runs)]
    joined = [
        None
        if (own := grads[0][i]) is None
        else own
        if axis is None
        else torch.stack([g for grad in grads if (g := grad[i]) is not None], axis)
        for i, axis in enumerate(out)
    ]
    try:
        one = [collect_result(run, own) for run, own in zip(runs, grads, strict=True)]
        every = collect_result(together, joined)
    except Exception:  # it has no derivative
        nothing = [None] * len(out)
        one = [collect_result(run, nothing) for run in runs]
        every = collect_result(together, nothing)
    names = [f"output {i}" for i in range(len(out))]
    leaves = [f"the gradient of `{leaf.name}`" for leaf in call.leaves]
    gradients = all(axis is not None for axis in out)
    for k, single in enumerate(one):
        found = [take_row(t, axis, k) for t, axis in zip(every.outputs, out, strict=True)]
        wanted = [
            t if axis is not None else None for t, axis in zip(single.outputs, out, strict=True)
        ]
        if said := describe_tensors(found, wanted, names):
            return said
        if not gradients:
            continue
        found = [take_row(t, axis, k) for t, axis in zip(every.gradients, axes, strict=True)]
        wanted = [
            t if axis is not None else None for t, axis in zip(single.gradients, axes, strict=True)
        ]
        if said := describe_tensors(found, wanted, leaves):
            return said
    return None


def collect_result(run: Run, grads: object) -> CallResult:
    """Return the outputs and gradients of a run."""
    outputs = tuple(output.detach() for output in run.outputs)
    return CallResult(outputs=outputs, gradients=run.backward(list(grads)))  # type: ignore[call-overload]


def take_row(tensor: Tensor | None, axis: int | None, k: int) -> Tensor | None:
    """Return one element of the batch."""
    return None if tensor is None or axis is None else tensor.select(axis, k)


def vary_leaf(call: Call, index: int, axes: list[int | None], k: int) -> Tensor:
    """Return a leaf's value for one element of the batch: near the given one, if it has a batch."""
    value = call.leaves[index].value
    if axes[index] is None or not value.is_floating_point():
        return value
    return (value * (1 - k / 16)).to(value.dtype)
