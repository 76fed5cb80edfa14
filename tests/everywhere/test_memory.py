"""What a call allocates is freed with its last reference, not when Python looks for cycles.

Until then a training would hold the tensors of many steps.
"""

from __future__ import annotations

import gc

import pytest
from rows import ROWS, Row
from torch import Tensor
from ways import func_grad, gradients, on_tensors

from tests.telling import telling

pytestmark = pytest.mark.compiler

# Extensions compile PyTorch's headers; the others cost a tenth of a second together.
KINDS = {row.name: row for row in ROWS}
each_row = pytest.mark.parametrize("row", telling(KINDS, KINDS.keys() - {"ext_product"}))


@each_row
def test_a_call_leaves_no_tensor_in_a_cycle(row: Row, seed: int) -> None:
    """Nor does its gradient, recorded or by `torch.func`, of sizes that were seen or are new."""

    def differentiate(grow: int) -> None:
        function, tensors = on_tensors(row.arguments(seed, grow=grow), row.operator)
        gradients(function, tensors)
        if "foreign" not in row.limits:
            func_grad(function, tensors)

    differentiate(0)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for grow in (0, 0, 1):
            differentiate(grow)
        gc.collect()
        left = [each for each in gc.garbage if isinstance(each, Tensor)]
        around = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left, f"{len(left)} tensors, with {around}"
