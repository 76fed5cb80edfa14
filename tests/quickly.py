"""A compiler that takes a third as long: CMake's launcher for libraries of which the tests ask.

They ask what is computed, not how fast: the runtime and the loops are not optimized. The runtime is
compiled in one with operators.cpp, as its parts read the same headers of PyTorch's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LAUNCHER = {"CMAKE_CXX_COMPILER_LAUNCHER": f"{sys.executable};{__file__}"}
HALVES = ("unity_definitions_cxx.cxx", "unity_calls_cxx.cxx")
# More memory for a fifth of the time.
QUICKLY = ("-O0", "--param", "ggc-min-expand=1000", "--param", "ggc-min-heapsize=4000000")


def main(command: list[str]) -> int:
    """Compile `g++ FLAGS -o OBJECT -c SOURCE`; return the exit status."""
    *words, source = command
    file = Path(source)
    if file.parent.name in ("loops", "Unity") or file.name == "operators.cpp":
        words = [word for word in words if word not in ("-O2", "-O3")]
        words += QUICKLY
    if file.name in HALVES:
        words, source = [*words, "-x", "c++"], "/dev/null"
    if file.name == "operators.cpp":
        for name in HALVES:
            (half,) = Path().rglob(name)
            words += ["-include", str(half)]
    once = Path(__file__).with_name("compile_once.py")
    return subprocess.run([sys.executable, str(once), *words, source], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
