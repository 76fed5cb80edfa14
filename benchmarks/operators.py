"""`pb.check` on PyTorch's own operators, which are right: `python -m benchmarks.operators`.

Every differentiable entry of its table of operators (`op_db`), with its samples of float64
and float32, is wrapped in a function and checked; a fault that is reported is a false alarm, or a
bug of PyTorch. Options: `--only NAME`, `--samples N` of each entry and dtype, `--probe CODE`,
`--part I/N` for several processes, `--json FILE`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

import pullback as pb
from benchmarks.measure import console

DTYPES = (torch.float64, torch.float32)


@dataclass(frozen=True)
class Alarm:
    """A fault that was reported of an operator of PyTorch's."""

    operator: str
    dtype: str
    sample: str
    findings: tuple[pb.Finding, ...]


def entries() -> list[Any]:
    """Return the differentiable entries of PyTorch's table."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415

    return [entry for entry in op_db if entry.supports_autograd]


def samples(entry: Any, dtype: torch.dtype, most: int) -> Iterator[Any]:
    """Yield an entry's samples, drawn evenly from those that it has."""
    if dtype not in entry.supported_backward_dtypes("cpu"):
        return
    torch.manual_seed(0)
    every = list(entry.sample_inputs("cpu", dtype, requires_grad=True))
    step = max(1, len(every) // most)
    own = [sample for sample in every if isinstance(sample.input, Tensor)]
    yield from own[::step][:most]


def wrapped(entry: Any, sample: Any) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """Return a function of the sample's tensors, and the tensors."""
    leaves, spec = _pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def call(*tensors: Tensor) -> Any:
        full = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            full[place] = tensor
        first, args, kwargs = _pytree.tree_unflatten(full, spec)
        # The table says how an operator is to be differentiated that takes symmetric matrices only.
        returned = entry.gradcheck_wrapper(entry.op, first, *args, **kwargs)
        return sample.output_process_fn_grad(returned)

    call.__name__ = call.__qualname__ = entry.name.replace(".", "_")
    return call, tuple(leaves[place] for place in places)


def alarms(given: argparse.Namespace, counts: Counter[str]) -> Iterator[Alarm]:
    """Check every sample; yield those with faults."""
    part, parts = map(int, given.part.split("/"))
    for index, entry in enumerate(entries()):
        if index % parts != part % parts or (given.only and entry.name not in given.only):
            continue
        for dtype in DTYPES:
            try:
                own = list(samples(entry, dtype, given.samples))
            except Exception as error:  # a sample that needs what is not installed
                console.print(f"{entry.name}: no samples: {error}", markup=False)
                continue
            for sample in own:
                started = time.perf_counter()
                call, tensors = wrapped(entry, sample)
                report = pb.check(call, *tensors, probes=given.probe)
                counts["samples"] += 1
                counts["seconds"] += int(1000 * (time.perf_counter() - started))
                if not report.ok:
                    name = f"{entry.name}.{entry.variant_test_name}".rstrip(".")
                    yield Alarm(name, str(dtype), str(report.target), report.faults)


def main() -> None:
    """Print the alarms and their number."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators")
    parser.add_argument("--only", metavar="NAME", action="append")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--probe", metavar="CODE", action="append")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--json", metavar="FILE", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    found: list[Alarm] = []
    for alarm in alarms(given, counts):
        found.append(alarm)
        console.print(f"{alarm.operator} {alarm.dtype} {alarm.sample}", markup=False)
        for finding in alarm.findings:
            console.print(str(finding), markup=False, soft_wrap=True)
    seconds = counts["seconds"] / 1000
    console.print(f"{counts['samples']} samples in {seconds:.0f} s, {len(found)} with faults")
    if given.json:
        rows = [[a.operator, a.dtype, a.sample, [str(f) for f in a.findings]] for a in found]
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
