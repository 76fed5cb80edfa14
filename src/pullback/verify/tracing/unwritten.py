"""A call with two patterns in fresh memory, to find unwritten elements and accesses beside tensors.

First fresh memory is NaN and the zones beside tensors are numbers, then the other way round. So an
element that is NaN only in the first was never written, one that is NaN only in the second was
computed from memory beside a tensor, and zones that have changed were written to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.verify.call import Call, Run
from pullback.verify.remembered import remembered
from pullback.verify.target import Part
from pullback.verify.tracing.difference import copy_values
from pullback.verify.tracing.fresh import (
    OTHER,
    fill_with_nan,
    fill_with_numbers,
    leave_as_it_is,
)
from pullback.verify.tracing.guard import Outside, find_trespasses

Filled = AbstractContextManager[None]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The evidence in one tensor.

    Attributes:
        part: that makes it.
        name: "output 0", "the gradient of x".
        unwritten: its elements that come from memory that was never written.
        outside: its elements that come from memory beside a tensor.
    """

    part: Part
    name: str
    unwritten: Tensor
    outside: Tensor


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """What forward and backward did to memory.

    Attributes:
        seen: the outputs, and the gradients if the outputs are whole.
        written: the writes beside tensors, by the part that made them.
    """

    seen: tuple[Seen, ...]
    written: tuple[tuple[Part, Outside], ...]

    @property
    def clean(self) -> bool:
        """Whether there is nothing to report."""
        spoilt = any(bool(own.unwritten.any() | own.outside.any()) for own in self.seen)
        return not spoilt and not self.written


@dataclass(frozen=True, kw_only=True)
class FilledRun:
    """One run in filled memory: what it returned, and what it wrote beside tensors."""

    outputs: list[Tensor | None]
    gradients: list[Tensor | None]
    written: tuple[tuple[Part, Outside], ...]


@remembered
def memory_of(call: Call) -> MemoryUse:
    """Make the call with memory as it is, and with each of the patterns."""
    plain, nan, numbers = (
        run_filled(call, fill) for fill in (leave_as_it_is(), fill_with_nan(), fill_with_numbers())
    )
    names = [f"output {index}" for index in range(len(plain.outputs))]
    forward: Part = "forward"
    seen = list(compare_runs(forward, names, plain.outputs, nan.outputs, numbers.outputs))
    if not any(bool(own.unwritten.any()) for own in seen):
        names = [f"the gradient of {leaf.name}" for leaf in call.leaves]
        part = backward_or_forward(call, plain.gradients, nan.gradients)
        seen += compare_runs(part, names, plain.gradients, nan.gradients, numbers.gradients)
    written = dict.fromkeys((*nan.written, *numbers.written))
    return MemoryUse(seen=tuple(seen), written=tuple(written))


def run_filled(call: Call, filled: Filled) -> FilledRun:
    """Run forward and backward in filled memory."""
    with filled:
        run = call.forward()
        outputs = copy_values([as_written(output) for output in run.outputs])
        written = [("forward", own) for own in find_trespasses(names_in(call, run))]
        gradients = backward_of(call, run)
        named = names_in(call, run, gradients)
        both = [("backward", own) for own in find_trespasses(named)]
    known = {own for _, own in written}
    every = (*written, *(own for own in both if own[1] not in known))
    return FilledRun(outputs=outputs, gradients=copy_values(gradients), written=every)  # type: ignore[arg-type]


def backward_of(call: Call, run: Run) -> tuple[Tensor | None, ...]:
    """Return the gradients; none if backward raises, which other probes report."""
    try:
        return run.backward(run.random_grads())
    except Exception:
        return (None,) * len(call.leaves)


def names_in(call: Call, run: Run, gradients: tuple[Tensor | None, ...] = ()) -> dict[str, Tensor]:
    """Return the tensors of a run that have names."""
    named = {f"output {index}": tensor for index, tensor in enumerate(run.outputs)}
    for own, given in itertools.zip_longest(call.leaves, run.given):
        named[f"its input {own.name}"] = given
    for own, gradient in zip(call.leaves, gradients, strict=False):
        if gradient is not None:
            named[f"the gradient of {own.name}"] = gradient
    return named


def backward_or_forward(
    call: Call, plain: list[Tensor | None], filled: list[Tensor | None]
) -> Part:
    """Return the part whose fresh memory a gradient shows: forward may have saved some."""
    pairs = [(a, b) for a, b in zip(plain, filled, strict=True) if a is not None and b is not None]
    if not any(bool((b.isnan() & ~a.isnan()).any()) for a, b in pairs if a.shape == b.shape):
        return "backward"
    run = call.forward()
    with fill_with_nan():
        again = copy_values(backward_of(call, run))
    spoilt = any(own is not None and bool(own.isnan().any()) for own in again)
    return "backward" if spoilt else "forward"


def compare_runs(
    part: Part,
    names: list[str],
    plain: list[Tensor | None],
    nan: list[Tensor | None],
    numbers: list[Tensor | None],
) -> Iterator[Seen]:
    """Compare the three runs, tensor by tensor."""
    for name, *three in zip(names, plain, nan, numbers, strict=False):
        first, second, third = three
        if first is None or second is None or third is None:
            continue
        if not first.shape == second.shape == third.shape or first.layout != torch.strided:
            continue
        if first.is_floating_point() or first.is_complex():
            ordinary = first.isnan() & third.isnan()
            unwritten = second.isnan() & ~ordinary
            outside = third.isnan() & ~first.isnan() & ~second.isnan()
        else:
            unwritten = is_pattern(third) & ~is_pattern(second)
            outside = torch.zeros_like(unwritten)
        yield Seen(part=part, name=name, unwritten=unwritten, outside=outside)


def as_written(output: Tensor) -> Tensor:
    """Return a tensor's raw bytes: a copy of bools would have only two values."""
    return output.view(torch.uint8) if output.dtype == torch.bool else output


def is_pattern(tensor: Tensor) -> Tensor:
    """Tell which integers equal the fill of fresh memory."""
    return tensor == int.from_bytes(bytes([OTHER]) * tensor.element_size(), "little")
