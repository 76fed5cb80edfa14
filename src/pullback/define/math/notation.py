"""A line -> its formula, and a formula -> its text.

Statements with indices are read twice, before and after the ranges of the indices are inferred:
`sqdist(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)`. Without indices, where each
name stands for an element, they are read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pullback.define.dimension import Batch, Name, Number
from pullback.define.line import Line
from pullback.define.math import infer, write
from pullback.define.math.counts import declare_counts, limit_trees
from pullback.define.math.formula import (
    Formula,
    FormulaDimensions,
    convert_to_output,
    names_of,
    type_of,
)
from pullback.define.math.grammar import FormulaSyntax
from pullback.define.math.index import Affine, size
from pullback.define.math.language import FormulaOutputs
from pullback.define.math.statements import limit_outputs, statements_of, values_of
from pullback.define.math.states import finish_states
from pullback.define.math.subscripts import FormulaProgram, Index
from pullback.diagnostic import PullbackError


def parse(
    line: Line,
    accuracy: int = 4,
    *,
    sizes: Mapping[str, Affine] | None = None,
    trusted: bool = False,
) -> Formula:
    """Return the formula of a line: pointwise, or in index notation.

    Args:
        line: with the text of its formula.
        accuracy: the largest error of one function, in units of the last place.
        sizes: for a derivative: the sizes that dimensions of its inputs must have.
        trusted: for a derived formula: reads under `where` are not checked to stay inside.

    Raises:
        PullbackError: PB131 to PB139; PB140, an ambiguous range; PB141, a read that may be outside
            its tensor; PB142, an index without a range; PB143, a wrong number of indices; PB144, an
            index that is not affine; PB145, an unknown index; PB146, one that is taken.
    """
    try:
        return read(line, accuracy, sizes or {}, trusted=trusted)[1]
    except RecursionError:
        raise FormulaSyntax.error(
            f"{line.qualname}: the formula is nested too deep",
            help="give parts of it a name: t = ...; y = ...",
        ) from None


def read(
    line: Line, accuracy: int, sizes: Mapping[str, Affine], *, trusted: bool
) -> tuple[FormulaProgram, Formula]:
    """Return the formula of a line, and what was learnt about its indices."""
    if line.changed:
        raise FormulaOutputs.error(
            f"{line.qualname}: '{line.changed[0]}' is an input and an output, and a formula "
            "changes nothing in place",
            help="give the output a name of its own",
        )
    program = program_of(line, sizes, trusted=trusted)
    statements = statements_of(program)
    limits = limit_trees(line)
    declare_counts(program, line, limits.values(), statements)
    limit_outputs(program, line, limits)
    values = values_of(program, statements)
    if not program.pointwise:
        if program.meant:
            raise program.meant[0]
        infer.infer(program)
        program.known = True
        values = values_of(program, statements)
    nodes = [convert_to_output(line, place, node) for place, node in enumerate(values)]
    groups, more = finish_states(program) if program.states else ((), {})
    known, own = declared_ranges(line), {i.key: i.extent for i in program.results.values()}
    news = {label: extent for label, extent in own.items() if extent and label not in known}
    made = Formula(
        line=line,
        elements=tuple(nodes),
        sizes={**news, **more, **sizes},
        groups=groups,
        dims=line.outputs[0].dims if program.pointwise else None,
        accuracy=accuracy,
    )
    return program, made


def program_of(line: Line, sizes: Mapping[str, Affine], *, trusted: bool) -> FormulaProgram:
    """Return what is known about a formula before it is read."""
    names = names_of(line.parameters, line.qualname)
    known = {**declared_ranges(line), **sizes}
    of_inputs = {label for tensor in line.tensors for label in tensor.labels}
    of_outputs = {output.labels for output in line.outputs}
    results: dict[str, Index] = {}
    for output in line.outputs:
        for dim, label in zip(output.dims, output.labels, strict=True):
            if not isinstance(dim, Batch | Name | Number) or label in names:
                cure = f"give it a name, {output.name}[i]: its size follows from the formula"
                if label in names:
                    index = "i" if label != "i" else "j"
                    cure = f"it is how far one runs: {output.name}[{index} < {label}]"
                raise FormulaDimensions.error(
                    f"{line.qualname}: the dimension '{dim}' of '{output.name}' is no index",
                    help=cure,
                )
            binder = f"{output.name}[{', '.join(output.labels)}] = ..."
            results[label] = Index(label, label, known.get(label), binder)
    assert line.formula is not None
    return FormulaProgram(
        of=line.qualname,
        text=line.formula,
        outputs={output.name: output.labels for output in line.outputs},
        names=names,
        labels={tensor.name: tensor.labels for tensor in line.tensors},
        declared=known,
        results=results,
        types={output.name: type_of(output, line.qualname) for output in line.outputs},
        trusted=trusted,
        pointwise=not sizes and len(of_outputs) == 1 and of_inputs.issuperset(*of_outputs),
    )


def declared_ranges(line: Line) -> dict[str, Affine]:
    """Return how far the inputs' dimensions run; the second `n` of `x[n, n]` is `n'`."""
    found = {label: size(label) for tensor in line.tensors for label in tensor.labels}
    # An output may have more of them: y[n, n] of x[n].
    more = (label for output in line.outputs for label in output.labels)
    return found | {
        label: size(label) for label in more if label.rstrip("'") in found or label.isdecimal()
    }


def format_formula(formula: Formula) -> str:
    """Return the text of a formula after `=`, with names for what is used more than once.

    Reading it gives the very same nodes, if `sizes` says what dimensions of inputs must be. A
    pointwise gradient is written as it is computed: `sum[...](3*grad)`, where a reader puts the
    number in front of the sum.
    """
    if formula.pointwise:
        return write.write_elements(formula)
    rows = write.write_rows(formula)
    given = {name: size for name, size in formula.sizes.items() if name in formula.line.dimensions}
    return _shorten(formula, rows, given) or "; ".join(rows)


def _shorten(indexed: Formula, rows: list[str], given: Mapping[str, Affine]) -> str | None:
    """Return the text without limits that follow from the reads; None if that reads differently."""
    line = replace(indexed.line, formula="; ".join(rows))
    try:
        program, made = read(line, indexed.accuracy, given, trusted=True)
        spare = [
            i for i in program.indices if i.limit and infer.infer_alone(i, program) == i.extent
        ]
        for index in sorted(spare, key=lambda index: index.limit or (0, 0, 0), reverse=True):
            assert index.limit is not None
            number, start, end = index.limit
            rows[number] = rows[number][:start] + index.name + rows[number][end:]
        found = write.join_rows(indexed, rows)
        bare = write.name_counts(indexed, found)

        def reads_back(text: str) -> bool:
            again = made
            if text != line.formula:  # reading takes as long as deriving
                short = replace(line, formula=text)
                again = parse(short, indexed.accuracy, sizes=given, trusted=True)
            own = indexed.nodes, indexed.groups, indexed.sizes
            return (again.nodes, again.groups, again.sizes) == own

        return next((text for text in (bare, found) if reads_back(text)), None)
    except (PullbackError, RecursionError):
        return None
