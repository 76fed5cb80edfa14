"""Which machine it is, and how fast memory, multiplications and exponentials are there."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import torch

import pullback as pb
from benchmarks.gpu import clock
from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place
from benchmarks.gpu.rows import Fact, Row
from pullback.bind.loops import gpu
from pullback.kernels import toolchain
from pullback.kernels.toolchain import Compiler

CHAINS = 8
# What throughput.cu asks of one thread; operations of a multiply-add, and of an exponential.
COUNTED = {"FP32, multiply-adds, FLOP/s": (False, 2), "exponentials, ex2/s": (True, 1)}
SMI = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw"


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return the steps."""
    del folder
    return {
        "machine": lambda _: machine(place),
        "copy": lambda _: copying(place),
        "throughput": lambda _: throughput(place),
    }


def query(fields: str = SMI) -> str:
    """Return what nvidia-smi says of the GPU, in one line; empty without it."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def machine(place: Place) -> Iterator[Row]:
    """Yield what there is."""
    if not place.rehearsal:
        about = torch.cuda.get_device_properties(0)
        size = f"{about.total_memory / 2**30:.0f} GiB"
        yield Fact(name="GPU", value=f"{about.name}, {about.multi_processor_count} SMs, {size}")
        yield Fact(name=f"nvidia-smi ({SMI})", value=query())
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    yield Fact(name="software", value=f"{versions}, CUDA {torch.version.cuda}")
    found = [str(each) for each in toolchain.survey() if isinstance(each, Compiler)]
    nvrtc = gpu.find_nvrtc()
    yield Fact(name="compilers", value=", ".join([*found, f"NVRTC {nvrtc and nvrtc.version}"]))
    yield Fact(name="processors", value=str(os.cpu_count()))


def copying(place: Place) -> Iterator[Row]:
    """Yield the bandwidth of a copy of 1 GiB, read and written."""
    moved = 2**20 if place.rehearsal else 2**31
    found = clock.seconds_by_turns({"copy": clock.copy_of(moved, place)}, place, budget=2)["copy"]
    speed = "" if place.rehearsal else f"{moved / found.median / 1e12:.2f} TB/s"
    yield Fact(name=f"copy of {moved // 2**21} MiB", value=speed or "ran")


def throughput(place: Place) -> Iterator[Row]:
    """Yield operations a second of chains of them."""
    operator = pb.operator(
        "bench_gpu::throughput(x[n], rounds: int, exponential: bool) -> y[n]",
        cuda=pb.source(
            str(Path(__file__).with_name("throughput.cu")),
            call="throughput(y, x, n, rounds, exponential, stream)",
        ),
    )
    n, rounds = (512, 3) if place.rehearsal else (2**20, 4096)
    x = torch.rand(n, device="cuda")
    for name, (exponential, each) in COUNTED.items():
        turn = (lambda: None, lambda _, which=exponential: operator(x, rounds, which))
        found = clock.seconds_by_turns({name: turn}, place, budget=1)[name]
        speed = f"{n * rounds * CHAINS * each / found.median:.3g}"
        yield Fact(name=name, value="ran" if place.rehearsal else speed)
