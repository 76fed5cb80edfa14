"""One call of an operator in index notation, and how its outputs are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

import torch
from torch import Tensor

from pullback.bind import check, gpu, kernel
from pullback.bind.dense import arrange, evaluate, panels
from pullback.bind.dense.attention import Fused
from pullback.bind.dense.matrices import find_half
from pullback.bind.dense.space import NO_GPU
from pullback.bind.loops.backends import has_gpu_loops
from pullback.bind.loops.nests import Own
from pullback.bind.math.gpu_ways import find_ways
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math import cost, extents, required
from pullback.define.math.coalesce import coalesce, coalesce_shape, coalesce_sizes
from pullback.define.math.formula import Formula, require_real
from pullback.define.math.index import BATCH
from pullback.define.math.passing import Passing
from pullback.define.math.unflatten import (
    find_blocks,
    unflatten,
    unflatten_shape,
    unflatten_sizes,
)
from pullback.define.operator import Definition


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Who computes some outputs of one shape.

    Attributes:
        outputs: their places.
        own: the loop; None if there is none.
        reason: why it was chosen, or why there is none.
        takes_own: whether the loop is called.
        seconds: what was measured, of "loop" and "PyTorch".
        passing: these outputs, and others of the call, by blocks; None as a whole.
        fused: what computes them as one operation, where it takes a call's numbers.
    """

    outputs: tuple[int, ...]
    own: Own | None
    reason: str
    takes_own: bool = False
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    passing: Passing | None = None
    fused: Fused | None = None


