"""Two processes that train every row of the matrix with DDP and with FSDP2, over gloo."""

from __future__ import annotations

import functools
import json
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from rows import Row
from torch import Tensor, distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

PROCESSES = 2
LIMIT = 200.0  # seconds, of which a compiler may need twenty
SEED = 7
Outcomes = dict[str, dict[str, str | None]]


class Trained(nn.Module):
    """A function whose tensors are parameters, scaled by what each process is given."""

    def __init__(self, call: Any, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.call = call
        self.arguments = tuple(None if isinstance(a, Tensor) else a for a in arguments)
        self.places = [i for i, a in enumerate(arguments) if isinstance(a, Tensor)]
        self.weights = nn.ParameterList([a.clone() for a in arguments if isinstance(a, Tensor)])

    def forward(self, scale: Tensor) -> Tensor:
        given = list(self.arguments)
        for place, weight in zip(self.places, self.weights, strict=True):
            given[place] = weight * scale
        outputs = self.call(*given)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return torch.stack([(i + 1) * (o**2).sum() for i, o in enumerate(outputs)]).sum()


def scale_of(rank: int) -> Tensor:
    return torch.tensor(1.0 + rank, dtype=torch.float64)


def expected(row: Row) -> list[Tensor]:
    """Return the mean of the gradients of all processes, from the reference."""
    model = Trained(row.reference, row.arguments(SEED))
    for rank in range(PROCESSES):
        model(scale_of(rank)).backward()
    return [weight.grad / PROCESSES for weight in model.weights if weight.grad is not None]


def train(row: Row, how: str, rank: int) -> None:
    """Run one step of a row and compare the gradients."""
    model: nn.Module = Trained(row.operator, row.arguments(SEED))
    if how == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (PROCESSES,)))
    model(scale_of(rank)).backward()
    for weight, wanted in zip(model.parameters(), expected(row), strict=True):
        gradient = weight.grad
        if isinstance(gradient, DTensor):
            gradient = gradient.full_tensor()
        torch.testing.assert_close(gradient, wanted)


def work(rank: int, rows: tuple[Row, ...], folder: str) -> None:
    """Run some rows in one process and write down what failed."""
    store = torch.distributed.FileStore(f"{folder}/store", PROCESSES)  # pyright: ignore[reportPrivateImportUsage]
    distributed.init_process_group("gloo", rank=rank, world_size=PROCESSES, store=store)
    found: Outcomes = {"ddp": {}, "fsdp": {}}
    for how, of in found.items():
        for row in rows:
            try:
                train(row, how, rank)
                of[row.name] = None
            except Exception:
                of[row.name] = traceback.format_exc()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


@functools.cache
def outcomes(rows: tuple[Row, ...]) -> Outcomes:
    """Run the processes once for some rows; return what failed in either, by way and row."""
    with tempfile.TemporaryDirectory() as folder:
        # Forks have imported PyTorch and compiled what this process has.
        started: Any = multiprocessing.start_processes(  # pyright: ignore[reportPrivateImportUsage]
            work, (rows, folder), nprocs=PROCESSES, join=False, start_method="fork"
        )
        end = time.monotonic() + LIMIT
        try:
            while not started.join(timeout=1):
                assert time.monotonic() < end, "the processes wait for each other"
        finally:
            for process in started.processes:
                process.kill()
        both: list[Outcomes] = [
            json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(PROCESSES)
        ]
    first, second = both
    return {
        how: {name: failure or second[how][name] for name, failure in of.items()}
        for how, of in first.items()
    }
