"""How the tensors of a formula lie in its space: by the names of their dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from pullback.bind.native import Finish
from pullback.define import shape
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH
from pullback.define.shape import Sizes


def core_indices(tensor: TensorSpec) -> list[str]:
    """Return a tensor's dimensions without `...`, as indices."""
    return [label for label in tensor.labels if label != BATCH]


def alignment(tensor: TensorSpec, space: TensorSpec) -> tuple[int, ...] | None:
    """Return where each core dimension of the space is in a tensor, -1 where it is not.

    None if the tensor lines up with the space from the right as it is.
    """
    own, whole = tensor.labels, space.labels
    if whole[len(whole) - len(own) :] == own and (BATCH not in whole[len(whole) - len(own) + 1 :]):
        return None
    places = core_indices(tensor)
    return tuple(places.index(d) if d in places else -1 for d in core_indices(space))


def finishes(formula: Formula) -> tuple[Finish, ...]:
    """Return what each output is summed over."""
    places = core_indices(formula.space)
    return tuple(
        Finish(tuple(places.index(i) for i in summed if i != BATCH), BATCH in summed)
        for summed in formula.sums
    )


def shape_of_space(formula: Formula, sizes: Sizes) -> tuple[int, ...]:
    """Return the sizes of the space in one call."""
    return shape.output_shape(formula.line, formula.space, sizes.batch, sizes.dims)


def spread_axes(labels: Sequence[str], batch: int, first: int = 0) -> list[str]:
    """Return indices with one for each dimension of `...`: `...0`, `...1`."""
    found: list[str] = []
    for label in labels:
        found += [f"{BATCH}{k}" for k in range(first, batch)] if label == BATCH else [label]
    return found


def view_in_space(tensor: Tensor, spec: TensorSpec, space: TensorSpec, batch: int) -> Tensor:
    """Return a tensor with the dimensions of the space, of size 1 where it has none.

    Args:
        tensor: of the shape that `spec` says.
        spec: what the line says of it.
        space: what the formula is computed over.
        batch: how many dimensions `...` has there.
    """
    # Dimensions of `...` line up from the right.
    missing = batch - (tensor.dim() - len(core_indices(spec)))
    own, whole = spread_axes(spec.labels, batch, missing), spread_axes(space.labels, batch)
    tensor = tensor.permute([own.index(label) for label in whole if label in own])
    for place, label in enumerate(whole):
        if label not in own:
            tensor = tensor.unsqueeze(place)
    return tensor


def finish_output(result: Tensor, formula: Formula, index: int, batch: int) -> Tensor:
    """Return output `index` from its values over the space: summed, its dimensions in order."""
    whole = spread_axes(formula.space.labels, batch)
    own = spread_axes(formula.line.outputs[index].labels, batch)
    over = [place for place, label in enumerate(whole) if label not in own]
    if over:
        result = result.sum(over, dtype=result.dtype)
    left = [label for label in whole if label in own]
    order = [left.index(label) for label in own]
    return result if order == sorted(order) else result.permute(order)


def name_arguments(line: Line, arguments: Sequence[object]) -> Mapping[str, object]:
    """Return a call's arguments by the line's names."""
    return {p.name: value for p, value in zip(line.parameters, arguments, strict=False)}
