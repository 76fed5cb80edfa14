"""The translation unit of a schedule."""

from __future__ import annotations

from collections.abc import Iterable

from pullback.kernels.loops.pointwise import CSRC
from pullback.kernels.loops.schedule import Schedule

NAME = "pullback_index_{}"
LANES = "pullback_index_lanes"


def unit(schedules: Iterable[Schedule], compute: str, accuracy: int) -> str:
    """Return the translation unit of some kernels, which are called by `NAME` and their place."""
    steps = (step for schedule in schedules for step in schedule.steps)
    functions = "\n".join(
        step.kernel.text.replace("@name", NAME.format(place)) for place, step in enumerate(steps)
    )
    return f"""#define PULLBACK_COMPUTE {compute}
#define PULLBACK_ULP {accuracy}
#include "{CSRC}/kernel_abi.h"
#include "{CSRC}/index/index.h"
using namespace pullback::index;
extern "C" __attribute__((visibility("default"))) const int64_t {LANES};
const int64_t {LANES} = lanes;
{functions}"""
