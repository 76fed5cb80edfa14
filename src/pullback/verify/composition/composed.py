"""The same call in another context: under a mode, a transform, a hook; its results are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.verify.agreement import describe_differing, find_differing
from pullback.verify.call import Call, Run, copy_leaf, tensors_in
from pullback.verify.probe import NotApplicable

# Calls the target on tensors in the places of the leaves, in another way than `Call.on` does.
Way = Callable[[Sequence[Tensor]], Any]


@dataclass(frozen=True, kw_only=True)
class CallResult:
    """The outputs of a call and the gradients of its leaves for the same Gaussian gradients."""

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor | None, ...]


def ordinary_result(call: Call) -> CallResult:
    """Return the results of the ordinary call.

    Raises:
        NotApplicable: they differ each time.
    """
    if not call.repeatable:
        raise NotApplicable("the outputs are others at each call")
    run = call.forward()
    return result_of(run)


def result_of(run: Run) -> CallResult:
    """Return the results of a run."""
    # Copies, since backward may write to what it saved.
    outputs = tuple(output.detach().clone() for output in run.outputs)
    return CallResult(outputs=outputs, gradients=run.backward(run.random_grads()))


def run_by(call: Call, way: Way) -> Run:
    """Return a run in which the target is called in another way."""
    leaves = tuple(copy_leaf(leaf.value).requires_grad_(leaf.wanted) for leaf in call.leaves)
    with torch.enable_grad():
        given = tuple(leaf.clone() for leaf in leaves)
        returned = way(given)
    outputs = tensors_in(returned)
    return Run(leaves=leaves, given=given, returned=returned, outputs=outputs, seed=call.seed)


def describe_difference(call: Call, found: CallResult, wanted: CallResult) -> str | None:
    """Say how two results differ, if they do: "the gradient of `x`: [0] is 2 for 1"."""
    names = [f"output {i}" for i in range(len(wanted.outputs))]
    said = describe_tensors(found.outputs, wanted.outputs, names)
    grads = [f"the gradient of `{leaf.name}`" for leaf in call.leaves]
    return said or describe_tensors(found.gradients, wanted.gradients, grads)


def describe_tensors(
    found: Sequence[Tensor | None], wanted: Sequence[Tensor | None], names: Sequence[str]
) -> str | None:
    """Say how tensors differ, if they do."""
    if len(found) != len(wanted):
        return f"{len(found)} tensors for {len(wanted)}"
    for name, a, b in zip(names, found, wanted, strict=True):
        if a is not None and b is not None and a.shape != b.shape:
            return f"{name}: shape {tuple(a.shape)} for {tuple(b.shape)}"
        if (where := find_differing(a, b)) is not None:
            return f"{name}: {describe_differing(where, a, b)}"
    return None


def changes_inputs(call: Call) -> bool:
    """Tell whether forward writes into its inputs, on purpose or not."""
    run = call.forward()
    return any(
        not torch.equal(given.detach().nan_to_num(), leaf.detach().nan_to_num())
        for given, leaf in zip(run.given, run.leaves, strict=True)
    )
