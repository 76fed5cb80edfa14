"""A call with DTensors -> what every process gets and computes, so that the least is moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from pullback.bind.kernel import Outputs, unwrap_single
from pullback.bind.merge import Known, Share
from pullback.define import sharding
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math import cost, extents
from pullback.define.math.index import BATCH
from pullback.define.math.merging import MergedPlacements, Merging
from pullback.define.sharding import Placements

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

# How many times a tensor's bytes are moved to change one kind of placement to another.
MOVES = {
    ("shard", "replicate"): 1,
    ("shard", "shard"): 1,  # of another dimension
    ("shard", "partial"): 1,  # every process has it, then all but the first forget it
    ("partial", "replicate"): 2,
    ("partial", "shard"): 1,
    ("partial", "partial"): 2,  # another kind
}
# While a byte is moved so many operations are done: by few threads and a network, or by a GPU and
# the links between several.
OPERATIONS = 100


@dataclass(frozen=True)
class SplitWay:
    """One way to split a call along one dimension of the mesh.

    Attributes:
        split: what is split; ways of the same name split the same dimension further.
        inputs: by name.
        outputs: in order.
        size: of the dimension that is split; None if none is.
        merging: what processes merge; None if each computes its part alone.
    """

    split: str
    inputs: Mapping[str, Placement]
    outputs: tuple[Placement, ...]
    size: int | None = None
    merging: Merging | None = None

    @property
    def needs_elements(self) -> bool:
        """Whether every process needs a part: a maximum of nothing is an error."""
        return any(map(_is_extreme, self.outputs))


@dataclass(frozen=True, kw_only=True)
class Redistribution:
    """What one call moves and computes.

    Attributes:
        mesh: the processes.
        moved: the placements to which each input is redistributed.
        once: for each input the mesh dimensions along which only the first process keeps it.
        made: the placements of the outputs as they are computed.
        outputs: what the line says of the whole outputs.
        merging: what processes merge; None if each computes its part alone.
        share: what this process has of what is split then.
        operators: of what is computed then, as `bind/merge.py` keeps them.
    """

    mesh: DeviceMesh
    moved: Mapping[str, tuple[Placement, ...]]
    once: Mapping[str, tuple[int, ...]]
    made: Sequence[tuple[Placement, ...]]
    outputs: Outputs
    merging: Merging | None = None
    share: Share | None = None
    operators: Known = field(default_factory=Known)

    def gradients(self, name: str) -> list[Placement]:
        """Return the placements of the gradient that processes compute for an input.

        Where all have the whole input and each computes a part of an output, it is a partial sum.
        """
        split = [any(p.is_shard() for p in along) for along in zip(*self.made, strict=True)]
        partial = _placement(sharding.Partial(), 0)
        return [
            partial if is_split and placement.is_replicate() else placement
            for placement, is_split in zip(self.moved[name], split, strict=True)
        ]

    def wrapped(self, results: object) -> object:
        """Return this process's results as parts of whole outputs."""
        if len(self.made) == 1:
            return self.whole(0, results)
        return tuple(map(self.whole, range(len(self.made)), cast("Sequence[object]", results)))

    def whole(self, place: int, result: object) -> object:
        """Return the output that a result is this process's part of."""
        if result is None:
            return None
        local, placements = cast("Tensor", result), self.made[place]
        output = self.part(place, local, placements)
        finished = [_finish_maximum(placement) for placement in placements]
        if finished == list(placements):
            return output
        # Now: a maximum over processes may lose a NaN, while 0 + NaN keeps it.
        greatest = output.redistribute(self.mesh, finished)
        if not local.is_floating_point():
            return greatest
        lost = torch.zeros_like(local).masked_fill_(local.isnan(), torch.nan)
        kinds = [_placement(sharding.Partial(), 0) if _is_extreme(p) else p for p in placements]
        return greatest + self.part(place, lost, kinds).redistribute(self.mesh, finished)

    def part(self, place: int, local: Tensor, placements: Sequence[Placement]) -> DTensor:
        """Return an output of which this process has a part."""
        from torch.distributed.tensor import DTensor  # noqa: PLC0415  (it is imported by now)

        return DTensor.from_local(
            local,
            self.mesh,
            placements,
            run_check=False,
            shape=torch.Size(self.outputs.shapes[place]),
            stride=self.outputs.strides[place],
        )

    def without(self) -> object:
        """Return the outputs in a process that is not in the mesh: it has no part of them."""
        values = zip(self.outputs.shapes, self.outputs.dtypes, self.outputs.wanted, strict=True)
        results = [
            torch.empty([0] * len(shape), dtype=dtype, device=self.outputs.device)
            if wanted
            else None
            for shape, dtype, wanted in values
        ]
        return self.wrapped(unwrap_single(results))


