"""One file's text -> text that a plain C++ compiler takes: all rules together."""

from __future__ import annotations

import re

from pullback.kernels.cuda_on_cpu.declarations import rewrite_kernels, rewrite_variables
from pullback.kernels.cuda_on_cpu.facts import Facts
from pullback.kernels.cuda_on_cpu.launches import rewrite_kernel_pointers, rewrite_launches
from pullback.kernels.cuda_on_cpu.ptx import rewrite_ptx
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.shared import rewrite_shared
from pullback.kernels.cuda_on_cpu.spellings import rewrite_member_templates
from pullback.kernels.cuda_on_cpu.torch_names import rewrite_torch_names

# A text without any of these is left as it is.
WORTH_READING = re.compile(
    r"<<<|<[ \t]*<[ \t]*<|__(?:global|shared|device|constant|managed|CUDA_ARCH)__|\basm|__asm"
    r"|LIBRARY_IMPL|cuda|CUDA|pinned_memory"
)
# The author's device code sees a GPU; PyTorch's headers must not.
ARCHITECTURE = {"__CUDA_ARCH__": "CUDA_ON_CPU_ARCH"}


def rewrite(out: Rewriting, facts: Facts, *, torch: bool) -> None:
    """Apply all rules to a file.

    Args:
        out: collects the changes.
        facts: about all files of the build.
        torch: whether PyTorch's names for CUDA become those for the CPU.
    """
    for stream in out.source.streams:
        rewrite_launches(stream, out)
        rewrite_kernels(stream, facts, out)
        rewrite_kernel_pointers(stream, out)
        rewrite_shared(stream, facts, out)
        rewrite_variables(stream, facts, out)
        rewrite_ptx(stream, out)
        rewrite_member_templates(stream, out)
        for index in stream.find(*ARCHITECTURE):
            out.replace(stream, index, ARCHITECTURE[stream.words[index]])
        if torch:
            rewrite_torch_names(stream, facts, out)
