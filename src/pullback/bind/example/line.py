"""A call of forward -> its line; and a line compared with a call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

from pullback.bind.example.against import Against, verify
from pullback.bind.example.dtypes import dtypes_of
from pullback.bind.example.first_call import State, find_aliases, require_same, run_first_call
from pullback.bind.example.given import (
    Given,
    Kind,
    arguments_of,
    bind_parameters,
    free_name,
    make_usable_name,
)
from pullback.bind.example.independence import Batches, BatchSplit, find_splits
from pullback.bind.example.names import Labels, Naming
from pullback.bind.example.outputs import (
    ASK,
    NotFound,
    OutputSizing,
    other_values,
    sizes_of_outputs,
)
from pullback.bind.example.sizes import Move, find_moves, settle
from pullback.bind.example.trial import ExampleTrial, ForwardResult, Run, agree
from pullback.define.dimension import Anything, Batch, Dim
from pullback.define.line import Default, Line, Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.diagnostic import PullbackError

__all__ = ["Run", "line_of", "verify"]


def line_of(
    qualname: str,
    run: Run,
    parameters: Sequence[inspect.Parameter],
    example: Sequence[object],
    *,
    names: Sequence[str] | None = None,
) -> Line:
    """Return the line of forward, worked out from its signature and a call.

    Forward is called many times, at other sizes and with other values like the example's; the
    arguments themselves are not changed, nor are the global generators.

    Args:
        qualname: the operator's name, `demo::linear`.
        run: calls forward with its arguments; returns its outputs, and the places of the arguments
            that it changed in place and returned.
        parameters: forward's, without `ctx`.
        example: a value for each, or for the first of them if the others have defaults.
        names: what the outputs may be called.

    Raises:
        PullbackError: PB361 to PB367 and PB369.
    """
    try:
        return work_out_line(qualname, run, parameters, example, names or ())
    except PullbackError as error:
        left_out = len(example) < len(parameters) and error.finding.code == NotFound.code
        if not left_out or any(p.kind is p.VAR_POSITIONAL for p in parameters):
            raise
        # An argument with its default need not be a parameter of the operator, as `dim` of a sum.
        with suppress(PullbackError):
            return work_out_line(qualname, run, parameters[: len(example)], example, names or ())
        raise


def work_out_line(
    qualname: str,
    run: Run,
    parameters: Sequence[inspect.Parameter],
    example: Sequence[object],
    names: Sequence[str],
) -> Line:
    """Return the line of forward with these parameters; see `line_of`."""
    given = bind_parameters(qualname, parameters, example)
    trial = ExampleTrial(run, arguments_of(given), placeholders=True)
    places = [one.name for one in given for _ in range(count_of(one))]
    result = run_first_call(qualname, trial, places)
    changed = find_aliases(qualname, result, places)
    given = [add_default(add_type(one, trial), trial, result) for one in given]
    # A size of 1 is like any other, unless it is there to broadcast.
    for ones in (True, False):
        again = ExampleTrial(run, trial.arguments, placeholders=True)
        line = ForwardReading(qualname, again, given, result, changed, names).line(ones=ones)
        if fits(line, ExampleTrial(run, trial.arguments)):
            # Again, after all the other calls: by now a counter or a cache shows.
            require_same(qualname, ExampleTrial(run, trial.arguments), result)
            return line
    raise NotFound.error(
        f"{qualname}: the line found at other sizes does not fit the example", line=line, help=ASK
    )


def fits(line: Line, trial: ExampleTrial) -> bool:
    """Return whether a line fits the example that it was made from."""
    try:
        Against(line, trial).require_outputs()
    except PullbackError as error:
        # Other faults of forward itself are reported elsewhere.
        return error.finding.code == State.code
    return True


def count_of(given: Given) -> int:
    """Return how many arguments of a call a parameter stands for."""
    return len(cast("Sequence[object]", given.value)) if given.spread else 1


def add_type(given: Given, trial: ExampleTrial) -> Given:
    """Return a parameter that is None with the type of a value that forward takes instead."""
    if given.type != "unknown":
        return given
    others: tuple[tuple[Kind, object], ...] = (("float", 1.0), ("int", 1), ("bool", True))
    taken = (kind for kind, value in others if trial.attempt(others={given.first: value}))
    return replace(given, type=next(taken, "tensor"))


def add_default(given: Given, trial: ExampleTrial, result: ForwardResult) -> Given:
    """Return the parameter optional only if forward takes None, and returns similar outputs."""
    if not given.optional or given.value is None:
        return given
    without = trial.attempt(others={given.first: None})
    fits = without is not None and describe_result(without) == describe_result(result)
    if given.type == "int":
        # A scalar that may be None cannot be in arithmetic: one that has to be may not be None.
        near = [trial.attempt(others={given.first: value}) for value in other_values(given)]
        fits = fits and all(r is None or r.shapes == result.shapes for r in near)
    return replace(given, optional=fits and given.type != "tensors")


def describe_result(result: ForwardResult) -> object:
    """Return the shapes and dtypes of a result."""
    return [(tuple(t.shape), t.dtype) for t in result.tensors]


@dataclass
class ForwardReading:
    """What is known about forward, from which its line is put together."""

    qualname: str
    trial: ExampleTrial
    given: list[Given]
    result: ForwardResult
    changed: Mapping[int, int]  # outputs that are arguments changed in place
    names: Sequence[str]

    def line(self, *, ones: bool) -> Line:
        """Find out everything, and return the line; `ones`: a size of 1 may change."""
        moves = self.moves(ones=ones)
        owners = self.owners()
        sizing = OutputSizing.of(self.qualname, self.trial, self.given, self.result)
        splits = self.splits(moves, owners, sizing)
        names = [self.given[owner].name for owner in owners]
        labels = Naming(names, splits, self.trial.base, moves).labels(
            [one.name for one in self.given], self.output_names()
        )
        outputs = sizes_of_outputs(sizing, splits, moves, labels, self.batched(splits))
        dtypes = dtypes_of(self.trial, self.given, owners, self.result)
        tensors = {
            index: self.tensor(index, splits, labels, dtypes.inputs.get(index))
            for index, one in enumerate(self.given)
            if one.is_tensor
        }
        parameters = [tensors.get(i) or make_scalar(one) for i, one in enumerate(self.given)]
        made = [
            tensors[self.parameter_at(self.changed[number])]
            if number in self.changed
            else TensorSpec(name=labels.outputs[number], dims=dims, dtype=dtypes.outputs[number])
            for number, dims in enumerate(outputs)
        ]
        namespace, _, name = self.qualname.partition("::")
        return Line(
            namespace=namespace,
            name=name,
            parameters=drop_unusable_defaults(parameters),
            outputs=tuple(made),
        )

    def moves(self, *, ones: bool) -> list[Move]:
        """Return how the dimensions change, at small sizes if forward takes them."""
        settle(self.trial, ones=ones)
        moves = find_moves(self.trial)
        moving = {axis for move in moves for axis in move.steps}
        for tensor, (shape, base) in enumerate(
            zip(self.trial.examples, self.trial.base, strict=True)
        ):
            for dim, size in enumerate(base):
                if size != shape.shape[dim] and (tensor, dim) not in moving:
                    # A size that was changed has to be free; if it is not, restore the example's.
                    self.trial.base = tuple(tuple(e.shape) for e in self.trial.examples)
                    return find_moves(self.trial)
        return moves

    def owners(self) -> list[int]:
        """Return the number of the parameter that each tensor belongs to."""
        return [self.parameter_at(index) for index, _ in self.trial.places]

    def parameter_at(self, argument: int) -> int:
        """Return the number of the parameter that an argument belongs to."""
        return max(i for i, one in enumerate(self.given) if one.first <= argument)

    def splits(
        self, moves: Sequence[Move], owners: Sequence[int], sizing: OutputSizing
    ) -> list[BatchSplit]:
        """Return which dimensions of each tensor are `...`.

        None are if forward draws random numbers, or takes a tensor of which nothing is known.
        """
        none = [BatchSplit(0, len(shape), batched=False) for shape in self.trial.base]
        if any(one.is_open for one in self.given):
            return none
        for seed in (1, 2, 3):
            other = self.trial.attempt(seed=seed)
            if other is None or not agree(self.result, other):
                return none
        return find_splits(self.trial, moves, owners, sizing.others())

    def batched(self, splits: Sequence[BatchSplit]) -> list[bool]:
        """Return which outputs have `...`."""
        none = [False] * len(self.result.outputs)
        if not any(split.batched for split in splits):
            return none
        return Batches(self.trial, splits, {}).independent() or none

    def output_names(self) -> list[str]:
        """Return a name for each output, including arguments that are changed in place."""
        count = len(self.result.outputs)
        inputs = [one.name for one in self.given]
        found: list[str] = []
        for number in range(count):
            name = self.names[number] if len(self.names) == count else ""
            # `grad_...` has a meaning in a derivative.
            if name in inputs or make_usable_name(name, number) != name or name.startswith("grad"):
                name = f"output{number}" if count > 1 else "output"
            taken = [*inputs, *found, *self.names]
            found.append(name if name in self.names else free_name(name, taken))
        for number, argument in self.changed.items():
            found[number] = self.given[self.parameter_at(argument)].name
        return found

    def tensor(
        self, index: int, splits: Sequence[BatchSplit], labels: Labels, dtype: str | None
    ) -> TensorSpec:
        """Return a parameter that is a tensor or a list."""
        one = self.given[index]
        core = labels.of(one.name)
        dims: tuple[Dim, ...] = (Anything(),)
        if core is not None:
            batched = splits[labels.owners.index(one.name)].batched
            dims = (Batch(), *core) if batched else core
        is_output = index in map(self.parameter_at, self.changed.values())
        return TensorSpec(
            name=one.name,
            dims=dims,
            dtype=dtype,
            optional=one.optional and not is_output,
            many=one.type == "tensors",
        )


def make_scalar(given: Given) -> Scalar:
    """Return a parameter that is a scalar."""
    default: Default | None = None if given.optional else given.default
    assert given.type not in ("tensor", "tensors", "unknown")
    return Scalar(name=given.name, type=given.type, default=default, optional=given.optional)


def drop_unusable_defaults(
    parameters: Sequence[TensorSpec | Scalar],
) -> tuple[TensorSpec | Scalar, ...]:
    """Return the parameters without defaults that come before a required parameter."""
    found: list[TensorSpec | Scalar] = []
    required = False
    for one in reversed(parameters):
        if isinstance(one, Scalar) and required:
            one = replace(one, default=None)  # noqa: PLW2901
        has_default = isinstance(one, Scalar) and one.default is not None
        required = required or not (has_default or one.optional)
        found.append(one)
    return tuple(reversed(found))
