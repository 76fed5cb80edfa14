"""A derivative that an author writes in the language of formulas, `"sum[n](grad*x)"`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.dimension import Arithmetic, Dim, Name
from pullback.define.line import Line, Tensor
from pullback.define.math import notation
from pullback.define.math.derived import UNWRITTEN, make_operator
from pullback.define.math.draft import SUFFIXES, Draft, FreeNames, strip_default
from pullback.define.math.formula import Formula, is_usable
from pullback.define.math.index import Affine
from pullback.define.math.sizes import affine
from pullback.diagnostic import PullbackError


@dataclass(frozen=True, kw_only=True)
class Words:
    """What the derivatives of one line may name.

    An output's size that is arithmetic, `y[h - p + 1]`, has a name of its own here, `y[y0]` and
    `grad[y0]`: a dimension that must have that size.

    Attributes:
        line: what arrives and the parameters -> the outputs.
        sizes: what those dimensions must be.
        arriving: the names of the gradients or tangents.
        kind: "backward" or "jvp".
        results: what is computed for each input or output, by its name.
    """

    line: Line
    sizes: Mapping[str, Affine]
    arriving: tuple[str, ...]
    kind: str
    results: Mapping[str, Tensor]

    def read(self, target: Tensor, text: str, of: str) -> Formula:
        """Return the formula of one derivative, with every name as a parameter.

        Args:
            target: the input or output that it is the derivative of.
            text: as it is written.
            of: whose it is, for messages.
        """
        values = {value.name: value for value in (*self.line.outputs, *self.line.parameters)}
        line = replace(
            self.line,
            parameters=tuple(map(strip_default, values.values())),
            outputs=(self.results[target.name],),
            formula=text.strip(),
        )
        try:
            return notation.parse(line, sizes=self.sizes)
        except PullbackError as error:
            message = error.finding.message.replace(line.qualname, of, 1)
            raise PullbackError(replace(error.finding, message=message)) from None


def words_of(line: Line, kind: str, arriving: Sequence[Tensor]) -> Words:
    """Return what the derivatives of a line may name: `arriving` and the line's own names."""
    names, sizes = FreeNames(line), dict[str, Affine]()
    names.taken.update(tensor.name for tensor in arriving)
    known: dict[Dim, Name] = {}

    def named(dim: Dim, name: str) -> Dim:
        if not isinstance(dim, Arithmetic):
            return dim
        if dim not in known:
            known[dim] = Name(name=names.fresh(name))
            if (size := affine(dim)) is not None:
                sizes[known[dim].name] = size
        return known[dim]

    def with_names(tensor: Tensor, of: str) -> Tensor:
        dims = (named(dim, f"{of}{place}") for place, dim in enumerate(tensor.dims))
        return replace(tensor, dims=tuple(dims))

    outputs = tuple(with_names(output, output.name) for output in line.outputs)
    # A parameter with the same name as something that arrives keeps it.
    given = {tensor.name: with_names(tensor, tensor.name) for tensor in arriving}
    given |= {value.name: value for value in line.parameters}
    return Words(
        line=Line(
            namespace=line.namespace,
            name=line.name,
            parameters=tuple(strip_default(value) for value in given.values() if is_usable(value)),
            outputs=outputs,
            formula=UNWRITTEN,
        ),
        sizes=sizes,
        arriving=tuple(tensor.name for tensor in arriving),
        kind=kind,
        results={
            of.name: Tensor(
                name=names.fresh(f"{SUFFIXES[kind]}_{of.name}"), dims=of.dims, dtype=of.dtype
            )
            for of in (line.tensors if kind == "backward" else outputs)
        },
    )


def operator(words: Words, formulas: Mapping[int, Formula]) -> Formula:
    """Return the operator that computes some derivatives.

    Args:
        words: what they may name.
        formulas: by the place of the input or output: all of one space, or all in index notation.
    """
    first = next(iter(formulas.values()))
    drafted = Draft(
        original=Formula(
            line=words.line,
            elements=(),
            sizes=words.sizes,
            dims=first.dims,
            full=frozenset(words.arriving if words.kind == "backward" else ()),
        ),
        kind=words.kind,
        arriving={},
        outputs=tuple(formula.line.outputs[0] for formula in formulas.values()),
        nodes={place: formula.elements[0] for place, formula in formulas.items()},
    )
    made = make_operator(drafted)
    assert made
    return made.formula
