"""An example's values -> the kind of each parameter."""

from __future__ import annotations

import inspect
import keyword
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from pullback.bind.check import name_of
from pullback.bind.example.trial import is_tensors
from pullback.define.dimension import INT_LIMIT
from pullback.define.line import DTYPES, RESERVED, Default, Type
from pullback.diagnostic import PullbackError, Rule, an

WrongArguments = Rule("PB361", "example-arguments")
WrongType = Rule("PB362", "example-type")
Unclear = Rule("PB363", "example-unclear")

TYPES: tuple[Type, ...] = ("bool", "int", "float", "str")
# Usual names of a tensor that may be left out.
TENSOR_NAME = re.compile(r"weight|bias|mask|input|tensor|grad|state|residual|hidden|ind(ex|ices)")
Kind = Type | Literal["tensor", "tensors", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Given:
    """A parameter of forward and its value in the example.

    Attributes:
        name: in a form that a line can have.
        value: a tensor, a list of tensors, a scalar, or None.
        type: of a scalar; "tensor" or "tensors"; "unknown" for a None without further hints.
        default: forward's, if a line can hold it.
        optional: forward's default is None, or the value is.
        first: the place of its first argument; `*tensors` have several.
        spread: whether it is `*tensors`.
    """

    name: str
    value: object
    type: Kind
    default: Default | None
    optional: bool
    first: int
    spread: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it is a tensor about which the example shows nothing: None, or a placeholder."""
        return self.type == "tensor" and not (isinstance(self.value, Tensor) and self.value.numel())

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor or a list of them."""
        return self.type in ("tensor", "tensors")


def bind_parameters(
    qualname: str, parameters: Sequence[inspect.Parameter], example: Sequence[object]
) -> list[Given]:
    """Return each of forward's parameters with its value, or stop if a line cannot hold one.

    Raises:
        PullbackError: PB361, too many or too few values; PB362, a value that is neither a tensor
            nor a number; PB363, a value whose type is not clear.
    """
    require_arguments(qualname, example)
    found: list[Given] = []
    for index, (parameter, value) in enumerate(pair_with_values(qualname, parameters, example)):
        name = free_name(make_usable_name(parameter.name, index), [given.name for given in found])
        place = f"{qualname}: the argument '{parameter.name}'"
        found.append(
            Given(
                name=name,
                value=value,
                type=(kind := kind_of(place, parameter, value)),
                default=default_of(kind, parameter.default),
                optional=parameter.default is None or value is None,
                first=index,
                spread=parameter.kind is parameter.VAR_POSITIONAL,
            )
        )
    require_elements(qualname, found)
    return found


def require_elements(qualname: str, given: Sequence[Given]) -> None:
    """Stop if all tensors are empty: one may be a placeholder, but all of them show nothing."""
    tensors = [(one.name, one.value) for one in given if isinstance(one.value, Tensor)]
    if tensors and not any(tensor.numel() for _, tensor in tensors):
        name, tensor = tensors[0]
        raise empty_tensor(f"{qualname}: the argument '{name}'", tensor)


def require_arguments(qualname: str, example: object) -> None:
    """Stop if an example is a single value: a tensor would be taken for its rows."""
    if not isinstance(example, tuple | list):
        raise WrongArguments.error(
            f"{qualname}: example= is {an(type(example).__name__)}, not a tuple of arguments",
            help="write a tuple, of one argument too: example=(x,)",
        )


def pair_with_values(
    qualname: str, parameters: Sequence[inspect.Parameter], example: Sequence[object]
) -> list[tuple[inspect.Parameter, object]]:
    """Return each parameter with its value, or its default if it is left out."""
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    spread = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
    shown = ", ".join(map(str, parameters))
    if len(example) > len(positional) and not spread:
        raise WrongArguments.error(
            f"{qualname}: the example has {len(example)} values, forward takes ({shown})",
            help="give one value for each argument, without ctx",
        )
    pairs = list(zip(positional, example, strict=False))
    for parameter in positional[len(example) :]:
        if parameter.default is parameter.empty:
            raise WrongArguments.error(
                f"{qualname}: the example has no value for '{parameter.name}', "
                f"forward takes ({shown})",
                help="give one value for each argument, without ctx",
            )
        pairs.append((parameter, parameter.default))
    if spread:
        rest = tuple(example[len(positional) :])
        for parameter, value in pairs if not rest else ():
            kind_of(f"{qualname}: the argument '{parameter.name}'", parameter, value)
        if not rest:
            raise Unclear.error(
                f"{qualname}: the example has no tensor for '*{spread[0].name}'",
                help="give at least one, better two",
            )
        pairs.append((spread[0], rest))
    return pairs


def kind_of(place: str, parameter: inspect.Parameter, value: object) -> Kind:
    """Return the type of a value, or stop if no operator takes it."""
    wanted = annotated_type(parameter)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Tensor):
        require_usable(place, value)
        return "tensor"
    if is_tensors(value):
        for tensor in cast("Sequence[Tensor]", value):
            require_usable(place, tensor)
            if not tensor.numel():
                raise empty_tensor(place, tensor)
        return "tensors"
    if value is None:
        return type_of_none(parameter, wanted)
    if parameter.kind.name == "VAR_POSITIONAL":
        items = enumerate(cast("Sequence[object]", value))
        number, item = next((n, v) for n, v in items if not isinstance(v, Tensor))
        raise unsupported_value(f"{place}, value {number} of them,", item)
    if isinstance(value, list | tuple):
        return type_of_numbers(place, parameter, cast("Sequence[object]", value), wanted)
    for name, kind in zip(TYPES, (bool, int, float, str), strict=True):
        if isinstance(value, kind):
            as_float = name == "int" and (wanted == "float" or type(parameter.default) is float)
            return "float" if as_float else name
    raise unsupported_value(place, value)


