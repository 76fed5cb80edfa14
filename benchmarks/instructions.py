"""Instructions of loops on a GPU, counted without one: `python -m benchmarks.instructions`.

nvcc compiles the loops of index notation and of recurrences, and nvdisasm
(`pip install nvidia-cuda-nvdisasm`) shows their instructions. A multiprocessor of an H100 issues
four warp instructions a clock, so the count in the innermost loop bounds the speed from above;
nothing is measured here. In a recurrence each step waits for the one before besides.
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

from benchmarks.recurrence_lines import DTW, LRU, SCAN
from pullback.bind.loops import nests
from pullback.bind.loops.backends import CudaBackend, unit_of
from pullback.bind.loops.nests import Own
from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.define.math.formula import Formula
from pullback.deploy import step_loops
from pullback.deploy.step_loops import StepLoops

ARCHITECTURES = ("sm_80", "sm_90")
# Warp instructions that an H100 issues in a second, times the threads of a warp.
ISSUED = 132 * 4 * 32 * 1.755e9
GAUSS = "(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])"
SOFTMAX = "(x[k, n]) -> y[k, n] = exp(x - max[m](x[k, m]))/sum[m](exp(x[k, m] - max[l](x[k, l])))"
POINTS = {"n": 100_000, "m": 100_000, "d": 3}
CORRELATE = "(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])"
IMAGE = {"h": 4096, "w": 4096}
SEVEN = {**IMAGE, "p": 7, "q": 7, "i": 4090, "j": 4090}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A line, the sizes of a call, and an instruction that each element has once in the loop.

    Attributes:
        gradients: the outputs of its derivative that are meant; none if it is the line itself.
        times: how often each element has that instruction, if not once.
        steps: whether it is a recurrence, of which the steps are the elements.
    """

    name: str
    line: str
    sizes: dict[str, int]
    once: str
    element: str
    gradients: tuple[str, ...] = ()
    times: int = 1
    steps: bool = False

    def formula(self) -> Formula:
        """Return its line as a formula, or that of its gradients."""
        formula = notation.parse(parse.parse(f"bench::loop{self.line}"))
        backward = derived.backward(formula) if self.gradients else None
        return backward.formula if backward else formula


