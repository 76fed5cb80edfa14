"""The units of a plan in CUDA -> files that a C++ compiler takes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from pullback.diagnostic import Rule
from pullback.kernels.cuda_on_cpu import tree
from pullback.kernels.plan import Translation, TranslationUnit

# Device code reads floats as float4 and halves as int, which nvcc defines and C++ does not. Used
# only for such code: this forbids the alias analysis that vectorises the loop over a block's
# threads.
AS_BY_NVCC = ("-fno-strict-aliasing",)


class TranslationNotice(UserWarning):
    """CUDA code was translated that no compiler would accept as it is."""


# A compiler's errors for libraries of which the CPU has at most one header, or types alone.
NO_HEADER = re.compile(r"(cutlass|cute)/\S+: No such file")
NO_FUNCTION = re.compile(r"'(cublasLt|cudnn|cusolver|cusparse|nccl)[A-Z]\w*' was not declared")
NAMES = {
    "cublasLt": "cuBLASLt",
    "cudnn": "cuDNN",
    "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE",
    "nccl": "NCCL",
}

CannotTranslate = Rule("PB234", "cuda-translation")


def cure(error: str) -> str | None:
    """Return the cure for an author's file that includes, or calls, something the CPU lacks."""
    lacking = NO_HEADER.search(error) or NO_FUNCTION.search(error)
    if lacking is None:
        return None
    name = NAMES.get(lacking[1], lacking[1])
    return f"{name} does not run on the CPU; guard its use with #ifndef CUDA_ON_CPU"


def write(
    name: str, units: Sequence[TranslationUnit], translation: Translation, where: Path
) -> tuple[frozenset[Path], tuple[str, ...]]:
    """Translate units and the author's headers into a folder.

    Returns:
        The author's files that were read, and flags that their code needs.

    Raises:
        PullbackError: PB234, at the author's line, something without a counterpart on the CPU.
    """
    made = tree.translate(
        units,
        where,
        folders=translation.folders,
        stop_at=translation.keep,
        torch=translation.torch,
    )
    if made.problems:
        first, *more = made.problems
        raise CannotTranslate.error(
            f"{name} cannot run on the CPU: {first.text}",
            at=f"{first.file}:{first.line}",
            more="; ".join(f"{other.file}:{other.line}" for other in more[:4]) or None,
            help="guard it with #ifndef CUDA_ON_CPU",
        )
    for note in made.notes:
        text = f"{note.file}:{note.line}: {note.text}"
        warnings.warn(text, TranslationNotice, stacklevel=2)
    return made.read, AS_BY_NVCC if made.casts else ()
