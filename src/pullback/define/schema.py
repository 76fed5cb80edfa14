"""Line -> the schema that PyTorch's dispatcher reads."""

from __future__ import annotations

from pullback.define.line import Default, Line, Scalar, Tensor


def schema(line: Line, *, masked: bool) -> str:
    """Return the schema without its namespace: `add2(Tensor a, Tensor b) -> Tensor`.

    An optional tensor may be left out by the caller, `=None`, where everything after it may.

    Args:
        line: the operator.
        masked: whether to add `output_mask`, by which a backward is told what is wanted.
    """
    arguments: list[str] = []
    may_be_left_out = True
    for parameter in reversed(line.parameters):
        default = default_of(parameter) if may_be_left_out else None
        may_be_left_out = default is not None
        arguments.append(f"{type_of(parameter)} {parameter.name}{default or ''}")
    arguments.reverse()
    if masked:
        arguments += ["*", "bool[]? output_mask=None"]
    returns = ", ".join("Tensor" for _ in line.outputs)
    returns = returns if len(line.outputs) == 1 else f"({returns})"
    return f"{line.name}({', '.join(arguments)}) -> {returns}"


def type_of(parameter: Tensor | Scalar) -> str:
    """Return the type as a schema writes it."""
    if isinstance(parameter, Scalar):
        return parameter.type
    return "Tensor?" if parameter.optional else "Tensor"


def default_of(parameter: Tensor | Scalar) -> str | None:
    """Return `=` and the default; None for a parameter that is always given."""
    if isinstance(parameter, Tensor):
        return "=None" if parameter.optional else None
    return None if parameter.default is None else f"={literal(parameter.default)}"


def literal(value: Default) -> str:
    """Return a default as a schema writes it, strings in double quotes."""
    if not isinstance(value, str):
        return repr(value)
    # PyTorch reads few escapes; of the characters it does not take as they are, these are all.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\012")
    return f'"{escaped}"'
