"""Where a Jacobian is wrong, as a small picture in text."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from pullback.verify.numbers.causes.sample import Pair

RAMP = "·░▒▓█"
HEIGHT, WIDTH = 16, 48


def draw_heat_map(pair: Pair) -> str:
    """Draw |analytic - numeric|, outputs by inputs, each cell as a part of the largest one."""
    apart = (pair.analytic - pair.numeric).abs() * pair.known
    rows, columns = min(HEIGHT, apart.shape[0]), min(WIDTH, apart.shape[1])
    cells = adaptive_max_pool2d(apart[None, None], (rows, columns))[0, 0]
    return "\n".join(draw_row(row, float(cells.max())) for row in cells)


def draw_row(row: Tensor, largest: float) -> str:
    """Return one row of the picture."""
    if largest == 0:
        return RAMP[0] * len(row)
    steps = (row / largest * (len(RAMP) - 1)).ceil().int()
    return "".join(RAMP[step] for step in steps.tolist())
