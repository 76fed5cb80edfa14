"""Candidate values for a target's parameters: from a line, schema, annotations, defaults, names."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union

import torch
from torch import Tensor

from pullback.define.dimension import Dim
from pullback.define.line import Scalar
from pullback.define.line import Tensor as TensorOfLine
from pullback.verify.source import Text
from pullback.verify.target import Target

# "index": a tensor of integers; "mask": of booleans; "scalar": a number in a tensor; "count": an
# int that says how far an index of a formula runs.
Role = Literal[
    "tensor", "tensors", "index", "mask", "scalar",
    "float", "int", "count", "bool", "str", "ints", "none",
]  # fmt: skip

ANYTHING: tuple[Role, ...] = ("tensor", "float", "int", "index", "mask", "bool")
# The usual meaning of a name without annotation and default.
HINTS: tuple[tuple[str, tuple[Role, ...]], ...] = (
    (r"i|j|idx|ind|index|indexes|indices|ids?|positions?", ("index",)),
    (r"labels?|targets?", ("tensor", "index")),
    (r"mask|.*_mask", ("mask", "tensor")),
    (r"eps|epsilon|alpha|beta|gamma|lambd|lambda_|lamb|lr|p|scale|slope|constant|const|factor"
     r"|temperature|tau|threshold|margin|momentum|rate", ("float", "scalar", "tensor")),
    (r"perm|permutation|sorting", ("index",)),
    (r"dim|axis|n|num_.*|n_.*|kernel_size|stride|padding|groups|size|steps|order|block.*"
     r"|bits|.*_bits|bit_?width",
     ("int", "float")),
    (r"inplace|keepdim|training|causal|is_.*|use_.*|.*_first", ("bool",)),
    (r"mode|reduction|kind|method|approximate", ("str",)),
)  # fmt: skip
OF_TYPE: dict[object, tuple[Role, ...]] = {
    Tensor: ("tensor", "index"),
    float: ("float",),
    int: ("int",),
    bool: ("bool",),
    str: ("str",),
}
OF_SCHEMA: dict[str, tuple[Role, ...]] = {
    "Tensor": ("tensor", "index", "mask"),
    "List[Tensor]": ("tensors",),
    "float": ("float",),
    "number": ("float",),
    "int": ("int",),
    "bool": ("bool",),
    "str": ("str",),
    "List[int]": ("ints",),
}


@dataclass(frozen=True, kw_only=True)
class ParameterSlot:
    """One parameter.

    Attributes:
        name: of the parameter.
        roles: what to pass, the likeliest first.
        fixed: values that are tried before any role: a default, the values of a Literal.
        keyword: it can be given by its name alone.
        dims: of a tensor in a line.
        dtype: of a tensor in a line.
    """

    name: str
    roles: tuple[Role, ...] = ()
    fixed: tuple[Any, ...] = ()
    keyword: bool = False
    dims: tuple[Dim, ...] | None = None
    dtype: torch.dtype | None = None


def slots_of(target: Target) -> list[ParameterSlot] | None:
    """Return a target's parameters; None if nothing is known about them: it is written in C."""
    if target.operator is not None:
        counts = target.operator.kind.definition.counts
        return [of_line(p, is_count=p.name in counts) for p in target.operator.line.parameters]
    if target.overload is not None:
        return [of_schema(argument) for argument in target.overload._schema.arguments]
    signature = target.signature
    if signature is None:
        return None
    hints = annotations_of(target)
    return list(of_signature(signature, hints))


def of_line(parameter: TensorOfLine | Scalar, *, is_count: bool = False) -> ParameterSlot:
    """Return a parameter of a line; `is_count` says that an index runs up to it."""
    if isinstance(parameter, TensorOfLine):
        role: Role = "tensors" if parameter.many else "tensor"
        dtype = getattr(torch, parameter.dtype) if parameter.dtype else None
        if dtype == torch.bool:
            role = "mask"
        elif dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            role = "index"
        return ParameterSlot(name=parameter.name, roles=(role,), dims=parameter.dims, dtype=dtype)
    if parameter.default is not None:
        return ParameterSlot(name=parameter.name, fixed=(parameter.default,))
    if parameter.optional:
        return ParameterSlot(name=parameter.name, fixed=(None,))
    role = "ints" if parameter.type.endswith("[]") else typing.cast("Role", parameter.type)
    role = "count" if is_count else role
    return ParameterSlot(name=parameter.name, roles=(role,))


