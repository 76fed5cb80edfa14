"""A derivative that an author writes in index notation: `"sum[n](grad[n, d])"`, of any kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.formula.derived import UNWRITTEN, as_operator
from pullback.define.formula.draft import Draft, Names, plain
from pullback.define.formula.formula import Formula, is_usable
from pullback.define.formula.index import Affine
from pullback.define.formula.node import Node
from pullback.define.formula.sizes import affine
from pullback.define.index import notation
from pullback.define.line import Arithmetic, Dim, Line, Name, Tensor
from pullback.diagnostic import PullbackError


@dataclass(frozen=True, kw_only=True)
class Words:
    """What the derivatives of one line may name.

    An output's size that is arithmetic, `y[h - p + 1]`, is a dimension with a name of its own here,
    `y[y0]` and `grad[y0]`, which has to have that size.

    Attributes:
        line: what arrives and the parameters -> the outputs.
        sizes: what those dimensions have to be.
        arriving: the names of the gradients or tangents.
        kind: "backward" or "jvp".
    """

    line: Line
    sizes: Mapping[str, Affine]
    arriving: tuple[str, ...]
    kind: str

    def result(self, target: Tensor) -> Tensor:
        """Return what is computed for an input or output."""
        prefix = "grad" if self.kind == "backward" else "tangent"
        own = {value.name: value for value in (*self.line.tensors, *self.line.outputs)}
        return Tensor(
            name=f"{prefix}_{target.name}", dims=own[target.name].dims, dtype=target.dtype
        )

    def of(self, target: Tensor, text: str) -> Line:
        """Return the line of the operator that computes one derivative from all that there is."""
        values = {value.name: value for value in (*self.line.outputs, *self.line.parameters)}
        return replace(
            self.line,
            parameters=tuple(map(plain, values.values())),
            outputs=(self.result(target),),
            formula=text.strip(),
        )


def words_of(line: Line, kind: str, arriving: Sequence[Tensor]) -> Words:
    """Return what the derivatives of a line may name, `arriving` and all that it has itself."""
    names, sizes = Names(line), dict[str, Affine]()
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
    # A parameter that is called as what arrives keeps its name.
    given = {tensor.name: with_names(tensor, tensor.name) for tensor in arriving}
    given |= {value.name: value for value in line.parameters}
    return Words(
        line=Line(
            namespace=line.namespace,
            name=line.name,
            parameters=tuple(plain(value) for value in given.values() if is_usable(value)),
            outputs=outputs,
            formula=UNWRITTEN,
        ),
        sizes=sizes,
        arriving=tuple(tensor.name for tensor in arriving),
        kind=kind,
    )


def operator(words: Words, texts: Mapping[int, tuple[Tensor, str, str]]) -> Formula:
    """Return the operator that computes some derivatives.

    Args:
        words: what they may name.
        texts: by the place of the input or output: it, the formula, and whose it is, for messages.
    """
    nodes = {place: _read(words, *given) for place, given in texts.items()}
    drafted = Draft(
        original=Formula(
            line=words.line,
            elements=(),
            sizes=words.sizes,
            full=frozenset(words.arriving if words.kind == "backward" else ()),
        ),
        kind=words.kind,
        arriving={},
        outputs=tuple(words.result(target) for target, _, _ in texts.values()),
        nodes=nodes,
    )
    made = as_operator(drafted)
    assert made
    return made.formula


def _read(words: Words, target: Tensor, text: str, of: str) -> Node:
    """Return the node of one derivative."""
    line = words.of(target, text)
    try:
        return notation.parse(line, sizes=words.sizes).nodes[0]
    except PullbackError as error:
        message = error.finding.message.replace(line.qualname, of, 1)
        raise PullbackError(replace(error.finding, message=message)) from None
