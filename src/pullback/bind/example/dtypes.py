"""The dtypes that a line names: those that do not follow the shared one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.bind.check import name_of
from pullback.bind.example.given import Given
from pullback.bind.example.trial import ExampleTrial, ForwardResult

OTHER_DTYPE = {
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex128: torch.complex64,
}


@dataclass(frozen=True)
class Dtypes:
    """The dtypes of a line.

    Attributes:
        inputs: those of tensors that name one in the line, by the number of the parameter.
        outputs: one an output, None where it follows the inputs'.
    """

    inputs: Mapping[int, str]
    outputs: Sequence[str | None]


def dtypes_of(
    trial: ExampleTrial, given: Sequence[Given], owners: Sequence[int], result: ForwardResult
) -> Dtypes:
    """Return the dtypes of a line, found by a call in a dtype other than the example's.

    Args:
        trial: forward, with the example.
        given: the parameters.
        owners: for each tensor of the example, the number of its parameter.
        result: of the example.
    """
    shared = shared_by(trial)
    examples = dict(zip(owners, (e.dtype for e in trial.examples), strict=True))
    # Also for an empty placeholder, which tells nothing else.
    values = ((i, one.value) for i, one in enumerate(given))
    own = {i: value.dtype for i, value in values if isinstance(value, Tensor)} | examples
    inputs = {i: name_of(dtype) for i, dtype in own.items() if dtype != shared}
    found = [output.dtype for output in result.tensors]
    elsewhere = try_another_dtype(trial, shared) if shared else None
    if elsewhere is None:  # forward does not take another
        return Dtypes(inputs, [None if d == shared else name_of(d) for d in found])
    other, made = elsewhere
    follows = [a == shared and b == other for a, b in zip(found, made, strict=True)]
    stays = [a == b for a, b in zip(found, made, strict=True)]
    if all(f or s for f, s in zip(follows, stays, strict=True)):
        outputs = [None if f else name_of(a) for f, a in zip(follows, found, strict=True)]
        return Dtypes(inputs, outputs)
    pinned = {owner: name_of(dtype) for owner, dtype in examples.items()}
    return Dtypes(inputs | pinned, [name_of(a) for a in found])


def shared_by(trial: ExampleTrial) -> torch.dtype | None:
    """Return the dtype that most of the example's tensors have, None if none can have another."""
    floating = [e.dtype for e in trial.examples if e.is_floating_point() or e.is_complex()]
    counted = Counter(floating).most_common(1)
    return counted[0][0] if counted else None


def try_another_dtype(
    trial: ExampleTrial, shared: torch.dtype
) -> tuple[torch.dtype, list[torch.dtype]] | None:
    """Return another dtype, and the outputs' dtypes when it replaces the shared one."""
    other = OTHER_DTYPE.get(shared, torch.float32)
    result = trial.attempt([e.to(other) if e.dtype == shared else e for e in trial.examples])
    return (other, [output.dtype for output in result.tensors]) if result else None
