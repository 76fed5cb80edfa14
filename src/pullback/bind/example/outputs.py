"""The sizes of forward's outputs, observed at many sizes of its inputs -> arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from pullback.bind.example.fit import fit
from pullback.bind.example.given import Given
from pullback.bind.example.independence import BatchSplit
from pullback.bind.example.names import Labels
from pullback.bind.example.sizes import Axis, Move
from pullback.bind.example.trial import ExampleTrial, ForwardResult, Shapes
from pullback.define.dimension import Batch, Dim
from pullback.define.shape import format_shape
from pullback.diagnostic import PullbackError, Rule

NotFound = Rule("PB367", "example-sizes")
ROWS = 24  # sizes to observe for each name that may be in an output's dimension
MOST_ROWS = 160
SHOWN = 6  # of them in an error
ASK = "write the line yourself, in place of the example"


@dataclass(frozen=True)
class SizeSample:
    """Sizes by name, and the outputs' shapes for them."""

    values: Mapping[str, int]
    shapes: Shapes


@dataclass(frozen=True)
class OutputSizing:
    """What the outputs' sizes may depend on, beside the inputs' sizes.

    Attributes:
        alternatives: other values of each scalar that forward takes, by its argument.
        result: of the example.
    """

    qualname: str
    trial: ExampleTrial
    given: Sequence[Given]
    result: ForwardResult
    alternatives: Mapping[int, tuple[object, ...]]

    @classmethod
    def of(
        cls, qualname: str, trial: ExampleTrial, given: Sequence[Given], result: ForwardResult
    ) -> OutputSizing:
        """Return it, or stop if the sizes depend on something that no line can express."""
        alternatives = {
            one.first: tuple(
                value for value in other_values(one) if trial.at(trial.base, {one.first: value})
            )
            for one in given
            if not one.is_tensor and one.value is not None
        }
        sizing = cls(qualname, trial, given, result, alternatives)
        sizing.require_values_do_not_matter()
        for one in given:
            if one.type == "tensors":
                sizing.require_length_does_not_matter(one)
            elif one.first in alternatives and not can_be_named(one):
                sizing.require_scalar_does_not_matter(one)
        return sizing

    def others(self) -> list[dict[int, object]]:
        """Return the scalars' other values, one at a time, also for those that are None."""
        absent = {
            one.first: tuple(other_values(one))
            for one in self.given
            if not one.is_tensor and one.value is None
        }
        return [{i: v} for i, values in {**self.alternatives, **absent}.items() for v in values]

    def ints(self) -> dict[int, str]:
        """Return the int scalars that an output's arithmetic may use."""
        return {one.first: one.name for one in self.given if can_be_named(one)}

    def require_values_do_not_matter(self) -> None:
        """Stop if the shapes depend on the tensors' values, as those of `nonzero` do."""
        for pick in (torch.min, torch.max):
            tensors = [
                example if example.is_complex() else torch.full_like(example, pick(example).item())
                for example in self.trial.filled(self.trial.base)
            ]
            self.require_same_shapes(
                self.trial.attempt(tensors), "the values of its inputs", "pad it to a known size"
            )

    def require_length_does_not_matter(self, one: Given) -> None:
        """Stop if the shapes depend on how long a list is."""
        arguments = list(self.trial.arguments)
        if one.spread:
            arguments.append(arguments[-1])
        else:
            tensors = cast("list[Tensor]", arguments[one.first])
            arguments[one.first] = type(tensors)([*tensors, tensors[-1]])
        longer = ExampleTrial(self.trial.run, arguments)
        self.require_same_shapes(
            longer.attempt(),
            f"how many tensors '{one.name}' has",
            "take and return stacked tensors",
        )

    def require_scalar_does_not_matter(self, one: Given) -> None:
        """Stop if the shapes depend on a scalar that cannot be in arithmetic."""
        for value in self.alternatives[one.first]:
            self.require_same_shapes(
                self.trial.at(self.trial.base, {one.first: value}),
                f"'{one.name}', which is {one.type}{'?' * one.optional}",
                "make one operator for each value, by a class that closes over it"
                if one.type != "int[]"
                else "take its elements as separate int arguments",
            )

    def require_same_shapes(self, found: ForwardResult | None, what: str, help: str) -> None:
        """Stop if the outputs' shapes differ from those of the example's call."""
        usual = self.trial.at(self.trial.base)
        if found is None or usual is None or found.shapes == usual.shapes:
            return
        raise NotFound.error(
            f"{self.qualname}: the shape of what forward returns depends on {what}, "
            "which no line can say",
            seen=f"{', '.join(map(format_shape, usual.shapes))} and "
            f"{', '.join(map(format_shape, found.shapes))}",
            help=help,
        )


def can_be_named(one: Given) -> bool:
    """Return whether a scalar can be in an output's arithmetic."""
    return one.type == "int" and not one.optional


def other_values(one: Given) -> Iterator[object]:
    """Yield other values for a scalar, near the example's."""
    value = one.value
    if value is None:
        yield from {"bool": (True, False), "int": (1, 2), "float": (1.0, 0.5)}.get(one.type, ())
    elif one.type == "bool":
        yield not value
    elif one.type == "int":
        number = int(cast("int", value))
        near = (1, 2, 3, number + 1, number + 2, number - 1, 2 * number, 0, 4)
        yield from (n for n in dict.fromkeys(near) if n != number)
    elif one.type == "float":
        yield from (2 * cast("float", value), cast("float", value) / 2)
    elif one.type in ("int[]", "float[]"):
        numbers = cast("Sequence[int]", value)
        yield type(cast("list[int]", value))([n + 1 for n in numbers])


