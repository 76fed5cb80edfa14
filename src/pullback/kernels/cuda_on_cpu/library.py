"""What units translated from CUDA are compiled with, and the runtime library that runs them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.compile import Announce
from pullback.kernels.cuda_on_cpu import headers, sanitizer
from pullback.kernels.cuda_on_cpu.mode import Check
from pullback.kernels.plan import CXX_FLAGS, WITH_FOLDER, Plan, Translation, Unit

HERE = Path(__file__).parent
CSRC = headers.CSRC
INCLUDE = CSRC / "include"

# Line tables cost a twentieth of the time to compile, and every message names the author's line.
# nvcc takes more than g++ does without -fpermissive.
# DWARF 5 of g++ 12 misleads addr2line.
# A store through what g++ knows to be null stays: it has to be seen.
ALWAYS = ("-g1", "-gdwarf-4", "-w", "-fpermissive", "-fno-delete-null-pointer-checks")
CHECKED = tuple("-O1" if flag == "-O3" else flag for flag in CXX_FLAGS)
# They define functions that the headers of others declare in another way.
DEFINING_OTHERS = ("race_tsan", "race_memory")
RUNTIME_FLAGS = (
    *("-std=c++20", "-O2", "-g1", "-fPIC", "-pthread", "-pipe", "-shared"),
    # What it shares with an author's unit (std::string's functions) is its own copy: that of the
    # unit is watched, and would report itself.
    "-Wl,-Bsymbolic-functions",
)
# For compiling only: linking with them would bring the sanitizers' own libraries. The runtime has
# its own race detector behind ThreadSanitizer's hooks, and AddressSanitizer is there from the start
# of the process or not at all.
SANITIZE: dict[Check, tuple[str, ...]] = {
    "none": (),
    "race": ("-fsanitize=thread", "-fno-omit-frame-pointer", *sanitizer.COMPILE["race"]),
    "memory": (
        "-fsanitize=address,bounds,alignment,null",
        "-fsanitize-recover=all",
        "-fsanitize-address-use-after-scope",
        *sanitizer.COMPILE["memory"],
    ),
}
# For units and the runtime; AddressSanitizer walks the stack by frames to say who allocated.
OF_BOTH: dict[Check, tuple[str, ...]] = {
    "none": (),
    "race": ("-DCUDA_ON_CPU_RACE",),
    "memory": ("-DCUDA_ON_CPU_MEMORY", "-fno-omit-frame-pointer"),
}


def flags(check: Check) -> tuple[str, ...]:
    """Return the flags for units translated from CUDA."""
    if check == "none":
        return (*CXX_FLAGS, *ALWAYS, *include_flags())
    return (*CHECKED, *ALWAYS, *include_flags(), "-g", "-gdwarf-4", *OF_BOTH[check])


def include_flags() -> tuple[str, ...]:
    """Return where headers are found by NVIDIA's names."""
    return f"-I{INCLUDE}", f"-I{headers.folder()}"


# Options of nvcc that have their value in the next word.
WITH_VALUE = ("-gencode", "-arch", "-code", "-ccbin", "-maxrregcount", "-Xptxas", "-Xlinker", "-t")
FOR_BOTH = (*WITH_FOLDER, "-D", "-U", "-O", "-f", "-W", "-m", "-g", "-l", "-L", "-std=")
OF_NVCC = ("-lineinfo", "-generate-line-info", "-fmad", "-ftz", "-G", "-dc", "-rdc")
FOR_HOST = ("-Xcompiler", "--compiler-options")


def taken(given: Sequence[str]) -> tuple[str, ...]:
    """Return those of the flags for nvcc that mean something here, in g++'s words.

    Args:
        given: by the author, such as "-DN=4", "--use_fast_math" or "-Xcompiler -fopenmp".
    """
    kept: list[str] = []
    words = iter(given)
    for word in words:
        name, _, value = word.partition("=")
        if name in FOR_HOST:
            kept.extend((value or next(words, "")).split(","))
        elif name.lstrip("-") in {each.lstrip("-") for each in WITH_VALUE}:
            if not value:
                next(words, "")
        elif word in (*WITH_FOLDER, "-D", "-U"):
            kept.extend((word, next(words, "")))
        elif word.startswith(FOR_BOTH) and name not in OF_NVCC:
            kept.append(word)
    return tuple(kept)


def translation(folders: Iterable[Path] = (), *, torch: bool = False) -> Translation:
    """Return how the units of a plan are translated.

    Args:
        folders: where the author's headers are, beside the folder of each file.
        torch: whether PyTorch's names for GPUs are to become those for the CPU.
    """
    return Translation(folders=tuple(folders), keep=(CSRC.parent,), torch=torch)


def link(check: Check) -> tuple[str, ...]:
    """Return what units translated from CUDA are linked to: the runtime, compiled if need be."""
    return (*sanitizer.LINK[check], str(runtime(check)))


def runtime(check: Check, announce: Announce | None = None) -> Path:
    """Return the runtime library of a check, compiled if need be."""
    path = _runtimes.get(check)
    if path is None or not path.is_file():
        path = _runtimes[check] = compilation.compile(plan(check), announce=announce)
    return path


# Looked for once a process: every definition asks, and it is to look at a hundred files.
_runtimes: dict[Check, Path] = {}


def plan(check: Check) -> Plan:
    """Return what to compile for the runtime library."""
    sources = sorted((CSRC / "runtime").glob("*.cpp"))
    texts: dict[str, str] = {}
    for path in sources:
        texts[_unit_of(path)] = texts.get(_unit_of(path), "") + f'#include "{path}"\n'
    return Plan(
        name=f"cuda-on-cpu{'' if check == 'none' else f'-{check}'}",
        compiler=toolchain.find("c++"),
        units=tuple(Unit(f"{name}.cpp", text) for name, text in texts.items()),
        sources=tuple(sources),
        # Never instrumented itself: it looks around a fault, which must not be one.
        flags=(*RUNTIME_FLAGS, *OF_BOTH[check]),
        link=("-ldl",),
        abi="cuda-on-cpu-1",
    )


def _unit_of(path: Path) -> str:
    """Group the runtime's files: reading the C++ library's headers is most of compiling one."""
    if path.stem in DEFINING_OTHERS:
        return path.stem
    first = path.stem.partition("_")[0]
    return first if first in ("api", "memory", "race") else "scheduler"


@functools.cache
def abi() -> str:
    """Return what stands for the translator in the cache: its text."""
    texts = [path.read_bytes() for path in sorted(HERE.glob("*.py"))]
    return f"cuda-on-cpu-{hashlib.sha256(b''.join(texts)).hexdigest()[:16]}"
