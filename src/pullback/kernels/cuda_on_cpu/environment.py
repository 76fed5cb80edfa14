"""The variables of the environment by which processes are told of CUDA on the CPU.

`runtime/options.cpp` and `runtime/findings.cpp` read them as well, for programs without Python.
Whenever Python starts with the switch this is imported, so it imports the standard library alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SWITCH = "CUDA_ON_CPU"
OFF, ON = ("", "0", "off"), ("1", "on", "cpu")
OPTIONS = {
    "order": f"{SWITCH}_ORDER",
    "workers": f"{SWITCH}_WORKERS",
    "timeout": f"{SWITCH}_TIMEOUT",
}
# A file to which the runtime appends what it finds: texts, each with a null byte at its end.
FINDINGS = f"{SWITCH}_FINDINGS"


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the switch is on: whatever asks for a GPU is to be given the CPU."""
    return environment.get(SWITCH, "").lower() not in OFF
