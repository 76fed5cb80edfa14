"""A PyTorch and a Python that the runtime is compiled for: the running ones, or others."""

from __future__ import annotations

import functools
import json
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch

from pullback.diagnostic import Rule

NoEnvironment = Rule("PB703", "no-environment")

# Nothing of pullback's is imported there: it need not be installed.
QUESTION = """
import json, pathlib, sysconfig, torch
print(json.dumps([torch.__version__, str(pathlib.Path(torch.__file__).parent),
                  sysconfig.get_paths()["include"], sysconfig.get_config_var("SOABI")]))
"""


@dataclass(frozen=True)
class Environment:
    """What a library has to be compiled against.

    Attributes:
        torch: the version, such as "2.13.0+cpu".
        root: the folder of the package torch.
        headers: where Python.h is.
        soabi: Python's version and platform, "cpython-311-x86_64-linux-gnu".
    """

    torch: str
    root: Path
    headers: Path
    soabi: str

    @property
    def abi(self) -> str:
        """What a library compiled here has to match, down to the build of PyTorch."""
        return f"torch {self.torch} {self.soabi}"

    @property
    def release(self) -> str:
        """The same for a library that only calls PyTorch: CPU and CUDA builds are alike."""
        return f"torch {self.torch.partition('+')[0]} {self.soabi}"


@functools.cache
def current_environment() -> Environment:
    """Return the running PyTorch and Python."""
    return Environment(
        torch.__version__,
        Path(torch.__file__).parent,
        Path(sysconfig.get_paths()["include"]),
        str(sysconfig.get_config_var("SOABI")),
    )


def query_environment(python: str) -> Environment:
    """Start an interpreter and return the PyTorch and Python that it has.

    Raises:
        PullbackError: PB703, it cannot be started, or has no PyTorch.
    """
    try:
        answer = subprocess.run(
            [python, "-c", QUESTION], capture_output=True, text=True, check=False, timeout=120
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoEnvironment.error(
            f"{python} cannot be started",
            reason=error,
            help="name an interpreter, such as --for ~/envs/older/bin/python",
        ) from error
    if answer.returncode:
        raise NoEnvironment.error(
            f"{python} does not say which PyTorch it has",
            reason=answer.stderr.strip().rpartition("\n")[2],
            help="install torch there",
        )
    try:
        version, root, headers, soabi = json.loads(answer.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise NoEnvironment.error(
            f"{python} does not say which PyTorch it has",
            reason="it answers nothing that Python would",
            help="name an interpreter, such as --for ~/envs/older/bin/python",
        ) from None
    return Environment(version, Path(root), Path(headers), soabi)
