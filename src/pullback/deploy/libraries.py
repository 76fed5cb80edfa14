"""What is shipped -> a folder of libraries, each with what it computes."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pullback.bind import environment, runtime
from pullback.bind.environment import Environment
from pullback.bind.loops import backends, compiled, gpu
from pullback.bind.loops.backends import CpuBackend, CudaBackend
from pullback.bind.loops.nests import Own
from pullback.deploy import index_loops
from pullback.deploy import target as targets
from pullback.deploy.shipped import FLOATING, PRECISE, Shipped, ShippedKernel
from pullback.deploy.target import BuildTarget
from pullback.kernels import cache, glue, identity, prebuilt, toolchain
from pullback.kernels import compile as compilation
from pullback.kernels.glue import Device
from pullback.kernels.loops import pointwise, pointwise_cuda
from pullback.kernels.loops.pointwise import Loop
from pullback.kernels.loops.target import NAME
from pullback.kernels.plan import BuildPlan, TranslationUnit
from pullback.kernels.prebuilt import PrebuiltLibrary


@dataclass(frozen=True, kw_only=True)
class Job:
    """One library to compile.

    Attributes:
        plan: how it is compiled.
        file: its name in the folder.
        entries: for the manifest, one for each entry point, without the hash.
    """

    plan: BuildPlan
    file: str
    entries: tuple[PrebuiltLibrary, ...]


def build(
    shipped: Sequence[Shipped], target: BuildTarget, folder: Path, *, again: str
) -> tuple[PrebuiltLibrary, ...]:
    """Compile all libraries into a folder, write its manifest, and return what that lists.

    Args:
        shipped: the operators.
        target: what they are compiled for.
        folder: exists, and is empty.
        again: the command that repeats this, for readers of the manifest.

    Raises:
        PullbackError: PB2xx, a kernel does not compile.
    """
    found = tuple(compile_jobs(list(list_jobs(shipped, target)), folder))
    prebuilt.write(folder, found, again)
    return found


def runtime_of_here(folder: Path) -> list[dict[str, Any]]:
    """Put the runtime for the running PyTorch into a folder; return its rows of the manifest.

    The setup.py of a project calls it where pullback and PyTorch are installed.
    """
    return [
        asdict(entry)
        for entry in compile_jobs([job_of_runtime(environment.current_environment())], folder)
    ]


def list_jobs(shipped: Sequence[Shipped], target: BuildTarget) -> Iterator[Job]:
    """Yield everything that is to be compiled."""
    for each in shipped:
        for kernel in each.kernels:
            yield from jobs_of_kernel(kernel, target)
    for each, dtypes in formulas_ahead(shipped):
        yield from jobs_of_formula(each, dtypes, target)
    yield from (job_of_runtime(each) for each in target.environments)


def compile_jobs(jobs: Sequence[Job], folder: Path) -> Iterator[PrebuiltLibrary]:
    """Compile side by side; yield each library's entries as it is put into the folder."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running: list[tuple[Job, Future[Path]]] = [
            (job, pool.submit(compilation.compile, job.plan)) for job in jobs
        ]
        try:
            for job, compiled in running:
                shutil.copyfile(compiled.result(), folder / job.file)
                sha256 = cache.digest(folder / job.file)
                assert sha256
                yield from (replace(entry, file=job.file, sha256=sha256) for entry in job.entries)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def jobs_of_kernel(kernel: ShippedKernel, target: BuildTarget) -> Iterator[Job]:
    """Yield a kernel's libraries: one for each level of the processor, or one for all GPUs."""
    entries = [entry_of(kernel)]
    if kernel.device == "cpu":
        plan = glue.plan_of(kernel.line, kernel.source, "cpu")
        yield from jobs_on_levels(plan, entries, target.levels)
    elif target.architectures:
        plan = glue.plan_of(kernel.line, kernel.source, "cuda")
        yield job_on_gpus(plan, entries, target.architectures)


def jobs_on_levels(
    plan: BuildPlan, entries: Sequence[PrebuiltLibrary], levels: Iterable[str]
) -> Iterator[Job]:
    """Yield a library for each level of the processor."""
    for level in levels:
        yield Job(
            plan=targets.on_level(plan, level),
            file=f"{plan.name}-{level}.so",
            entries=tuple(replace(entry, level=level) for entry in entries),
        )


def job_on_gpus(
    plan: BuildPlan, entries: Sequence[PrebuiltLibrary], architectures: tuple[str, ...]
) -> Job:
    """Return the library for all GPUs."""
    return Job(
        plan=targets.on_gpus(plan, architectures),
        file=f"{plan.name}.so",
        entries=tuple(replace(entry, architectures=architectures) for entry in entries),
    )


def entry_of(kernel: ShippedKernel) -> PrebuiltLibrary:
    """Return a kernel's entry in the manifest, without its library's file."""
    folder = kernel.source.folder
    return PrebuiltLibrary(
        identity=identity.of_kernel(kernel.line, kernel.source, kernel.device),
        operator=kernel.line.qualname,
        symbol=kernel.symbol,
        sources={os.path.relpath(path, folder): cache.digest(path) or "" for path in kernel.files},
        file="",
        sha256="",
    )


def formulas_ahead(shipped: Sequence[Shipped]) -> Iterator[tuple[Shipped, tuple[str, ...]]]:
    """Yield the formulas whose loops are compiled ahead of a call, and the dtypes.

    Second derivatives are those of the gradient only: there are many, and forward mode over forward
    mode is seldom called.
    """
    first = {
        call.operator for s in shipped if s.order == 0 and s.backward for call in s.backward.calls
    }
    second = {name for s in shipped if s.line.qualname in first for name in s.calls}
    for each in shipped:
        if each.order < 2:
            yield each, FLOATING
        elif each.line.qualname in second:
            yield each, PRECISE


