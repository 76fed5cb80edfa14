"""What the tests of the translator share: a text rewritten by all rules."""

from __future__ import annotations

from pathlib import Path

from pullback.kernels.cuda_on_cpu.facts import Facts
from pullback.kernels.cuda_on_cpu.rewriting import Problem, Rewriting
from pullback.kernels.cuda_on_cpu.tokens import read
from pullback.kernels.cuda_on_cpu.translate import rewrite


def rewritten(text: str, *, torch: bool = False, beside: str = "") -> str:
    """Return a text as the translator writes it; `beside` is another file of the build."""
    return run(text, torch=torch, beside=beside)[0]


def problems(text: str) -> list[Problem]:
    """Return what the translator cannot do."""
    return run(text)[1]


def run(text: str, *, torch: bool = False, beside: str = "") -> tuple[str, list[Problem]]:
    source, facts = read(text), Facts()
    facts.learn((*source.streams, *read(beside).streams))
    out = Rewriting(source, Path("author.cu"))
    rewrite(out, facts, torch=torch)
    return out.result(), out.problems


def squeezed(text: str) -> str:
    """Return a text with each run of white space one space."""
    return " ".join(text.split())
