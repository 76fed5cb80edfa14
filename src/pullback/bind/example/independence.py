"""`...`: on which leading dimensions forward acts independently, and whether they broadcast.

It is a promise for every number of dimensions, so forward is tried at several of them, on elements
of different values and sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pullback.bind.example.sizes import Axis, Move
from pullback.bind.example.trial import (
    ExampleTrial,
    ForwardResult,
    close,
    grade,
    scale_down,
    vary_values,
)

MOST_DIMENSIONS = 5  # with which `...` is tried, including the tensor's own
MOST_SPLITS = 64  # ways to separate a batch that are tried


@dataclass(frozen=True)
class BatchSplit:
    """A tensor's own dimensions: the first `before` are before `...`, or all if there is none."""

    before: int
    after: int
    batched: bool

    def element(self, trial: ExampleTrial, tensor: int, number: int) -> Tensor:
        """Return one element of the batch, each with other values."""
        example, base = trial.examples[tensor], trial.base[tensor]
        if not self.batched:
            return trial.fill(example, base)
        extra = example.dim() - self.before - self.after
        dims = range(self.before, self.before + extra)
        elements = example.movedim(tuple(dims), tuple(range(extra)))
        elements = elements.reshape((-1, *elements.shape[extra:]))
        core = (*base[: self.before], *base[self.before + extra :])
        return trial.fill(elements[number % len(elements)], core)


class Batches:
    """Whether forward takes a batch, and acts on each of its elements independently."""

    def __init__(
        self, trial: ExampleTrial, splits: Sequence[BatchSplit], others: Mapping[int, object]
    ) -> None:
        self.trial = trial
        self.splits = splits
        self.others = others
        self.batched = [index for index, split in enumerate(splits) if split.batched]
        self.vary = vary_values
        self.singles: dict[tuple[int, ...], ForwardResult | None] = {}

    def independent(
        self, at: Sequence[int | None] | None = None, *, leniently: bool = False
    ) -> list[bool] | None:
        """Return for each output whether it has the batch too; None if forward mixes elements.

        Args:
            at: where the batch is in each output; by default first, in those that have it.
            leniently: whether to ignore what forward refuses.
        """
        for vary in (grade, vary_values, scale_down, lambda tensor, number: tensor):  # pyright: ignore
            self.vary, self.singles = vary, {}
            if all(self.single((n,) * len(self.splits)) for n in range(3)):
                break
        possible: list[set[bool]] | None = None
        for plan in self.plans():
            whole = self.whole(plan)
            if whole is None and leniently:
                continue
            if whole is None:
                return None
            found = self.compared(whole, plan, at, leniently=leniently)
            possible = (
                found if possible is None else [a & b for a, b in zip(possible, found, strict=True)]
            )
            if not possible or not all(possible):
                return None
        return [True in kinds for kinds in possible or ()]

    def allows(self) -> bool:
        """Return whether a batch is right for other values of the scalars too.

        Values that forward refuses are ignored, unless it refuses them only for a single element.
        """
        if self.single((0,) * len(self.splits)):
            return self.independent() is not None
        return self.whole(dict.fromkeys(self.batched, (2,))) is None

    def plans(self) -> Iterator[dict[int, tuple[int, ...]]]:
        """Yield the batch of each tensor: all alike, and each one that broadcasts."""
        if not self.others:
            yield dict.fromkeys(self.batched, ())
        yield dict.fromkeys(self.batched, (2,))
        if self.others:
            return
        yield dict.fromkeys(self.batched, (5,))
        yield dict.fromkeys(self.batched, (3, 2))
        # Forward may do something else for an image, or a video, than for a matrix.
        core = max((self.splits[t].before + self.splits[t].after for t in self.batched), default=0)
        for rank in range(3, MOST_DIMENSIONS - core + 1):
            yield dict.fromkeys(self.batched, (2,) * rank)
        if len(self.batched) > 1:
            for one, shape in itertools.product(self.batched, ((), (1,), (3, 1))):
                yield {tensor: shape if tensor == one else (2,) for tensor in self.batched}

    def tensor(self, tensor: int, number: int) -> Tensor:
        """Return one element."""
        split = self.splits[tensor]
        element = split.element(self.trial, tensor, number)
        return self.vary(element, number) if split.batched else element

    def single(self, numbers: tuple[int, ...]) -> ForwardResult | None:
        """Run forward on one element."""
        if numbers not in self.singles:
            tensors = [self.tensor(index, number) for index, number in enumerate(numbers)]
            self.singles[numbers] = self.trial.attempt(tensors, self.others)
        return self.singles[numbers]

    def whole(self, plan: Mapping[int, tuple[int, ...]]) -> ForwardResult | None:
        """Run forward on the batch."""
        tensors: list[Tensor] = []
        for index, split in enumerate(self.splits):
            shape = plan.get(index, ())
            elements = torch.stack([self.tensor(index, n) for n in range(math.prod(shape))])
            elements = elements.reshape((*shape, *elements.shape[1:]))
            dims = range(len(shape))
            tensors.append(elements.movedim(tuple(dims), tuple(split.before + d for d in dims)))
        return self.trial.attempt(tensors, self.others)

    def compared(
        self,
        whole: ForwardResult,
        plan: Mapping[int, tuple[int, ...]],
        at: Sequence[int | None] | None,
        *,
        leniently: bool,
    ) -> list[set[bool]]:
        """Return for each output whether it can be a stack of single ones, or the same for all."""
        batch = np.broadcast_shapes(*plan.values())
        possible = [{True, False} for _ in whole.outputs]
        for where in np.ndindex(*batch):
            numbers = tuple(
                number_at(where, plan[index]) if index in plan else 0
                for index in range(len(self.splits))
            )
            single = self.single(numbers)
            if single is None:
                return possible if leniently else [set() for _ in possible]
            if len(single.outputs) != len(possible):
                return [set() for _ in possible]
            for index, (output, alone) in enumerate(
                zip(whole.tensors, single.tensors, strict=True)
            ):
                place = 0 if at is None else at[index]
                # An empty output shows nothing, so nothing is promised for it.
                if not close(take_part(output, place, where), alone) or not (
                    at or self.others or output.numel()
                ):
                    possible[index].discard(True)
                if (at is not None and place is not None) or not close(output, alone):
                    possible[index].discard(False)
        return possible


