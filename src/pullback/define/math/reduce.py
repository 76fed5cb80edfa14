"""Sums and maxima over indices, simplified where that is exact; expressions rewritten.

A sum over a delta is its one term: `sum[i](where(i == h - p, f(i), 0))` is f(h - p) where h - p is
in i's range. This is what makes the gradient of a convolution a gather and not a scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pullback.define.math import build, node
from pullback.define.math.index import Affine, at, divided, is_fixed, is_quotient
from pullback.define.math.node import (
    ARGMAX,
    INSIDE,
    MAX,
    PLACED,
    READ,
    REDUCTIONS,
    SUM,
    Node,
    close,
    in_order,
    is_number,
    operands,
    place_of,
    remake,
)
from pullback.define.math.ranges import Ranges
from pullback.define.math.solve import (
    find_block_place,
    find_residue,
    selects_something,
    solve,
    solve_for,
)
from pullback.define.math.term import (
    Term,
    add_parts,
    is_whole,
    select,
    split_guard,
    split_sum,
    term_of,
)


def pad(name: str, places: Iterable[Affine], sizes: Iterable[Affine], ranges: Ranges) -> Node:
    """Return a read of real numbers that is 0 outside of the tensor."""
    places = tuple(places)
    guards = [ranges.inside(place, size) for place, size in zip(places, sizes, strict=True)]
    return select(guards, node.read(name, places))


def sums_over(indices: Iterable[str], body: Node, ranges: Ranges) -> Node:
    """Return a sum over several indices, the first one outermost.

    Deltas are solved before anything is summed, for the first index that they can be solved for:
    `where(2*j + p == h, ...)` says what p is and not what j is.
    """
    left = list(indices)
    while left:
        conditions, term = split_guard(body)[0], term_of(body)
        deltas = (i for i in left if any(solve_for(c, i, term) is not None for c in conditions))
        index = next(deltas, left[-1])
        left.remove(index)
        body = sum_over(index, body, ranges)
    return body


def sum_over(index: str, body: Node, ranges: Ranges) -> Node:
    """Return the sum of `body` over an index."""
    if body.type == "bool":
        body = build.to_whole(body)
    term = term_of(body)
    if term.factor == 0:
        # What nothing selects is no part of the sum: nor is a read that is always outside.
        return select([node.number(False)], body)
    if index not in term.free:
        many = build.apply("mul", _count(ranges.size(index)), term.value)
        return select(term.conditions, many)
    return (
        _at_delta(index, term, ranges)
        or _within_block(index, term, ranges)
        or _in_turn(index, term, ranges)
        or _split(index, term, ranges)
        or _factor_out(index, term, body, ranges)
    )


def _count(size: Affine) -> Node:
    """Return how many values an index has: none below zero, `k < steps - 5`."""
    found = node.index(size)
    certain = size.constant >= 0 and all(factor > 0 for _, factor in size.terms)
    return found if certain else build.apply("maximum", found, node.number(0))


def max_over(index: str, body: Node, ranges: Ranges) -> Node:
    """Return the greatest value of `body` over an index."""
    return close(MAX, index, ranges.size(index), body) if index in body.free else body


def argmax_over(index: str, body: Node, ranges: Ranges) -> Node:
    """Return where `body` is greatest: the first such value of the index."""
    if index not in body.free:
        return node.number(0)
    return close(ARGMAX, index, ranges.size(index), body)


def argmax_of(largest: Node) -> Node:
    """Return the argmax of a maximum."""
    return node.make(ARGMAX, largest.args, largest.data, "int", frozenset())


def substitute(root: Node, places: Mapping[str, Affine], ranges: Ranges) -> Node:
    """Return a node with other indices in place of some of its free ones.

    Guards and sums are built again, so that they simplify where they can now. A bound index is
    opened under a fresh name, so that nothing is captured.
    """
    names = frozenset(places)
    rebuilt: dict[Node, Node] = {}
    others: dict[str | Node, Affine] = {**places}

    def remaining(part: Node) -> tuple[Node, ...]:
        return () if part.op in REDUCTIONS or not part.free & names else operands(part)

    for part in in_order([root], remaining):
        if not part.free & names:
            continue
        if part.op in REDUCTIONS:
            rebuilt[part] = _reopen(part, places, ranges)
        elif part.op == INSIDE:
            rebuilt[part] = ranges.inside(part.places[0].replaced(others), part.size)
        elif part.op in PLACED:
            rebuilt[part] = remake(part, (), lambda place: place.replaced(others))
        else:
            args = tuple(rebuilt.get(arg, arg) for arg in part.args)
            rebuilt[part] = ranges.decided(part.op, *args) or build.rebuild(part, args)
        if part.type == "int":
            others[part] = _place_of(part, rebuilt[part], others, ranges)
    return rebuilt.get(root, root)


def _place_of(
    part: Node, rebuilt: Node, others: Mapping[str | Node, Affine], ranges: Ranges
) -> Affine:
    """Return the place that a whole number is with other indices: `(2*i + p)//2` is i for p < 2."""
    if not is_quotient(part):
        return place_of(rebuilt)
    place, divisor = divided(part)
    return ranges.divide(place.replaced(others), divisor)


def _reopen(reduction: Node, places: Mapping[str, Affine], ranges: Ranges) -> Node:
    index, body = ranges.opened(reduction)
    return _reduce(reduction.op, index, substitute(body, places, ranges), ranges)


def _reduce(op: str, index: str, body: Node, ranges: Ranges) -> Node:
    """Return a sum or maximum over an index, or where it is, simplified like a written one."""
    return {SUM: sum_over, MAX: max_over, ARGMAX: argmax_over}[op](index, body, ranges)


def _at_delta(index: str, term: Term, ranges: Ranges) -> Node | None:
    """Return the one term that a delta leaves of a sum.

    Where an index is at a maximum, and another delta says what it is, too, that one is taken: of a
    window, `h == 2*i + p`, so that where it lies is a range of i, and the place is compared.
    """
    found = list[tuple[bool, Node, Affine, Node]]()
    for delta in term.conditions:
        solution = solve_for(delta, index, term)
        if solution is not None:
            guard = ranges.inside(solution, ranges.size(index))
            is_placed = any(part.op == node.ARGMAX for part in solution.nodes)
            found.append((is_placed, delta, solution, guard))
    if not found:
        return None
    _, delta, solution, guard = min(found, key=lambda own: (own[0], not is_number(own[3])))
    extent = ranges.size(index)
    alone = not solution.free and all(map(is_fixed, solution.nodes))
    if is_number(guard, 1) and extent.terms and alone:
        # A sum over nothing has no such term.
        guard = build.apply("gt", node.index(extent), node.number(0))
    rest = replace(term, conditions=tuple(c for c in term.conditions if c is not delta))
    return select([guard], substitute(rest.node, {index: solution}, ranges))


def _within_block(index: str, term: Term, ranges: Ranges) -> Node | None:
    """Return a sum over the places in one block, where a condition says in which one an index is.

    `sum[i](where(0 <= i - 4*k < 4, f(i), 0))`, what goes back to `x[i//4]`, is the sum of
    f(4*k + p) over p < 4.
    """
    extent = ranges.size(index)
    for condition in term.conditions:
        if condition.op != INSIDE or condition.size.terms:
            continue
        place, wide = find_block_place(condition, index, ranges), condition.size.constant
        factor, rest = place.factor(index), place - at(index) * place.factor(index)
        is_block = any(abs(own) == wide for _, own in rest.terms)
        if abs(factor) != 1 or index in rest.free or not is_block:
            continue
        if not extent.terms and extent.constant <= wide:
            continue  # as few terms as there would be
        within = ranges.fresh(condition.size)
        first = -rest if factor > 0 else rest - (wide - 1)
        there = first + at(within)
        left = replace(term, conditions=tuple(c for c in term.conditions if c is not condition))
        value = substitute(left.node, {index: there}, ranges)
        return sum_over(within, select([ranges.inside(there, extent)], value), ranges)
    return None


def _in_turn(index: str, term: Term, ranges: Ranges) -> Node | None:
    """Return a sum over every so many places, where a condition says what a division leaves.

    `sum[k](where(k % 3 == p, f(k), 0))`, what goes back to `w[k % 3]`, is the sum of f(3*q + p).
    Sums in f stay as they are: they are computed once for each k, whatever p is.
    """
    extent = ranges.size(index)
    if any(part.height and index in part.free for part in (*term.over, *term.under)):
        return None
    for condition in term.conditions:
        found = find_residue(condition, index, ranges)
        if found is None or (not extent.terms and extent.constant <= found[1]):
            continue
        first, every, guard = found
        turns = ranges.fresh(node.quotient(extent + (every - 1), every))
        there = at(turns) * every + first
        left = replace(term, conditions=tuple(c for c in term.conditions if c is not condition))
        value = substitute(left.node, {index: there}, ranges)
        return sum_over(turns, select([guard, ranges.inside(there, extent)], value), ranges)
    return None


def _split(index: str, term: Term, ranges: Ranges) -> Node | None:
    """Return a sum of sums, if a part has a delta or does not depend on the index."""
    varying = [factor for factor in term.over if index in factor.free]
    rest = (*term.conditions, *term.under)
    alone = len(varying) == 1 and not any(index in part.free for part in rest)
    for factor in varying:
        groups: dict[Node | bool, list[tuple[int, Node]]] = {}
        for sign, part in split_sum(factor):
            delta = any(solve(c, index) is not None for c in term_of(part).conditions)
            key = part if delta else alone and index not in part.free
            groups.setdefault(key, []).append((sign, part))
        if len(groups) > 1:
            place = term.over.index(factor)
            before, after = term.over[:place], term.over[place + 1 :]
            parts = [
                replace(term, over=(*before, add_parts(group), *after)).node
                for group in groups.values()
            ]
            return add_parts((1, sum_over(index, part, ranges)) for part in parts)
    return None


def _factor_out(index: str, term: Term, body: Node, ranges: Ranges) -> Node:
    """Return a sum with what does not depend on the index in front.

    Where the index decides what is selected, and that may be nothing, only the number is moved out:
    a factor that is infinite where nothing is selected is no part of the sum.
    """
    within = tuple(c for c in term.conditions if index in c.free)
    whole = bool(within) and not selects_something(within, index, ranges)
    stays = [whole or index in factor.free for factor in (*term.over, *term.under)]
    over = tuple(f for f in term.over if whole or index in f.free)
    under = tuple(f for f in term.under if whole or index in f.free)
    inner = Term(conditions=within, over=over, under=under)
    # As it was written, if nothing is moved out of it.
    same = all(stays) and not term.conditions and term.factor == 1 and is_whole(body, term)
    summed = close(SUM, index, ranges.size(index), body if same else inner.node)
    return Term(
        conditions=tuple(c for c in term.conditions if c not in within),
        factor=term.factor,
        over=(*(f for f in term.over if f not in over), summed),
        under=tuple(f for f in term.under if f not in under),
    ).node


def rewrite_nodes(
    nodes: Sequence[Node],
    change: Callable[[Node], Node],
    ranges: Ranges,
    known: Callable[[Node], Node | None] = lambda node: None,
    *,
    simplifies: bool = False,
) -> tuple[Node, ...]:
    """Return expressions in which every function is changed, after its operands.

    Args:
        nodes: the expressions.
        change: returns what replaces a function whose operands have been changed.
        ranges: of their indices.
        known: returns what replaces an expression whose operands are not visited; else None.
        simplifies: whether sums of what has changed are those which their text would be read as.
    """
    rebuilt: dict[Node, Node] = {}
    moved: dict[str | Node, Affine] = {}

    def inside(node: Node) -> tuple[Node, ...]:
        if node not in rebuilt and (other := known(node)) is not None:
            rebuilt[node] = other
        if node in rebuilt:
            return ()
        if node.op in REDUCTIONS:
            return (ranges.opened(node, alone=False)[1],)
        return node.args

    def again(node: Node, args: tuple[Node, ...]) -> Node:
        if node.op in REDUCTIONS:
            index, body = ranges.opened(node, alone=False)
            if args[0] is body:
                return node
            if simplifies:
                return _reduce(node.op, index, args[0], ranges)
            return close(node.op, index, node.size, args[0])
        if node.op in PLACED:
            # A place may be data: `where(r == argmax[k](h[t - 1, k]), ...)`.
            return remake(node, args, lambda place: place.replaced(moved)) if moved else node
        return change(remake(node, args, lambda place: place)) if args else node

    for each in in_order(nodes, inside):
        args = tuple(rebuilt[arg] for arg in inside(each))
        if each not in rebuilt:
            rebuilt[each] = again(each, args)
        if each.type == "int" and rebuilt[each] is not each:
            moved[each] = place_of(rebuilt[each])
    return tuple(rebuilt[each] for each in nodes)


def rewrite_reads(
    nodes: Sequence[Node],
    change: Callable[[Node], Node],
    ranges: Ranges,
    known: Callable[[Node], Node | None],
    *,
    simplifies: bool = False,
) -> tuple[Node, ...]:
    """Return expressions in which reads are replaced, in places of other reads as well.

    `h[t, argmax[k](h[t, k])]` reads twice: of the one outside `known` is asked with its new place.
    The arguments are those of `rewrite_nodes`.
    """

    def replaced(each: Node) -> Node | None:
        if each.op != READ or not each.args:
            return known(each)
        inner = rewrite_reads(each.args, change, ranges, known, simplifies=simplifies)
        moved: dict[str | Node, Affine] = {
            old: place_of(new) for old, new in zip(each.args, inner, strict=True) if old is not new
        }
        own = remake(each, (), lambda place: place.replaced(moved))
        return known(own) or (own if moved else None)

    return rewrite_nodes(nodes, change, ranges, replaced, simplifies=simplifies)
