"""A formula in index notation by PyTorch's operations, on every device.

A node's value is a tensor with one dimension for each index that the node depends on, so what is
constant along an index is computed once, and broadcast as late as possible. Values are known by
what they compute and not by the names of their indices: the scores of an attention that are summed
over `t` and maximised over `t1` are computed once. Sums of products are contractions
(`contraction`), convolutions (`convolution`) or scatters (`scatter`); the body of a sum or maximum
is computed in slices if it would exceed a bound (`slices`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from pullback.bind.dense import (
    between,
    cases,
    places,
    pointwise,
    reading,
    reductions,
    scatter,
    slices,
)
from pullback.bind.dense.elements import Values, no_division_by_zero
from pullback.bind.dense.prepared import PreparedFormula, prepare_call
from pullback.bind.dense.space import NO_GPU, Env, GpuWays, Space, SpaceCall
from pullback.bind.dense.value import Value, align
from pullback.define.math.cases import Cases
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine
from pullback.define.math.node import NUMBER, Node
from pullback.define.math.program import elementwise
from pullback.define.shape import Size


def evaluate(  # noqa: PLR0913, PLR0917  (all of a call)
    indexed: Formula,
    arguments: Mapping[str, object],
    sizes: Mapping[str, Size],
    wanted: Sequence[bool],
    dtypes: Sequence[torch.dtype],
    device: torch.device,
    *,
    reuse: bool = False,
    is_inside: bool = False,
    spare: frozenset[str] = frozenset(),
    ways: GpuWays = NO_GPU,
) -> list[Tensor | None]:
    """Return the outputs of a formula, None for those that are not wanted.

    Args:
        indexed: the formula.
        arguments: the values of the line's parameters, by name; tensors of the shapes it says.
        sizes: of every name of the line and of every new index.
        wanted: which outputs.
        dtypes: of the outputs.
        device: of the tensors.
        reuse: whether unused memory may be written to again: not where a derivative is recorded.
        is_inside: whether all places that data gives are certainly inside.
        spare: the tensors whose memory nothing else needs.
        ways: how a GPU computes it.

    Raises:
        PullbackError: PB136, a whole number is divided by zero; PB148, a maximum over nothing;
            PB149, an index that data gives is outside its tensor.
    """
    known = prepare_call(indexed, arguments)

    def evaluated(given: Mapping[str, object]) -> list[Tensor | None]:
        floating = [
            v.dtype for v in given.values() if isinstance(v, Tensor) and v.is_floating_point()
        ]
        compute = torch.float64 if torch.float64 in (*floating, *dtypes) else torch.float32
        call = SpaceCall(
            line=indexed.line,
            arguments=given,
            sizes=sizes,
            compute=compute,
            device=device,
            ways=ways,
        )
        dense = Dense(known, call, reuse=reuse, is_inside=is_inside, spare=spare)
        return dense.outputs(wanted, dtypes)

    with no_division_by_zero(indexed.line.called):
        if not reuse:
            return evaluated(arguments)
        # The step of a recurrence may have sizes that none of its tensors has.
        key = (*wanted, *dtypes, device, ways, spare, *sizes.items())
        return known.records.outputs(arguments, key, evaluated)


def require_inside(
    indexed: Formula,
    arguments: Mapping[str, object],
    sizes: Mapping[str, Size],
    outputs: Iterable[int],
    *,
    once_run: bool = False,
) -> None:
    """Stop at an index that data gives and that is outside, where some outputs select it.

    Args:
        indexed: the formula.
        arguments: the values of the line's parameters, by name.
        sizes: of every name of the line and of every new index.
        outputs: which ones.
        once_run: whether a tracer's graph is to stop, with a `RuntimeError` of the same words.

    Raises:
        PullbackError: PB149.
    """
    known = prepare_call(indexed, arguments)
    require = places.require_once_run if once_run else places.require
    gathers = {
        k: [each for each in known.gathers[k] if not places.is_certain(indexed, each)]
        for k in outputs
    }
    if any(gathers.values()):
        dense = open_dense(indexed, known, arguments, sizes)
        for k, own in gathers.items():
            require(dense, own, dense.env_of(k))


def compute_places(
    indexed: Formula,
    arguments: Mapping[str, object],
    sizes: Mapping[str, Size],
    place: Affine,
    env: Env,
) -> Tensor:
    """Return the values of an affine index for all values of some indices, as one dimension."""
    known = prepare_call(indexed, arguments)
    dense = open_dense(indexed, known, arguments, sizes)
    value = places.compute_place(dense, place, env)
    axes = dense.space.axes(env)
    data = align(value._replace(data=dense.numbers.tensor(value.data)), axes)
    return data.expand([dense.space.length(axis, env) for axis in axes]).reshape(-1)


def open_dense(
    indexed: Formula,
    known: PreparedFormula,
    arguments: Mapping[str, object],
    sizes: Mapping[str, Size],
) -> Dense:
    """Return a call of which only whole numbers and conditions are computed."""
    tensors = [value for value in arguments.values() if isinstance(value, Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    call = SpaceCall(
        line=indexed.line,
        arguments=arguments,
        sizes=sizes,
        compute=functools.reduce(
            torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32
        ),
        device=device,
    )
    return Dense(known, call, reuse=False)


class Dense:
    """One call.

    Attributes:
        program: what is known of the nodes.
        bound: how many bytes one value may take.
        reuses: whether unused memory is written to again.
        space: the sizes of the indices.
        memo: values by what they compute, with the names of the indices that they were computed
            with.
        inside: places that data gives and that were seen to be inside.
        is_inside: whether all of them are.
        spare: the tensors whose memory nothing else needs.
        numbers: computes functions of the table, element by element.
    """

    def __init__(
        self,
        known: PreparedFormula,
        call: SpaceCall,
        *,
        reuse: bool,
        is_inside: bool = False,
        spare: frozenset[str] = frozenset(),
    ) -> None:
        self.prepared = known
        self.is_inside, self.spare = is_inside, spare
        self.program = known.program
        self.call = call
        self.space = Space(call)
        self.numbers = Values(call.arguments, call.compute, call.device)
        self.memo: dict[tuple[object, ...], tuple[Value, tuple[str, ...]]] = {}
        self.tensors: dict[str, Tensor] = {}
        self.inside: set[tuple[object, ...]] = set()
        self.bound: int | None = None
        self.may_reuse = reuse
        self.reuses = False

    def outputs(self, wanted: Sequence[bool], dtypes: Sequence[torch.dtype]) -> list[Tensor | None]:
        """Return the outputs."""
        tensors = [v for v in self.call.arguments.values() if isinstance(v, Tensor)]
        bound = slices.bound_of(tensors, self.written(wanted, dtypes), self.call.device)
        taken: set[int] = set()
        found: list[Tensor | None] = [None] * len(wanted)
        for k in (k for k, asked in enumerate(wanted) if asked):
            env = self.env_of(k)
            shape = [self.space.length(axis, env) for axis in self.space.axes(env)]
            if not math.prod(shape):
                # Even a maximum over nothing is no mistake where there is nothing to compute.
                found[k] = torch.empty(shape, dtype=dtypes[k], device=self.call.device)
                continue
            self.bound, self.reuses = None, False
            if not self.is_inside:
                places.require(self, self.prepared.gathers[k], env)
            places.require_values(self, self.prepared.maxima[k], env)
            self.bound, self.reuses = bound, self.may_reuse and bound is not None
            own = self.prepared.cases[k]
            if self.may_reuse and isinstance(own, Cases):
                found[k] = cases.compute_cases(self, own, env, dtypes[k])
                continue
            found[k] = self.finished(self.root(self.prepared.nodes[k], env), env, dtypes[k], taken)
        return found

    def env_of(self, output: int) -> Env:
        """Return the indices of an output."""
        name = self.call.line.outputs[output].name
        return {index: self.program.size(index) for index in self.space.labels[name]}

    def written(self, wanted: Sequence[bool], dtypes: Sequence[torch.dtype]) -> int:
        """Return how many bytes the outputs take."""
        total = 0
        for k, (dtype, asked) in enumerate(zip(dtypes, wanted, strict=True)):
            env = self.env_of(k)
            many = math.prod(self.space.length(axis, env) for axis in self.space.axes(env))
            total += many * dtype.itemsize * asked
        return total

    @contextmanager
    def window(self, whole: Affine, index: str, start: int, extent: int) -> Generator[Affine]:
        """Have an index run over a slice of its range, for which values are dropped afterwards."""
        window = self.space.slice_of(whole, f"{index}@{len(self.space.starts)}", start, extent)
        try:
            yield window
        finally:
            for key in [key for key in self.memo if window in key]:
                del self.memo[key]
            del self.space.starts[window]

    def finished(self, value: Value, env: Env, dtype: torch.dtype, taken: set[int]) -> Tensor:
        """Return an output in memory of its own and of its full size."""
        axes = self.space.axes(env)
        shape = [self.space.length(axis, env) for axis in axes]
        data = value.data
        if not isinstance(data, Tensor):
            return torch.full(shape, data, dtype=dtype, device=self.call.device)
        fresh = value.own and id(data) not in taken
        taken.add(id(data))
        result = align(value, axes)
        if result.dtype != dtype:
            result, fresh = result.to(dtype), True
        if list(result.shape) != shape:
            result = result.expand(shape)
        if fresh:
            return result.contiguous()
        return result.clone(memory_format=torch.contiguous_format)

    def tensor(self, name: str, type: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return a tensor in a dtype, or in that which the call computes in."""
        value = self.given(name)
        if dtype is not None:
            return value.to(dtype)
        if name not in self.tensors:
            dtype = {"real": self.call.compute, "int": torch.int64, "bool": torch.bool}[type]
            self.tensors[name] = value.to(dtype)
        return self.tensors[name]

    def given(self, name: str) -> Tensor:
        """Return a tensor as it was given."""
        value = self.call.arguments[name]
        assert isinstance(value, Tensor)
        return value

    def of(self, root: Node, env: Env) -> Value:
        """Return a node's value; `env` has all of its free indices, the outermost first."""
        if self.program.is_deep:
            self.prepare(root, env)
        return self.one(root, env)

    def held(self, root: Node, env: Env) -> Value:
        """Return a value that stays while others are computed: no other is written to its memory.

        A sum multiplies factors in another order than the formula, so that counting the uses of a
        node in the formula does not say who needs its value later.
        """
        value = self.of(root, env)
        if value.own and self.reuses and root.op != NUMBER:
            key = self.key(root, env)
            kept, names = self.memo[key]
            self.memo[key] = kept._replace(own=False), names
        return value

    def rounded(self, root: Node, env: Env, dtype: torch.dtype) -> Value:
        """Return a value that is multiplied by others of a dtype, in that if loops compute it."""
        key = (*self.key(root, env), dtype)
        if key not in self.memo and (found := between.compute(self, root, env, dtype)) is not None:
            self.memo[key] = found, self.program.identity(root)[1]
        if key not in self.memo:
            return self.held(root, env)
        value, before = self.memo[key]
        now = dict(zip(before, self.program.identity(root)[1], strict=True))
        return value._replace(axes=tuple((now[name], k) for name, k in value.axes))

    def prepare(self, root: Node, env: Env) -> None:
        """Compute operands first, where Python's stack has no room for one in another."""
        left = [root]
        while left:
            node = left[-1]
            operands = () if self.is_known(node, env) else elementwise(node)
            missing = [arg for arg in operands if not self.is_known(arg, env)]
            if missing:
                left += missing
            else:
                self.one(node, env)
                left.pop()

    def root(self, node: Node, env: Env) -> Value:
        """Return an output's value."""
        try:
            return self.held(node, env)
        except slices.TooLarge:
            self.bound = None
            return self.held(node, env)

    def key(self, node: Node, env: Env) -> tuple[object, ...]:
        """Return what a value is known by: what it computes, and how far its indices run."""
        number, names = self.program.identity(node)
        return (number, *[env[name] for name in names])

    def is_known(self, node: Node, env: Env) -> bool:
        """Return whether a node's value has been computed and is still there."""
        return node.op == NUMBER or self.key(node, env) in self.memo

    def one(self, node: Node, env: Env) -> Value:
        """Return the value of a node, whose operands are known if there are many."""
        if node.op == NUMBER:
            return Value(node.data)
        names = self.program.identity(node)[1]
        key = self.key(node, env)
        known = self.memo.get(key)
        if known is None:
            value = self.computed(node, env)
            self.memo[key] = (value, names)
            return value
        value, before = known
        if before == names:
            return value
        now = dict(zip(before, names, strict=True))
        return value._replace(axes=tuple((now[name], k) for name, k in value.axes))

    def taken(self, node: Node, env: Env) -> tuple[Value, bool]:
        """Return an operand's value, and whether nothing else uses it: it is forgotten then."""
        value = self.one(node, env)
        if not self.reuses or node.op == NUMBER or not self.program.is_for_one(node):
            return value, False
        del self.memo[self.key(node, env)]
        return value, True

    def computed(self, node: Node, env: Env) -> Value:  # noqa: PLR0911  (one a kind)
        """Return a node's value from those of its operands."""
        for compute in (scatter.add_into, between.compute):
            if (found := compute(self, node, env)) is not None:
                return found
        match node.op:
            case "read":
                return reading.read(self, node, env)
            case "index":
                return places.compute_place(self, node.places[0], env)
            case "inside":
                return places.compute_inside(self, node, env)
            case "equal":
                place = places.compute_place(self, node.places[0], env)
                return Value(place.data == 0, place.axes)
            case "sum":
                return slices.reduce_bounded(self, node, env, reductions.compute_sum)
            case "max" | "argmax":
                return slices.reduce_bounded(self, node, env, reductions.compute_max)
            case "div" if (weights := reductions.compute_softmax(self, node, env)) is not None:
                return weights
            case _:
                taken = [self.taken(arg, env) for arg in node.args]
                args, free = [value for value, _ in taken], [unused for _, unused in taken]
                return pointwise.compute_function(self, node, args, free, env)
