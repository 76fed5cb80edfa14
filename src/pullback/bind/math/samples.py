"""Tiny inputs on which two executions of an operator are compared: ties and special values."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from pullback.define import shape
from pullback.define.dimension import Number
from pullback.define.line import Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math import extents, required
from pullback.define.math.formula import SCALAR_TYPES, Formula
from pullback.define.math.index import BATCH, Affine
from pullback.define.math.node import READ, in_order
from pullback.define.math.sizes import dimensions_used
from pullback.diagnostic import PullbackError

# Sizes of the dimensions in turn, repeated if there are more: around the widths of vectors.
PATTERNS = ((5, 4, 3, 2), (19, 17, 2, 3), (33, 3, 18), (2, 35, 3), (1,), (4, 4), (7, 6, 5, 4, 3, 2))
# How much larger a dimension is made than the patterns say, at most.
MOST_MORE = 2**14
# Where a line fixes sizes that are not tiny: no more calls when those so far had so many elements.
MOST_DRAWN = 2**22
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 30.0)


@dataclass(frozen=True)
class Case:
    """One call: its arguments by name, and every size; all batch dimensions are one."""

    arguments: dict[str, object]
    sizes: dict[str, int]
    what: str


def draw_cases(
    indexed: Formula, dtype: torch.dtype, fixed: Mapping[str, int], absent: frozenset[str]
) -> Iterator[Case]:
    """Yield calls that an operator takes.

    Args:
        indexed: the operator.
        dtype: the shared one.
        fixed: sizes that are given.
        absent: optional tensors that are None.
    """
    generator, drawn = torch.Generator().manual_seed(0), 0
    for pattern in PATTERNS:
        sizes = sizes_for(indexed, pattern, fixed)
        if sizes is None:
            continue
        if drawn > MOST_DRAWN:
            return
        for kind in ("ties", "special"):
            arguments = {
                p.name: None
                if p.name in absent
                else draw_argument(p, indexed, sizes, dtype, kind, generator)
                for p in indexed.line.parameters
            }
            drawn += sum(v.numel() for v in arguments.values() if isinstance(v, torch.Tensor))
            shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            yield Case(arguments, sizes, f"{kind} at {shown}")


def sizes_for(
    indexed: Formula, pattern: tuple[int, ...], fixed: Mapping[str, int]
) -> dict[str, int] | None:
    """Return sizes that follow a pattern; None if the operator has none like that."""
    line = indexed.line
    names = [name for name in (*line.dimensions, *indexed.counts) if name not in indexed.sizes]
    own = dict(zip(names, itertools.cycle(pattern), strict=False))
    own = {name: fixed.get(name, size) for name, size in own.items()}
    for size in indexed.sizes.values():
        own |= grow_until_read(size, own, fixed)
    for index, size in indexed.sizes.items():
        value = extents.evaluate_size(size, own)
        if value is None or value < 0:
            return None
        own[index] = value
    batch = (2,) if any(tensor.has_batch for tensor in line.tensors) else ()
    try:
        known = extents.sizes_of_call(indexed, shape.Sizes(own, batch))
        # As where `w[k % 64]` reads 64 elements.
        larger = required.find_larger(indexed, known)
        if larger and larger.keys() <= {*names} - fixed.keys() and max(larger.values()) < MOST_MORE:
            return sizes_for(indexed, pattern, {**fixed, **larger})
        required.require_inside(indexed, known)
    except PullbackError:
        return None
    return known


def grow_until_read(
    size: Affine, own: Mapping[str, int], fixed: Mapping[str, int]
) -> dict[str, int]:
    """Return larger sizes with which an index has two values, if it has none with some others.

    A window of 64 elements does not fit a tensor of 35.
    """
    value = extents.evaluate_size(size, own)
    if value is None or value > 0:
        return {}
    for name in sorted(dimensions_used((), [size]) & own.keys() - fixed.keys()):
        first = own[name]

        def is_enough(more: int, name: str = name, first: int = first) -> bool:
            return (extents.evaluate_size(size, {**own, name: first + more}) or 0) > 1

        more = bisect.bisect_left(range(MOST_MORE), True, key=is_enough)
        if more < MOST_MORE:
            return {name: first + more}
    return {}


def draw_argument(  # noqa: PLR0913, PLR0917  (what an argument depends on)
    parameter: TensorSpec | Scalar,
    indexed: Formula,
    sizes: Mapping[str, int],
    dtype: torch.dtype,
    kind: str,
    generator: torch.Generator,
) -> object:
    """Return a scalar, or a tensor whose batch dimensions are one."""
    if isinstance(parameter, Scalar):
        if parameter.name in indexed.counts:
            return sizes[parameter.name]
        given = {"real": 0.75, "int": 1, "bool": True}[SCALAR_TYPES[parameter.type]]
        return given if parameter.default is None else parameter.default
    dims = [BATCH if str(d) == BATCH else d for d in parameter.dims]
    size = [d.value if isinstance(d, Number) else sizes[str(d)] for d in dims]
    if parameter.dtype == "bool":
        return torch.rand(size, generator=generator) < 0.5
    if parameter.dtype is not None and "float" not in parameter.dtype:
        most = index_bound(indexed, parameter.name, sizes)
        values = torch.randint(max(most, 1), size, generator=generator)
        return values.to(getattr(torch, parameter.dtype))
    # Multiples of a half, so that values are equal and a maximum is taken at several places.
    tensor = (2 * torch.randn(size, generator=generator, dtype=torch.float64)).round() / 2
    if kind == "special" and tensor.numel():
        places = torch.randint(tensor.numel(), (len(SPECIAL),), generator=generator)
        tensor.view(-1)[places] = torch.tensor(SPECIAL, dtype=torch.float64)
    wanted = getattr(torch, parameter.dtype) if parameter.dtype else dtype
    return tensor.to(wanted)


def index_bound(indexed: Formula, name: str, sizes: Mapping[str, int]) -> int:
    """Return how large the whole numbers of a tensor may be: the least size that they index."""
    labels = {tensor.name: tensor.labels for tensor in indexed.line.tensors}
    labels |= {state.name: state.indices for state in indexed.states.values()}
    bounds = [3]
    steps = (state.node for state in indexed.states.values())
    for node in in_order([*indexed.nodes, *steps]):
        if node.op != READ:
            continue
        for place, label in zip(node.places, labels[node.name], strict=True):
            inner = in_order(place.nodes)
            if any(part.op == READ and part.name == name for part in inner):
                own = label.rstrip("'")
                size = int(own) if own.isdecimal() else sizes[own]
                bounds.append(size - max(place.constant, 0))
    return min(bounds)
