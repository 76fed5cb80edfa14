"""A line that an author gave, compared with calls of forward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from pullback.bind import check
from pullback.bind.example.first_call import InPlace, find_aliases, require_same, run_first_call
from pullback.bind.example.given import WrongArguments, require_arguments
from pullback.bind.example.independence import Batches, BatchSplit
from pullback.bind.example.trial import ExampleTrial, ForwardResult, Run, Shapes, agree, is_tensors
from pullback.define import shape
from pullback.define.dimension import Name
from pullback.define.line import PYTHON_TYPES, Line, Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.define.shape import format_shape, format_spec
from pullback.diagnostic import PullbackError, Rule

Mismatch = Rule("PB368", "example-mismatch")


def verify(line: Line, run: Run, example: Sequence[object]) -> None:
    """Stop if a line does not fit what forward returns, for an example and at other sizes.

    Args:
        line: the operator.
        run: calls forward with its arguments; returns its outputs, and the places of the arguments
            that it changed in place and returned.
        example: a value for each parameter, or for the first of them if the others may be left out.

    Raises:
        PullbackError: PB111 to PB119, the example does not fit the line; PB361, it has too few or
            too many values, or one of another type; PB364 to PB366 and PB369, what `line_of` stops
            at too; PB368, an output is not what the line says.
    """
    against = Against(line, ExampleTrial(run, arguments_of(line, example)))
    against.require_outputs()
    against.require_sizes_elsewhere()
    against.require_independence()
    require_same(line.qualname, ExampleTrial(run, against.trial.arguments), against.result)


def arguments_of(line: Line, example: Sequence[object]) -> list[object]:
    """Return the arguments of a call, or stop if they are not the line's."""
    require_arguments(line.qualname, example)
    values = list(example)
    parameters = line.parameters
    last = parameters[-1] if parameters else None
    if isinstance(last, TensorSpec) and last.many and len(values) >= len(parameters):
        # `*tensors` of forward: the rest of the example is its elements.
        rest = values[len(parameters) - 1 :]
        if all(isinstance(value, Tensor) for value in rest):
            require_types(line, [*values[: len(parameters) - 1], rest])
            return values
    if len(values) > len(parameters):
        raise WrongArguments.error(
            f"{line.qualname}: the example has {len(values)} values, "
            f"the line has {len(parameters)} parameters",
            line=line,
            help="give one value for each of them",
        )
    for parameter in parameters[len(values) :]:
        if not (
            parameter.optional or (isinstance(parameter, Scalar) and parameter.may_be_left_out)
        ):
            raise WrongArguments.error(
                f"{line.qualname}: the example has no value for '{parameter.name}'", line=line
            )
        values.append(parameter.default if isinstance(parameter, Scalar) else None)
    require_types(line, values)
    return values


def require_types(line: Line, values: Sequence[object]) -> None:
    """Stop if a value does not have its parameter's type."""
    for parameter, value in zip(line.parameters, values, strict=True):
        if value is None and parameter.optional:
            continue
        if isinstance(parameter, TensorSpec):
            fits = is_list(value) if parameter.many else isinstance(value, Tensor)
            expected = "a list of tensors" if parameter.many else "a tensor"
        else:
            fits = is_of(parameter, value)
            expected = parameter.type
        if not fits:
            raise WrongArguments.error(
                f"{line.qualname}: the example's value for '{parameter.name}' is a "
                f"{type(value).__name__}, the line says {expected}",
                line=line,
                help="give the values in the order of the line, one for each parameter",
            )


def is_list(value: object) -> bool:
    """Return whether a value is a list of tensors, or an empty one."""
    return is_tensors(value) or (isinstance(value, list | tuple) and not value)


def is_of(parameter: Scalar, value: object) -> bool:
    """Return whether a value is of a scalar's type; an int may stand for a float."""
    kind = parameter.type.removesuffix("[]")
    if kind != parameter.type:
        if not isinstance(value, list | tuple):
            return False
        element = Scalar(name=parameter.name, type="int" if kind == "int" else "float")
        return all(is_of(element, item) for item in cast("Sequence[object]", value))
    if kind == "float" and type(value) is int:
        return True
    return type(value) is PYTHON_TYPES[kind]