def ways_of(
    rules: Sequence[Placements], outputs: Outputs, tensors: Mapping[str, DTensor]
) -> list[SplitWay]:
    """Return the ways to split a call: not at all, and one for each rule."""
    from torch.distributed.tensor import Replicate  # noqa: PLC0415  (it is imported by now)

    everything = SplitWay(
        "", dict.fromkeys(tensors, Replicate()), (Replicate(),) * len(outputs.shapes)
    )
    found = [everything]
    for rule in rules:
        if rule.split == BATCH:
            batch = outputs.sizes.batch
            found += [
                _make_way(rule, outputs, tensors, k)
                for k in range(len(batch))
                if batch[-1 - k] != 1
            ]
        else:
            found.append(_make_way(rule, outputs, tensors, 0))
    return found


def _make_way(
    rule: Placements, outputs: Outputs, tensors: Mapping[str, DTensor], batch: int
) -> SplitWay:
    """Apply a rule to tensors of known shapes.

    Args:
        rule: of the operator.
        outputs: what the line says of the outputs.
        tensors: the inputs.
        batch: which batch dimension is split, if any; 0 is the last.
    """
    line = outputs.definition.line
    is_batch = rule.split == BATCH
    size: int | None = None
    inputs: dict[str, Placement] = {}
    for spec in line.tensors:
        if spec.name not in tensors:
            continue
        shape = tensors[spec.name].shape
        own = rule.inputs[spec.name]
        if is_batch and isinstance(own, sharding.Shard):
            own = _batch_part(own, spec, shape, outputs.sizes.batch, batch)
        inputs[spec.name] = _placement(own, len(shape))
        if isinstance(own, sharding.Shard):
            size = shape[own.dim]
    made = tuple(
        _placement(
            sharding.Shard(own.dim - batch)
            if is_batch and isinstance(own, sharding.Shard)
            else own,
            len(shape),
        )
        for own, shape in zip(rule.outputs, outputs.shapes, strict=True)
    )
    merging = rule.merging if isinstance(rule, MergedPlacements) else None
    return SplitWay(f"{rule.split} {batch}", inputs, made, size, merging)


def _batch_part(
    part: sharding.Shard,
    spec: TensorSpec,
    shape: Sequence[int],
    batch: Sequence[int],
    place: int,
) -> sharding.Placement:
    """Return what a process has of a tensor that is split along one batch dimension.

    All of it, if the tensor lacks the dimension or has it with size 1: it broadcasts.
    """
    own = len(shape) - len(spec.before) - len(spec.after)
    dim = part.dim - place
    if place >= own or shape[dim] != batch[-1 - place]:
        return sharding.Replicate()
    return sharding.Shard(dim)


def _placement(placement: sharding.Placement, rank: int) -> Placement:
    """Return PyTorch's placement for a tensor of this rank."""
    from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: PLC0415

    if isinstance(placement, sharding.Shard):
        return Shard(placement.dim % rank)
    return Partial(placement.by) if isinstance(placement, sharding.Partial) else Replicate()


def _is_extreme(placement: Placement) -> bool:
    """Return whether the processes have parts of a maximum or minimum."""
    return getattr(placement, "reduce_op", None) in ("max", "min")


def _finish_maximum(placement: Placement) -> Placement:
    """Return the placement once its maximum or minimum is taken."""
    return _placement(sharding.Replicate(), 0) if _is_extreme(placement) else placement