@dataclass(frozen=True, kw_only=True)
class IndexedCall:
    """One call.

    Attributes:
        indexed: the operator.
        named: its arguments.
        outputs: what the line says of the outputs.
        sizes: of every index.
        is_kernel: whether it is computed below autograd, which does not see how.
    """

    indexed: Formula
    named: Mapping[str, object]
    outputs: kernel.Outputs
    sizes: dict[str, int]
    is_kernel: bool = True

    @cached_property
    def present(self) -> frozenset[str]:
        """The names of the arguments that are not None."""
        return frozenset(name for name, value in self.named.items() if value is not None)

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype that tensors share whose dtype the line leaves open."""
        values = (self.named[spec.name] for spec in self.indexed.line.tensors if not spec.dtype)
        shared = (value.dtype for value in values if isinstance(value, Tensor))
        # Without such an input it is the default dtype, which such an output has.
        made = zip(self.indexed.line.outputs, self.outputs.dtypes, strict=True)
        others = (dtype for spec, dtype in made if not spec.dtype)
        return next(chain(shared, others), torch.float32)

    @property
    def results(self) -> list[torch.dtype]:
        """The dtypes of the wanted outputs but those that are kept for the gradients."""
        every = zip(self.indexed.line.outputs, self.outputs.dtypes, strict=True)
        found = zip(every, self.outputs.wanted, strict=True)
        return [dtype for (spec, dtype), asked in found if asked and not spec.detached]

    @property
    def half(self) -> torch.dtype | None:
        """The dtype of half precision in which its matrices are multiplied; None if it is none."""
        return find_half(self.named.values(), self.results, self.outputs.device)

    @property
    def places(self) -> list[int]:
        """Which outputs are wanted."""
        return [k for k, wanted in enumerate(self.outputs.wanted) if wanted]

    def wanting(self, group: Sequence[int]) -> IndexedCall:
        """Return the same call for some of the outputs."""
        wanted = [k in group for k in range(len(self.outputs.wanted))]
        return replace(self, outputs=kernel.select_wanted(self.outputs, wanted))

    @cached_property
    def flat(self) -> dict[str, object]:
        """The arguments, each tensor's batch dimensions flattened into one."""
        arguments = dict(self.named)
        for spec in self.indexed.line.tensors:
            value = arguments[spec.name]
            if spec.has_batch and isinstance(value, Tensor):
                arguments[spec.name] = flatten_batch(value, spec, self.outputs.sizes.batch)
        return arguments

    @property
    def coalesced(self) -> IndexedCall:
        """The same call with dimensions as one that lie side by side wherever they are."""
        # A call that held itself would hold its tensors until Python looks for such cycles.
        return self._coalesced or self

    @cached_property
    def _coalesced(self) -> IndexedCall | None:
        known = coalesce(self.indexed)
        if known is None:
            return None
        change = partial(coalesce_shape, known)
        return self.reshaped(known.formula, change, coalesce_sizes(known, self.sizes))

    @property
    def unflattened(self) -> IndexedCall:
        """The same call with two dimensions in place of each that is read in blocks of another."""
        for blocks in find_blocks(self.indexed):
            many = self.sizes.get(blocks.outer)  # none if only an absent tensor has it
            is_even = many is not None and self.sizes.get(blocks.dim) == blocks.length * many
            if is_even and (own := unflatten(self.indexed, blocks)):
                change = partial(unflatten_shape, own)
                made = self.reshaped(own.formula, change, unflatten_sizes(own, self.sizes))
                return made.unflattened
        return self

    def reshaped(
        self,
        indexed: Formula,
        change: Callable[[TensorSpec, Sequence[int]], tuple[int, ...]],
        sizes: dict[str, int],
    ) -> IndexedCall:
        """Return the same call with other dimensions of the same elements.

        Args:
            indexed: the operator with these dimensions.
            change: returns the new shape of a tensor.
            sizes: of every index.
        """
        line, named = self.indexed.line, dict(self.named)
        for spec in line.tensors:
            if isinstance(value := named[spec.name], Tensor):
                named[spec.name] = value.reshape(change(spec, value.shape))
        pairs = zip(line.outputs, self.outputs.shapes, strict=True)
        outputs = replace(self.outputs, shapes=[change(spec, shape) for spec, shape in pairs])
        return replace(self, indexed=indexed, named=named, outputs=outputs, sizes=sizes)

    def taken_by(self, own: Own) -> IndexedCall:
        """Return the call as some loops take it."""
        return self if own.indexed is self.indexed else self.coalesced

    @property
    def lies_coalesced(self) -> bool:
        """Whether its tensors are those of the coalesced call, and none is copied."""
        pairs = zip(self.named.values(), self.coalesced.named.values(), strict=True)
        return all(
            own.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
            for own, other in pairs
            if isinstance(own, Tensor) and isinstance(other, Tensor)
        )

    @cached_property
    def needed(self) -> cost.Cost:
        """Return what it costs if each value is computed once."""
        itemsize = max(dtype.itemsize for dtype in self.outputs.dtypes)
        return cost.cost(
            self.indexed,
            self.sizes,
            self.outputs.wanted,
            itemsize,
            absent=self.named.keys() - self.present,
            has_outer=not has_gpu_loops(self.outputs.device),
        )


def is_captured(device: torch.device) -> bool:
    """Return whether the call becomes a part of a CUDA graph: nothing may be compiled or timed."""
    on_gpu = device.type == "cuda" and gpu.is_available()
    return on_gpu and torch.cuda.is_current_stream_capturing()


def compute_outputs(call: IndexedCall, choices: Sequence[Choice]) -> list[Tensor | None]:
    """Return the wanted outputs, by own loops where these are chosen."""
    outputs = call.outputs
    values: list[Tensor | None] = [None] * len(outputs.wanted)
    left = list(outputs.wanted)
    for choice in choices:
        if choice.own is None or not choice.takes_own:
            continue
        dtypes = [outputs.dtypes[k] for k in choice.outputs]
        taken = call.taken_by(choice.own)
        results = choice.own.run(taken.flat, taken.sizes, dtypes)
        for k, value in zip(choice.outputs, results, strict=True):
            values[k] = value.reshape(outputs.shapes[k])
            left[k] = False
    if any(left):
        passing = next((choice.passing for choice in choices if choice.passing), None)
        fused = next((choice.fused for choice in choices if choice.fused), None)
        rest = replace(call, outputs=kernel.select_wanted(outputs, left)).unflattened
        is_free = fused and not is_captured(outputs.device)
        found = (is_free and compute_fused(rest, fused)) or compute_by_pytorch(rest, passing)
        for k, value in enumerate(found):
            if value is not None:
                is_whole = rest.indexed is call.indexed
                values[k] = value if is_whole else value.reshape(outputs.shapes[k])
    return values