def number_at(where: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the number of a tensor's element at a place of the whole broadcast batch."""
    own = where[len(where) - len(shape) :]
    return (
        int(np.ravel_multi_index([min(i, n - 1) for i, n in zip(own, shape, strict=True)], shape))
        if shape
        else 0
    )


def take_part(output: Tensor, at: int | None, where: tuple[int, ...]) -> Tensor:
    """Return one element of an output; all of it if it has no batch, or not this one."""
    if at is None or output.dim() < at + len(where):
        return output
    for index in where:
        if index >= output.shape[at]:
            return output
        output = output.select(at, index)
    return output


def find_splits(
    trial: ExampleTrial,
    moves: Sequence[Move],
    owners: Sequence[int],
    others: Sequence[Mapping[int, object]] = (),
) -> list[BatchSplit]:
    """Return which dimensions of each tensor are `...`: as many as possible.

    Args:
        trial: forward and its example.
        moves: how its dimensions change.
        owners: the number of the parameter that each tensor belongs to.
        others: other values of the scalars, for which the same has to be true.
    """
    whole = [BatchSplit(0, len(shape), batched=False) for shape in trial.base]

    def holds(splits: Sequence[BatchSplit], *, every: bool = False) -> bool:
        found = Batches(trial, splits, {}).independent()
        if not found or (every and not all(found)):
            return False
        return all(Batches(trial, splits, other).allows() for other in others)

    candidates = sorted(splits_of(trial, moves, owners), key=lambda s: sum(t.after for t in s))
    for splits in candidates[:MOST_SPLITS]:
        if holds(splits):
            return splits
    return with_more_dimensions(whole, owners, partial(holds, every=True))


def with_more_dimensions(
    whole: Sequence[BatchSplit],
    owners: Sequence[int],
    holds: Callable[[Sequence[BatchSplit]], bool],
) -> list[BatchSplit]:
    """Return which tensors take dimensions before the example's: the first that do, or none."""

    def extended(chosen: set[int]) -> list[BatchSplit]:
        pairs = zip(whole, owners, strict=True)
        return [replace(split, batched=owner in chosen) for split, owner in pairs]

    first, *rest = dict.fromkeys(owners) or [-1]
    if not holds(extended({first})):
        return list(whole)
    chosen = {first}
    for owner in rest:
        if holds(extended(chosen | {owner})):
            chosen.add(owner)
    return extended(chosen)


def splits_of(
    trial: ExampleTrial, moves: Sequence[Move], owners: Sequence[int]
) -> Iterator[list[BatchSplit]]:
    """Yield the ways to take leading dimensions of the example for a batch."""
    ranks = [len(shape) for shape in trial.base]
    least: dict[int, int] = {}
    for rank, owner in zip(ranks, owners, strict=True):
        least[owner] = min(rank, least.get(owner, rank))
    if math.prod(rank + 1 for rank in least.values()) > 20000:
        return
    for cores in itertools.product(*(range(rank + 1) for rank in least.values())):
        core = dict(zip(least, cores, strict=True))
        extra = [rank - core[owner] for rank, owner in zip(ranks, owners, strict=True)]
        if any(extra) and fits(moves, extra, ranks):
            yield [
                BatchSplit(
                    0,
                    rank - n,
                    batched=any(e for e, o in zip(extra, owners, strict=True) if o == owner),
                )
                for rank, n, owner in zip(ranks, extra, owners, strict=True)
            ]


def fits(moves: Sequence[Move], extra: Sequence[int], ranks: Sequence[int]) -> bool:
    """Return whether leading dimensions are tied only to those that meet them in broadcasting."""
    free: set[Axis] = set()
    for move in moves:
        # The place of a dimension among the batch dimensions, from their end; None outside.
        places = {
            dim - extra[tensor] if dim < extra[tensor] else None for tensor, dim in move.steps
        }
        if places == {None}:
            continue
        tensors = [tensor for tensor, _ in move.steps]
        if len(places) > 1 or move.kind != "one" or len(set(tensors)) < len(tensors):
            return False
        free.update(move.steps)
    return all((t, d) in free for t in range(len(ranks)) for d in range(extra[t]))