CASES = (
    Case(name="gauss, d = 3", line=GAUSS, sizes=POINTS, once="MUFU", element="pair"),
    Case(
        name="its gradients",
        line=GAUSS,
        sizes=POINTS,
        once="MUFU",
        element="pair",
        gradients=("grad_x", "grad_y", "grad_v"),
    ),
    Case(
        name="squared distances, d = 16",
        line="(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)",
        sizes={"n": 4096, "m": 4096, "d": 16},
        once="STG",
        element="pair",
    ),
    Case(
        name="softmax, 4096: the maximum",
        line=SOFTMAX,
        sizes={"k": 16384, "n": 4096},
        once="LDG",
        element="element",
    ),
    Case(
        name="3 x 3 stencil",
        line=CORRELATE,
        sizes={**IMAGE, "p": 3, "q": 3, "i": 4094, "j": 4094},
        once="STG",
        element="output",
    ),
    Case(name="7 x 7 stencil", line=CORRELATE, sizes=SEVEN, once="STG", element="output"),
    Case(
        name="its gradient",
        line=CORRELATE,
        sizes=SEVEN,
        once="STG",
        element="output",
        gradients=("grad_x",),
    ),
    Case(
        name="5 points with a border",
        line="(u[h, w]) -> y[h, w] = pad(u[h + 1, w]) + pad(u[h - 1, w])"
        " + pad(u[h, w + 1]) + pad(u[h, w - 1]) - 4*u",
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
STATES = {"b": 64, "t": 1000, "d": 1024, "s": 16}
TABLE = {"...": 64, "i": 256, "j": 256}


def recurrence(
    name: str, line: str, once: str, *, times: int = 1, gradients: tuple[str, ...] = ()
) -> Case:
    """Return a recurrence of many states."""
    return Case(
        name=name,
        line=line,
        sizes=TABLE if line is DTW else STATES,
        once=once,
        times=times,
        element="step",
        gradients=gradients,
        steps=True,
    )


# What is stored in a step: an output, or three; a front keeps its states in a ring besides. The
# gradients of a selective scan take several passes over a state, of which none is a step.
STEPS = (
    recurrence("linear recurrence", LRU, "STG"),
    recurrence("its gradients", LRU, "STG", times=3, gradients=("grad_a", "grad_x", "grad_h0")),
    recurrence("selective scan, 16", SCAN, "MUFU"),
    recurrence("soft-DTW, 256", DTW, "STG", times=2),
    recurrence("its gradient", DTW, "STG", times=4, gradients=("grad_D",)),
)


def main() -> None:
    """Print a table for each architecture."""
    tool = find_disassembler()
    print(
        "| loop | for | threads a task | registers | spilled | instructions | at most on an H100 |"
    )
    print("|---|---|---|---|---|---|---|")
    for architecture in ARCHITECTURES:
        for case in (*CASES, *STEPS):
            for own in loops_of(case, architecture):
                print(describe(case, own, architecture, tool))


def loops_of(case: Case, architecture: str) -> Iterator[Own]:
    """Yield the loops of a case."""
    formula, backend = case.formula(), CudaBackend(architecture)
    names = [output.name for output in formula.line.outputs]
    wanted = [names.index(name) for name in case.gradients] or range(len(names))
    present = frozenset(parameter.name for parameter in formula.line.parameters)
    if case.steps:
        bits = sum(1 << k for k in wanted)
        asked = (formula, torch.float32, bits, present, case.sizes, backend)
        found = step_loops.find_all(*asked, is_hoisted=True)
        yield from (each.own for each in found if isinstance(each, StepLoops) and each.results)
        return
    for group in nests.group_outputs(formula, wanted, case.sizes):
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
    loop = max(shortest_turns(text, case.once), key=lambda counts: counts[case.once])
    slots = sum(loop.values()) / loop[case.once] * case.times
    outputs = ", ".join(own.indexed.line.outputs[k].name for k in own.outputs)
    name = f"{case.name} ({outputs})" if case.gradients else case.name
    return (
        f"| {name} | {architecture} | {own.target.lanes} | {registers} | {spilled} B "
        f"| {slots:.1f} for each {case.element} | {ISSUED / slots:.2g} {case.element}s/s |"
    )


@dataclass(frozen=True)
class Instruction:
    """One instruction of a disassembly.

    Attributes:
        word: its first one, such as "FFMA".
        target: where it jumps to.
        is_certain: whether it has no condition.
    """

    word: str
    target: int | None
    is_certain: bool


def shortest_turns(text: str, once: str) -> Iterator[collections.Counter[str]]:
    """Yield the instructions of each innermost loop in a disassembly, by their words.

    Where a loop has several ways, the shortest one of those with the most elements: what is inside
    takes it, and blocks at an edge another one.
    """
    code = read_instructions(text)
    back = [
        (each.target, place)
        for place, each in enumerate(code)
        if each.target is not None and each.target < place
    ]
    for begin, end in back:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in back):
            yield shortest_turn(code, begin, end, once)


def shortest_turn(
    code: list[Instruction], begin: int, end: int, once: str
) -> collections.Counter[str]:
    """Return the instructions of the shortest way through a loop with the most elements."""
    # From each place to the end: elements with the sign changed, the length, what comes next.
    ways: dict[int, tuple[int, int, int | None]] = {end: (0, 1, None)}
    for place in reversed(range(begin, end)):
        each = code[place]
        successors = [each.target] if each.target is not None else []
        if each.target is None or not each.is_certain:
            successors.append(place + 1)
        known = [(*ways[k][:2], k) for k in successors if k in ways]
        if known and each.word != "EXIT":
            elements, length, successor = min(known)
            ways[place] = elements - (each.word == once), length + 1, successor
    words: list[str] = []
    step: int | None = begin if begin in ways else None
    while step is not None:
        words.append(code[step].word)
        step = ways[step][2]
    return collections.Counter(words)


def read_instructions(text: str) -> list[Instruction]:
    """Return the instructions of a disassembly."""
    labels: dict[str, int] = {}
    found: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        if label := re.match(r"(\.L_\S+):", line):
            labels[label[1]] = len(found)
        elif it := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z]\w*)(.*)", line):
            found.append((it[1] or "", it[2], it[3]))
    code: list[Instruction] = []
    for condition, word, rest in found:
        jump = re.search(r"\((\.L_\w+)\)", rest) if word == "BRA" else None
        target = labels.get(jump[1]) if jump else None
        # A uniform condition is among the operands.
        certain = not condition and not re.match(r"[.\w]*\s+!?U?P\d", rest)
        code.append(Instruction(word, target, certain))
    return code


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
