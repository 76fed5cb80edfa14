"""The statements of a formula: parts that have a name, and the outputs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.define.line import Line
from pullback.define.math import infer
from pullback.define.math.boundaries import WrongBoundary
from pullback.define.math.functions import CONSTANTS
from pullback.define.math.grammar import FormulaSyntax, parse_statement
from pullback.define.math.index import BATCH, Affine
from pullback.define.math.language import FormulaOutputs
from pullback.define.math.node import Node
from pullback.define.math.reader import IndexReader
from pullback.define.math.states import declare_states, set_value
from pullback.define.math.subscripts import (
    FormulaProgram,
    Index,
    NamedValue,
    NotAffine,
    Statement,
    TakenIndex,
    WrongSubscripts,
    elements,
    include_batch,
    is_batch,
)
from pullback.diagnostic import PullbackError


def nodes_of(text: str, names: Mapping[str, Node], outputs: Sequence[str], of: str) -> list[Node]:
    """Return the nodes of some outputs; each name stands for its node.

    Args:
        text: assignments with `;` between them, `t = tanh(x); y = t * t`; the last may be the value
            alone, or one value for each output.
        names: what the formula may use.
        outputs: the names that it has to define.
        of: whose formula it is, for messages.

    Raises:
        PullbackError: PB131 to PB137.
    """
    program = FormulaProgram(
        of=of, text=text, outputs=dict.fromkeys(outputs, ()), names=dict(names)
    )
    return values_of(program, statements_of(program))


def statements_of(program: FormulaProgram) -> list[Statement]:
    """Return the statements of a formula."""
    rows = [row.strip() for row in program.text.split(";")]
    taken = frozenset(program.names.keys() - program.labels.keys())
    return [replace(_read_statement(row, program.of), taken=taken) for row in rows if row]


def _read_statement(row: str, of: str) -> Statement:
    tree = parse_statement(row, of)
    match tree:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return Statement(row, tree, name, None, [value])
        case ast.Assign(
            targets=[ast.Subscript(value=ast.Name(id=name), slice=inside)], value=value
        ):
            return Statement(row, tree, name, elements(inside), [value])
        case ast.Expr(value=ast.Tuple(elts=values)):
            return Statement(row, tree, None, None, values)
        case ast.Expr(value=value):
            return Statement(row, tree, None, None, [value])
        case _:
            raise FormulaSyntax.error(
                f"{of}: this is not a statement of a formula", at=row, help="write y = ..."
            )


def limit_outputs(program: FormulaProgram, line: Line, limits: Mapping[str, ast.expr]) -> None:
    """Give the outputs' indices the limits that the line says: `u[t < steps, x]`."""
    for name, text in line.limits:
        tree = limits[name]
        program.pointwise = False
        reader = IndexReader(text, program, -1)
        limit = reader.limit(tree)
        for label, index in program.results.items():
            if label.rstrip("'") == name:
                _set_limit(reader, tree, index, limit)


def values_of(program: FormulaProgram, statements: list[Statement]) -> list[Node]:
    """Return the value of each output, as far as ranges are known."""
    if not program.known:
        declare_states(program, statements, IndexReader)
    program.start()
    outputs = program.outputs
    given: dict[str, Node] = {}
    plain = [statement for statement in statements if not statement.is_boundary]
    for statement in plain:
        number = statements.index(statement)
        if statement.name is not None:
            _require_free(program, statement, given)
            if statement.name in outputs:
                own = outputs[statement.name]
                given[statement.name] = _read_output(program, statement, number, own)
            else:
                _read_part(program, statement, number)
        elif statement is plain[-1] and len(statement.values) == len(outputs) and not given:
            for value, (name, own) in zip(statement.values, outputs.items(), strict=True):
                reader = IndexReader(statement.text, program, number)
                reader.scope = {label: program.results[label] for label in own}
                given[name] = _known_as(program, name, reader.value(value), statement)
        else:
            raise _of_nothing(program, statement, plain[plain.index(statement) + 1 :])
    for name in outputs:
        if name not in given:
            raise FormulaOutputs.error(
                f"{program.of}: nothing says what '{name}' is",
                formula=program.text,
                help=f"add '; {name} = ...'",
            )
    return [given[name] for name in outputs]


def _of_nothing(
    program: FormulaProgram, statement: Statement, later: Sequence[Statement]
) -> PullbackError:
    """Return the error of values that no name gets: what comes after them may be why."""
    name = next(iter(program.outputs))
    for each in later:
        if each.name in program.outputs and each.subscripts:
            return WrongBoundary.error(
                f"{program.of}: this is no boundary of '{each.name}'",
                at=each.text,
                help="a boundary is one place, as [-1] or [size(t)], or all that is beyond an end, "
                "as [t < 0] or [t >= size(t)]",
            )
    parts = f", or after {later[-1].text}" if later and later[-1].name else ""
    return FormulaOutputs.error(
        f"{program.of}: this value is assigned to nothing",
        at=statement.text,
        help=f"write {name} = ...{parts}",
    )


def _known_as(program: FormulaProgram, name: str, value: Node, statement: Statement) -> Node:
    """Return what a name stands for once it has a value: a state, for a read of itself."""
    if name not in program.states:
        return value
    program.pointwise = False
    return set_value(program, name, value, statement.text)