def plan_of(
    ways: Sequence[SplitWay], outputs: Outputs, tensors: Mapping[str, DTensor]
) -> Redistribution:
    """Choose the way that moves the least for each dimension of the mesh, as DTensor does."""
    mesh: DeviceMesh = next(iter(tensors.values())).device_mesh
    chosen = [
        min(ways, key=lambda way, dim=dim: _price(way, dim, outputs, tensors))
        for dim in range(mesh.ndim)
    ]
    chosen = _reconcile(chosen, ways[0], mesh)
    moved: dict[str, tuple[Placement, ...]] = {}
    once: dict[str, tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        targets = [way.inputs[name] for way in chosen]
        kept = [dim for dim, target in enumerate(targets) if _is_new_partial(tensor, dim, target)]
        moved[name] = tuple(
            ways[0].inputs[name] if dim in kept else target for dim, target in enumerate(targets)
        )
        once[name] = tuple(kept)
    made = [tuple(way.outputs[k] for way in chosen) for k in range(len(outputs.shapes))]
    merges = [dim for dim, way in enumerate(chosen) if way.merging]
    first = chosen[merges[0]] if merges else None
    return Redistribution(
        mesh=mesh,
        moved=moved,
        once=once,
        made=made,
        outputs=outputs,
        merging=first and first.merging,
        share=first and _share_of(mesh, merges, cast("int", first.size)),
    )


def _share_of(mesh: DeviceMesh, along: Sequence[int], size: int) -> Share:
    """Return what this process has of a dimension that is split along dimensions of the mesh."""
    first, many, place = 0, size, mesh.get_coordinate() or [0] * mesh.ndim
    for dim in along:
        parts = _parts(many, [mesh.size(dim)])
        first, many = first + sum(parts[: place[dim]]), parts[place[dim]]
    return Share(mesh=mesh, along=(*along,), first=first, many=many, every=size)


def _is_new_partial(tensor: DTensor, dim: int, target: Placement) -> bool:
    """Return whether a tensor has to become a partial sum, which redistribution cannot do."""
    return target.is_partial() and tensor.placements[dim] != target


def _price(
    way: SplitWay, dim: int, outputs: Outputs, tensors: Mapping[str, DTensor]
) -> tuple[bool, float, int]:
    """Return what a way costs along a dimension of the mesh, to be compared with others.

    First comes whether anything has to be moved; then how much, with what adding up partial results
    and merging statistics will take, and what a process computes; then how many tensors change at
    all.
    """
    inputs = changed = 0
    for name, tensor in tensors.items():
        old, new = tensor.placements[dim], way.inputs[name]
        if old != new:
            changed += 1
            inputs += MOVES.get((_kind(old), _kind(new)), 0) * tensor.numel() * tensor.itemsize
    if way.merging:
        inputs += _count_merged(way.merging, outputs)
    if not inputs:
        return False, 0, changed
    sums = (
        math.prod(shape) * dtype.itemsize * MOVES["partial", "replicate"]
        for shape, dtype, made in zip(outputs.shapes, outputs.dtypes, way.outputs, strict=True)
        if made.is_partial()
    )
    mesh = next(iter(tensors.values())).device_mesh
    work = _count_operations(way, mesh.size(dim), outputs)
    return True, inputs + sum(sums) + work / OPERATIONS, changed


def _count_operations(way: SplitWay, processes: int, outputs: Outputs) -> float:
    """Return the operations of one process in index notation; of others nothing is known."""
    formula = outputs.definition.formula
    if formula is None or formula.pointwise:
        return 0.0
    sizes = extents.sizes_of_call(formula, outputs.sizes)
    if any(type(size) is not int for size in sizes.values()):
        return 0.0  # while it is traced with sizes that are symbols
    name, _, _ = way.split.rpartition(" ")
    if name in sizes:
        sizes = {**sizes, name: -(-sizes[name] // processes)}
    return cost.cost(formula, sizes, outputs.wanted).flops


def _count_merged(merging: Merging, outputs: Outputs) -> int:
    """Return the bytes of the statistics that processes merge.

    They go there and back. But inputs that are moved are held, too, which is as dear.
    """
    formula = outputs.definition.formula
    assert formula
    sizes = extents.sizes_of_call(formula, outputs.sizes)
    itemsize = max(4, *(dtype.itemsize for dtype in outputs.dtypes))
    made = (output for wave in merging.waves for output in wave.direct.line.outputs)
    return itemsize * sum(math.prod(sizes[label] for label in own.labels) for own in made)


def _kind(placement: Placement) -> str:
    if placement.is_partial():
        return "partial"
    return "replicate" if placement.is_replicate() else "shard"


def _reconcile(chosen: list[SplitWay], everything: SplitWay, mesh: DeviceMesh) -> list[SplitWay]:
    """Replace the ways that do not go together."""
    allowed = list(chosen)
    for dim, way in enumerate(chosen):
        same = [k for k, other in enumerate(chosen) if other.split == way.split]
        if way.needs_elements and 0 in _parts(cast("int", way.size), [mesh.size(k) for k in same]):
            allowed[dim] = everything
    merging = next((way.split for way in allowed if way.merging), None)
    for dim, way in enumerate(allowed):
        if way.merging and way.split != merging:  # statistics of parts of two dimensions
            allowed[dim] = everything
    for dim in range(1, len(allowed)):
        for place in range(len(everything.outputs)):
            kinds = {
                cast("Any", way.outputs[place]).reduce_op
                for way in allowed[: dim + 1]
                if way.outputs[place].is_partial()
            }
            if len(kinds) > 1:  # the maximum of sums is not the sum of maxima
                allowed[dim] = everything
    return allowed


def _parts(size: int, processes: Sequence[int]) -> list[int]:
    """Return the sizes of the parts of a dimension that is split once or several times."""
    if not processes:
        return [size]
    first, *others = processes
    most = -(-size // first)
    sizes = [min(most, max(size - most * k, 0)) for k in range(first)]
    return [part for size in sizes for part in _parts(size, others)]
