"""What to compile for: levels of processors, GPUs, PyTorch and Python versions."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from pullback.bind import environment
from pullback.bind.environment import Environment
from pullback.diagnostic import Rule
from pullback.kernels import processor, toolchain
from pullback.kernels.glue import CSRC
from pullback.kernels.plan import BuildPlan
from pullback.kernels.toolchain import Compiler

UnknownArchitecture = Rule("PB705", "unknown-architecture")
NoCudaCompiler = Rule("PB706", "no-cuda-compiler")

# The widespread ones from Turing on; one that nvcc does not know is left out.
USUAL = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
# "sm_90", "90", "9.0" as PyTorch's TORCH_CUDA_ARCH_LIST has it, and "9.0+PTX".
WRITTEN = re.compile(r"(?:sm_|compute_)?(\d+)\.?(\d)(a|f)?(\+PTX)?")


@dataclass(frozen=True, kw_only=True)
class BuildTarget:
    """What libraries are compiled for.

    Attributes:
        levels: of the processor.
        architectures: GPUs, "sm_90", and "compute_90" for all later ones; none without nvcc.
        loops: the same for formulas' loops: none if nobody asked for GPUs, since they are many.
        environments: the PyTorch and Python versions that the runtime is compiled for.
        sizes: that loops over indices are made for, besides those for any sizes.
    """

    levels: tuple[str, ...]
    architectures: tuple[str, ...]
    loops: tuple[str, ...]
    environments: tuple[Environment, ...]
    sizes: tuple[Mapping[str, int], ...] = ()


def target(
    architectures: Sequence[str] | None = None,
    pythons: Iterable[str] = (),
    sizes: Iterable[Mapping[str, int]] = (),
) -> BuildTarget:
    """Return what to compile for.

    Args:
        architectures: GPUs that are asked for; None stands for the usual ones, if there is nvcc.
        pythons: interpreters with other versions.
        sizes: that loops over indices are made for, besides those for any sizes.

    Raises:
        PullbackError: PB703, an interpreter has no PyTorch; PB705, nvcc does not know an
            architecture; PB706, architectures are asked for, and there is no nvcc.
    """
    every = [environment.current_environment(), *map(environment.query_environment, pythons)]
    code = gpus(architectures)
    return BuildTarget(
        levels=tuple(processor.LEVELS.get(platform.machine(), (processor.BASELINE,))),
        architectures=code,
        loops=() if architectures is None else code,
        environments=tuple({each.release: each for each in every}.values()),
        sizes=tuple(sizes),
    )


def gpus(asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the architectures to compile for, with code for later GPUs at the end.

    Raises:
        PullbackError: PB705, PB706.
    """
    if asked is not None:
        chosen = machine_code(asked)
    elif nvcc := compiler():
        chosen = [name for name in USUAL if name in list_architectures(nvcc)]
    else:
        chosen = []
    plain = [name for name in chosen if not name[-1].isalpha()]
    later = (plain[-1].replace("sm_", "compute_"),) if plain else ()
    return (*chosen, *later)


def compiler() -> Compiler | None:
    """Return nvcc, None where it cannot be used."""
    return toolchain.find("cuda") if toolchain.has("cuda") else None


def machine_code(asked: Iterable[str]) -> list[str]:
    """Return the architectures that are asked for as nvcc calls them, in order.

    Raises:
        PullbackError: PB705, PB706.
    """
    words = [word.strip() for word in asked]
    nvcc = compiler()
    if nvcc is None:
        raise NoCudaCompiler.error(
            f"code for {', '.join(words)} is asked for, and there is no nvcc",
            help=f"{toolchain.HELP['cuda']}; or leave --arch out, to build for the CPU",
        )
    chosen = {find_architecture(word, list_architectures(nvcc)) for word in words}
    return sorted(chosen, key=lambda name: (processor.version_of(name), name))


def find_architecture(text: str, known: Sequence[str]) -> str:
    """Return an architecture as nvcc calls it.

    Raises:
        PullbackError: PB705, nvcc does not know it.
    """
    match = WRITTEN.fullmatch(text.strip())
    name = f"sm_{match[1]}{match[2]}" if match else ""
    if match is None or name not in known:
        raise UnknownArchitecture.error(
            f"'{text}' is not a GPU architecture that nvcc compiles for",
            have=", ".join(known),
            help="name them as --arch sm_80,sm_90; another toolkit knows others",
        )
    return name + (match[3] or "")


@cache
def list_architectures(nvcc: Compiler) -> tuple[str, ...]:
    """Return the architectures that nvcc compiles for."""
    answer = subprocess.run(
        [*nvcc.command, "--list-gpu-code"], capture_output=True, text=True, check=False
    )
    names = re.findall(r"sm_\d+", answer.stdout)
    return tuple(sorted(names, key=processor.version_of))


def generate_flags(architectures: Sequence[str]) -> tuple[str, ...]:
    """Return nvcc's flags: machine code for each architecture, and PTX for later ones."""
    flags: list[str] = []
    for name in architectures:
        virtual = name.replace("sm_", "compute_")
        flags += ["-gencode", f"arch={virtual},code={name}"]
    return tuple(flags)


def on_level(plan: BuildPlan, level: str) -> BuildPlan:
    """Return a plan for every processor of a level, in place of this one."""
    march = processor.LEVELS.get(platform.machine(), {}).get(level)
    chosen = (f"-march={march}",) if march else ()
    kept = [flag for flag in plan.flags if flag not in ("-march=native", "-mtune=native")]
    return replace(plan, flags=(*chosen, *kept, *portable(plan)))


def on_gpus(plan: BuildPlan, architectures: Sequence[str]) -> BuildPlan:
    """Return nvcc's plan for several GPUs at once."""
    flags = (*generate_flags(architectures), "--threads=0", "-Xlinker", "-s")
    return replace(plan, flags=(*plan.flags, *flags))


def portable(plan: BuildPlan) -> tuple[str, ...]:
    """Return flags that leave out what belongs to this machine: debugging symbols, folders."""
    folders = {CSRC: "pullback", **{source.parent: "." for source in plan.sources}}
    return ("-s", *(f"-ffile-prefix-map={here}={there}" for here, there in folders.items()))
