"""Line -> the schema that PyTorch's dispatcher reads."""

from __future__ import annotations

from collections.abc import Collection

from pullback.define.line import Default, Line, Scalar, Tensor


def schema(line: Line, *, masked: bool, symbols: Collection[str] = ()) -> str:
    """Return the schema without its namespace: `add2(Tensor a, Tensor b) -> Tensor`.

    An optional tensor has the default `=None` if every parameter after it may be left out too.

    Args:
        line: the operator.
        masked: whether to add `output_mask`, which tells a backward what is wanted.
        symbols: the int scalars that may be symbolic while PyTorch traces.
    """
    arguments: list[str] = []
    may_be_left_out = True
    for parameter in reversed(line.parameters):
        default = default_of(parameter) if may_be_left_out else None
        may_be_left_out = default is not None
        type = type_of(parameter, alias_mark(parameter.name, line))
        type = "SymInt" if parameter.name in symbols else type
        arguments.append(f"{type} {parameter.name}{default or ''}")
    arguments.reverse()
    if masked:
        arguments += ["*", "bool[]? output_mask=None"]
    returns = ", ".join(f"Tensor{alias_mark(output.name, line)}" for output in line.outputs)
    returns = returns if len(line.outputs) == 1 else f"({returns})"
    return f"{line.name}({', '.join(arguments)}) -> {returns}"


def type_of(parameter: Tensor | Scalar, alias: str = "") -> str:
    """Return the type as a schema writes it."""
    mark = "?" * parameter.optional
    if isinstance(parameter, Scalar):
        return f"{parameter.type}{mark}"
    return f"Tensor{alias}{mark}{'[]' * parameter.many}"


def alias_mark(name: str, line: Line) -> str:
    """Return the mark of a tensor that is changed in place: the input and the output share it."""
    return f"({chr(ord('a') + line.changed.index(name))}!)" if name in line.changed else ""


def default_of(parameter: Tensor | Scalar) -> str | None:
    """Return `=` and the default; None for a parameter that is always given."""
    if parameter.optional:
        return "=None"
    if isinstance(parameter, Tensor) or parameter.default is None:
        return None
    return f"={format_literal(parameter.default)}"


def format_literal(value: Default) -> str:
    """Return a default as a schema writes it, strings in double quotes."""
    if isinstance(value, tuple):
        return repr(list(value))
    if not isinstance(value, str):
        return repr(value)
    # PyTorch reads few escapes; these are all the characters that need one.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\012")
    return f'"{escaped}"'
