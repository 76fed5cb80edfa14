"""The families that `benchmarks.sweep` goes through on a CPU, at sizes that are drawn anew."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from benchmarks.gpu import loops
from benchmarks.gpu.cases import Bound, Case, Shapes, both
from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place
from benchmarks.sweep_cases import FAMILIES, Family, log_uniform
from pullback.define import parse
from pullback.define.line import Line

# Elementary operations of a call: less is the launch of a kernel.
LEAST, MOST = 2**22, 2**28


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return a step for each family."""
    del folder
    generator = random.Random()
    return {
        family.name: loops.step_of(case_of(family, draw_sizes(family, generator)), place)
        for family in FAMILIES
    }


def draw_sizes(family: Family, generator: random.Random) -> dict[str, int]:
    """Return sizes of a call that is worth a GPU."""
    while True:
        ends = {**family.others, **family.axes}
        sizes = {name: log_uniform(generator, end) for name, end in ends.items()}
        if LEAST <= family.work_of(sizes) <= MOST and family.fits(sizes):
            return sizes


def case_of(family: Family, sizes: Mapping[str, int]) -> Case:
    """Return a call of a family, without `torch.compile`, which would take all of the time."""
    line = parse.parse(f"bench::family{family.line}")
    picked = (place for place, tensor in enumerate(line.tensors) if tensor.dtype == "int64")
    small = {name: min(size, 3 if name in {"p", "q"} else 12) for name, size in sizes.items()}
    shown = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return Case(
        name=f"{family.name}: {shown}",
        line=family.line,
        shapes=shapes_of(line, sizes),
        small=shapes_of(line, small),
        eager=family.eager,
        below={place: sizes["v"] for place in picked},
        is_compiled=False,
        bounds=both(Bound(), Bound()),
    )


def shapes_of(line: Line, sizes: Mapping[str, int]) -> Shapes:
    """Return the shapes of the inputs."""
    return tuple(tuple(sizes[str(i)] for i in tensor.dims) for tensor in line.tensors)
