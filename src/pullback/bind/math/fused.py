"""Formulas that PyTorch has as one operation: what they are, and whether the two agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pullback.bind.dense import evaluate
from pullback.bind.dense.attention import Fused
from pullback.bind.levels import run_isolated
from pullback.bind.math import samples
from pullback.bind.math.gpu_ways import find_loops
from pullback.bind.math.samples import Case
from pullback.bind.math.tolerance import describe_difference, measure_noises, to_double
from pullback.bind.memo import Memo
from pullback.define.math.attention import FEATURE, Attending, find_attention
from pullback.define.math.draft import Derived
from pullback.define.math.formula import Formula
from pullback.define.math.node import Node
from pullback.define.math.passes import Unfit, make_passes
from pullback.define.math.passing import Passing
from pullback.define.math.statistics import Keeping, find_products

CPU = torch.device("cpu")
# Of the features of a head in comparisons: a GPU's operations load so many at once.
WIDTH = 8
Content = tuple[object, tuple[Node, ...]]
# What was derived from a formula that may be an attention: how, by what it is.
_gradients: Memo[Content, Keeping] = Memo(1024)
_attending: Memo[Content, Attending | None] = Memo(1024)
_agreed: Memo[tuple[Content, torch.dtype, torch.device], bool] = Memo(1024)


def content_of(formula: Formula) -> Content:
    """Return what a formula computes, whatever its operator is called."""
    return formula.layout, formula.nodes


def note_gradients(forward: Formula, backward: Derived) -> None:
    """Note what the gradients of a formula of three tensors are.

    Args:
        forward: the formula; what is kept for them are its last outputs.
        backward: they.
    """
    if len(backward.gives) == 3 and not forward.pointwise:
        _gradients[content_of(backward.formula)] = Keeping(forward=forward, backward=backward)


def find_attending(kept: Keeping) -> Attending | None:
    """Return the attention that gradients are of; None if they are of something else."""
    own = kept.forward

    def find() -> Attending | None:
        labels = [output.labels for output in own.line.outputs]
        try:
            passes = make_passes(
                own.nodes, labels, own.sizes, sorted(find_products(own), key=sorted)
            )
        except Unfit:
            return None
        found = find_attention(passes)
        is_whole = found and sorted(found.outputs) in (["value"], ["most", "total", "value"])
        names = {name for name, _ in found.attention.tensors} if found else set[str]()
        return found if is_whole and len(names) == 3 else None

    return _attending.get_or_make(content_of(own), find)


def find_fused(
    passing: Passing, dtypes: Sequence[torch.dtype], device: torch.device
) -> Fused | None:
    """Return the operation that a formula is; None if it is none, or the two differ.

    Args:
        passing: the formula.
        dtypes: of its tensors and outputs.
        device: of these.
    """
    # Beside half precision there is what is kept of the rows.
    shared = {*dtypes} - {torch.float32} or {*dtypes}
    if len(shared) != 1:
        return None
    [dtype] = shared
    own = passing.indexed
    key = content_of(own)
    kept = _gradients.get(key)
    found = find_attending(kept) if kept else find_attention(passing.passes)
    if found is None:
        return None
    fused = _of_gradients(kept, found) if kept else Fused(attending=found, find_loops=find_loops)

    def compare() -> bool:
        return run_isolated(lambda: agree(own, kept, fused, dtype, device))

    return fused if _agreed.get_or_make((key, dtype, device), compare) else None


def _of_gradients(kept: Keeping, attending: Attending) -> Fused:
    own, line = attending.attention, kept.forward.line
    names = {kind: o.name for kind, o in zip(attending.outputs, line.outputs, strict=True)}
    order = [name for name, _ in own.tensors]
    grad = kept.backward.formula.line.parameters[0].name
    is_kept = "most" in names
    return Fused(
        attending=attending,
        arguments=(grad, *(names[kind] for kind in ("value", "most", "total") if is_kept)),
        gradients=tuple(order.index(line.tensors[k].name) for k in kept.backward.gives),
        find_loops=find_loops,
    )


def agree(
    indexed: Formula,
    kept: Keeping | None,
    fused: Fused,
    dtype: torch.dtype,
    device: torch.device,
) -> bool:
    """Return whether an operation computes what the formula says, on tiny inputs.

    Where it takes the inputs at all, it may be as far from it as a generated loop.

    Args:
        indexed: the formula.
        kept: of gradients, what they read of the attention's call.
        fused: the operation.
        dtype: of all tensors.
        device: where it runs; it is compared with what a CPU computes.
    """
    own = fused.attending.attention
    named = [(own.query, FEATURE), (own.value, own.width)]
    labels = {tensor.name: tensor.labels for tensor in indexed.line.tensors}
    fixed = {labels[name][own_labels.index(at)]: WIDTH for (name, own_labels), at in named}
    compared = False
    for drawn in samples.draw_cases(indexed, dtype, fixed, frozenset()):
        case: Case = consistent(kept, drawn) if kept else drawn
        found = fused.compute(on_device(case, device))
        if 0 in case.sizes.values() or found is None:
            continue
        got = [value.cpu() for value in found if value is not None]
        compared = True
        doubled = to_double(case)
        want = computed(indexed, case, dtype)

        def exactly(of: Case = doubled) -> list[Tensor]:
            return computed(indexed, of, torch.float64)

        values = zip(got, want, exactly(), measure_noises(exactly), strict=True)
        kinds = fused.attending.outputs if not fused.arguments else ("value",) * len(got)
        for kind, each in zip(kinds, values, strict=True):
            # What stands for a maximum and a sum does so together.
            if kind == "value" and describe_difference(*each, has_sums=True):
                return False
    return compared


def on_device(case: Case, device: torch.device) -> dict[str, object]:
    """Return the arguments of a call, the tensors on a device."""
    return {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in case.arguments.items()
    }


def consistent(kept: Keeping, case: Case) -> Case:
    """Return a call of gradients with the output and the statistics of its own tensors."""
    dtypes = [value.dtype for value in case.arguments.values() if isinstance(value, Tensor)]
    values = computed(kept.forward, case, dtypes[0])
    names = [output.name for output in kept.forward.line.outputs]
    return replace(case, arguments={**case.arguments, **dict(zip(names, values, strict=True))})


def computed(indexed: Formula, case: Case, dtype: torch.dtype) -> list[Tensor]:
    """Return all outputs as a whole, by PyTorch's operations; in double all of them."""
    named = [None if dtype == torch.float64 else own.dtype for own in indexed.line.outputs]
    dtypes = [getattr(torch, name) if name else dtype for name in named]
    arguments: Mapping[str, object] = case.arguments
    wanted = [True] * len(dtypes)
    found = evaluate.evaluate(indexed, arguments, case.sizes, wanted, dtypes, CPU)
    return [value for value in found if value is not None]
