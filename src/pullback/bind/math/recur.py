"""The kernel of an operator with states: the states, then the outputs from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pullback.bind import autocast, kernel
from pullback.bind.dense.steps import StatesCall, compute_states
from pullback.bind.math.call import IndexedCall, call_of
from pullback.bind.math.execute import Executor
from pullback.bind.memo import Memo
from pullback.define.math import steps
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.node import READ, Node
from pullback.define.operator import Definition

Key = tuple[frozenset[str], tuple[bool, ...]]


@dataclass(frozen=True)
class RecurrentCall:
    """All calls in which the same tensors are None, and the same outputs are wanted.

    Attributes:
        formula: without those.
        names: of the states, as the outputs' formula reads them.
        copied: the outputs that are a state as it is, by their place.
    """

    formula: Formula
    names: dict[str, str]
    copied: dict[int, str]

    @staticmethod
    def of(formula: Formula, missing: frozenset[str], wanted: tuple[bool, ...]) -> RecurrentCall:
        """Return it."""
        own = steps.present(formula, missing, wanted)
        free = FreeNames(formula.line)
        names = {name: free.fresh(f"{name}_") for name in own.states}
        outputs = enumerate(zip(own.line.outputs, own.nodes, strict=True))
        copied = {k: n.name for k, (o, n) in outputs if wanted[k] and _is_copy(n, o.labels, own)}
        return RecurrentCall(own, names, copied)

    @cached_property
    def rest(self) -> Executor:
        """Computes the other outputs from the states."""
        formula = steps.rest_of(self.formula, self.names)
        return Executor(Definition(line=formula.line, formula=formula))


def _is_copy(node: Node, labels: tuple[str, ...], formula: Formula) -> bool:
    """Return whether an output is a state at its own indices."""
    if node.op != READ or node.name not in formula.states:
        return False
    return tuple(place.index for place in node.places) == labels and (
        formula.states[node.name].indices == labels
    )


class RecurrentExecutor:
    """The kernel of one operator, on every device."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.known: Memo[Key, RecurrentCall] = Memo()

    def __call__(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the outputs, None for those that are not wanted."""
        given = kernel.fill_defaults(self.definition, arguments, output_mask)
        # Autograd and autocast are above this kernel: nothing in it is recorded or cast.
        with torch.no_grad(), autocast.disable_autocast():
            return kernel.unwrap_single(self.compute(call_of(self.definition, given)))

    def compute(self, call: IndexedCall) -> list[Tensor | None]:
        """Return the outputs of a call."""
        formula, outputs = call.indexed, call.outputs
        missing = frozenset(name for name, value in call.named.items() if value is None)
        key = missing, tuple(outputs.wanted)
        known = self.known.get_or_make(key, lambda: RecurrentCall.of(formula, *key))
        states = compute_states(
            StatesCall(
                formula=known.formula,
                arguments=call.flat,
                sizes=call.sizes,
                compute=compute_dtype(call),
                device=outputs.device,
            )
        )
        values: list[Tensor | None] = [None] * len(outputs.wanted)
        for k, name in known.copied.items():
            values[k] = states[name].reshape(outputs.shapes[k]).to(outputs.dtypes[k])
        left = [
            asked and value is None for asked, value in zip(outputs.wanted, values, strict=True)
        ]
        if any(left):
            for k, value in self.rest(known, call, states, left).items():
                values[k] = value
        return values

    def rest(
        self,
        known: RecurrentCall,
        call: IndexedCall,
        states: Mapping[str, Tensor],
        left: list[bool],
    ) -> dict[int, Tensor]:
        """Return the outputs that are computed from the states."""
        shared = {known.names[name]: value for name, value in states.items()}
        line = known.rest.definition.line
        given = [shared.get(p.name, call.flat.get(p.name)) for p in line.parameters]
        mask = left if known.rest.definition.masked else None
        found = known.rest(*given, **({"output_mask": mask} if mask else {}))
        several = found if isinstance(found, tuple) else (found,)
        outputs = call.outputs
        return {
            k: value.reshape(outputs.shapes[k]).to(outputs.dtypes[k])
            for k, value in enumerate(several)
            if left[k] and isinstance(value, Tensor)
        }


def compute_dtype(call: IndexedCall) -> torch.dtype:
    """Return the dtype of real states: that of the call, and float32 for the half ones."""
    tensors = [v for v in call.named.values() if isinstance(v, Tensor)]
    dtypes = [*(t.dtype for t in tensors if t.is_floating_point()), *call.outputs.dtypes]
    return torch.float64 if torch.float64 in dtypes else torch.float32
