"""What a call allocates is freed with its last reference, not when Python looks for cycles.

Until then a training would hold the tensors of many steps.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

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
    """Nor does its gradient, recorded or by `torch.func`, of sizes that were seen or are new.

    What an earlier test has left may be freed meanwhile, but not twice.
    """

    def differentiate(grow: int) -> None:
        function, tensors = on_tensors(row.arguments(seed, grow=grow), row.operator)
        gradients(function, tensors)
        if "foreign" not in row.limits:
            func_grad(function, tensors)

    differentiate(0)
    left = find_cycles(lambda: [differentiate(grow) for grow in (0, 0, 1)])
    left = left and find_cycles(lambda: [differentiate(grow) for grow in (0, 2, 3)])
    assert not left, f"{len(left)} tensors"


def find_cycles(run: Callable[[], object]) -> list[Tensor]:
    """Return the tensors that a function leaves in cycles, but for those that stand for others."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        run()
        gc.collect()
        return [each for each in gc.garbage if type(each) is Tensor]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