def jobs_of_formula(shipped: Shipped, dtypes: Sequence[str], target: BuildTarget) -> Iterator[Job]:
    """Yield the libraries of the loops of an operator that is a formula."""
    yield from jobs_of_loops(shipped, dtypes, target)
    yield from jobs_of_index_loops(shipped, dtypes, target)
    # On a GPU an operator without all of its loops has none.
    if target.loops and shipped.is_bounded:
        yield from jobs_of_gpu_loops(shipped, target.loops)


def jobs_of_loops(shipped: Shipped, dtypes: Sequence[str], target: BuildTarget) -> Iterator[Job]:
    """Yield the libraries of a formula's loops: one for each type that they compute in."""
    for plan, entries in combine_loops(shipped, dtypes):
        yield from jobs_on_levels(plan, entries, target.levels)


def jobs_of_gpu_loops(shipped: Shipped, architectures: tuple[str, ...]) -> Iterator[Job]:
    """Yield the libraries of a formula's loops on GPUs."""
    for compute, entries, distinct in group_loops(shipped, FLOATING, "cuda"):
        first = next(iter(distinct.values()))
        plan = gpu.plan_of(gpu.unit_of(first), None, toolchain.find("cuda"))
        unit = TranslationUnit("loops.cu", pointwise_cuda.generate_together(distinct))
        plan = replace(plan, name=f"{plan.name}-{compute}", units=(unit,))
        yield job_on_gpus(plan, entries, architectures)


def jobs_of_index_loops(
    shipped: Shipped, dtypes: Sequence[str], target: BuildTarget
) -> Iterator[Job]:
    """Yield the libraries of the loops of an operator in index notation, for the CPU and GPUs."""
    for several in index_loops.group_loops(shipped, dtypes, CpuBackend(), target.sizes):
        plan = name_target(backends.plan_of(several), shipped, several)
        yield from jobs_on_levels(plan, list_entries(shipped, several), target.levels)
    if target.loops:
        gpus = CudaBackend(target.loops[0])
        for several in index_loops.group_loops(shipped, dtypes, gpus, target.sizes):
            plan = gpu.plan_of(backends.unit_of(several), None, toolchain.find("cuda"))
            entries = list_entries(shipped, several)
            yield job_on_gpus(name_target(plan, shipped, several), entries, target.loops)


def name_target(plan: BuildPlan, shipped: Shipped, several: Sequence[Own]) -> BuildPlan:
    """Return a plan whose name tells the operator, and the target from others of it."""
    own, line = several[0], shipped.line
    # The loops of steps are those of a formula of their own.
    name = plan.name.replace(own.name, f"{line.namespace}-{line.name}-index", 1)
    return replace(plan, name=f"{name}-{own.target.compute}-{own.target.lanes}")


def list_entries(shipped: Shipped, several: Sequence[Own]) -> list[PrebuiltLibrary]:
    """Return an entry for each of some loops, whose kernels follow one another."""
    firsts = itertools.accumulate((len(own.steps) for own in several), initial=0)
    return [
        PrebuiltLibrary(
            identity=own.identity,
            operator=shipped.line.qualname,
            symbol=NAME.format(first),
            file="",
            sha256="",
            sizes=own.specialised,
        )
        for own, first in zip(several, firsts, strict=False)
    ]


def combine_loops(
    shipped: Shipped, dtypes: Sequence[str]
) -> Iterator[tuple[BuildPlan, tuple[PrebuiltLibrary, ...]]]:
    """Yield a plan of all loops on the CPU that compute in one type, with an entry for each."""
    for compute, entries, distinct in group_loops(shipped, dtypes, "cpu"):
        plan = compiled.plan_of(next(iter(distinct.values())))
        unit = TranslationUnit("loops.cpp", pointwise.generate_together(distinct))
        yield replace(plan, name=f"{plan.name}-{compute}", units=(unit,)), tuple(entries)


def group_loops(
    shipped: Shipped, dtypes: Sequence[str], device: Device
) -> Iterator[tuple[str, list[PrebuiltLibrary], dict[str, Loop]]]:
    """Yield each type that loops compute in, an entry for each loop, and the distinct loops."""
    by_type = sorted(shipped.loops(dtypes), key=lambda loop: loop.compute)
    for compute, group in itertools.groupby(by_type, key=lambda loop: loop.compute):
        yield compute, *merge_loops(group, device)


def merge_loops(
    loops: Iterable[Loop], device: Device
) -> tuple[list[PrebuiltLibrary], dict[str, Loop]]:
    """Return an entry for each loop, and the distinct loops by symbol."""
    named = pointwise.name_loops(loops, f"pullback_{device}_loop_")
    entries = [
        PrebuiltLibrary(
            identity=identity.of_loop(loop, device),
            operator=loop.formula.line.qualname,
            symbol=symbol,
            file="",
            sha256="",
        )
        for symbol, loop in named
    ]
    return entries, dict(named)


def job_of_runtime(of: Environment) -> Job:
    """Return the job for the C++ runtime of a PyTorch and a Python."""
    plan = runtime.plan(of)
    version = re.sub(r"[^\w.]+", "-", of.release)
    entry = PrebuiltLibrary(
        identity=identity.of_runtime(runtime.SOURCES, of.release),
        operator="",
        symbol="PyInit_pullback_runtime",
        file="",
        sha256="",
    )
    return Job(plan=plan, file=f"runtime-{version}.so", entries=(entry,))
