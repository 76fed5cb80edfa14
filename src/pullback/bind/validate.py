"""Declarations that make no sense on any machine: each has its error."""

from __future__ import annotations

from collections.abc import Mapping

from pullback.bind import native
from pullback.define import derivative
from pullback.define.operator import ACCURACY, AUTOCAST, Accuracy, Definition
from pullback.define.source import Source
from pullback.diagnostic import PullbackError, Rule, an, did_you_mean

NoKernel = Rule("PB351", "no-kernel")
TwoKernels = Rule("PB352", "two-kernels")
NotYet = Rule("PB353", "not-yet")
WrongDeclaration = Rule("PB355", "wrong-declaration")
TooManyArguments = Rule("PB356", "too-many-arguments")


KINDS = {
    **{"cpu": "compiled", "cuda": "compiled", "python": "Python", "function": "Function"},
    "formula": "formula",
}


def validate(definition: Definition) -> None:
    """Stop at a definition that cannot be registered on any machine."""
    require_types(definition)
    require_one_kind(definition)
    require_derivative(definition)
    require_expressible(definition)


def accuracy_of(qualname: str, accuracy: Accuracy) -> int:
    """Return the largest error of one function that `accuracy=` allows, or stop."""
    if accuracy not in ACCURACY:
        raise WrongDeclaration.error(
            f"{qualname}: accuracy= is {accuracy!r}", have=", ".join(ACCURACY)
        )
    return ACCURACY[accuracy]


def require_types(definition: Definition) -> None:
    """Stop at a part of the wrong type."""
    qualname = definition.line.qualname
    for name in ("cpu", "cuda"):
        given = getattr(definition, name)
        if given is not None and not isinstance(given, Source):
            raise WrongDeclaration.error(
                f"{qualname}: {name}= is {an(type(given).__name__)}",
                help=f'{name}=pb.source("file", call="function(...)")',
            )
    if definition.python is not None and not callable(definition.python):
        raise WrongDeclaration.error(f"{qualname}: python= is not a function")
    for name in ("backward", "jvp"):
        given = getattr(definition, name)
        if not (given is None or isinstance(given, str | Mapping) or callable(given)):
            raise WrongDeclaration.error(
                f"{qualname}: {name}= is {an(type(given).__name__)}",
                help="give a dictionary of expressions, an operator's name or a function",
            )
    if definition.autocast not in AUTOCAST:
        raise WrongDeclaration.error(
            f"{qualname}: autocast= is {definition.autocast!r}",
            have=", ".join(AUTOCAST),
            help=did_you_mean(str(definition.autocast), AUTOCAST),
        )


def require_one_kind(definition: Definition) -> None:
    """Stop unless there is one kind of kernel, and a tensor that determines the device."""
    line, kernels = definition.line, definition.kernels
    if not kernels and definition.taken == "no":
        raise NoKernel.error(
            f"{line.qualname} has no kernel", help="give cpu=, cuda=, python= or function="
        )
    if len({KINDS[name] for name in kernels}) > 1:
        raise TwoKernels.error(
            f"{line.qualname}: {format_kind(kernels[-1])} is given with {format_kind(kernels[0])}",
            help="give a function as reference=, if it is the same in plain PyTorch",
        )
    if not line.tensors:
        raise NoKernel.error(
            f"{line.qualname} takes no tensor, so PyTorch cannot tell the device to run it on",
            help="give it an input tensor",
        )
    if len(line.parameters) > native.MOST_ARGUMENTS:
        raise TooManyArguments.error(
            f"{line.qualname} has {len(line.parameters)} parameters; "
            f"{native.MOST_ARGUMENTS} is the most"
        )


def format_kind(kernel: str) -> str:
    """Return what a kind of kernel is called in messages."""
    return "a formula" if KINDS[kernel] == "formula" else f"{kernel}="


def require_derivative(definition: Definition) -> None:
    """Stop at a derivative that has nothing to differentiate, or is one too many."""
    line = definition.line
    for name in ("backward", "jvp"):
        given = getattr(definition, name) is not None
        if given and definition.function is not None and definition.taken == "no":
            raise WrongDeclaration.error(
                f"{line.qualname}: {name}= is given, and function= brings its own derivatives",
                help=f"write the {name} of {definition.function.__name__} instead",
            )
        if given and definition.formula is not None:
            raise WrongDeclaration.error(
                f"{line.qualname}: {name}= is given, and the formula has its own derivatives",
                help="leave it out",
            )
    if definition.function is not None and any(output.detached for output in line.outputs):
        raise WrongDeclaration.error(
            f"{line.qualname}: '!' is in the line, but the Function itself says which outputs have "
            "no derivative",
            help="leave it out; forward calls ctx.mark_non_differentiable",
        )
    if definition.backward is not None and not any(map(derivative.has_derivative, line.outputs)):
        raise WrongDeclaration.error(
            f"{line.qualname}: backward= is given, but no output can have a gradient",
            help="leave it out",
        )
    if definition.backward is not None and not derivative.differentiable(line):
        raise WrongDeclaration.error(
            f"{line.qualname}: backward= is given, but no input can have a gradient",
            help="leave it out",
        )


def require_expressible(definition: Definition) -> None:
    """Stop at what a line can say but a kernel of this kind cannot do."""
    line = definition.line
    if {"function", "formula"} & set(definition.kernels):
        return
    derivatives = definition.backward is not None or definition.jvp is not None
    for tensor in line.tensors:
        if tensor.many and (definition.kernels or derivatives):
            raise not_yet(definition, f"the list '{tensor}'")
    if definition.taken != "no":
        return
    for tensor in (*line.tensors, *line.outputs):
        if tensor.has_any_shape and ("python" not in definition.kernels or tensor in line.outputs):
            raise not_yet(definition, f"'{tensor}', a tensor of any shape,")
    if line.changed:
        raise not_yet(definition, f"'{line.changed[0]}', which is changed in place,")
    for scalar in line.scalars:
        if "python" not in definition.kernels and (scalar.optional or "[]" in scalar.type):
            raise not_yet(definition, f"'{scalar}'")


def not_yet(definition: Definition, what: str) -> PullbackError:
    """Return the error for something that only a Function can have."""
    kernels = " and ".join(f"{name}=" for name in definition.kernels) or "a derivative"
    return NotYet.error(
        f"{definition.line.qualname}: {what} does not go with {kernels}",
        help="write it as a torch.autograd.Function and give that as function=",
    )