def of_schema(argument: Any) -> ParameterSlot:  # noqa: ANN401  (torch._C.Argument)
    """Return an argument of a schema."""
    kind = str(argument.type)
    optional = kind.startswith("Optional[")
    roles = OF_SCHEMA.get(kind.removeprefix("Optional[").removesuffix("]") if optional else kind)
    if roles is None:
        roles = ("tensors",) if "Tensor" in kind else ()
    default = argument.default_value if argument.has_default_value() else None
    if argument.has_default_value() and default is not None:
        return ParameterSlot(name=argument.name, fixed=(default,), keyword=argument.kwarg_only)
    tensor = bool(roles) and roles[0] == "tensor"
    if optional or argument.has_default_value():
        roles = (*roles, "none") if tensor else ("none",)
    return ParameterSlot(name=argument.name, roles=roles, keyword=argument.kwarg_only)


def annotations_of(target: Target) -> dict[str, Any]:
    """Return the annotations of the called function, resolved as far as possible."""
    function = target.parts.get("forward", target.call)
    if target.kind == "module":
        function = target.given.forward
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that only a type checker knows
        return dict(getattr(function, "__annotations__", {}))


def of_signature(signature: inspect.Signature, hints: dict[str, Any]) -> Iterator[ParameterSlot]:
    """Yield the parameters of a Python function."""
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            # Two, as in the shapes that are tried.
            for index in range(2):
                yield ParameterSlot(name=f"{parameter.name}[{index}]", roles=("tensor",))
        elif parameter.kind is not parameter.VAR_KEYWORD:
            yield of_parameter(parameter, hints.get(parameter.name))


def of_parameter(parameter: inspect.Parameter, hint: object) -> ParameterSlot:
    """Return a parameter of a Python function."""
    keyword = parameter.kind is parameter.KEYWORD_ONLY
    roles, fixed = roles_of(hint)
    default = parameter.default
    if default is not parameter.empty and default is not None:
        return ParameterSlot(name=parameter.name, fixed=(default,), keyword=keyword)
    if not roles and not fixed:
        roles = guess_roles(parameter.name)
    if default is None:
        roles = add_none(roles if "tensor" in roles else ())
    return ParameterSlot(name=parameter.name, roles=roles, fixed=fixed, keyword=keyword)


def guess_roles(name: str) -> tuple[Role, ...]:
    """Return what a parameter may be if only its name is known, the likeliest first."""
    for text, likely in HINTS:
        if re.fullmatch(text, name.strip("_")):
            return (*likely, *(role for role in ANYTHING if role not in likely))
    return ANYTHING


def add_none(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    """Return the roles, and None last."""
    return (*roles, "none")


def roles_of(hint: object) -> tuple[tuple[Role, ...], tuple[Any, ...]]:
    """Return what an annotation allows: roles, and values of a Literal."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, UnionType):
        found = [roles_of(own) for own in arguments if own is not NoneType]
        none: tuple[Role, ...] = ("none",) if NoneType in arguments else ()
        roles: tuple[Role, ...] = tuple(dict.fromkeys(role for own, _ in found for role in own))
        return (*roles, *none), tuple(value for _, fixed in found for value in fixed)
    if origin is Literal:
        return (), arguments
    if origin in (list, tuple, Sequence) and arguments:
        return (("tensors",) if arguments[0] is Tensor else ("ints",)), ()
    if isinstance(hint, type) and issubclass(hint, Tensor):
        return OF_TYPE[Tensor], ()
    return OF_TYPE.get(hint, ()), ()


def strings_of(target: Target) -> tuple[str, ...]:
    """Return the words among the literals of forward: the values of its options."""
    function = target.parts.get("forward", target.call)
    words = [value for value in Text(function).constants() if isinstance(value, str)]
    return tuple(dict.fromkeys(word for word in words if re.fullmatch(r"[\w-]{1,20}", word)))
