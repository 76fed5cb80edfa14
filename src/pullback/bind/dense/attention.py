"""Attention as one operation: PyTorch's `scaled_dot_product_attention` and its gradient.

It keeps no matrix of scores, as blocks do, and returns the log-sum-exp of each row. That stands for
the maximum and the sum which a gradient needs: `exp(s - l)/1` is `exp(s - max)/sum`. It leaves out
what a row does not see, and gives zeros for a row that sees nothing, where the line gives 0 times
infinity and 0/0. So it is not trusted where anything is infinite or NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.backends import cuda

from pullback.bind.dense.finite import compute_checked, find_squares
from pullback.bind.dense.flash import Operation, Scores, find_operation
from pullback.bind.dense.record import Outputs, Records
from pullback.bind.dense.space import FindLoops
from pullback.define.math.attention import FEATURE, Attending
from pullback.define.math.index import BATCH

Labels = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Fused:
    """An attention, or its gradients, as PyTorch's operation computes them.

    Attributes:
        attending: the attention.
        arguments: of gradients, the names of what arrives and, where they are kept, of the output
            and of the maxima and the sums of rows; none for the attention itself.
        gradients: of gradients, which tensor each is of: 0 is the queries.
        find_loops: finds the loops by which a GPU says whether all is finite.
        records: the operations of calls that were made before.
    """

    attending: Attending
    arguments: tuple[str, ...] = ()
    gradients: tuple[int, ...] = ()
    find_loops: FindLoops | None = field(default=None, compare=False, repr=False)
    records: Records = field(default_factory=Records, compare=False, repr=False)

    def compute(self, arguments: Mapping[str, object]) -> Outputs | None:
        """Return the outputs; None for arguments that it does not take.

        Args:
            arguments: the values of the line's parameters, by name.
        """
        # What PyTorch is told to use decides which operation there is.
        allowed = (
            cuda.flash_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(),
            cuda.cudnn_sdp_enabled(),
        )
        return self.records.outputs(arguments, allowed, self.run)

    def run(self, arguments: Mapping[str, object]) -> Outputs | None:
        """Return the outputs of a call that is not recorded; None if it is not taken."""
        own = self.attending.attention
        given: list[Tensor] = []
        lasts = ((own.rows, FEATURE), (own.columns, FEATURE), (own.columns, own.width))
        for (name, labels), last in zip(own.tensors, lasts, strict=True):
            given.append(self.arranged(arguments[name], labels, last))
        q, k, v = given
        batch = q.shape[:-2]
        if own.is_causal:  # rows are counted within each head
            k, v = (repeated(tensor, batch) for tensor in (k, v))
        within = k.shape[:-2]
        is_shared = v.shape[:-2] == within == batch[: len(within)]
        if not is_shared:
            return None
        scale = own.factor * math.prod(float(str(arguments[name])) for name in own.over)
        scale /= math.prod(float(str(arguments[name])) for name in own.under)
        lead = len(within)
        heads = merged(q, 2, lead), merged(k, 2, lead), merged(v, 2, lead)
        of = Scores(tensors=heads, is_causal=own.is_causal, scale=scale)
        operation = find_operation(of)
        if operation is None:
            return None
        run = self.pull if self.arguments else self.attend
        return run(arguments, Heads(of, operation, batch, within))

    def attend(self, arguments: Mapping[str, object], heads: Heads) -> Outputs | None:
        """Return the attention, and what stands for statistics of its rows."""
        del arguments
        own = self.attending.attention
        computed = self.compute_trusted(heads)
        if computed is None:
            return None
        output, logs = computed
        found = {
            "value": (output, (own.rows, own.width)),
            "most": (logs, (own.rows,)),
            "total": (torch.ones_like(logs), (own.rows,)),
        }
        outputs = zip(self.attending.outputs, self.attending.labels, strict=True)
        return [
            self.restored(*found[kind], labels, heads.batch, heads.batch)
            for kind, labels in outputs
        ]

    def pull(self, arguments: Mapping[str, object], heads: Heads) -> Outputs | None:
        """Return the gradients; what they need is computed again where it is not kept."""
        own = self.attending.attention
        arrived, *kept = (arguments[name] for name in self.arguments)
        last, lead = (own.rows, own.width), len(heads.within)
        given = [merged(self.arranged(arrived, own.output, last), 2, lead)]
        if kept:
            value, most, total = kept
            output = merged(self.arranged(value, own.output, last), 2, lead)
            given += [output, self.logs(most, total, lead)]
        found = self.compute_trusted(heads, *given)
        if found is None:
            return None
        targets = (
            ((own.rows, FEATURE), own.query[1], heads.batch),
            ((own.columns, FEATURE), own.key[1], heads.within),
            ((own.columns, own.width), own.value[1], heads.within),
        )
        return [
            self.restored(found[place], *targets[place], heads.batch) for place in self.gradients
        ]

    def compute_trusted(self, heads: Heads, *given: Tensor) -> tuple[Tensor, ...] | None:
        """Return what the operation computes; None for numbers that it is not trusted with.

        Args:
            heads: of the attention.
            given: of its gradients, what arrives; then output and log-sum-exps, if they are kept.
        """
        of = heads.scores
        tensors = (*of.tensors, *given)
        asked = tensors[:4]  # what is kept is finite where these are
        loops = find_squares(asked, self.find_loops)
        run = functools.partial(run_operation, heads.operation, of.is_causal, of.scale)
        *found, is_sure = compute_checked(run, loops, (len(asked), of.scale), *tensors)
        return tuple(found) if is_sure else None

    def logs(self, most: object, total: object, lead: int) -> Tensor:
        """Return the log-sum-exp of each row, by its maximum and its sum."""
        own = self.attending.attention
        rows = dict(zip(self.attending.outputs, self.attending.labels, strict=True))
        assert isinstance(total, Tensor)
        logs = self.arranged(most, rows["most"], (own.rows,))
        logs = logs + self.arranged(total.log(), rows["total"], (own.rows,))
        return merged(logs, 1, lead)

    def arranged(self, value: object, labels: Labels, last: Labels) -> Tensor:
        """Return a tensor with its batch dimensions first, and others in this order."""
        assert isinstance(value, Tensor)
        many = value.dim() - len(labels) + 1
        order = spread((*(i for i in self.attending.attention.batch if i in labels), *last), many)
        own = spread(labels, many)
        return value.permute([own.index(label) for label in order])

    def restored(
        self, value: Tensor, last: Labels, labels: Labels, lead: torch.Size, batch: torch.Size
    ) -> Tensor:
        """Return a result with its dimensions in the order of the line.

        Args:
            value: the result.
            last: its last indices; before them are those of batches.
            labels: those of the line. What is repeated in the others is added up.
            lead: its batch dimensions.
            batch: those of the queries.
        """
        own = self.attending.attention.batch
        many = len(batch) - len(own) + 1
        value = value.reshape(*lead, -1, *value.shape[value.dim() - len(last) + 1 :])
        names = spread(own, many)[: len(lead)]
        kept = spread(labels, many)
        if alone := [k for k, name in enumerate(names) if name not in kept]:
            value = value.sum(alone)
        order = [*(name for name in names if name in kept), *last]
        return value.permute([order.index(label) for label in kept]).contiguous()


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values as heads of one batch.

    Attributes:
        scores: of the three.
        operation: what takes them.
        batch: the batch dimensions of the queries.
        within: of the keys and values; queries that share them are rows of one head.
    """

    scores: Scores
    operation: Operation
    batch: torch.Size
    within: torch.Size


