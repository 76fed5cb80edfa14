"""One call of an operator in index notation: who computes which outputs, decided once a shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from pullback.bind import autocast, check, kernel
from pullback.bind.formula import arrange
from pullback.bind.index import choose, dense
from pullback.bind.index.choose import Choice
from pullback.define.formula import extents, required
from pullback.define.formula.formula import labels, require_real
from pullback.define.formula.index import BATCH
from pullback.define.formula.indexed import Indexed
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition

Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """All that follows from the shapes and dtypes of a call.

    Attributes:
        outputs: what the line says of the outputs.
        sizes: of every index.
        choices: who computes which outputs; None where PyTorch's operations compute all of them.
    """

    outputs: kernel.Outputs
    sizes: dict[str, int]
    choices: list[Choice]


class Executor:
    """The kernel of one operator, on every device."""

    def __init__(self, definition: Definition) -> None:
        assert definition.indexed
        self.definition = definition
        self.indexed: Indexed = definition.indexed
        self.prepared: dict[Key, Prepared] = {}

    def __call__(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the outputs, None for those that nobody wants."""
        given = kernel.completed(self.definition, arguments, output_mask)
        known = self.known(given)
        named = arrange.named(self.definition.line, given)
        # Autograd and autocast are above this kernel: nothing in it is recorded or cast.
        with torch.no_grad(), autocast.excluded():
            values = self.computed(known, named)
        return values[0] if len(values) == 1 else tuple(values)

    def known(self, given: tuple[object, ...]) -> Prepared:
        """Return what follows from the shapes and dtypes of a call, worked out once for each."""
        key = (*map(described, given), torch.get_default_dtype())
        if key not in self.prepared:
            if len(self.prepared) >= kernel.MOST_KNOWN:
                self.prepared.clear()
            self.prepared[key] = self.prepare(given)
        return self.prepared[key]

    def prepare(self, given: tuple[object, ...]) -> Prepared:
        """Check the inputs of a call, and decide who computes what."""
        outputs = kernel.outputs_of(self.definition, given)
        sizes = sizes_of(self.indexed, outputs)
        named = arrange.named(self.definition.line, given)
        return Prepared(
            outputs=outputs, sizes=sizes, choices=choose.choices(self, named, outputs, sizes)
        )

    def computed(self, known: Prepared, named: Mapping[str, object]) -> list[Tensor | None]:
        """Return the outputs of a call."""
        outputs = known.outputs
        values: list[Tensor | None] = [None] * len(outputs.wanted)
        left = list(outputs.wanted)
        for choice in known.choices:
            if choice.own is not None and choice.takes_own:
                flat = {**named, **self.flat(named, outputs)}
                dtypes = [outputs.dtypes[k] for k in choice.outputs]
                for k, value in zip(
                    choice.outputs, choice.own.run(flat, known.sizes, dtypes), strict=True
                ):
                    values[k] = value.reshape(outputs.shapes[k])
                    left[k] = False
        if any(left):
            rest = self.dense(known, named, left)
            values = [b if own is None else own for own, b in zip(values, rest, strict=True)]
        return values

    def dense(
        self, known: Prepared, named: Mapping[str, object], wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Return outputs by PyTorch's operations."""
        outputs = known.outputs
        return dense.evaluate(
            self.indexed, named, known.sizes, wanted, outputs.dtypes, outputs.device
        )

    def flat(self, named: Mapping[str, object], outputs: kernel.Outputs) -> dict[str, Tensor]:
        """Return the tensors that have batch dimensions with all of these as one."""
        found: dict[str, Tensor] = {}
        for spec in self.definition.line.tensors:
            value = named[spec.name]
            if spec.has_batch and isinstance(value, Tensor):
                found[spec.name] = flattened(value, spec, outputs.sizes.batch)
        return found


def described(value: object) -> object:
    """Return all of an argument that the outputs' shapes and the choice of kernels depend on."""
    if isinstance(value, Tensor):
        return (value.shape, value.dtype, value.device, value.layout)
    # The value of a scalar decides nothing; its type was checked by PyTorch.
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value is None


def flattened(tensor: Tensor, spec: TensorSpec, batch: Sequence[int]) -> Tensor:
    """Return a tensor with one batch dimension, of the size of all those of the call."""
    place = labels(spec).index(BATCH)
    before, after = len(spec.before), len(spec.after)
    shape = tensor.shape
    core = (shape[:before], shape[len(shape) - after :])
    whole = tensor
    # Dimensions of `...` line up from the right.
    for _ in range(len(batch) - (tensor.dim() - before - after)):
        whole = whole.unsqueeze(place)
    return whole.expand(*core[0], *batch, *core[1]).reshape(*core[0], -1, *core[1])


def in_pytorch(definition: Definition) -> Callable[..., object]:
    """Return what runs by PyTorch's operations alone, which autograd and tracers see through."""
    indexed = definition.indexed
    assert indexed

    def run(*arguments: object, output_mask: list[bool] | None = None) -> object:
        given = kernel.completed(definition, arguments, output_mask)
        outputs = kernel.outputs_of(definition, given)
        sizes = sizes_of(indexed, outputs)
        named = arrange.named(definition.line, given)
        values = dense.evaluate(
            indexed, named, sizes, outputs.wanted, outputs.dtypes, outputs.device
        )
        return values[0] if len(values) == 1 else tuple(values)

    return run


def sizes_of(indexed: Indexed, outputs: kernel.Outputs) -> dict[str, int]:
    """Return every size of a call, and stop where it cannot be computed.

    Raises:
        PullbackError: PB112, PB116, PB139 and those of `required`.
    """
    for dtype in outputs.dtypes:
        require_real(indexed.line, check.name_of(dtype))
    sizes = extents.of_call(indexed, outputs.sizes)
    # Of a size that is not known yet nothing can be asked.
    if all(isinstance(size, int) for size in sizes.values()):
        required.require_inside(indexed, sizes)
    return sizes
