"""What is between products of matrices, by generated loops: on a GPU.

There each of PyTorch's operations reads a matrix and writes another one, and that is what takes the
time. So what is computed from products becomes a formula of its own, in which these are tensors:
its loops read each of them once. So does a sum of outer differences, a matrix of distances say,
which PyTorch's operations would have in memory. Loops of a CPU compute blocks that stay in a cache
instead (`bind/loops/passes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from pullback.bind.dense import reading, slices
from pullback.bind.dense.value import Value, align, is_traced
from pullback.bind.loops.own_call import LoopCall, lay_out
from pullback.define.dimension import Batch, Name
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math.derived import UNWRITTEN
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, at, is_size
from pullback.define.math.node import (
    INSIDE,
    PLACED,
    READ,
    REDUCTIONS,
    SCALAR,
    SUM,
    Node,
    in_order,
    read,
    rename_index,
)
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.tiles import is_outer

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env, FindLoops

# What a tensor of a formula is called, with its number.
NAME = "__p"
# A product of fewer elements, or a sum of fewer, is not worth a compiler's seconds.
LEAST = 2**22
# Loops may do so many times the work of others where nothing else would be less.
MORE = 16.0
# What a tensor is, and its indices.
Part = tuple[Node, tuple[str, ...]]


class Unfit(Exception):  # noqa: N818  (PyTorch's operations compute it)
    """What is no formula of its own."""


@dataclass(frozen=True)
class Between:
    """A formula of products, and what they are.

    Attributes:
        formula: its tensors are the products, and what else is read.
        indices: of its output.
    """

    formula: Formula
    indices: tuple[str, ...]


def compute(dense: Dense, node: Node, env: Env, dtype: torch.dtype | None = None) -> Value | None:
    """Return a value that is made of what is a matrix; None if loops do not compute it.

    Args:
        dense: the call.
        node: the value.
        env: how far its indices run.
        dtype: of the result; None for that which the call computes in.
    """
    find = dense.call.ways.find_loops
    if find is None or node.type != "real" or not is_between(dense, node):
        return None
    dtype = dtype or dense.call.compute
    kept = {index: own for index, own in env.items() if index in node.free}
    try:
        return compute_at_once(dense, node, kept, dtype, find)
    except (Unfit, slices.TooLarge):
        return None


def compute_at_once(
    dense: Dense, node: Node, kept: Env, dtype: torch.dtype, find: FindLoops
) -> Value | None:
    """Return a value by loops; None if there are none.

    Where they would compute something anew for each of several elements that share it, it is a
    tensor, too.
    """
    sizes = {name: many for name, many in dense.space.sizes.items() if type(many) is int}
    for index in (i for i in kept if name_of(i) != i):
        node = rename_index(node, index, name_of(index))
    # What a pairwise sum multiplies differences by would be computed anew for each of them.
    first = () if is_pairwise(dense, node) else ((False, 1.0),)
    for holds_shared, times in (*first, (True, MORE)):
        env = {name_of(i): own for i, own in kept.items()}
        writer = Writer(dense, node, env, holds_shared)
        if writer.is_scatter(node):
            return None
        element = writer.rewritten()
        tensors = writer.values()
        between = writer.finish(element, tensors, dtype)
        own = find(between.formula, sizes, dense.call.device, times)
        if own is not None and not own.sorters:
            break
    else:
        return None
    given = {spec.name: dense.call.arguments[spec.name] for spec in between.formula.line.scalars}
    found = run_loops(own.prepared(sizes), own.scalars(given), *tensors)
    kept = dict(sorted(kept.items(), key=lambda each: between.indices.index(name_of(each[0]))))
    axes = dense.space.axes(kept)
    return Value(found.reshape([dense.space.length(axis, kept) for axis in axes]), axes)


def name_of(index: str) -> str:
    """Return a name for an index, which in the body of a sum is a number, or an opened one."""
    return f"@{index}" if index.startswith(("#", "~")) else index


def run_loops(call: LoopCall, scalars: tuple[float, ...], *tensors: Tensor) -> Tensor:
    """Return what loops compute, an operation that a call's record knows like one of PyTorch's.

    Args:
        call: the loops for the sizes of a call.
        scalars: those of their line.
        tensors: by the numbers in their names.
    """
    if has_torch_function(tensors):
        given: Any = (call, scalars, *tensors)
        return handle_torch_function(run_loops, tensors, *given)
    inputs = [lay_out(tensors[number_of(operand.name)], operand) for operand in call.inputs]
    [found] = call.run(inputs, scalars, tensors[0].device, lambda: None)
    return found


def number_of(name: str) -> int:
    """Return which tensor of a formula one is."""
    return int(name.removeprefix(NAME))


def is_between(dense: Dense, node: Node) -> bool:
    """Return whether a value is made of products of matrices or pairwise ones, and is none."""
    known = dense.prepared.is_between
    if node not in known:
        inner = in_order([node], lambda part: () if is_matrix(dense, part) else part.args)
        known[node] = not is_matrix(dense, node) and any(
            is_matrix(dense, p) or is_pairwise(dense, p) for p in inner
        )
    return known[node]


def is_pairwise(dense: Dense, node: Node) -> bool:
    """Return whether what a reduction goes through is an outer function: no tensor has it."""
    if node.op not in REDUCTIONS or node.type != "real" or is_matrix(dense, node):
        return False
    if node.op != SUM:
        return is_outer(node.args[0])
    product = dense.program.product(node)
    summed = {index for index, _ in product.bound}
    return any(summed & f.free and is_outer(f) for f in (*product.over, *product.under))


def is_matrix(dense: Dense, node: Node) -> bool:
    """Return whether a node is a product of matrices, which PyTorch's library multiplies."""
    if node.op != SUM or node.type != "real":
        return False
    product = dense.program.product(node)
    summed = {index for index, _ in product.bound}
    return any(
        summed & a.free & b.free and node.free & (a.free - b.free) and node.free & (b.free - a.free)
        for a in product.over
        for b in product.over
    )


