"""A line and its mathematics: what each output's element is, and how far its indices run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pullback.define.dimension import Batch, Dim, Name, Number
from pullback.define.line import DTYPES, Line, Scalar, Tensor
from pullback.define.math import build
from pullback.define.math.index import Affine, at, size
from pullback.define.math.language import FormulaOutputs
from pullback.define.math.node import READ, SUM, Node, Type, close, in_order, read, scalar
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State
from pullback.define.math.sizes import arithmetic, find_counts
from pullback.diagnostic import Rule

FormulaDimensions = Rule("PB138", "formula-dimensions")
FormulaDtype = Rule("PB139", "formula-dtype")

WHOLE = ("int64", "int32", "int16", "int8", "uint8")
SCALAR_TYPES: dict[str, Type] = {"int": "int", "float": "real", "bool": "bool"}


@dataclass(frozen=True, kw_only=True)
class Formula:
    """The mathematics of one operator.

    Attributes:
        line: what it is the formula of.
        elements: one for each output: its element at the output's indices, `output.labels`; of a
            pointwise formula anywhere in the space.
        sizes: how far an index runs whose name is no dimension of an input, or is one that has to
            have this size: in `correlate(x[h, w], k[p, q]) -> y[i, j]`, i is |h| - |p| + 1.
        groups: the states that elements read, in the order in which they are computed. An output
            that is a state is a read of it.
        dims: of a pointwise formula the dimensions that the elements are computed over: its space.
            An output that lacks one of them is summed over it.
        accuracy: the largest error of one function, in units of the last place.
        full: the inputs that certainly have all batch dimensions, or in a pointwise formula the
            shape of the space, as what arrives in a backward does.
    """

    line: Line
    elements: tuple[Node, ...]
    sizes: Mapping[str, Affine] = field(default_factory=dict[str, Affine], hash=False)
    groups: tuple[Group, ...] = ()
    dims: tuple[Dim, ...] | None = None
    accuracy: int = 4
    full: frozenset[str] = frozenset()

    @cached_property
    def _hash(self) -> int:
        return hash((self.line, self.elements, self.groups, self.dims, self.accuracy, self.full))

    def __hash__(self) -> int:
        """Hash it once: what is worked out for a formula is looked up in every call."""
        return self._hash

    @property
    def pointwise(self) -> bool:
        """Whether no index is written in it: tensors' names stand for their elements."""
        return self.dims is not None

    @cached_property
    def space(self) -> Tensor:
        """The dimensions that a pointwise formula is computed over, as those of a tensor."""
        assert self.dims is not None
        return Tensor(name="space", dims=self.dims)

    @property
    def ranges(self) -> Ranges:
        """How far the indices of the outputs run."""
        return Ranges(self.sizes)

    @cached_property
    def sums(self) -> tuple[tuple[str, ...], ...]:
        """The indices over which each output of a pointwise formula is summed."""
        return tuple(
            tuple(index for index in self.space.labels if index not in output.labels)
            for output in self.line.outputs
        )

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Each output at its own indices: summed over the dimensions of the space that it lacks."""
        return tuple(map(_sum_over, self.elements, self.sums)) if self.pointwise else self.elements

    @cached_property
    def states(self) -> dict[str, State]:
        """Its states by their names."""
        return {state.name: state for group in self.groups for state in group.states}

    def with_states(self, group: Group, states: Iterable[State]) -> tuple[Formula, Group]:
        """Return the formula, and one of its groups, whose states are now these."""
        made = replace(group, states=tuple(states))
        return replace(self, groups=tuple(made if g == group else g for g in self.groups)), made

    @cached_property
    def counts(self) -> tuple[str, ...]:
        """The int scalars that say how far an index runs."""
        states = self.states.values()
        sizes = [*self.sizes.values(), *(extent for state in states for extent in state.extents)]
        steps = [state.node for state in states]
        return () if self.pointwise else find_counts(self.line, [*self.nodes, *steps], sizes)

    @cached_property
    def layout(self) -> tuple[tuple[str, ...], ...]:
        """The names of its parameters and outputs, in their order, each with its indices.

        Operators with the same nodes compute different things if their parameters, or dimensions,
        come in a different order.
        """
        parameters, outputs = self.line.parameters, self.line.outputs
        return tuple(
            (value.name, *(value.labels if isinstance(value, Tensor) else ()))
            for value in (*parameters, *outputs)
        )

    @cached_property
    def shaped(self) -> Line:
        """The line with sizes in place of new indices: `y[h - p + 1, w - q + 1]`."""
        known = self.line.dimensions
        return replace(
            self.line,
            outputs=tuple(
                replace(o, dims=tuple(self._sized(dim, known) for dim in o.dims))
                for o in self.line.outputs
            ),
        )

    def _sized(self, dim: Dim, known: tuple[str, ...]) -> Dim:
        if isinstance(dim, Name) and dim.name not in known and dim.name in self.sizes:
            return arithmetic(self.sizes[dim.name])
        return dim


def _sum_over(element: Node, indices: Sequence[str]) -> Node:
    """Return a sum over several indices, with nothing moved out of it."""
    for index in reversed(indices):
        element = close(SUM, index, size(index), element)
    return element


def of_nodes(line: Line, nodes: list[Node], accuracy: int = 4) -> Formula:
    """Return the pointwise formula of a line whose outputs are these nodes."""
    if line.changed:
        raise FormulaOutputs.error(
            f"{line.qualname}: '{line.changed[0]}' is an input and an output, and a formula "
            "changes nothing in place",
            help="give the output a name of its own",
        )
    for output, node in zip(line.outputs, nodes, strict=True):
        require_dimensions(line, output, node)
    values = [convert_to_output(line, place, node) for place, node in enumerate(nodes)]
    shapes = {output.labels for output in line.outputs}
    if len(shapes) > 1:
        shown = ", ".join(str(output) for output in line.outputs)
        raise FormulaDimensions.error(
            f"{line.qualname}: the outputs of one formula have the same dimensions: {shown}",
            help="make it two operators",
        )
    dims = line.outputs[0].dims
    return Formula(line=line, elements=tuple(values), dims=dims, accuracy=accuracy)


def names_of(parameters: Iterable[Tensor | Scalar], of: str) -> dict[str, Node]:
    """Return what a formula may name: tensors, element by element, and scalars.

    Args:
        parameters: of a line.
        of: whose formula it is, for messages.
    """
    names: dict[str, Node] = {}
    for parameter in parameters:
        if not isinstance(parameter, Scalar):
            names[parameter.name] = element(parameter, of)
        elif parameter.type in SCALAR_TYPES and not parameter.optional:
            names[parameter.name] = scalar(parameter.name, SCALAR_TYPES[parameter.type])
        else:
            raise FormulaDtype.error(
                f"{of}: a formula cannot use '{parameter}'",
                help="its scalars are int, float and bool, and always given",
            )
    return names


def is_usable(value: Tensor | Scalar) -> bool:
    """Return whether a formula can use a parameter at all."""
    if isinstance(value, Scalar):
        return value.type in SCALAR_TYPES and not value.optional
    plain = all(isinstance(dim, Batch | Name | Number) for dim in value.dims)
    return plain and not value.many and "complex" not in (value.dtype or "")


def element(tensor: Tensor, of: str) -> Node:
    """Return the node of a tensor's element."""
    plain = all(isinstance(dim, Batch | Name | Number) for dim in tensor.dims)
    if tensor.many or not plain:
        raise FormulaDimensions.error(
            f"{of}: a formula cannot use '{tensor}'",
            help="its tensors have named dimensions, '...' or both",
        )
    return read(tensor.name, map(at, tensor.labels), type_of(tensor, of))