def repeated(value: Tensor, batch: torch.Size) -> Tensor:
    """Return keys or values with all batch dimensions of the queries, which share them."""
    lead = value.shape[:-2]
    ones = [1] * (len(batch) - len(lead))
    if not ones or lead != batch[: len(lead)]:
        return value
    return value.reshape(*lead, *ones, *value.shape[-2:]).expand(*batch, *value.shape[-2:])


def spread(labels: Sequence[str], many: int) -> list[str]:
    """Return the names of all dimensions, with `...` as many of its own."""
    found: list[str] = []
    for label in labels:
        found += [f"{BATCH}{k}" for k in range(many)] if label == BATCH else [label]
    return found


def merged(value: Tensor, last: int, lead: int) -> Tensor:
    """Return a tensor as heads of one batch.

    Args:
        value: batch dimensions, rows, and what a row has.
        last: how many dimensions are no batches.
        lead: how many batch dimensions are heads; the others are rows.
    """
    after = value.shape[value.dim() - last + 1 :]
    return value.reshape(1, math.prod(value.shape[:lead]), -1, *after).contiguous()


def run_operation(
    operation: Operation, is_causal: bool, scale: float, *tensors: Tensor
) -> tuple[Tensor, ...]:
    """Return an attention and its rows' log-sum-exps, or its gradients.

    Args:
        operation: what computes it.
        is_causal: whether a row sees the columns up to its own place alone.
        scale: what products are multiplied by.
        tensors: queries, keys and values; what arrives; output and log-sum-exps.
    """
    query, key, value, *given = tensors
    of = Scores(tensors=(query, key, value), is_causal=is_causal, scale=scale)
    if not given:
        return operation.attend(of)
    grad, *kept = given
    output, logs = kept or operation.attend(of)
    return operation.pull(of, grad, output, logs)