def sizes_in(node: Node) -> set[str]:
    """Return the names of the dimensions whose sizes a value depends on."""
    found: set[str] = set()
    for part in in_order([node]):
        places = [*part.places] if part.op in PLACED else []
        places += [part.size] if part.op in (INSIDE, *REDUCTIONS) else []
        terms = (term for place in places for term, _ in place.terms)
        found |= {term.strip("|") for term in terms if isinstance(term, str) and is_size(term)}
    return found


@dataclass
class Writer:
    """Writes the formula of one value.

    Attributes:
        dense: the call.
        root: the value.
        env: how far its indices run.
        holds_shared: whether what some elements of the value share is a tensor, if it is a part of
            what is added up or compared for each of them.
        ranges: of all indices.
        holds_pairs: whether pairwise values are tensors: others are computed of several.
        tensors: what is read, by what it computes: a node's number, and how far its indices run.
    """

    dense: Dense
    root: Node
    env: Env
    holds_shared: bool = False
    tensors: dict[tuple[object, ...], Part] = field(default_factory=dict[tuple[object, ...], Part])

    def __post_init__(self) -> None:
        if any(own in self.dense.space.wholes for own in self.env.values()):
            raise Unfit  # a slice: places in it are counted from where it begins
        self.ranges = Ranges(self.env)
        pairs = (part for part in in_order([self.root]) if is_pairwise(self.dense, part))
        self.holds_pairs = any(not part.free <= self.env.keys() for part in pairs)

    def rewritten(self) -> Node:
        """Return the value as it is made of tensors."""
        [element] = rewrite_nodes([self.root], lambda part: part, self.ranges, self.replaced)
        return element

    def replaced(self, part: Node) -> Node | None:
        """Return the read of what is a tensor; None for what loops compute."""
        picks = part.op in PLACED and any(place.nodes for place in part.places)
        is_read = part.op == READ or picks
        is_held = self.holds_pairs and part is not self.root and is_pairwise(self.dense, part)
        is_operation = is_held or is_matrix(self.dense, part) or self.is_scatter(part)
        if not (is_read or is_operation or (self.holds_shared and self.is_shared(part))):
            return None
        number, names = self.dense.program.identity(part)
        # Of `b[n + m]` either index may come first.
        key = (number, *(self.ranges.size(name) for name in names))
        first = [name for name in names if name == BATCH]
        indices = (*first, *(name for name in names if name != BATCH))
        self.tensors.setdefault(key, (part, indices))
        place = list(self.tensors).index(key)
        return read(f"{NAME}{place}", map(at, indices), part.type)

    def is_shared(self, part: Node) -> bool:
        """Return whether what is within a reduction is the same for several elements."""
        is_within = not part.free <= self.env.keys()
        return is_within and not self.env.keys() <= part.free and is_between(self.dense, part)

    def is_scatter(self, part: Node) -> bool:
        """Return whether a node adds up rows where data says: loops would ask each of them."""
        sizes = {index: self.ranges.size(index) for index in part.free}
        found = self.dense.program.scatter(part, sizes) if part.op == SUM else None
        return found is not None and bool(found.rows)

    def values(self) -> list[Tensor]:
        """Return the tensors, with all batch dimensions as one."""
        found = [self.value(*each) for each in self.tensors.values()]
        of_matrices = [
            tensor.numel()
            for tensor, (part, _) in zip(found, self.tensors.values(), strict=True)
            if part.op != READ
        ]
        if max(of_matrices, default=self.count_summed()) < LEAST or any(map(is_traced, found)):
            raise Unfit
        return found

    def count_summed(self) -> int:
        """Return of how many values the value is, which loops compute from what is read."""
        dense, axes = self.dense, self.dense.space.axes(self.env)
        own = dense.program.product(self.root).bound if self.root.op == SUM else ()
        lengths = [dense.space.length(axis, self.env) for axis in axes]
        return math.prod((*lengths, *(dense.space.extent(size) for _, size in own)))

    def value(self, part: Node, indices: tuple[str, ...]) -> Tensor:
        """Return one tensor."""
        dense = self.dense
        env = {index: dense.program.range(self.ranges.size(index)) for index in indices}
        if part.op == READ and part.type == "real":
            argument: Any = dense.call.arguments[part.name]
            value = reading.read(dense, part, env, dtype=argument.dtype)
        else:
            value = dense.held(part, env)
        axes = dense.space.axes(env)
        shape = [dense.space.length(axis, env) for axis in axes]
        data = align(value._replace(data=dense.numbers.tensor(value.data)), axes).expand(shape)
        if BATCH not in indices:
            return data
        many = len(axes) - len(indices) + 1
        return data.reshape(math.prod(shape[:many]), *shape[many:])

    def finish(self, element: Node, tensors: Sequence[Tensor], dtype: torch.dtype) -> Between:
        """Return the formula; the same one for values that are computed alike."""
        dtypes = tuple(tensor.dtype for tensor in tensors)
        key = (element, dtype, dtypes, self.dense.call.ways.accuracy, *self.env.items())
        known = self.dense.prepared.between
        if key not in known:
            known[key] = self.write(element, dtypes, dtype)
        return known[key]

    def write(self, element: Node, dtypes: Iterable[torch.dtype], dtype: torch.dtype) -> Between:
        """Return the formula."""
        parts = tuple(self.tensors.values())
        names = {part.name for part in in_order([element]) if part.op == SCALAR}
        scalars = [own for own in self.dense.call.line.scalars if own.name in names]
        specs = [
            self.spec(f"{NAME}{k}", [self.label(index) for index in indices], own)
            for k, ((_, indices), own) in enumerate(zip(parts, dtypes, strict=True))
        ]
        # As a matrix has them: one that is read turned is read a line of a cache for each element.
        longest = max((indices for _, indices in parts), key=len, default=())
        after = sorted((i for i in self.env if i != BATCH), key=[*longest, *self.env].index)
        indices = (*(i for i in self.env if i == BATCH), *after)
        labels = self.label_output(indices)
        for k, index in enumerate(indices):  # a name may be that of another one
            element = rename_index(element, index, f"%{k}")
        for k, label in enumerate(labels):
            element = rename_index(element, f"%{k}", label)
        line = Line(
            namespace="pullback",
            name="between",
            parameters=(*specs, *scalars),
            outputs=(self.spec("__out", labels, dtype),),
            formula=UNWRITTEN,
        )
        sizes = {
            label: self.ranges.size(index)
            for label, index in zip(labels, indices, strict=True)
            if label not in (BATCH, self.label(index))
        }
        known = {label for spec in specs for label in spec.labels} | sizes.keys()
        if not sizes_in(element) <= known:
            raise Unfit
        accuracy = self.dense.call.ways.accuracy
        formula = Formula(line=line, elements=(element,), sizes=sizes, accuracy=accuracy)
        return Between(formula, indices)

    def label_output(self, indices: Sequence[str]) -> list[str]:
        """Return names for the indices of the output: of their dimensions, where these differ."""
        free = FreeNames(self.dense.call.line)
        labels: list[str] = []
        for index in indices:
            label = self.label(index)
            labels.append(free.fresh(label) if label in labels else label)
        return labels

    def label(self, index: str) -> str:
        """Return the name of the dimension that an index runs over."""
        own: Affine = self.ranges.size(index)
        if index == BATCH:
            return BATCH
        if own.constant or len(own.terms) != 1:
            raise Unfit
        term, factor = own.terms[0]
        if factor != 1 or not isinstance(term, str) or not is_size(term):
            raise Unfit
        return term.strip("|")

    @staticmethod
    def spec(name: str, labels: Iterable[str], dtype: torch.dtype) -> TensorSpec:
        """Return a tensor of the formula's line."""
        dims = tuple(Batch() if label == BATCH else Name(name=label) for label in labels)
        return TensorSpec(name=name, dims=dims, dtype=str(dtype).removeprefix("torch."))
