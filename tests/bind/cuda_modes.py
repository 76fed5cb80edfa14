"""What tests of CUDA on the CPU share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pullback as pb
from pullback.bind import on_cpu
from pullback.kernels.cuda_on_cpu.mode import Mode


@contextmanager
def alone(operator: pb.Operator, mode: Mode) -> Generator[None]:
    """Run one operator in a mode; those of other tests are not compiled anew for it."""
    with (
        mock.patch.object(on_cpu, "operators", {operator.line.qualname: operator}),
        on_cpu.set_mode_everywhere(mode),
    ):
        yield


def run_watched(script: str, folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """Run a script that looks for accesses out of bounds."""
    file = folder / "watched.py"
    file.write_text(script)
    command = [sys.executable, "-m", "pullback", "cuda", "memory", str(file), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)
