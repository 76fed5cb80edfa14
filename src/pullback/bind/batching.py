"""The batching rule of `torch.vmap`, which follows from the line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition


def make_batching_rule(
    definition: Definition,
    overload: Callable[..., Any],
    otherwise: Callable[[BatchedCall], tuple[Any, Any]],
) -> Callable[..., Any]:
    """Return the batching rule of an operator.

    Where every batched tensor has `...`, the new dimension becomes its first batch dimension, and
    the operator is called once.

    Args:
        definition: the operator.
        overload: PyTorch's object for it.
        otherwise: computes any other call.
    """

    def rule(info: Any, in_dims: Any, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        parameters = definition.line.parameters
        given = kernel.fill_defaults(definition, arguments, None)[: len(parameters)]
        dims = (*in_dims, *[None] * (len(parameters) - len(in_dims)))
        call = BatchedCall(definition.line, overload, info.batch_size, dims, given, keywords)
        return call.at_once() if call.is_one_call() else otherwise(call)

    return rule


@dataclass(frozen=True)
class BatchedCall:
    """A call under `vmap`: `dims` says where each argument is batched, None where it is not."""

    line: Line
    overload: Callable[..., Any]
    size: int
    dims: tuple[int | None, ...]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def is_one_call(self) -> bool:
        """Return whether every batched tensor and every output has `...`, and none is a list."""
        if any(tensor.many for tensor in self.line.tensors):
            return False
        batched = [
            spec
            for spec, dim in zip(self.line.parameters, self.dims, strict=True)
            if dim is not None
        ]
        return all(isinstance(spec, TensorSpec) and spec.has_batch for spec in batched) and all(
            output.has_batch for output in self.line.outputs
        )

    def at_once(self) -> tuple[Any, Any]:
        """Call the operator once, with one more batch dimension."""
        rows = list(zip(self.line.parameters, self.arguments, self.dims, strict=True))
        rank = max(
            value.dim() - (dim is not None) - len(spec.before) - len(spec.after)
            for spec, value, dim in rows
            if isinstance(spec, TensorSpec) and spec.has_batch and value is not None
        )
        moved = [
            move_batch_to_front(value, dim, spec, rank)
            if dim is not None and isinstance(spec, TensorSpec)
            else value
            for spec, value, dim in rows
        ]
        results = self.overload(*moved, **self.keywords)
        dims = [len(output.before) for output in self.line.outputs]
        if len(dims) == 1:
            return results, dims[0]
        return results, tuple(
            None if result is None else dim for result, dim in zip(results, dims, strict=True)
        )

    def one_by_one(self) -> tuple[Any, Any]:
        """Call the operator for each element of the batch; for an empty batch, once on zeros."""
        call = functools.partial(self.overload, **self.keywords)
        rows = loop_over_batch(call, self.size, self.dims, self.arguments)
        if len(self.line.outputs) == 1:
            return torch.stack(rows)[: self.size], 0
        columns = stack_columns(rows, self.size)
        return tuple(columns), tuple(None if column is None else 0 for column in columns)


def loop_over_batch(
    call: Callable[..., Any], size: int, dims: Sequence[Any], arguments: Sequence[Any]
) -> list[Any]:
    """Return the result of `call` for each element; for an empty batch, one result for zeros."""
    return [
        call(*(take_element(a, dim, i, size) for a, dim in zip(arguments, dims, strict=True)))
        for i in range(max(size, 1))
    ]


def stack_columns(rows: Sequence[Sequence[Any]], size: int) -> list[Any]:
    """Stack each column of the rows into one tensor; a column of None stays None.

    `size` is 0 for an empty batch, which has one row.
    """
    return [
        None if column[0] is None else torch.stack(column)[:size]
        for column in zip(*rows, strict=True)
    ]


def take_element(value: Any, dim: Any, index: int, size: int) -> Any:  # noqa: ANN401
    """Return one argument, or each item of a list, for one element of the batch."""
    if isinstance(dim, list | tuple):
        pairs: Any = zip(value, dim, strict=True)
        return [take_element(v, d, index, size) for v, d in pairs]
    if dim is None:
        return value
    if size == 0:
        return value.new_zeros([n for d, n in enumerate(value.shape) if d != dim % value.dim()])
    return value.select(dim, index)


def move_batch_to_front(value: Tensor, dim: int, spec: TensorSpec, rank: int) -> Tensor:
    """Move the batched dimension to the front of `...`, which gets `rank` dimensions after it."""
    first = len(spec.before)
    value = value.movedim(dim, first)
    batch_rank = value.dim() - 1 - len(spec.before) - len(spec.after)
    for _ in range(rank - batch_rank):
        value = value.unsqueeze(first + 1)
    return value
