"""Instructions of loops on a GPU, counted without one: `python -m benchmarks.instructions`.

nvcc compiles the loops of index notation, and nvdisasm (`pip install nvidia-cuda-nvdisasm`) shows
their instructions. A multiprocessor of an H100 issues four warp instructions a clock, so the count
in the innermost loop bounds the speed from above; nothing is measured here.
"""

from __future__ import annotations

import collections
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from pullback.bind.loops import nests
from pullback.bind.loops.backends import CudaBackend, unit_of
from pullback.bind.loops.nests import Own
from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.define.math.formula import Formula

ARCHITECTURES = ("sm_80", "sm_90")
# Warp instructions that an H100 issues in a second, times the threads of a warp.
ISSUED = 132 * 4 * 32 * 1.755e9
GAUSS = "(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])"
SOFTMAX = "(x[k, n]) -> y[k, n] = exp(x - max[m](x[k, m]))/sum[m](exp(x[k, m] - max[l](x[k, l])))"
POINTS = {"n": 100_000, "m": 100_000, "d": 3}
IMAGE = {"h": 4096, "w": 4096, "p": 7, "q": 7, "i": 4090, "j": 4090}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A line, the sizes of a call, and an instruction that each element has once in the loop."""

    name: str
    line: str
    sizes: dict[str, int]
    once: str
    element: str
    gradient: bool = False


CASES = (
    Case(name="gauss, d = 3", line=GAUSS, sizes=POINTS, once="MUFU", element="pair"),
    Case(
        name="its gradients", line=GAUSS, sizes=POINTS, once="MUFU", element="pair", gradient=True
    ),
    Case(
        name="softmax, 4096: the maximum",
        line=SOFTMAX,
        sizes={"k": 16384, "n": 4096},
        once="LDG",
        element="element",
    ),
    Case(
        name="7 x 7 stencil",
        line="(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])",
        sizes=IMAGE,
        once="STG",
        element="output",
    ),
    Case(
        name="sum of exponentials",
        line="(x[n]) -> y[] = sum[n](exp(x[n]))",
        sizes={"n": 2**26},
        once="MUFU",
        element="element",
    ),
)


def main() -> None:
    """Print a table for each architecture."""
    tool = find_disassembler()
    print(
        "| loop | for | threads a task | registers | spilled | instructions | at most on an H100 |"
    )
    print("|---|---|---|---|---|---|---|")
    for architecture in ARCHITECTURES:
        for case in CASES:
            for own in loops_of(case, architecture):
                print(describe(case, own, architecture, tool))


def loops_of(case: Case, architecture: str) -> Iterator[Own]:
    """Yield the loops of a case."""
    formula: Formula | None = notation.parse(parse.parse(f"bench::loop{case.line}"))
    if case.gradient:
        backward = derived.backward(formula)
        assert backward
        formula = backward.formula
    present = frozenset(parameter.name for parameter in formula.line.parameters)
    for group in nests.group_outputs(formula, range(len(formula.nodes)), case.sizes):
        backend = CudaBackend(architecture)
        own = nests.find(formula, torch.float32, group, present, case.sizes, backend)
        assert isinstance(own, Own), own
        yield own


def describe(case: Case, own: Own, architecture: str, tool: str) -> str:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "loop.cu"), Path(folder, "loop.cubin")
        source.write_text(unit_of([own]).nvcc)
        flags = ["-std=c++20", "-O3", "--fmad=false", f"-arch={architecture}", "-Xptxas", "-v"]
        said = run("nvcc", *flags, "-cubin", "-o", str(cubin), str(source)).stderr
        text = run(tool, "-c", str(cubin)).stdout
    registers, spilled = (
        max(map(int, re.findall(rf"(\d+) {what}", said)), default=0)
        for what in ("registers", "bytes spill stores")
    )
    # That of the body, and not those of the edges: the one with the most elements in a turn.
    loop = max(innermost_loops(text), key=lambda counts: counts[case.once])
    slots = sum(loop.values()) / loop[case.once]
    outputs = ", ".join(own.indexed.line.outputs[k].name for k in own.outputs)
    name = f"{case.name} ({outputs})" if case.gradient else case.name
    return (
        f"| {name} | {architecture} | {own.target.lanes} | {registers} | {spilled} B "
        f"| {slots:.1f} for each {case.element} | {ISSUED / slots:.2g} {case.element}s/s |"
    )


def innermost_loops(text: str) -> Iterator[collections.Counter[str]]:
    """Yield the instructions of each innermost loop in a disassembly, by their first words."""
    labels: dict[str, int] = {}
    code: list[tuple[str, str]] = []
    pending: list[str] = []
    for line in text.splitlines():
        if label := re.match(r"(\.L_\S+):", line):
            pending.append(label[1])
        elif found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*)(.*)", line):
            labels |= dict.fromkeys(pending, len(code))
            pending = []
            code.append((found[1], found[2]))
    jumps = [
        (labels[target[1]], place)
        for place, (word, rest) in enumerate(code)
        if word == "BRA" and (target := re.search(r"\((\.L_\w+)\)", rest)) and target[1] in labels
    ]
    back = [(begin, end) for begin, end in jumps if begin < end]
    for begin, end in back:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in back):
            yield collections.Counter(word for word, _ in code[begin : end + 1])


def find_disassembler() -> str:
    """Return nvdisasm: of the CUDA toolkit, or of its package."""
    if found := shutil.which("nvdisasm"):
        return found
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        raise SystemExit("nvdisasm is missing: pip install nvidia-cuda-nvdisasm") from None
    return str(next(file.locate() for file in files if file.name == "nvdisasm"))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has to succeed."""
    return subprocess.run(command, capture_output=True, text=True, check=True)


if __name__ == "__main__":
    main()