def _require_free(program: FormulaProgram, statement: Statement, given: Mapping[str, Node]) -> None:
    """Stop at a name that has a value already."""
    name = str(statement.name)
    state = program.states.get(name)
    known = state.node if state is not None else program.definitions.get(name)
    if name in program.names or known is not None or name in given or name in CONSTANTS:
        known = " as a number of mathematics" if name in CONSTANTS else ""
        message = f"{program.of}: '{name}' has a value already{known}"
        raise FormulaOutputs.error(message, at=statement.text, help="choose another name")
    if name in program.declared or name in program.results:
        message = f"{program.of}: '{name}' is an index"
        cure = "choose another name"
        program.meant.append(FormulaOutputs.error(message, at=statement.text, help=cure))


def _read_output(
    program: FormulaProgram, statement: Statement, number: int, own: tuple[str, ...]
) -> Node:
    """Return the value of one output, `y = ...` or `y[i, j] = ...`."""
    reader = IndexReader(statement.text, program, number)
    reader.scope = {label: program.results[label] for label in own}
    if statement.subscripts is not None:
        reader.scope = _rename_indices(program, reader, statement, own)
    name = str(statement.name)
    value = _known_as(program, name, reader.value(statement.values[0]), statement)
    program.definitions[name] = NamedValue(
        name, [Index(n, i.key, i.extent, i.at) for n, i in reader.scope.items()], value
    )
    return value


def _rename_indices(
    program: FormulaProgram, reader: IndexReader, statement: Statement, own: tuple[str, ...]
) -> dict[str, Index]:
    """Return the indices of an output by the names that its statement gives them."""
    assert statement.subscripts is not None
    program.pointwise = False
    name = str(statement.name)
    subscripts = include_batch(statement.subscripts, own)
    if len(subscripts) != len(own):
        raise WrongSubscripts.error(
            f"{program.of}: '{name}' has {len(own)} indices, as in {name}[{', '.join(own)}]",
            at=statement.text,
        )
    scope: dict[str, Index] = {}
    for tree, label in zip(subscripts, own, strict=True):
        word, limit = reader.binding(tree)
        index = program.results[label]
        other = program.declared.get(word) if word in program.declared else None
        foreign = word != label and (other is not None or word in program.results)
        foreign = foreign and (other is None or other != index.extent)
        if word in scope or foreign or is_batch(tree) != (label == BATCH):
            raise TakenIndex.error(
                f"{program.of}: the index '{label}' of '{name}' cannot be called '{word}' here",
                at=statement.text,
                help=f"write {name}[{', '.join(own)}]",
            )
        if limit is not None:
            _apply_limit(program, reader, tree, index, limit)
        scope[word] = index
    return scope


def _apply_limit(
    program: FormulaProgram, reader: IndexReader, tree: ast.expr, index: Index, limit: Affine
) -> None:
    """Give an output's index its limit, `y[i < size(n) - 1] = ...`."""
    _set_limit(reader, tree, index, limit)
    if index.name not in program.declared:
        index.limit = (reader.number, tree.col_offset, tree.end_col_offset or 0)


def _set_limit(reader: IndexReader, tree: ast.expr, index: Index, limit: Affine) -> None:
    if index.extent is not None and index.extent != limit:
        extent = infer.format_size(index.extent)
        reader.fail(
            NotAffine, f"'{index.name}' runs over {extent} and cannot have another limit", tree
        )
    index.extent = limit


def _read_part(program: FormulaProgram, statement: Statement, number: int) -> None:
    """Give a name to a part of the formula: `t = ...`, or `t[i, j] = ...`."""
    name = str(statement.name)
    if statement.subscripts is not None:
        program.pointwise = False
        reader = IndexReader(statement.text, program, number)
        binder = f"{name}[{', '.join(map(reader.shown, statement.subscripts))}] = ..."
        bound = [reader.bind(tree, binder) for tree in statement.subscripts]
        state = program.states.get(name)
        parameters = state.indices if state else program.with_batch(bound, binder)
        reader.scope = {index.name: index for index in parameters}
    else:
        reader = IndexReader(
            statement.text,
            program,
            number,
            (statement.tree, names_in_brackets(statement.values[0])),
        )
        bound, parameters = [], None
    reader.part = {} if name not in program.states else None
    value = _known_as(program, name, reader.value(statement.values[0]), statement)
    if parameters is None:
        parameters = list(reader.parameters.values())
    if name not in program.states:
        parameters = [i for i in parameters if i in bound or i.key in value.free]
    program.definitions[name] = NamedValue(name, parameters, value, reader.part or {})


def names_in_brackets(tree: ast.expr) -> set[str]:
    """Return the names between the brackets of reads."""
    found: set[str] = set()
    reductions = {id(part.func) for part in ast.walk(tree) if isinstance(part, ast.Call)}
    for part in ast.walk(tree):
        if isinstance(part, ast.Subscript) and id(part) not in reductions:
            inside = [each for each in ast.walk(part.slice) if isinstance(each, ast.Name)]
            found |= {each.id for each in inside}
            if any(is_batch(each) for each in ast.walk(part.slice) if isinstance(each, ast.expr)):
                found.add(BATCH)
    return found
