"""Statistics of several processes, each of its own part of a dimension, become those of the whole.

`define/math/merging.py` says which formulas each process computes, and what is merged of them. All
is O(rows): what is long stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pullback.bind import kernel
from pullback.bind.dense.evaluate import require_inside
from pullback.bind.dense.value import is_traced
from pullback.define.line import Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math import extents
from pullback.define.math.formula import Formula
from pullback.define.math.merging import Level, Merging, Wave, of_part
from pullback.define.operator import Definition
from pullback.define.sharding import Shard

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from pullback.bind.operator import Operator

# A place that is behind all others.
LAST = 2**63 - 1
NOTHING = {"max": -math.inf, "sum": 0.0, "min": LAST}
Values = dict[str, object]
# The operators of formulas, by these and the dtype of statistics.
Known = dict[tuple[int, str], "Operator"]


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one process has of the dimension that is split.

    Attributes:
        mesh: the processes.
        along: the dimensions of the mesh along which it is split.
        first: the number of its first element.
        many: how many elements it has.
        every: how many there are in all.
    """

    mesh: DeviceMesh
    along: tuple[int, ...]
    first: int
    many: int
    every: int

    def reduce(self, values: Sequence[Tensor], by: str) -> list[Tensor]:
        """Return the sums or maxima over all processes, in one message."""
        from torch.distributed.tensor import DTensor, Partial, Replicate  # noqa: PLC0415

        if not values:
            return []
        whole = [Replicate()] * self.mesh.ndim
        parts = [Partial(by) if k in self.along else Replicate() for k in range(self.mesh.ndim)]
        flat = torch.cat([value.reshape(-1) for value in values])
        merged = DTensor.from_local(flat, self.mesh, parts, run_check=False)
        merged = merged.redistribute(self.mesh, whole).to_local()
        pieces = merged.split([value.numel() for value in values])
        return [own.reshape(value.shape) for own, value in zip(pieces, values, strict=True)]


def with_dtype(formula: Formula, names: Collection[str], dtype: str) -> Formula:
    """Return a formula whose statistics have a dtype: of half precision they have float32."""

    def typed(value: TensorSpec | Scalar) -> TensorSpec | Scalar:
        is_open = isinstance(value, TensorSpec) and value.name in names and value.dtype is None
        return replace(value, dtype=dtype) if is_open else value

    line = formula.line
    outputs = tuple(typed(output) for output in line.outputs)
    parameters = tuple(map(typed, line.parameters))
    return replace(formula, line=replace(line, parameters=parameters, outputs=outputs))


def same(x: Tensor, y: Tensor) -> Tensor:
    """Return where two values are the same, NaN among them."""
    return (x == y) | (x.isnan() & y.isnan())


