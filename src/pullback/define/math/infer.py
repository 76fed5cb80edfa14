"""How far indices run that are not a dimension of an input: as far as their reads allow.

In `y[i] = sum[p](x[i + p]*k[p])` i stays below |x| - |k| + 1. Where two reads allow a different
range and neither is certainly the smaller one, the formula is ambiguous, and it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pullback.define.math.index import Affine, never_negative, size_of, undivide_range
from pullback.define.math.inside import format_size
from pullback.define.math.node import ARGMAX, quotient
from pullback.define.math.ranges import Ranges
from pullback.define.math.required import require_inside
from pullback.define.math.subscripts import Access, FormulaProgram, Index, is_data
from pullback.diagnostic import PullbackError, Rule

AmbiguousRange = Rule("PB140", "ambiguous-range")
UnboundedIndex = Rule("PB142", "unbounded-index")

Bound = tuple[Access, Affine]


def infer(program: FormulaProgram) -> None:
    """Find the range of every index of a formula that has been read once.

    Raises:
        PullbackError: PB140, an ambiguous range; PB142, an index that is never bounded.
    """
    left = [index for index in program.indices if index.extent is None]
    while left:
        ready = [index for index in left if _is_ready(index, program)]
        ready = ready or [index for index in left if _find_bounds(index, program)]
        if not ready:
            raise _unbounded(left, program)
        # All at once, so that none depends on which comes first.
        found = [_infer_range(index, program) for index in ready]
        for index, extent in zip(ready, found, strict=True):
            index.extent = extent
        left = [index for index in left if index.extent is None]


def infer_alone(index: Index, program: FormulaProgram) -> Affine | None:
    """Return how far an index would run if its limit were not written, the others as they are."""
    extent, index.extent = index.extent, None
    try:
        return _infer_range(index, program) if _is_ready(index, program) else None
    except PullbackError:
        return None
    finally:
        index.extent = extent


def _find_accesses(index: Index, program: FormulaProgram) -> list[Access]:
    """Return the reads that may bound an index: those that have to be inside, if there are any."""
    own = [access for access in program.accesses if index.key in access.place.free]
    own = [access for access in own if not is_data(access.place)]
    return [access for access in own if not access.weak] or own


def _is_ready(index: Index, program: FormulaProgram) -> bool:
    """Return whether everything that bounds an index is known."""
    own = _find_accesses(index, program)
    return bool(_find_bounds(index, program)) and not any(_pending(a, index, program) for a in own)


def _known_ranges(program: FormulaProgram) -> dict[str, Affine]:
    """Return the ranges that are known, by index."""
    found = {index.key: index.extent for index in program.indices if index.extent is not None}
    return {**program.declared, **found}


def _pending(access: Access, index: Index, program: FormulaProgram) -> bool:
    """Return whether other indices of a read have no range yet."""
    unknown = {each.key for each in program.indices if each.extent is None} - {index.key}
    terms = (*access.place.terms, *access.extent.terms)
    return any(term.strip("|") in unknown for term, _ in terms if isinstance(term, str))


def _find_bounds(index: Index, program: FormulaProgram) -> list[Bound]:
    """Return how far each read allows an index to run, as far as that is known."""
    known = _known_ranges(program)
    bounds: list[Bound] = []
    for access in _find_accesses(index, program):
        bound = None if _pending(access, index, program) else _find_bound(access, index, known)
        if bound is not None:
            bounds.append((access, bound))
    return bounds


def _find_bound(access: Access, index: Index, known: Mapping[str, Affine]) -> Affine | None:
    """Return how far one read allows an index to run; None if it does not bound it."""
    sizes = {size_of(key): extent for key, extent in known.items()}
    place, extent = undivide_range(access.place, access.extent)
    factor = place.factor(index.key)
    if factor == 0 or any(index.key in part.free for part in place.nodes):
        return None
    rest = (place - Affine(0, ((index.key, factor),))).replaced({**sizes})
    extent = extent.replaced({**sizes})
    reach = Ranges(known).bounds(rest)
    if reach is None:
        return None
    room = extent - 1 - reach[1] if factor > 0 else reach[0]
    found = quotient(room, abs(factor)) + 1
    if found.factor(size_of(index.key)):
        return None  # of a state, whose dimension it is
    # An index that goes through all of the tensor leaves no room for another; and where the read
    # may be outside, pad(x[h + q - 1]), the tensor's ends do not bound q.
    varies = bool(rest.free) or any(part.op == ARGMAX for part in rest.nodes)
    return None if varies and (access.weak or factor < 0 or never_negative(-found + 1)) else found


def _infer_range(index: Index, program: FormulaProgram) -> Affine:
    """Return the smallest range that the reads allow."""
    bounds = _find_bounds(index, program)
    least = bounds[0]
    for bound in bounds[1:]:
        if bound[1] == least[1]:
            continue
        weak = bound[0].weak
        if not weak and never_negative(bound[1] - least[1]):
            continue
        if weak or not never_negative(least[1] - bound[1]):
            raise _ambiguous(index, least, bound, program)
        least = bound
    return least[1]


def _ambiguous(index: Index, one: Bound, other: Bound, program: FormulaProgram) -> PullbackError:
    name, last = index.name, other[0].shown
    return AmbiguousRange.error(
        f"{program.of}: how far '{name}' runs is not certain",
        at=index.at,
        first=f"{name} < {format_size(one[1])}, by {one[0].shown}",
        second=f"{name} < {format_size(other[1])}, by {last}",
        help="one name for both dimensions, if they are equal; "
        f"{_format_limit(index, format_size(one[1]))}; "
        f"or pad({last}), which is 0 outside",
    )


def _format_limit(index: Index, limit: str) -> str:
    """Return the advice to write an index's limit where it is bound."""
    if index.name.endswith("'"):
        return "give the output's dimensions different names"
    written = re.sub(rf"(?<=[\[ ]){re.escape(index.name)}\b", f"{index.name} < {limit}", index.at)
    return f"write a limit, {written}"


