"""The fake kernel of a formula: shapes from the line, strides as TensorIterator gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.bind.dense import arrange
from pullback.define.math.formula import Formula
from pullback.define.operator import Definition
from pullback.kernels.loops.pointwise import Loop


def make_fake_kernel(definition: Definition) -> Callable[..., object]:
    """Return the fake kernel."""
    formula = definition.formula
    assert formula

    def run(*arguments: object, output_mask: list[bool] | None = None) -> object:
        given = kernel.fill_defaults(definition, arguments, output_mask)
        outputs = kernel.outputs_of(definition, given)
        named = arrange.name_arguments(definition.line, given)
        space = arrange.shape_of_space(formula, outputs.sizes)
        strides = strides_of(formula, named, outputs, space)
        results: list[Tensor | None] = []
        for k, wanted in enumerate(outputs.wanted):
            if not wanted:
                results.append(None)
                continue
            whole = torch.empty_strided(
                space, strides, dtype=outputs.dtypes[k], device=outputs.device
            )
            results.append(arrange.finish_output(whole, formula, k, len(outputs.sizes.batch)))
        return kernel.unwrap_single(results)

    return run


def strides_of(
    formula: Formula,
    arguments: Mapping[str, object],
    outputs: kernel.Outputs,
    space: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the strides of what the loop writes, in the order of the strides that it reads."""
    given = [arguments[tensor.name] for tensor in formula.line.tensors]
    loop = Loop(
        formula=formula,
        dtype="float32",
        wanted=sum(1 << k for k, wanted in enumerate(outputs.wanted) if wanted),
        present=sum(1 << k for k, value in enumerate(given) if value is not None),
    )
    batch = len(outputs.sizes.batch)
    views: list[Tensor] = []
    for spec in loop.inputs:
        tensor = arguments[spec.name]
        assert isinstance(tensor, Tensor)
        views.append(arrange.view_in_space(tensor, spec, formula.space, batch).expand(space))
    # Imported here: it imports much, and eager code needs none of it.
    from torch._prims_common import compute_elementwise_output_strides  # noqa: PLC0415

    if not views:
        return torch.empty(space, device="meta").stride()
    return tuple(compute_elementwise_output_strides(*views))
