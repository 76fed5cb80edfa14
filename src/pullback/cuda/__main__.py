"""`python -m pullback.cuda [-m MODULE | SCRIPT] ARGS`: runs a program for a GPU on the CPU."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from pullback.cuda import switch
from pullback.kernels.cuda_on_cpu.environment import SWITCH, is_wanted

USAGE = """\
usage: python -m pullback.cuda [-m MODULE | SCRIPT] [ARGUMENT ...]

Runs a program that wants a GPU on the CPU: python -m pullback.cuda setup.py build_ext --inplace
CUDA_ON_CPU=race and CUDA_ON_CPU=memory look for faults as well.
"""
STARTUP = Path(__file__).parent / "startup"


def main(arguments: list[str]) -> int:
    """Run the script or module that the arguments name, as Python itself does."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stderr.write(USAGE)
        return 0 if arguments else 2
    os.environ.update(environment())
    _begin_anew_if_need_be()
    switch.install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        # As `python -m` does.
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent.absolute()))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


def _begin_anew_if_need_be() -> None:
    """Start this program with AddressSanitizer, which cannot be loaded later."""
    from pullback.kernels.cuda_on_cpu import sanitizer  # noqa: PLC0415  (for one mode in three)

    if os.environ[SWITCH].lower() == "memory" and not sanitizer.is_loaded():
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **sanitizer.environment()})


def environment() -> dict[str, str]:
    """Return the variables with which a process and its children run CUDA on the CPU."""
    # The folder above `pullback` too: it may not be installed.
    folders = [str(STARTUP), str(Path(__file__).parent.parent.parent)]
    known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {
        SWITCH: os.environ[SWITCH] if is_wanted() else "cpu",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*folders, *known])),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