def type_of(tensor: Tensor, of: str) -> Type:
    """Return the type of a tensor's elements."""
    if tensor.dtype is not None and "complex" in tensor.dtype:
        raise FormulaDtype.error(
            f"{of}: '{tensor.name}' is {tensor.dtype}, and formulas are of real numbers",
            help="view it as real numbers: torch.view_as_real",
        )
    if tensor.dtype in WHOLE:
        return "int"
    return "bool" if tensor.dtype == "bool" else "real"


def require_real(line: Line, dtype: str) -> None:
    """Stop at a dtype that no formula computes in; a line does not say what its shared one is."""
    if "complex" in dtype:
        raise FormulaDtype.error(
            f"{line.called}: its tensors are {dtype}, and formulas are of real numbers",
            help="view them as real numbers: torch.view_as_real",
        )
    if dtype not in DTYPES:
        raise FormulaDtype.error(
            f"{line.called}: its tensors are {dtype}, which formulas do not compute in",
            help="convert them: .to(torch.float32)",
        )


def convert_to_output(line: Line, place: int, node: Node) -> Node:
    """Return an output's value in the type that the line gives it."""
    output = line.outputs[place]
    require_dtype(line, output, node)
    return build.to_real(node) if type_of(output, line.qualname) == "real" else node


def strip_conversion(node: Node) -> Node:
    """Return an output's value as it is written: a whole number becomes real by itself."""
    return node.args[0] if node.op == "real" and node.args[0].type == "int" else node


def require_dtype(line: Line, output: Tensor, node: Node) -> None:
    """Stop at a condition for a floating output, and at a number for a bool one."""
    type = type_of(output, line.qualname)
    if type == node.type or (type == "real" and node.type == "int"):
        return
    kind = {"bool": "a condition", "int": "a whole number", "real": "a real number"}[node.type]
    cure = (
        f"write float(...) in the formula, or {output.name}[...]: bool in the line"
        if node.type == "bool"
        else f"write '{output.name}' without ': {output.dtype}'"
        if node.type == "real"
        else f"write {output.name}[...]: int64 in the line"
    )
    raise FormulaDtype.error(f"{line.qualname}: '{output}' is given {kind}", help=cure)


def require_dimensions(line: Line, output: Tensor, node: Node) -> None:
    """Stop unless an output has every dimension that its formula depends on."""
    own = output.labels
    known = {label for tensor in line.tensors for label in tensor.labels}
    for index in own:
        if index not in known:
            raise FormulaDimensions.error(
                f"{line.qualname}: no input has the dimension '{index}' of '{output}'"
            )
    doubled = {index.rstrip("'") for index in own if index.endswith("'")}
    read_names = {leaf.name for leaf in in_order([node]) if leaf.op == READ}
    for tensor in line.tensors:
        indices = set(tensor.labels)
        if tensor.name not in read_names or indices == set(own):
            continue
        for index in sorted(indices - set(own)):
            raise FormulaDimensions.error(
                f"{line.qualname}: '{output}' lacks the dimension '{index}' of '{tensor}'",
                help=f"give the output the dimension, or sum over it: sum[{index}](...)",
            )
        for name in sorted(doubled & {index.rstrip("'") for index in indices}):
            raise FormulaDimensions.error(
                f"{line.qualname}: which '{name}' of '{output}' is that of '{tensor}'?",
                help="give the two dimensions two names",
            )
