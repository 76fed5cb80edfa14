"""Whether a read stays inside its tensor for all sizes."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.define.math import node, show
from pullback.define.math.facts import Fact, is_positive
from pullback.define.math.index import Affine
from pullback.define.math.subscripts import Access, FormulaProgram, Scope
from pullback.diagnostic import PullbackError, Rule

OutOfBounds = Rule("PB141", "out-of-bounds-read")


def require(program: FormulaProgram, scope: Scope, access: Access, facts: Sequence[Fact]) -> None:
    """Stop at a read that may be outside of its tensor.

    Raises:
        PullbackError: PB141.
    """
    if not is_inside(program, access, facts):
        below = not is_positive(access.place, facts, program.ranges)
        raise _outside(program, scope, access, below=below)


def is_inside(program: FormulaProgram, access: Access, facts: Sequence[Fact]) -> bool:
    """Return whether a read is certainly inside its tensor."""
    if access.weak and program.trusted:
        return True
    ends = (access.place, access.extent - 1 - access.place)
    return all(is_positive(end, facts, program.ranges) for end in ends)


def _outside(
    program: FormulaProgram, scope: Scope, access: Access, *, below: bool
) -> PullbackError:
    """Return the error for a read: where it leaves its tensor, and the cure."""
    shown, name = access.shown, access.name
    index = access.place.index
    bounds = program.ranges.bounds(access.place)
    ends = format_size(access.extent)
    written = shown if shown.endswith("]") and " of " not in shown else f"{name}[...]"
    padded = f"pad({written}) is 0 there"
    if index is not None and program.labels.get(name):
        # In a part it may be an index of what is around that part.
        every = (*scope.values(), *program.indices)
        found = next((each for each in every if each.key == index), None)
        runs = format_size(program.ranges.size(index))
        own = found.name if found else index
        return OutOfBounds.error(
            f"{program.of}: {shown} may be outside of '{name}': '{own}' runs over {runs}, "
            f"and this dimension of '{name}' is {ends}",
            help=f"give both dimensions one name if they are equal; {padded}",
        )
    if not access.place.terms and not access.extent.terms:
        return OutOfBounds.error(
            f"{program.of}: {shown} is outside of '{name}': this dimension is {ends}",
            help=f"indices count from 0; {padded}",
        )
    if not access.place.terms and not below:
        return OutOfBounds.error(
            f"{program.of}: {shown} may be outside of '{name}': this dimension is {ends}, "
            "which may be less",
            help=f"give the dimension its size in the line, such as {access.place.constant + 1}; "
            f"or {padded}",
        )
    least, most = bounds or (access.place, access.place)
    reaches = f"begins at {format_size(least)}" if below else f"goes to {format_size(most)}"
    limits = (
        f"'{name}' begins at 0" if below else f"'{name}' ends at {format_size(access.extent - 1)}"
    )
    where = "; where(...) does not exclude it" if access.weak else ""
    own = "an output index with a name of its own runs only where it is inside"
    return OutOfBounds.error(
        f"{program.of}: {shown} may be outside of '{name}': it {reaches}, and {limits}{where}",
        help=f"{padded}; {'indices count from 0' if below else own}",
    )


def format_size(place: Affine) -> str:
    """Return a size as users write it."""
    return show.format_node(node.index(place))
