"""Each operator once, forward and backward, at small sizes: what a sanitizer watches."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from benchmarks.gpu.candidates import with_loops
from benchmarks.gpu.cases import FORMULAS, LOOPS, RECURRENCES, rehearsed
from benchmarks.gpu.measuring import Measuring
from benchmarks.gpu.place import Place


def main(*, rehearsal: bool, most: int) -> None:
    """Run each operator."""
    cases = rehearsed((*LOOPS, *RECURRENCES, *FORMULAS), small=True)[:most]
    # Under `pullback cuda memory` CUDA runs on the CPU already.
    for case in cases:
        now = Measuring(case, Place(rehearsal=rehearsal), case.inputs(small=True))
        now.grad = torch.ones_like(case.eager(*now.inputs))
        with_loops(case, now.run)
        torch.cuda.synchronize()
        print(f"ran {case.name}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    rehearsal = "rehearse" in sys.argv
    main(rehearsal=rehearsal, most=1 if rehearsal else 100)
