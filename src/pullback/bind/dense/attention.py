"""Attention as one operation on a CPU: PyTorch's `scaled_dot_product_attention` and its gradient.

It keeps no matrix of scores, as blocks do, and returns the log-sum-exp of each row. That stands for
the maximum and the sum which a gradient needs: `exp(s - l)/1` is `exp(s - max)/sum`. It leaves out
what a row does not see, and gives zeros for a row that sees nothing, where the line gives 0 times
infinity and 0/0. So it is not trusted where anything is infinite or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.define.math.attention import FEATURE, Attending
from pullback.define.math.index import BATCH

Labels = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Fused:
    """An attention, or its gradients, as PyTorch's operation computes them.

    Attributes:
        attending: the attention.
        arguments: of gradients, the names of what arrives, of the output, and of the maxima and
            the sums of rows; none for the attention itself.
        gradients: of gradients, which tensor each is of: 0 is the queries.
    """

    attending: Attending
    arguments: tuple[str, ...] = ()
    gradients: tuple[int, ...] = ()

    def compute(self, arguments: Mapping[str, object]) -> list[Tensor] | None:
        """Return the outputs; None for arguments that it does not take.

        Args:
            arguments: the values of the line's parameters, by name.
        """
        own = self.attending.attention
        given: list[Tensor] = []
        lasts = ((own.rows, FEATURE), (own.columns, FEATURE), (own.columns, own.width))
        for (name, labels), last in zip(own.tensors, lasts, strict=True):
            given.append(self.arranged(arguments[name], labels, last))
        q, _, v = given
        batches = {tensor.shape[:-2] for tensor in given}
        if len(batches) > 1 or q.shape[-1] != v.shape[-1] or not all(map(is_finite, given)):
            return None
        scale = own.factor * math.prod(float(str(arguments[name])) for name in own.over)
        scale /= math.prod(float(str(arguments[name])) for name in own.under)
        heads = [merged(tensor, 2) for tensor in given]
        run = self.pull if self.arguments else self.attend
        return run(arguments, heads, scale, q.shape[:-2])

    def attend(
        self, arguments: Mapping[str, object], given: list[Tensor], scale: float, batch: torch.Size
    ) -> list[Tensor] | None:
        """Return the attention, and what stands for statistics of its rows."""
        del arguments
        own = self.attending.attention
        output, logs = operation("")(*given, 0.0, own.is_causal, scale=scale)
        if not is_finite(logs):
            return None
        found = {
            "value": (output, (own.rows, own.width)),
            "most": (logs, (own.rows,)),
            "total": (torch.ones_like(logs), (own.rows,)),
        }
        outputs = zip(self.attending.outputs, self.attending.labels, strict=True)
        return [self.restored(*found[kind], labels, batch) for kind, labels in outputs]

    def pull(
        self, arguments: Mapping[str, object], given: list[Tensor], scale: float, batch: torch.Size
    ) -> list[Tensor] | None:
        """Return the gradients."""
        own = self.attending.attention
        grad, output, most, total = (arguments[name] for name in self.arguments)
        rows = dict(zip(self.attending.outputs, self.attending.labels, strict=True))
        values = [
            merged(self.arranged(each, own.output, (own.rows, own.width)), 2)
            for each in (grad, output)
        ]
        assert isinstance(total, Tensor)
        logs = self.arranged(most, rows["most"], (own.rows,))
        logs = logs + self.arranged(total.log(), rows["total"], (own.rows,))
        logs = merged(logs, 1)
        if not all(map(is_finite, (*values, logs))):
            return None
        found = operation("_backward")(
            values[0], *given, values[1], logs, 0.0, own.is_causal, scale=scale
        )
        targets = (
            ((own.rows, FEATURE), own.query[1]),
            ((own.columns, FEATURE), own.key[1]),
            ((own.columns, own.width), own.value[1]),
        )
        return [self.restored(found[place], *targets[place], batch) for place in self.gradients]

    def arranged(self, value: object, labels: Labels, last: Labels) -> Tensor:
        """Return a tensor with its batch dimensions first, and others in this order."""
        assert isinstance(value, Tensor)
        many = value.dim() - len(labels) + 1
        order = spread((*self.attending.attention.batch, *last), many)
        own = spread(labels, many)
        return value.permute([own.index(label) for label in order])

    def restored(self, value: Tensor, last: Labels, labels: Labels, batch: torch.Size) -> Tensor:
        """Return a result with its dimensions in the order of the line."""
        own = self.attending.attention.batch
        many = len(batch) - len(own) + 1
        order = spread((*own, *last), many)
        value = value.reshape(*batch, *value.shape[-len(last) :])
        return value.permute([order.index(label) for label in spread(labels, many)]).contiguous()


def spread(labels: Sequence[str], many: int) -> list[str]:
    """Return the names of all dimensions, with `...` as many of its own."""
    found: list[str] = []
    for label in labels:
        found += [f"{BATCH}{k}" for k in range(many)] if label == BATCH else [label]
    return found


def merged(value: Tensor, last: int) -> Tensor:
    """Return a tensor with all batch dimensions as heads of one batch."""
    return value.reshape(1, -1, *value.shape[value.dim() - last :]).contiguous()


def is_finite(value: Tensor) -> bool:
    """Return whether all numbers are finite: a sum that overflows is not, either."""
    return bool(value.sum().isfinite())


def operation(kind: str) -> Callable[..., tuple[Tensor, ...]]:
    """Return PyTorch's operation, or its "_backward"."""
    return getattr(torch.ops.aten, f"_scaled_dot_product_flash_attention_for_cpu{kind}")
