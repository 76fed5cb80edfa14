"""The flags for units translated from CUDA, and the runtime library that runs them."""

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
from pullback.kernels.plan import CXX_FLAGS, WITH_FOLDER, BuildPlan, Translation, TranslationUnit

HERE = Path(__file__).parent
CSRC = headers.CSRC
INCLUDE = CSRC / "include"

# Line tables cost a twentieth of the compile time, and let every message name the author's line.
# nvcc accepts more than g++ does without -fpermissive.
# DWARF 5 of g++ 12 misleads addr2line.
# Keep a store through a pointer that g++ knows to be null: it has to be noticed.
ALWAYS = ("-g1", "-gdwarf-4", "-w", "-fpermissive", "-fno-delete-null-pointer-checks")
CHECKED = tuple("-O1" if flag == "-O3" else flag for flag in CXX_FLAGS)
# These define functions that other headers declare differently.
DEFINING_OTHERS = ("race_tsan", "race_memory")
RUNTIME_FLAGS = (
    *("-std=c++20", "-O2", "-g1", "-fPIC", "-pthread", "-pipe", "-shared"),
    # Functions that it shares with an author's unit (std::string's) are its own copies: the unit's
    # copies are watched, and would report themselves.
    "-Wl,-Bsymbolic-functions",
)
# For compiling only: linking with them would add the sanitizers' own libraries. The runtime has its
# own race detector behind ThreadSanitizer's hooks, and AddressSanitizer is loaded at the start of
# the process or not at all.
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
# For units and the runtime; AddressSanitizer walks the frames of the stack to say who allocated.
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
    """Return the flags that find headers by NVIDIA's names."""
    return f"-I{INCLUDE}", f"-I{headers.folder()}"


# nvcc's options whose value is the next word.
WITH_VALUE = ("-gencode", "-arch", "-code", "-ccbin", "-maxrregcount", "-Xptxas", "-Xlinker", "-t")
FOR_BOTH = (*WITH_FOLDER, "-D", "-U", "-O", "-f", "-W", "-m", "-g", "-l", "-L", "-std=")
OF_NVCC = ("-lineinfo", "-generate-line-info", "-fmad", "-ftz", "-G", "-dc", "-rdc")
FOR_HOST = ("-Xcompiler", "--compiler-options")


def take_flags(given: Sequence[str]) -> tuple[str, ...]:
    """Return the flags for nvcc that mean something here, as g++'s flags.

    Args:
        given: the author's, such as "-DN=4", "--use_fast_math" or "-Xcompiler -fopenmp".
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
        folders: of the author's headers, in addition to the folder of each file.
        torch: whether PyTorch's names for GPUs become those for the CPU.
    """
    return Translation(folders=tuple(folders), keep=(CSRC.parent,), torch=torch)


def link(check: Check) -> tuple[str, ...]:
    """Return the link flags of units translated from CUDA; compiles the runtime if need be."""
    return (*sanitizer.LINK[check], str(runtime(check)))


def runtime(check: Check, announce: Announce | None = None) -> Path:
    """Return the runtime library of a check, compiled if need be."""
    path = _runtimes.get(check)
    if path is None or not path.is_file():
        path = _runtimes[check] = compilation.compile(plan(check), announce=announce)
    return path


# Found once for each process: every definition asks, and the search looks at a hundred files.
_runtimes: dict[Check, Path] = {}


def plan(check: Check) -> BuildPlan:
    """Return the plan of the runtime library."""
    sources = sorted((CSRC / "runtime").glob("*.cpp"))
    texts: dict[str, str] = {}
    for path in sources:
        texts[_unit_of(path)] = texts.get(_unit_of(path), "") + f'#include "{path}"\n'
    return BuildPlan(
        name=f"cuda-on-cpu{'' if check == 'none' else f'-{check}'}",
        compiler=toolchain.find("c++"),
        units=tuple(TranslationUnit(f"{name}.cpp", text) for name, text in texts.items()),
        sources=tuple(sources),
        # Never instrumented itself: it reads memory around a fault, which must not count as one.
        flags=(*RUNTIME_FLAGS, *OF_BOTH[check]),
        link=("-ldl",),
        abi="cuda-on-cpu-1",
    )


def _unit_of(path: Path) -> str:
    """Group the runtime's files: most of the time to compile one goes into reading C++ headers."""
    if path.stem in DEFINING_OTHERS:
        return path.stem
    first = path.stem.partition("_")[0]
    return first if first in ("api", "memory", "race") else "scheduler"


@functools.cache
def abi() -> str:
    """Return what identifies the translator in the cache: its text."""
    texts = [path.read_bytes() for path in sorted(HERE.glob("*.py"))]
    return f"cuda-on-cpu-{hashlib.sha256(b''.join(texts)).hexdigest()[:16]}"
