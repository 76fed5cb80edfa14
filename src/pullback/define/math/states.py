"""Finds the states of a formula: values that are read before they are known, `h[t] = h[t - 1]`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pullback.define.line import RESERVED, ReservedName
from pullback.define.math import recurrence
from pullback.define.math.boundaries import (
    Boundary,
    ReadState,
    StateType,
    WrongBoundary,
    as_type,
)
from pullback.define.math.index import Affine
from pullback.define.math.node import Node, rename_index
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State
from pullback.define.math.subscripts import FormulaProgram, Index, Statement, include_batch

if TYPE_CHECKING:
    from pullback.define.math.reader import IndexReader


def find_states(program: FormulaProgram, statements: Sequence[Statement]) -> set[str]:
    """Return the names whose values need themselves, and that cannot just be written out.

    These are the names that are read before they have a value, elsewhere than at their own indices,
    or that have a boundary. Others, as `u` in `u = 2*h[t - 1]; h = u + x`, are parts.
    """
    plain = [each for each in statements if not each.is_boundary]
    defined = {name: k for k, s in enumerate(plain) for name in s.defines(program.outputs)}
    used = [{n.id for n in s.walk() if isinstance(n, ast.Name)} & defined.keys() for s in plain]
    needs = {name: used[k] for name, k in defined.items()}
    early = {name for k, names in enumerate(used) for name in names if defined[name] >= k}
    apart = {name for s in plain for name in s.reads_elsewhere()}
    bounded = {s.name for s in statements if s.is_boundary and s.name}
    known = {*program.names, *program.declared, *program.results}
    candidates = ((early | apart | bounded) & defined.keys()) - known
    return {name for name in candidates if name in recurrence.reach(name, needs)}


def declare_states(
    program: FormulaProgram, statements: Sequence[Statement], read: type[IndexReader]
) -> None:
    """Make the states known before anything is read.

    Args:
        program: whose states they are.
        statements: all of the formula.
        read: what reads a statement.
    """
    plain = [each for each in statements if not each.is_boundary]
    names = find_states(program, statements)
    for name in names:
        statement = next(s for s in plain if name in s.defines(program.outputs))
        if name in RESERVED:
            raise ReservedName.error(
                f"{program.of}: '{name}' is reserved, and cannot be a state",
                at=statement.text,
                help="choose another name",
            )
        boundaries = [
            Boundary(s, row) for row, s in enumerate(statements) if s.is_boundary and s.name == name
        ]
        reader = read(statement.text, program, statements.index(statement))
        indices = _find_indices(reader, statement, name)
        type = program.types.get(name, "real")
        program.states[name] = ReadState(name, indices, type, boundaries)
    for statement in statements:
        if statement.is_boundary and statement.name not in names:
            raise WrongBoundary.error(
                f"{program.of}: '{statement.name}' does not read itself, and has no boundary",
                at=statement.text,
                help="between the brackets on the left of '=' are names of indices",
            )


def _find_indices(reader: IndexReader, statement: Statement, name: str) -> list[Index]:
    """Return the indices of a state."""
    program = reader.program
    own = program.outputs.get(name)
    if own is not None:
        labels = [program.results[label] for label in own]
        if statement.subscripts is None:
            return labels
        subscripts = include_batch(statement.subscripts, own)
        written = [reader.binding(tree)[0] for tree in subscripts]
        pairs = zip(written, labels, strict=len(written) == len(labels))
        return [Index(word, i.key, i.extent, i.at) for word, i in pairs]
    if statement.subscripts is None:
        raise StateType.error(
            f"{program.of}: '{name}' reads itself and has no indices",
            at=statement.text,
            help=f"name them before the '=': {name}[t, d] = ...",
        )
    binder = f"{name}[{', '.join(map(reader.shown, statement.subscripts))}] = ..."
    indices = [reader.bind(tree, binder) for tree in statement.subscripts]
    return program.with_batch(indices, binder)


def set_value(program: FormulaProgram, name: str, value: Node, text: str) -> Node:
    """Give a state its element; return the read that stands for it."""
    state = program.states[name]
    state.node = as_type(value, state, program.of, text)
    return state.element


def finish_states(program: FormulaProgram) -> tuple[tuple[Group, ...], dict[str, Affine]]:
    """Return the groups of a formula's states, and the ranges of indices that only they have.

    Raises:
        PullbackError: PB151 to PB153, there is no order; PB154, a boundary that nothing reaches.
    """
    sizes: dict[str, Affine] = {}
    taken = {
        **program.declared,
        **{i.key: program.ranges.size(i.key) for i in program.results.values()},
    }
    states = list[State]()
    for state in program.states.values():
        assert state.node
        for boundary in state.boundaries:
            if not boundary.used:
                raise WrongBoundary.error(
                    f"{program.of}: no read of '{state.name}' reaches this boundary",
                    at=boundary.statement.text,
                    help="leave it out, or read there",
                )
        node, indices, extents = state.node, list[str](), list[Affine]()
        for index in state.indices:
            extent = program.ranges.size(index.key)
            name = _free_name(index.name, extent, {**taken, **sizes}, indices)
            if name != index.key:
                node = rename_index(node, index.key, name)
            if name not in program.declared:
                sizes[name] = extent
            indices.append(name)
            extents.append(extent)
        states.append(State(state.name, tuple(indices), tuple(extents), node))
    ranges = Ranges({**program.ranges.sizes, **sizes})
    return recurrence.make_groups(states, ranges, program.of), sizes


def _free_name(name: str, extent: Affine, taken: Mapping[str, Affine], own: Sequence[str]) -> str:
    """Return an index's name, or one like it if it has another range elsewhere."""
    more = (f"{name.rstrip(chr(39))}{k}" for k in itertools.count(1))
    for each in itertools.chain([name], more):
        if each not in own and taken.get(each, extent) == extent:
            return each
    raise AssertionError