def unsupported_value(place: str, value: object) -> PullbackError:
    """Return the error for a value that no operator takes."""
    what = type(value).__name__
    if isinstance(value, list | tuple):
        items = {type(item).__name__ for item in cast("Sequence[object]", value)}
        what = f"{what} of {' and '.join(sorted(items))}"
    return WrongType.error(
        f"{place} is {an(what)}; an operator of PyTorch takes tensors, numbers and strings only",
        help="wrap the Function: a class made by a function that closes over the value, "
        "and one operator for each value",
    )


def require_usable(place: str, tensor: Tensor) -> None:
    """Stop if a line cannot describe a tensor, or nothing can be learned from it."""
    if name_of(tensor.dtype) not in DTYPES:
        raise WrongType.error(f"{place} is {name_of(tensor.dtype)}", have=", ".join(DTYPES))
    if tensor.layout != torch.strided:
        raise WrongType.error(f"{place} is not dense", help="take its values and indices apart")


def empty_tensor(place: str, tensor: Tensor) -> PullbackError:
    """Return the error for a tensor that nothing can be learned from."""
    return Unclear.error(
        f"{place} has no elements: {tuple(tensor.shape)}",
        help="give a tensor with some; two or three in each dimension are enough",
    )


def type_of_none(parameter: inspect.Parameter, wanted: str | None) -> Kind:
    """Return the type of a value that is None: what its annotation says, or its name."""
    if wanted in TYPES:
        return wanted
    is_tensor = wanted == "tensor" or TENSOR_NAME.search(parameter.name)
    return "tensor" if is_tensor else "unknown"


def type_of_numbers(
    place: str, parameter: inspect.Parameter, value: Sequence[object], wanted: str | None
) -> Type:
    """Return the type of a list."""
    default = parameter.default
    other: Sequence[object] = (
        cast("Sequence[object]", default) if isinstance(default, list | tuple) else ()
    )
    numbers = [*value, *other]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        raise unsupported_value(place, value)
    if not numbers and wanted not in ("int", "float"):
        raise Unclear.error(
            f"{place} is an empty list, which does not tell of what",
            help="give an example with elements",
        )
    floats = wanted == "float" or any(isinstance(number, float) for number in numbers)
    return "float[]" if floats else "int[]"


def annotated_type(parameter: inspect.Parameter) -> str | None:
    """Return the type that an annotation names; `tensor` for a tensor."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return None
    text = annotation if isinstance(annotation, str) else str(annotation)
    words = re.findall(r"\b(Tensor|bool|int|float|str)\b", text)
    return words[0].lower() if words else None


def default_of(kind: str, default: object) -> Default | None:
    """Return a default in a line's form; None for one that it cannot hold."""
    if isinstance(default, np.generic):
        default = default.item()
    if kind.endswith("[]") and isinstance(default, list | tuple):
        items = [default_of(kind[:-2], item) for item in cast("Sequence[object]", default)]
        return None if None in items else cast("Default", tuple(items))
    if kind == "float" and type(default) is int:
        default = float(default)
    if kind not in TYPES or type(default).__name__ != kind:
        return None
    if isinstance(default, float) and not math.isfinite(default):
        return None
    # Beyond 64 bits, or a character for which a line has no escape.
    if isinstance(default, int) and abs(default) >= INT_LIMIT:
        return None
    return cast("Default", default)


def make_usable_name(name: str, index: int) -> str:
    """Return a name like a parameter's that can be in a line."""
    if not name.isascii() or not name.isidentifier():
        return f"argument{index}"
    return f"{name}_" if name in RESERVED or keyword.iskeyword(name) else name


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name, or a longer one that is not taken."""
    while name in set(taken):
        name += "_"
    return name


def arguments_of(given: Iterable[Given]) -> list[object]:
    """Return the arguments as forward takes them."""
    arguments: list[object] = []
    for one in given:
        arguments.extend(cast("Sequence[object]", one.value) if one.spread else [one.value])
    return arguments