@dataclass
class Against:
    """A line, and forward with its example."""

    line: Line
    trial: ExampleTrial

    def __post_init__(self) -> None:
        line, trial = self.line, self.trial
        self.spread = len(trial.arguments) > len(line.parameters) or (
            bool(line.parameters)
            and isinstance(last := line.parameters[-1], TensorSpec)
            and last.many
            and isinstance(trial.arguments[-1], Tensor)
        )
        self.specs = [self.spec_at(index) for index, _ in trial.places]
        # The example is checked against the line before forward is called.
        check.solve(line, self.by_name(trial.examples, {}))
        self.names = [self.parameter_at(i).name for i in range(len(trial.arguments))]
        self.result = run_first_call(line.qualname, trial, self.names)

    def parameter_at(self, argument: int) -> TensorSpec | Scalar:
        """Return the parameter that an argument belongs to."""
        return self.line.parameters[min(argument, len(self.line.parameters) - 1)]

    def spec_at(self, argument: int) -> TensorSpec:
        """Return the line's tensor, or list, that an argument belongs to."""
        return cast("TensorSpec", self.parameter_at(argument))

    def by_name(self, tensors: Sequence[Tensor], others: Mapping[int, object]) -> dict[str, object]:
        """Return the arguments by parameter, with other tensors."""
        found: dict[str, object] = {}
        lists: dict[str, list[Tensor]] = {p.name: [] for p in self.line.tensors if p.many}
        for index, parameter in enumerate(self.line.parameters):
            found[parameter.name] = (
                lists[parameter.name]
                if parameter.name in lists
                else others.get(index, self.trial.arguments[index])
            )
        for spec, tensor in zip(self.specs, tensors, strict=True):
            if spec.many:
                lists[spec.name].append(tensor)
            else:
                found[spec.name] = tensor
        return found

    def require_outputs(self) -> None:
        """Stop if the number of outputs, or what is changed in place, differs from the line."""
        line, result = self.line, self.result
        if len(result.outputs) != len(line.outputs):
            count = len(result.outputs)
            raise Mismatch.error(
                f"{line.qualname}: forward returns {count} output{'s' * (count != 1)}, "
                f"the line says {len(line.outputs)}",
                line=line,
                help="name each output in the line: -> (y[n], z[n])",
            )
        found = find_aliases(line.qualname, result, self.names)
        for number, output in enumerate(line.outputs):
            changed = self.names[found[number]] if number in found else None
            if changed != (output.name if output.name in line.changed else None):
                raise self.in_place(output, changed)
        self.require_shapes(self.trial.examples, {}, result, "for the example")

    def in_place(self, output: TensorSpec, changed: str | None) -> PullbackError:
        """Return the error for an output that is changed in place, or declared to be."""
        spec = next((t for t in self.line.tensors if t.name == changed), None)
        if spec:
            return InPlace.error(
                f"{self.line.qualname}: forward changes '{changed}' in place and returns it, "
                f"the line says {format_spec(output)}",
                line=self.line,
                help=f"write the output as the input: -> {spec}",
            )
        return InPlace.error(
            f"{self.line.qualname}: the line says that '{output.name}' is changed in place, "
            "but forward does not return it as changed",
            line=self.line,
            help=f"call ctx.mark_dirty({output.name}) and return it, or name the output otherwise",
        )

    def require_shapes(
        self,
        tensors: Sequence[Tensor],
        others: Mapping[int, object],
        result: ForwardResult,
        when: str,
    ) -> None:
        """Stop if an output's shape or dtype differs from the line."""
        line = self.line
        arguments = self.by_name(tensors, others)
        sizes, dtype, _ = check.solve(line, arguments)
        try:
            shapes = shape.output_shapes(line, sizes, arguments)
        except PullbackError as error:
            found = ", ".join(map(format_shape, result.shapes))
            raise Mismatch.error(
                f"{line.qualname}: forward returns {found} {when}, and the line no size",
                line=line,
                error=error.finding.message,
            ) from error
        if len(result.outputs) != len(shapes):
            raise Mismatch.error(
                f"{line.qualname}: forward returns {len(result.outputs)} outputs {when}, "
                f"the line says {len(shapes)}",
                line=line,
            )
        for output, expected, found in zip(line.outputs, shapes, result.tensors, strict=True):
            place = f"{line.qualname}: forward returns '{output.name}'"
            if not output.has_any_shape and tuple(found.shape) != tuple(expected):
                raise Mismatch.error(
                    f"{place} of shape {format_shape(tuple(found.shape))} {when}, "
                    f"the line says {format_shape(expected)}: {format_spec(output)}",
                    line=line,
                    inputs=", ".join(format_shape(tuple(tensor.shape)) for tensor in tensors),
                )
            wanted = check.dtype_named(output.dtype) if output.dtype else dtype
            if found.dtype != wanted:
                raise Mismatch.error(
                    f"{place} as {check.name_of(found.dtype)}, "
                    f"the line says {check.name_of(wanted)}",
                    line=line,
                    help=f"name its dtype in the line: {format_spec(output)}: "
                    f"{check.name_of(found.dtype)}",
                )

    def require_sizes_elsewhere(self) -> None:
        """Stop at a wrong shape for other sizes and int scalars, if forward takes these."""
        for shapes, others, when in self.elsewhere():
            tensors = self.trial.filled(shapes)
            result = self.trial.attempt(tensors, others)
            if result is not None:
                self.require_shapes(tensors, others, result, when)

    def elsewhere(self) -> Iterator[tuple[Shapes, dict[int, object], str]]:
        """Yield sizes to try: all dimensions larger, then one at a time."""
        names = [name for name in self.line.dimensions if self.sizes_of(name)]
        larger = [dict.fromkeys(names, step) for step in (1, 2)] if names else []
        for steps in (*larger, *({name: step} for name in names for step in (1, 3))):
            at = ", ".join(f"{n} = {self.sizes_of(n)[0] + step}" for n, step in steps.items())
            yield self.moved(steps), {}, f"at {at}"
        for index, parameter in enumerate(self.line.parameters):
            value = self.trial.arguments[index]
            if isinstance(parameter, Scalar) and type(value) is int:
                at = f"with {parameter.name} = {value + 1}"
                yield self.trial.base, {index: value + 1}, at

    def sizes_of(self, name: str) -> list[int]:
        """Return the sizes of a name in the example: one, or none."""
        return [
            self.trial.base[t][d]
            for t, spec in enumerate(self.specs)
            for d, dim in self.core(t, spec)
            if dim == Name(name=name)
        ]

    def core(self, tensor: int, spec: TensorSpec) -> list[tuple[int, object]]:
        """Return a tensor's dimensions outside `...`, by their place."""
        if spec.has_any_shape:
            return []
        return list(shape.core_dimensions(spec, len(self.trial.base[tensor])))

    def moved(self, steps: Mapping[str, int]) -> Shapes:
        """Return the example's shapes with some dimensions larger."""
        found = [list(sizes) for sizes in self.trial.base]
        for tensor, spec in enumerate(self.specs):
            for d, dim in self.core(tensor, spec):
                if isinstance(dim, Name):
                    found[tensor][d] += steps.get(dim.name, 0)
        return tuple(tuple(sizes) for sizes in found)

    def require_independence(self) -> None:
        """Stop if forward mixes the elements of `...`, which the line says it does not."""
        if not any(spec.has_batch for spec in self.specs) or self.is_random():
            return
        splits = [
            BatchSplit(len(spec.before), len(spec.after), batched=True)
            if spec.has_batch
            else BatchSplit(0, len(self.trial.base[tensor]), batched=False)
            for tensor, spec in enumerate(self.specs)
        ]
        at = [len(o.before) if o.has_batch else None for o in self.line.outputs]
        if Batches(self.trial, splits, {}).independent(at, leniently=True) is None:
            raise Mismatch.error(
                f"{self.line.qualname}: the line says '...', but forward does not act on each "
                "element alone: it returns something else for a batch than for its elements",
                line=self.line,
                help="name the dimensions that it mixes: x[n], or x[..., n]",
            )

    def is_random(self) -> bool:
        """Return whether forward draws random numbers."""
        found = (self.trial.attempt(seed=seed) for seed in (1, 2, 3))
        return any(other is None or not agree(self.result, other) for other in found)
