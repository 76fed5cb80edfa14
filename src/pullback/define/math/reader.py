"""Reads formulas in index notation: what the pointwise language has, and indices."""

from __future__ import annotations

import ast
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from pullback.define.math import build, inside, reduce
from pullback.define.math.boundaries import read_state
from pullback.define.math.facts import Fact, derive_facts, move_fact
from pullback.define.math.formula import FormulaDimensions
from pullback.define.math.functions import CONSTANTS
from pullback.define.math.grammar import UnknownFormulaName, constant
from pullback.define.math.index import BATCH, Affine, at, is_quotient
from pullback.define.math.language import FormulaArguments, FormulaType, UnknownFunction, word
from pullback.define.math.node import Node, equal, index, is_number, is_value, place_of, read
from pullback.define.math.other_words import suggest_instead
from pullback.define.math.places import REDUCTIONS, PlaceReader
from pullback.define.math.sizes import dimensions_used
from pullback.define.math.subscripts import (
    Access,
    NamedValue,
    TakenIndex,
    elements,
    is_batch,
    is_data,
    is_limit,
    move_indices,
)
from pullback.diagnostic import did_you_mean


class IndexReader(PlaceReader):
    """Reads one statement: values at indices."""

    def value(self, tree: ast.expr) -> Node:
        """Return the value of a statement.

        Raises:
            PullbackError: PB138, a name alone that could be read in two places: b[n] in y[n, n].
        """
        found = self.expression(tree)
        indices = {*self.parameters, *self.scope}
        twice = sorted(name for name in indices if f"{name}'" in indices)
        for name in self.alone if twice else ():
            own = self.program.labels_of(name)
            for label in twice:
                if label in own and f"{label}'" not in own:
                    read = f"{name}[{', '.join(own)}]"
                    raise FormulaDimensions.error(
                        f"{self.of}: which of two dimensions '{label}' is that of '{read}'?",
                        at=self.text,
                        help="give the two dimensions two names",
                    )
        return found

    def at_indices(self, tree: ast.Subscript | ast.Call) -> Node:
        """Return an element of a tensor, `x[n]`, or a reduction, `sum[n](x)`."""
        self.program.pointwise = False
        match tree:
            case ast.Subscript(value=ast.Name(id=name)):
                return self.element(tree, name, elements(tree.slice))
            case ast.Call(func=ast.Subscript(value=ast.Name(id=name), slice=bound)):
                return self.reduction(tree, name, elements(bound))
            case _:
                self.refuse(tree)

    def conditions(self, op: ast.boolop, values: Sequence[ast.expr]) -> list[Node]:
        """Return the parts of `a and b`; b is read only where a holds: `i > 0 and x[i - 1] > 0`.

        If a says nothing about indices, b is read like anything else, as in `a or b`.
        """
        if isinstance(op, ast.Or):
            return super().conditions(op, values)
        found = [self.expression(values[0])]
        for value in values[1:]:
            ranges = self.program.ranges
            known = [fact for each in found for fact in derive_facts(each, True, ranges)]
            with self.under(known) if known else nullcontext():
                found.append(self.expression(value))
        return found

    def name(self, name: str, tree: ast.expr) -> Node:
        """Return what a name stands for."""
        program = self.program
        if name in program.labels or name in program.definitions:
            return self.element(tree, name, None)
        if name in self.names:
            return self.names[name]
        found = self.find(name)
        if found is None:
            if name in program.declared and name not in CONSTANTS:
                self.unknown(name, tree)
            if name in REDUCTIONS or name in ("size", "pad"):
                cure = f"{name}[i](...)" if name in REDUCTIONS else f"{name}(...)"
                self.fail(UnknownFormulaName, f"'{name}' is not a value", tree, f"write {cure}")
        elif name in CONSTANTS:
            message = f"{self.of}: '{name}' is an index here and a number"
            cure = "give the index another name"
            program.meant.append(TakenIndex.error(message, at=self.shown(tree), help=cure))
        else:
            program.pointwise = False
            return index(at(found.key))
        return constant(name) or self.undefined(name, tree, [*program.definitions])

    def of_indices(self, ops: Sequence[ast.cmpop], operands: Sequence[Node]) -> Node | None:
        """Return `0 <= i < size(n)` and `i == n` as conditions; None for data alone."""
        if any(operand.type != "int" for operand in operands):
            return None
        places = [place_of(operand) for operand in operands]
        kinds = [type(op) for op in ops]
        if all(map(is_value, places)):
            return None
        if kinds == [ast.LtE, ast.Lt] and is_number(operands[0], 0):
            limited = is_limit(places[2], self.program.declared)
            return self.program.ranges.inside(*places[1:]) if limited else None
        return equal(places[0] - places[1]) if kinds == [ast.Eq] else None

    def special(self, tree: ast.Call, name: str) -> Node | None:
        """Return a call with a syntax of its own; None if its function is in the table."""
        if name in ("size", "pad"):
            self.program.pointwise = False
            return self.padded(tree) if name == "pad" else index(self.size(tree))
        if name == "where" and len(tree.args) == 3 and not tree.keywords:
            return self.selection(tree)
        if name in REDUCTIONS and (name not in ("max", "min") or len(tree.args) == 1):
            self.program.pointwise = False
            cure = f"write {self.over(name, tree)}"
            self.fail(UnknownFunction, f"'{name}' has to say over which index it runs", tree, cure)
        return None

    def size(self, tree: ast.Call) -> Affine:
        """Return `size(n)`."""
        match tree:
            case ast.Call(args=[ast.Name(id=name)], keywords=[]):
                pass
            case ast.Call(args=[arg], keywords=[]) if is_batch(arg):
                name = BATCH
            case _:
                self.fail(FormulaArguments, "size takes one index", tree, "write size(n)")
        if name in self.program.declared:
            return self.program.declared[name]
        if taken := self.program.is_taken(name):
            first = next(iter(self.program.labels.get(name, ())), "n")
            message = f"size takes an index, and '{name}' is {taken}"
            self.fail(FormulaArguments, message, tree, f"write size({first})")
        return self.program.ranges.size(self.index(name, tree).key)

    def selection(self, tree: ast.Call) -> Node:
        """Return `where(condition, a, b)`: each branch is read where the condition says so."""
        self.require_written(tree)
        condition, *branches = tree.args
        if any(word(arg) is not None for arg in tree.args):
            return self.call(tree, "where")
        decides = self.expression(condition)
        values: list[Node] = []
        for branch, holds in zip(branches, (True, False), strict=True):
            with self.under(derive_facts(decides, holds, self.program.ranges)):
                values.append(self.expression(branch))
        return self.apply(tree, "where", decides, *values)

    @contextmanager
    def under(self, facts: Sequence[Fact]) -> Generator[None]:
        """Read a selected expression: these sums of indices are not negative there."""
        before = self.facts
        self.facts = [*before, *facts]
        self.weak += 1
        yield
        self.weak -= 1
        self.facts = before

    def padded(self, tree: ast.Call) -> Node:
        """Return `pad(x[i - 1])`, `pad(x[i - 1], value)`."""
        reads = (ast.Subscript, ast.Name)
        if tree.keywords or len(tree.args) not in (1, 2) or not isinstance(tree.args[0], reads):
            cure = "write pad(x[i - 1]), or pad(x[i - 1], value)"
            self.fail(FormulaArguments, "pad takes one read, and what is outside", tree, cure)
        before, self.outside = self.outside, []
        with self.under(()):
            value = self.expression(tree.args[0])
        guards, self.outside = self.outside, before
        other = self.expression(tree.args[1]) if len(tree.args) == 2 else None
        if other is None and value.type == "bool":
            cure = f"write pad({self.shown(tree.args[0])}, False)"
            self.fail(FormulaType, "a condition has no zero outside", tree, cure)
        if other is None or (is_number(other, 0) and value.type != "bool"):
            return reduce.select(guards, value)
        both: Node | None = None
        for guard in [each for each in guards if not is_number(each, 1)]:
            both = guard if both is None else build.apply("logical_and", both, guard)
        return value if both is None else self.apply(tree, "where", both, value, other)

    def reduction(self, tree: ast.Call, kind: str, bound: list[ast.expr]) -> Node:
        """Return `sum[i, j](...)` and the like."""
        if kind not in REDUCTIONS:
            known = kind in self.names or kind in self.program.definitions
            cure = f"'{kind}' is no function" if known else suggest_instead(kind)
            cure = cure or did_you_mean(kind, REDUCTIONS) or f"there are {', '.join(REDUCTIONS)}"
            self.fail(UnknownFunction, f"there is no reduction '{kind}'", tree, cure)
        if len(tree.args) != 1 or tree.keywords:
            self.fail(FormulaArguments, f"{kind}[...] takes one expression", tree)
        before = self.scope
        self.scope = dict(before)
        binder = f"{kind}[{', '.join(map(self.shown, bound))}](...)"
        indices = [self.bind(each, binder) for each in bound]
        self.unread += indices
        reads, alone = len(self.program.accesses), len(self.alone)
        body = self.expression(tree.args[0])
        self.require_read(indices, tree, self.alone[alone:], self.program.accesses[reads:])
        self.scope = before
        try:
            return self.reduced(kind, [each.key for each in indices], body, tree)
        except build.Misfit as misfit:
            self.fail(FormulaType, str(misfit), tree)

    def reduced(self, kind: str, keys: list[str], body: Node, tree: ast.Call) -> Node:
        """Return a reduction over some indices, the last one innermost."""
        ranges = self.program.ranges
        if kind in ("sum", "mean"):
            value = body
            for key in reversed(keys):
                value = reduce.sum_over(key, value, ranges)
            for key in keys if kind == "mean" else ():
                value = self.apply(tree, "div", value, index(ranges.size(key)))
            return value
        if body.type == "bool":
            cure = "count them by sum[i](...), or write int(...)"
            self.fail(FormulaType, f"{kind} is of numbers, and this is a condition", tree, cure)
        if kind == "argmax":
            if len(keys) != 1:
                self.fail(FormulaArguments, "argmax runs over one index", tree)
            return reduce.argmax_over(keys[0], body, ranges)
        value = build.apply("neg", body) if kind == "min" else body
        for key in reversed(keys):
            value = reduce.max_over(key, value, ranges)
        return build.apply("neg", value) if kind == "min" else value

    def element(self, tree: ast.expr, name: str, subscripts: list[ast.expr] | None) -> Node:
        """Return a read of a tensor, or the value of a name, at some indices."""
        definition = self.program.definitions.get(name)
        labels = self.program.labels.get(name)
        if definition is not None:
            labels = tuple(parameter.name for parameter in definition.parameters)
        if labels is None:
            self.no_tensor(name, tree)
        if subscripts is None:
            self.alone += [name] if labels else []
            places = [at(self.index(label, tree, of=name).key) for label in labels]
        else:
            places = self.places(tree, name, labels, subscripts)
        if (state := self.program.states.get(name)) is not None:
            return read_state(self, tree, state, places)
        keys = [p.key for p in definition.parameters] if definition is not None else labels
        self.access(tree, name, places, [self.program.ranges.size(key) for key in keys])
        if definition is None:
            own = self.names[name]
            return own if tuple(places) == own.places else read(name, places, own.type)
        self.require_again(definition, places, self.shown(tree))
        return definition.at(tuple(places), self.program.ranges)

    def access(
        self, tree: ast.expr, name: str, places: Sequence[Affine], extents: Sequence[Affine]
    ) -> None:
        """Remember a read; once ranges are known, stop if it may be outside."""
        outside, self.outside = self.outside, None
        for place, extent in zip(places, extents, strict=True):
            reached = Access(self.shown(tree), name, place, extent, self.weak > 0)
            self.program.accesses.append(reached)
            if outside is not None:
                outside.append(self.program.ranges.inside(place, extent))
            elif self.program.known and not is_data(place):
                self.require(reached, self.facts)
        self.outside = outside

    def require(self, access: Access, facts: Sequence[Fact]) -> None:
        """Stop at a read that may be outside; a part's reads are checked where the part is used."""
        if self.is_checked_in_calls(access):
            return
        if self.part is None:
            inside.require(self.program, {**self.parameters, **self.scope}, access, facts)
        elif not inside.is_inside(self.program, access, facts):
            self.part[access.place, access.extent, tuple(facts)] = access

    def is_checked_in_calls(self, access: Access) -> bool:
        """Return whether a quotient is of other sizes than what is read.

        No line says that one dimension is a multiple of another.
        """
        ends = self.program.ranges.bounds(access.place)
        if ends is None or not any(map(is_quotient, access.place.nodes)):
            return False
        return not dimensions_used((), [access.extent]) & dimensions_used((), ends)

    def require_again(self, definition: NamedValue, places: Sequence[Affine], shown: str) -> None:
        """Check the reads of a part again, at the indices at which it is used."""
        keys = (parameter.key for parameter in definition.parameters)
        others = dict(zip(keys, places, strict=True))

        def move(place: Affine) -> Affine:
            return place_of(move_indices(index(place), others, self.program.ranges))

        for (_, _, facts), access in definition.open.items():
            place, here = move(access.place), f"{access.shown} of {shown}"
            again = replace(access, place=place, shown=here, weak=access.weak or self.weak > 0)
            self.require(again, [*self.facts, *(move_fact(fact, move) for fact in facts)])
