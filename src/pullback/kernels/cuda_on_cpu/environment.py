"""The environment variables that set up CUDA on the CPU in a process.

`runtime/options.cpp` and `runtime/findings.cpp` read them as well, for programs without Python.
Every Python that starts with the switch imports this, so it imports only the standard library.
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
# A file to which the runtime appends its findings: texts, each with a null byte at its end.
FINDINGS = f"{SWITCH}_FINDINGS"


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the switch is on, so that whatever asks for a GPU gets the CPU."""
    return environment.get(SWITCH, "").lower() not in OFF
