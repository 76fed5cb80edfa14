"""The line of an existing Function, worked out from an example call, or compared with one."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.bind import autocast
from pullback.bind.example.line import Run, line_of, verify
from pullback.bind.functions.adopted import call_forward, parameters_of, require_function
from pullback.bind.functions.context import Context
from pullback.define.line import Line


def line_from(qualname: str, function: object, example: Sequence[object]) -> Line:
    """Return the line worked out from an example call of a Function, and print it to be pasted.

    Args:
        qualname: the operator's name.
        function: a `torch.autograd.Function`.
        example: arguments of its `apply`.

    Raises:
        PullbackError: PB361 to PB369, the example does not say enough; PB371, not a Function.
    """
    made = require_function(qualname, function)
    names = output_names(made.forward)
    line = line_of(qualname, run_of(made), parameters_of(made), example, names=names)
    print(f'pb.operator("{line}", function={made.__qualname__})')  # noqa: T201  (to be pasted)
    return line


def require_fit(line: Line, function: object, example: Sequence[object]) -> None:
    """Stop if an example contradicts the line."""
    verify(line, run_of(require_function(line.qualname, function)), example)


def run_of(function: type[Any]) -> Run:
    """Return a function that calls forward and says which arguments it changed and returned."""

    def run(*arguments: object) -> tuple[tuple[object, ...], tuple[int, ...]]:
        needs = [isinstance(a, Tensor) and a.is_floating_point() for a in arguments]
        ctx = Context(needs)
        with torch.no_grad(), autocast.disable_autocast():
            returned = call_forward(function, ctx, arguments)
        outputs = returned if isinstance(returned, tuple) else (returned,)
        dirty = [value for value in outputs if any(value is t for t in ctx.dirty_tensors)]
        changed = [i for i, a in enumerate(arguments) if any(a is value for value in dirty)]
        return outputs, tuple(changed)

    return run


def output_names(forward: Callable[..., object]) -> list[str] | None:
    """Return the names that forward returns its outputs by, `return values, index`, if it does."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):
        return None
    returns = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    found = [names_in(value) for value in returns if value is not None]
    if not found or None in found or any(names != found[0] for names in found):
        return None
    return found[0]


def names_in(value: ast.expr) -> list[str] | None:
    """Return the names in `y` or `y, mask`; None for anything else."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return names if len(names) == len(parts) == len(set(names)) else None
