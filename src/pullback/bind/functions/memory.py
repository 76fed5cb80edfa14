"""Forward's effects on memory: outputs that share an input's, inputs changed in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from pullback.bind import kernel
from pullback.bind.functions.adopted import Adopted, NotDeclared
from pullback.bind.functions.context import address
from pullback.bind.notice import notice


class AliasNotice(UserWarning):
    """An output shared the memory of an input and was copied."""


def check_memory(
    adopted: Adopted,
    dirty: Sequence[Tensor] | None,
    flat: Sequence[Any],
    outputs: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """Return the outputs, each with memory of its own unless the line declares otherwise.

    Args:
        adopted: the Function.
        dirty: what forward marked as changed in place.
        flat: its arguments, below PyTorch's autograd.
        outputs: what it returned.
    """
    line = adopted.line
    if dirty or line.changed:
        require_declared(adopted, dirty or (), outputs)
    for output in outputs:
        if output._is_view() or starts_as(output, flat):
            break
    else:
        return outputs
    taken = {address(a) for a in flat if isinstance(a, Tensor) and a.numel()}
    return tuple(
        copy_output(adopted, output.name, value)
        if address(value) in taken and output.name not in line.changed
        else value
        for output, value in zip(line.outputs, outputs, strict=True)
    )


def starts_as(output: Tensor, flat: Sequence[Any]) -> bool:
    """Return whether an output's memory starts where an input's does."""
    start = output.data_ptr()
    for value in flat:  # noqa: SIM110  (as in `is_batched`)
        if isinstance(value, Tensor) and value.data_ptr() == start:
            return True
    return False


def copy_output(adopted: Adopted, name: str, output: Tensor) -> Tensor:
    """Return a copy of an output that shares memory with an input, and say so."""
    text = (
        f"{adopted.line.qualname}: '{name}' shares memory with an input of forward of "
        f"{adopted.function.__name__}, and is copied; return a clone(), or declare it as changed "
        "in place with mark_dirty and in the line"
    )
    notice(text, AliasNotice)
    return output.clone()


def require_declared(
    adopted: Adopted, dirty: Sequence[Tensor], outputs: tuple[Tensor, ...]
) -> None:
    """Stop unless forward marks exactly the inputs dirty that the line says."""
    line = adopted.line
    pairs = zip(line.outputs, outputs, strict=True)
    returned = tuple(o.name for o, value in pairs if any(value is tensor for tensor in dirty))
    if returned == line.changed and len(dirty) == len(returned):
        return
    if not dirty:
        raise NotDeclared.error(
            f"{line.qualname}: by the line '{line.changed[0]}' is changed in place, and forward of "
            f"{adopted.function.__name__} does not mark it dirty",
            help=f"in forward: ctx.mark_dirty({line.changed[0]}), and return it; or give the "
            "output of the line another name",
        )
    raise NotDeclared.error(
        f"{line.qualname}: forward of {adopted.function.__name__} marks {len(dirty)} of its inputs "
        f"as changed in place, and by the line {', '.join(line.changed) or 'none'} is",
        help="in the line, an output that is its input changed in place has the input's name: "
        "demo::scale_(x[n], k: float) -> x[n]",
    )


def require_unchanged(adopted: Adopted, before: list[int], flat: Sequence[Any]) -> None:
    """Stop if forward changed an input in place without declaring it."""
    if kernel.versions(flat) != before and not adopted.line.changed:
        raise NotDeclared.error(
            f"{adopted.line.qualname}: forward of {adopted.function.__name__} changed an input in "
            "place and did not say so",
            help="clone it first; or call ctx.mark_dirty, and name the output in the line as the "
            "input: demo::scale_(x[n], k: float) -> x[n]",
        )
