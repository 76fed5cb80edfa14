"""The example's own call: whether an operator can be made from forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from pullback.bind.check import name_of
from pullback.bind.example.trial import ExampleTrial, ForwardResult, agree, close, identical
from pullback.define.line import DTYPES
from pullback.define.shape import format_shape
from pullback.diagnostic import Rule, an

Raises = Rule("PB364", "example-raises")
State = Rule("PB365", "example-state")
WrongOutput = Rule("PB366", "example-output")
InPlace = Rule("PB369", "example-in-place")


def run_first_call(qualname: str, trial: ExampleTrial, names: Sequence[str]) -> ForwardResult:
    """Run forward on the example, twice.

    Args:
        qualname: the operator.
        trial: forward and the example.
        names: of the arguments, each as often as it has places in a call.

    Raises:
        PullbackError: PB364, it raises; PB365, the second call returns something else; PB366, an
            output is not a tensor; PB369, an argument is changed but not marked.
    """
    try:
        result = trial.call()
    except Exception as error:
        raise Raises.error(
            f"{qualname}: forward raises {type(error).__name__} on the example",
            error=f"{error}" or None,
            help="give arguments that forward takes",
        ) from error
    require_tensors(qualname, result)
    require_marked(qualname, trial, result, names)
    require_same(qualname, trial, result)
    return result


def require_tensors(qualname: str, result: ForwardResult) -> None:
    """Stop if an output is not a tensor, or not one that a line can describe."""
    if not result.outputs:
        raise WrongOutput.error(
            f"{qualname}: forward returns nothing", help="return a tensor, or a tuple of tensors"
        )
    for index, output in enumerate(result.outputs):
        which = f"output {index} of forward" if len(result.outputs) > 1 else "forward's output"
        if not isinstance(output, Tensor):
            raise WrongOutput.error(
                f"{qualname}: {which} is {an(type(output).__name__)}, which is not a tensor",
                help="return tensors only; a number as torch.tensor(number)",
            )
        if output.layout != torch.strided or name_of(output.dtype) not in DTYPES:
            raise WrongOutput.error(
                f"{qualname}: {which} is {an(name_of(output.dtype))} tensor of layout "
                f"{output.layout}, which no line describes",
                have=", ".join(DTYPES),
            )


def require_marked(
    qualname: str, trial: ExampleTrial, result: ForwardResult, names: Sequence[str]
) -> None:
    """Stop if an argument is changed in place but not marked."""
    for (index, position), example in zip(trial.places, trial.examples, strict=True):
        if position is None and index in result.changed:
            continue
        argument = result.arguments[index]
        after = argument if position is None else cast("Sequence[object]", argument)[position]
        assert isinstance(after, Tensor)
        if not identical(after, example):
            raise InPlace.error(
                f"{qualname}: forward changes '{names[index]}' in place, but does not mark it as "
                "changed and return it",
                help=f"call ctx.mark_dirty({names[index]}) and return it, or change a clone",
            )


def require_same(qualname: str, trial: ExampleTrial, result: ForwardResult) -> None:
    """Stop if forward does not return the same again."""
    again = trial.attempt()
    if again is not None and agree(result, again):
        return
    raise State.error(
        f"{qualname}: forward gives different results when called again with the same inputs and "
        "seeds: it depends on state outside its arguments",
        difference="the second call raises"
        if again is None
        else describe_difference(result, again),
        help="make that state an argument, a tensor or a number; draw random numbers from the "
        "global generators",
    )


def describe_difference(result: ForwardResult, again: ForwardResult) -> str:
    """Return in words how two results differ."""
    if len(result.outputs) != len(again.outputs):
        return f"{len(result.outputs)} outputs, then {len(again.outputs)}"
    for index, (a, b) in enumerate(zip(result.tensors, again.tensors, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            before, after = (f"{name_of(t.dtype)} {format_shape(tuple(t.shape))}" for t in (a, b))
            return f"output {index} is {before}, then {after}"
        if not close(a, b):
            kind = torch.complex128 if a.is_complex() else torch.float64
            largest = (a.to(kind) - b.to(kind)).abs().max()
            return f"output {index} differs by up to {float(largest):.3g}"
    return "other arguments are changed in place"


def find_aliases(qualname: str, result: ForwardResult, names: Sequence[str]) -> dict[int, int]:
    """Return which output is which argument, of those that are changed in place."""
    found: dict[int, int] = {}
    for index in result.changed:
        argument = result.arguments[index] if index < len(result.arguments) else None
        for number, output in enumerate(result.tensors):
            if isinstance(argument, Tensor) and is_same(output, argument):
                found[number] = index
                break
        else:
            raise InPlace.error(
                f"{qualname}: forward marks '{names[index]}' as changed in place, but no output "
                "is it",
                help=f"return '{names[index]}' itself",
            )
    return found


def is_same(output: Tensor, argument: Tensor) -> bool:
    """Return whether an output is an argument."""
    where = output.data_ptr() == argument.data_ptr()
    return output is argument or (where and output.shape == argument.shape)
