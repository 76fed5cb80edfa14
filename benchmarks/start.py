"""What a first use costs: the import, and an operator's first call with an empty cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

from benchmarks.measure import Figure, figure, show

IMPORT = """
import time, torch
start = time.perf_counter()
import pullback
print(time.perf_counter() - start)
"""
ALL_NAMES = """
import time, torch
start = time.perf_counter()
import pullback as pb
pb.operator
print(time.perf_counter() - start)
"""
FIRST_USE = """
import time, torch
start = time.perf_counter()
import pullback as pb
add = pb.operator(
    "bench::add(a[...], b[...]) -> c[...]",
    cpu=pb.source(
        "void add(float* c, const float* a, const float* b, long n) {"
        "  for (long i = 0; i < n; ++i) c[i] = a[i] + b[i]; }",
        call="add(c, a, b, numel(c))",
    ),
    backward={"a": "grad", "b": "grad"},
)
x = torch.ones(3, requires_grad=True)
add(x, x).sum().backward()
assert x.grad.tolist() == [2, 2, 2]
print(time.perf_counter() - start)
"""


def run(program: str, cache: str) -> float:
    """Run a program in a fresh process; it prints seconds."""
    environment = {**os.environ, "PULLBACK_CACHE": cache}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def main(imports: int = 15, first_uses: int = 3) -> dict[str, Figure]:
    """Print the table; return the figures in seconds."""
    cache = tempfile.mkdtemp(prefix="pullback-bench-")
    empty: list[float] = []
    for _ in range(first_uses):
        shutil.rmtree(cache)
        empty.append(run(FIRST_USE, cache))
    figures = {
        "first use, empty cache (s)": figure(empty),
        "first use, warm cache (s)": figure([run(FIRST_USE, cache) for _ in range(imports)]),
    }
    both = [(run(IMPORT, cache), run(ALL_NAMES, cache)) for _ in range(imports)]
    figures["import pullback, after torch (ms)"] = figure([1e3 * one for one, _ in both])
    figures["the same and pb.operator (ms)"] = figure([1e3 * two for _, two in both])
    shutil.rmtree(cache)
    aims = {"first use, empty cache (s)": "≤ 15", "import pullback, after torch (ms)": "≤ 50"}
    show(
        "First use, in a fresh process, after `import torch`",
        ["", "median", "aim"],
        [[name, str(value), aims.get(name, "")] for name, value in figures.items()],
        ["'first use' imports pullback, compiles the runtime and a kernel, and calls both ways"],
    )
    return figures


if __name__ == "__main__":
    main()