class Merger:
    """One call in one process.

    Attributes:
        values: the tensors of this process, the scalars, and statistics as they become complete.
        known: the operators of formulas.
    """

    def __init__(
        self,
        merging: Merging,
        share: Share,
        values: Mapping[str, object],
        operator_of: Callable[[Formula], Operator],
        known: Known,
    ) -> None:
        self.merging = merging
        self.share = share
        self.operator_of = operator_of
        self.known = known
        self.values: Values = {**values, merging.first: share.first, merging.every: share.every}
        tensors = [value for value in values.values() if isinstance(value, Tensor)]
        self.is_traced = any(map(is_traced, tensors))
        is_double = any(tensor.dtype == torch.float64 for tensor in tensors)
        self.dtype = "float64" if is_double else "float32"

    def run(self) -> list[Tensor]:
        """Return this process's outputs."""
        for level in self.merging.levels:
            if not (level.own and not self.is_traced and self.exchange(level, level.own)):
                for wave in level.waves:
                    self.values |= self.merged(wave, self.computed(wave.direct))
        operator, given = self.prepared(self.merging.rest)
        results = operator(*given)
        return list(results) if isinstance(results, tuple) else [results]

    def exchange(self, level: Level, own: Formula) -> bool:
        """Complete the statistics of a pass from those of each part alone.

        Return False where that is not what the line says: a maximum may be infinite, or of nothing.
        """
        parts = self.computed(own)
        known = dict(self.values)
        self.values |= {of_part(name): value for name, value in parts.items()}
        for wave in level.waves:
            found = {name: parts[name] for name in wave.statistics}
            if wave.rescaled:
                found |= self.computed(wave.rescaled, is_whole=True)
            self.values |= self.merged(wave, found)
        complete = {name: cast("Tensor", self.values[name]) for name in parts}
        is_regular = all(bool(value.isfinite().all()) for value in complete.values())
        # Something else stood for a sum of nothing in those that depend on it.
        read = [n for wave in level.waves[:-1] for n, by in wave.statistics.items() if by == "sum"]
        is_regular = is_regular and all(bool(complete[name].all()) for name in read)
        if not is_regular:
            self.values = known
        return is_regular

    def computed(self, formula: Formula, *, is_whole: bool = False) -> dict[str, Tensor]:
        """Return statistics of this process's part, by name: of nothing, if it is empty.

        Args:
            formula: of statistics.
            is_whole: whether it reads none of what is split.
        """
        operator, given = self.prepared(formula)
        names = [output.name for output in formula.line.outputs]
        if self.share.many or is_whole:
            results = operator(*given)
            values = list(results) if isinstance(results, tuple) else [results]
        else:
            outputs = kernel.outputs_of(operator.definition, given)
            values = [
                torch.full(shape, self.nothing(name), dtype=dtype, device=outputs.device)
                for name, shape, dtype in zip(names, outputs.shapes, outputs.dtypes, strict=True)
            ]
        return dict(zip(names, values, strict=True))

    def nothing(self, name: str) -> float:
        """Return a statistic of nothing."""
        waves = (wave for level in self.merging.levels for wave in level.waves)
        return next(NOTHING[w.statistics[name]] for w in waves if name in w.statistics)

    def merged(self, wave: Wave, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return statistics of all processes.

        A maximum over processes may lose a NaN, while 0 + NaN keeps it. A place counts where the
        process has the maximum.
        """
        maxima = {name: parts[name] for name, by in wave.statistics.items() if by == "max"}
        sums = {name: parts[name] for name, by in wave.statistics.items() if by == "sum"}
        lost = [torch.zeros_like(v).masked_fill(v.isnan(), math.nan) for v in maxima.values()]
        greatest = self.share.reduce([*maxima.values()], "max")
        added = self.share.reduce([*sums.values(), *lost], "sum")
        marked = [v + mark for v, mark in zip(greatest, added[len(sums) :], strict=True)]
        found = dict(zip((*sums, *maxima), (*added[: len(sums)], *marked), strict=True))
        counting = [
            parts[place].where(same(parts[most], found[most]), LAST)
            for place, most in wave.places.items()
        ]
        return found | dict(zip(wave.places, self.share.reduce(counting, "min"), strict=True))

    def prepared(self, formula: Formula) -> tuple[Operator, tuple[object, ...]]:
        """Return the operator of a formula, and its arguments."""
        key = (id(formula), self.dtype)
        if key not in self.known:
            typed = with_dtype(formula, self.merging.names, self.dtype)
            self.known[key] = self.operator_of(typed)
        operator = self.known[key]
        return operator, tuple(self.values[p.name] for p in operator.line.parameters)

    def require_inside(self, definition: Definition, wanted: Sequence[bool]) -> None:
        """Stop at an index that data gives and that is in no process's part.

        Args:
            definition: of the operator.
            wanted: which outputs.

        Raises:
            PullbackError: PB149.
        """
        given = tuple(self.whole(p) for p in definition.line.parameters)
        assert definition.formula
        outputs = kernel.outputs_of(definition, given)
        sizes = extents.sizes_of_call(definition.formula, outputs.sizes)
        named = dict(zip((p.name for p in definition.line.parameters), given, strict=True))
        asked = [k for k, is_wanted in enumerate(wanted) if is_wanted]
        require_inside(definition.formula, named, sizes, asked, once_run=self.is_traced)

    def whole(self, parameter: TensorSpec | Scalar) -> object:
        """Return an argument; of a tensor that is split, one of its whole shape."""
        value = self.values[parameter.name]
        placed = self.merging.inputs.get(parameter.name)
        if not isinstance(value, Tensor) or not isinstance(placed, Shard):
            return value
        shape = list(value.shape)
        shape[placed.dim] = self.share.every
        return value.new_zeros(()).expand(shape)
