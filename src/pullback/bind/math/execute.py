"""The kernel of an operator in index notation: calls of the same shapes are prepared once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pullback.bind import autocast, kernel
from pullback.bind.dense import arrange
from pullback.bind.dense.elements import FormulaNotice
from pullback.bind.math import passing, ready
from pullback.bind.math.call import (
    Choice,
    IndexedCall,
    call_of,
    compute_by_pytorch,
    compute_outputs,
    is_captured,
)
from pullback.bind.memo import Memo, key_of_argument
from pullback.bind.notice import notice
from pullback.define.operator import Definition

Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class PreparedCall:
    """All that follows from the shapes and dtypes of a call.

    Attributes:
        outputs: what the line says of the outputs.
        sizes: of every index.
        choices: who computes which outputs; PyTorch's operations compute what is left.
        ready: what runs if own loops compute everything; else None.
        keeps: whether such a call keeps statistics of rows if it is recorded.
    """

    outputs: kernel.Outputs
    sizes: dict[str, int]
    choices: list[Choice]
    ready: ready.Ready | None
    keeps: bool


Choose = Callable[[IndexedCall], list[Choice]]


class Executor:
    """The kernel of one operator, on every device."""

    def __init__(self, definition: Definition, choose_executors: Choose) -> None:
        self.definition = definition
        self.choose_executors = choose_executors
        self.prepared: Memo[Key, PreparedCall] = Memo()
        self.counts = find_counts(definition)

    def __call__(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the outputs, None for those that are not wanted."""
        given = kernel.fill_defaults(self.definition, arguments, output_mask)
        known = self.prepared.get(key_of(given, self.counts))
        if known and known.ready and (values := known.ready.run(given)):
            return values[0] if len(values) == 1 else tuple(values)
        # Autograd and autocast are above this kernel: nothing in it is recorded or cast.
        with torch.no_grad(), autocast.disable_autocast():
            known = self.known(given)
            assert self.definition.formula
            call = IndexedCall(
                indexed=self.definition.formula,
                named=arrange.name_arguments(self.definition.line, given),
                outputs=known.outputs,
                sizes=known.sizes,
            )
            values = compute_outputs(call, known.choices)
        return kernel.unwrap_single(values)

    def by_pytorch(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the same by PyTorch's operations alone, which autograd and tracers see through."""
        given = kernel.fill_defaults(self.definition, arguments, output_mask)
        call = replace(call_of(self.definition, given), is_kernel=False)
        return kernel.unwrap_single(compute_by_pytorch(call))

    def keeps(self, *arguments: object) -> bool:
        """Return whether a call that is recorded keeps statistics of rows."""
        found = self.prepared.get(key_of(arguments, self.counts))
        if found is None:
            with torch.no_grad(), autocast.disable_autocast():
                found = self.known(arguments)
        return found.keeps

    def forget(self) -> None:
        """Choose again."""
        self.prepared.clear()

    def known(self, given: tuple[object, ...]) -> PreparedCall:
        """Return what follows from the shapes and dtypes of a call, worked out once for each."""
        key = key_of(given, self.counts)
        found = self.prepared.get(key)
        if found is None:
            found = prepare_call(self.definition, given, self.choose_executors)
            # What is captured is not what later calls shall be.
            if not is_captured(found.outputs.device):
                self.prepared[key] = found
        return found


def prepare_call(
    definition: Definition, given: tuple[object, ...], choose_executors: Choose
) -> PreparedCall:
    """Return what follows from the shapes and dtypes of a call."""
    call = call_of(definition, given)
    captured = is_captured(call.outputs.device)
    if captured:
        name = definition.line.qualname
        notice(
            f"{name}: its first call of these shapes is captured in a graph, where no loop can "
            "be compiled: PyTorch's operations compute it; call it once before",
            FormulaNotice,
        )
    choices = [] if captured else choose_executors(call)
    return PreparedCall(
        outputs=call.outputs,
        sizes=call.sizes,
        choices=choices,
        ready=ready.make_ready(call, choices),
        keeps=passing.keeps_statistics(call, choices),
    )


def find_counts(definition: Definition) -> tuple[int, ...]:
    """Return the places of the int scalars that say how far an index runs."""
    assert definition.formula
    counts = definition.formula.counts
    return tuple(k for k, p in enumerate(definition.line.parameters) if p.name in counts)


def key_of(given: tuple[object, ...], counts: Sequence[int]) -> Key:
    """Return all that a prepared call depends on.

    Args:
        given: its arguments.
        counts: what `find_counts` returns.
    """
    # The value of a scalar decides nothing but how far an index runs; PyTorch checked its type.
    return (
        *(key_of_argument(v) if isinstance(v, Tensor | list) else v is None for v in given),
        *[given[place] for place in counts],
        torch.get_default_dtype(),
    )