def compute_fused(call: IndexedCall, fused: Fused | None) -> list[Tensor | None] | None:
    """Return outputs by one operation; None if it does not take the call's numbers."""
    found = fused and fused.compute(call.named)
    pairs = zip(found or (), call.outputs.wanted, strict=False)
    return [value if is_wanted else None for value, is_wanted in pairs] or None


def compute_by_pytorch(call: IndexedCall, passing: Passing | None = None) -> list[Tensor | None]:
    """Return outputs by PyTorch's operations; for an empty one, nothing is computed.

    Args:
        call: of an operator.
        passing: the wanted outputs by blocks, none of which is empty; a call that is captured is
            computed as a whole, since blocks look at values.
    """
    outputs, ways = call.outputs, NO_GPU
    if call.is_kernel and not is_captured(outputs.device):
        given = call.named.values()
        ways = find_ways(given, call.results, outputs.device, call.indexed.accuracy)
    if passing and not is_captured(outputs.device):
        return panels.compute(
            passing,
            call.named,
            call.sizes,
            outputs.wanted,
            outputs.dtypes,
            outputs.device,
            ways=ways,
            is_half=call.half == torch.bfloat16,
        )
    empty = [any(type(n) is int and n == 0 for n in shape) for shape in outputs.shapes]
    wanted = [asked and not void for asked, void in zip(outputs.wanted, empty, strict=True)]
    values = evaluate.evaluate(
        call.indexed,
        call.named,
        call.sizes,
        wanted,
        outputs.dtypes,
        outputs.device,
        reuse=call.is_kernel,
        ways=ways,
    )
    return [
        torch.empty(outputs.shapes[k], dtype=outputs.dtypes[k], device=outputs.device)
        if outputs.wanted[k] and empty[k]
        else value
        for k, value in enumerate(values)
    ]


def call_of(definition: Definition, given: Sequence[object]) -> IndexedCall:
    """Return a call, with its arguments checked.

    Raises:
        PullbackError: what a line refuses, and as for `sizes_of`.
    """
    assert definition.formula
    outputs = kernel.outputs_of(definition, given)
    return IndexedCall(
        indexed=definition.formula,
        named=arrange.name_arguments(definition.line, given),
        outputs=outputs,
        sizes=sizes_of(definition.formula, outputs),
    )


def sizes_of(indexed: Formula, outputs: kernel.Outputs) -> dict[str, int]:
    """Return every size of a call, and stop if it cannot be computed.

    Raises:
        PullbackError: PB112, PB116, PB139 and those of `required`.
    """
    for dtype in outputs.dtypes:
        require_real(indexed.line, check.name_of(dtype))
    sizes = extents.sizes_of_call(indexed, outputs.sizes)
    required.require_inside(indexed, sizes)
    return sizes


def flatten_batch(tensor: Tensor, spec: TensorSpec, batch: Sequence[int]) -> Tensor:
    """Return a tensor with all batch dimensions of the call, broadcast and flattened into one."""
    place = spec.labels.index(BATCH)
    before, after = len(spec.before), len(spec.after)
    shape = tensor.shape
    core = (shape[:before], shape[len(shape) - after :])
    whole = tensor
    # Dimensions of `...` line up from the right.
    for _ in range(len(batch) - (tensor.dim() - before - after)):
        whole = whole.unsqueeze(place)
    # Tuples, since there may be no dimension. Not -1: for an empty tensor it could be any number.
    spread = whole.expand((*core[0], *batch, *core[1]))
    return spread.reshape((*core[0], math.prod(batch), *core[1]))
