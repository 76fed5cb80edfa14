"""The loops over indices that are compiled ahead of a call: for any sizes, and for some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from pullback.bind.loops import specialise
from pullback.bind.loops.backends import Backend
from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.math import samples
from pullback.define.math.coalesce import coalesce, coalesce_sizes
from pullback.define.math.formula import Formula
from pullback.deploy import step_loops
from pullback.deploy.shipped import MOST_CHOICES, Shipped, list_choices
from pullback.diagnostic import Rule

UnknownSize = Rule("PB722", "unknown-size")

Sizes = Mapping[str, int]


def require_sizes(shipped: Sequence[Shipped], sizes: Sequence[Sizes]) -> None:
    """Stop at a size that no loop can be made for.

    Raises:
        PullbackError: PB722.
    """
    every = [each.line for each in shipped if each.definition.formula and not each.order]
    names = sorted({name for line in every for name in line.dimensions})
    for name, size in (item for known in sizes for item in known.items()):
        if name not in names:
            raise UnknownSize.error(
                f"no operator in index notation has a dimension '{name}'", have=", ".join(names)
            )
        if not 1 <= size <= specialise.SMALL:
            raise UnknownSize.error(
                f"loops are made for sizes from 1 to {specialise.SMALL}, and {name} is {size}",
                help="leave it out: the loops for any size are there too",
            )


def group_loops(
    shipped: Shipped, dtypes: Sequence[str], backend: Backend, sizes: Sequence[Sizes]
) -> Iterator[list[Own]]:
    """Yield the loops that calls of an operator in index notation can need, a target at a time.

    Args:
        shipped: the operator; any other one has none.
        dtypes: of tensors whose dtype the line leaves open.
        backend: what runs them.
        sizes: that loops are made for, besides those for any sizes.
    """
    found: dict[str, Own] = {}
    for dtype in dtypes:
        for own in find_loops(shipped, getattr(torch, dtype), backend, sizes):
            found.setdefault(own.identity, own)
    by_target: dict[object, list[Own]] = {}
    for own in found.values():
        by_target.setdefault(own.target, []).append(own)
    yield from by_target.values()


def find_loops(
    shipped: Shipped, dtype: torch.dtype, backend: Backend, sizes: Sequence[Sizes]
) -> Iterator[Own]:
    """Yield loops for a dtype; some more than once."""
    formula, line = shipped.definition.formula, shipped.line
    if formula is None or shipped.definition.pointwise:
        return
    # Second derivatives have many choices of gradients that are None.
    choices = list_choices(shipped.definition, most=MOST_CHOICES if shipped.order < 2 else 1)
    coalesced = coalesce(formula)
    for usual in usual_calls(shipped, dtype, sizes):
        for wanted, given in choices:
            tensors = (t.name for k, t in enumerate(line.tensors) if given >> k & 1)
            present = frozenset((*tensors, *(s.name for s in line.scalars)))
            asked = [(formula, usual)]
            if coalesced:  # as contiguous tensors are taken
                merged = coalesce_sizes(coalesced, usual)
                known = {name: n for name, n in usual.items() if n <= specialise.SMALL}
                asked.append((coalesced.formula, specialise.usual_sizes(merged, known)))
            for each, own_sizes in asked:
                found = find_all(each, dtype, wanted, present, own_sizes, backend)
                yield from (own for own in found if isinstance(own, Own))


def usual_calls(shipped: Shipped, dtype: torch.dtype, sizes: Sequence[Sizes]) -> Iterator[Sizes]:
    """Yield the sizes that loops are made for: any, and those that are named."""
    formula = shipped.definition.formula
    assert formula
    case = next(samples.draw_cases(formula, dtype, {}, frozenset()), None)
    if case is None:
        return  # nothing to compare a loop at
    own_names = set(shipped.line.dimensions) - set(formula.sizes)
    special = [{name: n for name, n in known.items() if name in own_names} for known in sizes]
    distinct = {tuple(known.items()): known for known in ({}, *special)}
    for known in distinct.values():
        yield specialise.usual_sizes(case.sizes, known)


def find_all(  # noqa: PLR0913, PLR0917  (all that decides which loops there are)
    formula: Formula,
    dtype: torch.dtype,
    wanted: int,
    present: frozenset[str],
    usual: Sizes,
    backend: Backend,
) -> Iterator[Own | NoLoops]:
    """Yield the loops that compute some outputs, or why there are none for one."""
    if formula.groups:
        asked = (formula, dtype, wanted, present, usual, backend)
        for found in step_loops.find_all(*asked, is_hoisted=True):
            yield found if isinstance(found, NoLoops) else found.own
        return
    yield from step_loops.find_plain(formula, dtype, wanted, present, usual, backend)
