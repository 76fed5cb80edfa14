"""A CUDA program, a `.cu` file with a `main`, that runs on the CPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.compile import Announce
from pullback.kernels.cuda_on_cpu import library, sanitizer
from pullback.kernels.cuda_on_cpu.mode import Check, Mode
from pullback.kernels.plan import BuildPlan, TranslationUnit, folders_in


def plan_of(file: Path, check: Check, flags: Sequence[str] = ()) -> BuildPlan:
    """Return the plan of a program.

    Args:
        file: absolute.
        check: the check that runs with it.
        flags: the author's, for g++ or nvcc.

    Raises:
        PullbackError: PB201, no compiler.
    """
    own = tuple(flag for flag in library.flags(check) if flag != "-shared")
    with_address = ("-fsanitize=address",) if check == "memory" else ()
    return BuildPlan(
        name=f"{file.stem}-cuda-on-cpu",
        compiler=toolchain.find("c++"),
        units=(TranslationUnit("program.cpp", f'#include <cuda_runtime.h>\n#include "{file}"\n'),),
        sources=(file,),
        flags=(*own, *library.take_flags(flags)),
        compile_flags=library.SANITIZE[check],
        link=(*with_address, *library.link(check)),
        translation=library.translation([file.parent, *folders_in(flags)]),
        abi=library.abi(),
    )


def run(  # noqa: PLR0913  (all but two have defaults)
    file: Path,
    mode: Mode,
    arguments: Sequence[str] = (),
    *,
    flags: Sequence[str] = (),
    announce: Announce | None = None,
    capture: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Compile a program if need be, and run it.

    Args:
        file: with `main`.
        mode: how kernels run.
        arguments: of the program.
        flags: for the compiler.
        announce: shows that the compiler runs.
        capture: whether its output is returned and not shown.

    Raises:
        PullbackError: PB2xx, it does not compile.
    """
    made = compilation.compile(plan_of(file.absolute(), mode.check, flags), announce=announce)
    told = sanitizer.options() if mode.check == "memory" else {}
    made.chmod(0o700)  # the cache keeps libraries, which nobody starts
    return subprocess.run(
        [str(made), *arguments],
        env={**os.environ, **mode.environment(), **told},
        capture_output=capture,
        text=True,
        errors="replace",
        check=False,
    )