def _unbounded(left: Sequence[Index], program: FormulaProgram) -> PullbackError:
    """Return the error of indices that nothing bounds, or that bound only each other."""
    names = {index.key: index for index in left}
    known = _known_ranges(program)
    for access in program.accesses:
        mutual = [names[key] for key in sorted(access.place.free) if key in names]
        if len(mutual) > 1 and not is_data(access.place):
            one, other = mutual[:2]
            ends = format_size(access.extent.replaced({size_of(k): e for k, e in known.items()}))
            return AmbiguousRange.error(
                f"{program.of}: how far '{one.name}' and '{other.name}' run is not certain",
                at=access.shown,
                first=f"{one.name} < {ends}, and {other.name} what that leaves",
                second=f"{other.name} < {ends}, and {one.name} what that leaves",
                help=_format_limit(one, "5"),
            )
    index = left[0]
    own = [a for a in program.accesses if index.key in a.place.free]
    others = [a for a in own if not a.extent.factor(size_of(index.key))]
    read = [a.extent for a in others if not is_data(a.place)]
    why = "no tensor is read at it"
    if others:
        data = is_data(others[0].place)
        why = "the data decides" if data else "the other indices go all the way"
        why = f"{others[0].shown} does not bound it, since {why}"
    elif own:
        why = f"{own[0].shown} reads what it is the dimension of"
    limit = next(iter(map(format_size, [*read, *program.declared.values()])), "5")
    return UnboundedIndex.error(
        f"{program.of}: nothing says how far '{index.name}' runs: {why}",
        at=index.at,
        help=_format_limit(index, limit),
    )


__all__ = [
    "AmbiguousRange",
    "UnboundedIndex",
    "format_size",
    "infer",
    "infer_alone",
    "require_inside",
]
