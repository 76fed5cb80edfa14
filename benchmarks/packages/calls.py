"""Running a Function, whatever calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.packages.arguments import made

Values = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Arguments:
    """Arguments of one call, of which some are differentiated."""

    values: tuple[Any, ...]

    @staticmethod
    def made(makers: Sequence[Any], seed: int) -> Arguments:
        """Return arguments from the random numbers of a seed."""
        torch.manual_seed(seed)
        return Arguments(tuple(made(maker) for maker in makers))

    @property
    def wanted(self) -> list[int]:
        """Which are differentiated."""
        return [i for i, v in enumerate(self.values) if isinstance(v, Tensor) and v.requires_grad]

    @property
    def tensors(self) -> list[Tensor]:
        """Those that are differentiated."""
        return [self.values[index] for index in self.wanted]

    def differentiating(self, tensors: Sequence[Tensor]) -> Arguments:
        """Return the same arguments, with others in place of those that are differentiated."""
        values = list(self.values)
        for index, tensor in zip(self.wanted, tensors, strict=True):
            values[index] = tensor
        return Arguments(tuple(values))

    def call(self, run: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        """Return a function of the differentiated arguments alone."""

        def called(*tensors: Tensor) -> tuple[Tensor, ...]:
            returned = run(*self.differentiating(tensors).values)
            return (returned,) if isinstance(returned, Tensor) else tuple(returned)

        return called


def cotangents(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return seeded random gradients of the outputs."""
    torch.manual_seed(11)
    return [torch.randn(output.shape, dtype=output.dtype) for output in outputs]


def pulled(run: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor]) -> Values:
    """Return the outputs and all gradients, by PyTorch's engine."""
    torch.manual_seed(7)
    outputs = run(*tensors)
    pairs = [(o, g) for o, g in zip(outputs, cotangents(outputs), strict=True) if o.requires_grad]
    torch.manual_seed(7)
    gradients = torch.autograd.grad(
        [o for o, _ in pairs], tensors, [g for _, g in pairs], allow_unused=True
    )
    return (*(o.detach() for o in outputs), *gradients)


def pulled_by_func(run: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor]) -> Values:
    """Return the outputs and all gradients, by `torch.func.vjp`."""
    torch.manual_seed(7)
    outputs, pull = torch.func.vjp(run, *(t.detach() for t in tensors))[:2]
    gradients = cotangents(outputs)
    torch.manual_seed(7)
    return (*outputs, *pull(tuple(gradients)))


def compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled without a graph break."""
    torch._dynamo.reset()
    return torch.compile(run, fullgraph=True, backend="aot_eager")


def stacked(samples: Sequence[Arguments]) -> list[Tensor]:
    """Return the differentiated arguments of several calls as one batch."""
    rows = [[t.detach() for t in sample.tensors] for sample in samples]
    return [torch.stack(column) for column in zip(*rows, strict=True)]