def sizes_of_outputs(
    sizing: OutputSizing,
    splits: Sequence[BatchSplit],
    moves: Sequence[Move],
    labels: Labels,
    batched: Sequence[bool],
) -> list[tuple[Dim, ...]]:
    """Return the dimensions of each output.

    Raises:
        PullbackError: PB367, for a dimension that was not found.
    """
    rows = list(sample_sizes(sizing, splits, moves, labels))
    names = [*labels.visible(), *sizing.ints().values()]
    ranks = [tuple(len(shape) for shape in row.shapes) for row in rows]
    if len(set(ranks)) > 1:
        raise not_found(sizing.qualname, "the outputs' number of dimensions", rows, names)
    found: list[tuple[Dim, ...]] = []
    for output, rank in enumerate(ranks[0]):
        dims: list[Dim] = [Batch()] if batched[output] else []
        for dim in range(rank):
            expression = fit(names, [(row.values, row.shapes[output][dim]) for row in rows])
            if expression is None:
                which = f"dimension {dim} of '{labels.outputs[output]}'"
                raise not_found(sizing.qualname, which, rows, names, output)
            dims.append(expression)
        found.append(tuple(dims))
    return found


def sample_sizes(
    sizing: OutputSizing, splits: Sequence[BatchSplit], moves: Sequence[Move], labels: Labels
) -> Iterator[SizeSample]:
    """Yield shapes at many sizes, without the batch: each size alone, then all at random."""
    trial = drop_batch(sizing.trial, splits)
    extra = [
        len(shape) - len(core) for shape, core in zip(sizing.trial.base, trial.base, strict=True)
    ]
    inner = [moved for move in moves if (moved := restrict_move(move, extra)).steps]
    names = {(t, dim - extra[t]): name for (t, dim), name in labels.axes.items()}
    ints = sizing.ints()
    draw = random.Random(0)
    count = min(MOST_ROWS, ROWS * (1 + len(inner) + len(ints)))
    yielded = 0
    for counts, chosen in draw_points(sizing, inner, draw, 3 * count):
        shapes = trial.base
        for move, steps in zip(inner, counts, strict=True):
            shapes = move.of(shapes, steps)
        result = trial.at(shapes, chosen)
        if result is None:
            continue
        values = {name: shapes[t][dim] for (t, dim), name in names.items()}
        for index, name in ints.items():
            values[name] = int(cast("int", chosen.get(index, trial.arguments[index])))
        yield SizeSample(values, result.shapes)
        yielded += 1
        if yielded >= count:
            return


def draw_points(
    sizing: OutputSizing, moves: Sequence[Move], draw: random.Random, count: int
) -> Iterator[tuple[tuple[int, ...], dict[int, object]]]:
    """Yield numbers of steps and values of the int scalars."""
    ints = [index for index in sizing.ints() if sizing.alternatives.get(index)]
    still = (0,) * len(moves)
    yield still, {}
    for index in ints:
        yield from ((still, {index: value}) for value in sizing.alternatives[index])
    if not moves and not ints:
        return
    for _ in range(count):
        steps = tuple(draw.choice((0, *move.counts, 2 * move.counts[-1])) for move in moves)
        chosen: dict[int, object] = {}
        for index in ints:
            # Draw 1 often: with a stride of 1, the dividend itself is observed.
            values = (sizing.trial.arguments[index], *sizing.alternatives[index])
            chosen[index] = 1 if 1 in values and draw.random() < 0.4 else draw.choice(values)
        yield steps, chosen


def drop_batch(trial: ExampleTrial, splits: Sequence[BatchSplit]) -> ExampleTrial:
    """Return forward with one element of the batch as its example."""
    arguments = list(trial.arguments)
    for number, ((index, position), split) in enumerate(zip(trial.places, splits, strict=True)):
        element = split.element(trial, number, 0)
        if position is None:
            arguments[index] = element
        else:
            tensors = list(cast("list[Tensor]", arguments[index]))
            tensors[position] = element
            arguments[index] = type(cast("list[Tensor]", arguments[index]))(tensors)
    inner = ExampleTrial(trial.run, arguments, placeholders=trial.placeholders)
    inner.fill = trial.fill
    return inner


def restrict_move(move: Move, extra: Sequence[int]) -> Move:
    """Return a move of the dimensions that remain without the batch."""
    steps: dict[Axis, int] = {
        (tensor, dim - extra[tensor]): step
        for (tensor, dim), step in move.steps.items()
        if dim >= extra[tensor]
    }
    return Move(move.kind, steps, move.counts)


def not_found(
    qualname: str,
    which: str,
    rows: Sequence[SizeSample],
    names: Sequence[str],
    index: int | None = None,
) -> PullbackError:
    """Return the error that shows the observed sizes of the output `index`, or of all."""
    table: dict[str, None] = {}
    for row in rows:
        sizes = ", ".join(f"{name} = {row.values[name]}" for name in names)
        shapes = row.shapes if index is None else row.shapes[index : index + 1]
        table[f"{sizes or 'other sizes'}: {', '.join(map(format_shape, shapes))}"] = None
    return NotFound.error(
        f"{qualname}: {which} is no arithmetic on {', '.join(names) or 'any name'} "
        "that could be found",
        seen="\n".join(list(table)[:SHOWN]),
        help=ASK,
    )
