"""CUDA kernels on the CPU: their threads, barriers and shuffles, beside a plain C++ loop."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import show
from pullback.kernels.cuda_on_cpu import program
from pullback.kernels.cuda_on_cpu.mode import Mode

FILE = Path(__file__).with_name("cuda.cu")
Rows = dict[str, float]


def measure(workers: int = 1) -> Rows:
    """Run the program; elements, operations a second, and seconds."""
    done = program.run(FILE, Mode(workers=workers), capture=True)
    assert done.returncode == 0, done.stderr
    rows = (line.split() for line in done.stdout.splitlines())
    return {name: float(value) for name, value in rows}


def main() -> Rows:
    """Print the table; return the figures of one worker."""
    one, two = measure(1), measure(2)
    shown = [
        [
            "c = a + b, one element a thread, × plain loop",
            ratio(one, "add"),
            ratio(two, "add"),
            "0.4",
        ],
        ["the same, in strides of the grid", ratio(one, "strides"), ratio(two, "strides"), ""],
    ]
    for kind in ("barrier", "shuffle"):
        for block in (32, 256, 1024):
            name = f"{kind}_{block}"
            aim = "8" if kind == "barrier" else "12"
            shown.append(
                [f"{kind}, block of {block}, ns a thread", *nanoseconds(name, one, two), aim]
            )
    giga = [f"{rows['matmul'] / 1e9:.2f}" for rows in (one, two)]
    shown.append(["tiled matmul of 512³, GFLOP/s", *giga, "1 (one core)"])
    shown.append(["empty launch, ns", *nanoseconds("launch", one, two), ""])
    show("CUDA kernels on the CPU", ["", "1 worker", "2 workers", "aim"], shown, "")
    return one


def ratio(rows: Rows, name: str) -> str:
    """Return a speed over the plain loop's in the same run."""
    return f"{rows[name] / rows['plain']:.2f}"


def nanoseconds(name: str, *runs: Rows) -> list[str]:
    """Return a time of each run."""
    return [f"{1e9 * rows[name]:.1f}" for rows in runs]


if __name__ == "__main__":
    main()
