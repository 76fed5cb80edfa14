"""The loops of blocks of rows and columns on the CPU, between products of matrices: compiled.

A loop is written for one kind of blocks of a pass: `define/math/looped.py` says what it computes.
It may write over what it reads.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from pullback.bind import native
from pullback.bind.loops.backends import CpuBackend, count_lanes, find_backend, plan_kernels
from pullback.bind.loops.compiled import compile_with_headers
from pullback.define.math.looped_block import BlockValue, LoopedBlock
from pullback.define.math.node import READ, in_order, may_divide_by_zero
from pullback.kernels import compile as compilation
from pullback.kernels.loops import cpu
from pullback.kernels.loops.cpu import Cpu
from pullback.kernels.loops.kernel import write_kernel
from pullback.kernels.loops.nest import KernelSetting, KernelText, Nest, Output
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import NAME


@dataclass(frozen=True, eq=False)
class BlockLoops:
    """The compiled loops of some blocks.

    Attributes:
        kernels: of each block, in order.
        addresses: of these.
        lanes: how many elements a statement of theirs computes.
    """

    kernels: tuple[tuple[KernelText, ...], ...]
    addresses: tuple[tuple[int, ...], ...]
    lanes: int


def can_compile(device: torch.device) -> bool:
    """Return whether blocks on a device have loops."""
    backend = find_backend(device)
    return isinstance(backend, CpuBackend) and backend.can_compile()


@functools.lru_cache(maxsize=512)
def compile_loops(
    blocks: tuple[LoopedBlock, ...],
    compute: torch.dtype,
    scalars: tuple[str, ...],
    accuracy: int,
    *,
    wide: frozenset[str] | None = None,
) -> BlockLoops | None:
    """Return the loops of some blocks; None if there are none for them.

    Args:
        blocks: of one pass.
        compute: what is computed in, float32 or float64.
        scalars: the names of the line's scalars, in its order.
        accuracy: of functions, in units in the last place.
        wide: the tensors with which bfloat16 is not multiplied; None if nothing is.
    """
    target = Cpu.of("double" if compute == torch.float64 else "float")
    try:
        kernels = tuple(tuple(write_loops(b, target, scalars, wide)) for b in blocks)
    except RefusedLoops:
        return None
    texts = [kernel.text for each in kernels for kernel in each]
    if not texts:
        return BlockLoops(kernels=kernels, addresses=((),) * len(blocks), lanes=target.lanes)
    plan = plan_kernels("blocks", texts, target, accuracy)
    library = compilation.open_library(compile_with_headers(plan, cpu.HEADERS))
    _loaded.append(library)
    found = iter(native.address_of(getattr(library, NAME.format(k))) for k in range(len(texts)))
    return BlockLoops(
        kernels=kernels,
        addresses=tuple(tuple(next(found) for _ in each) for each in kernels),
        lanes=count_lanes(library),
    )


_loaded: list[object] = []  # never unloaded


def write_loops(
    block: LoopedBlock, target: Cpu, scalars: Sequence[str], wide: frozenset[str] | None = None
) -> list[KernelText]:
    """Return the loops of a block, in order.

    Raises:
        RefusedLoops: no loop computes it.
    """
    groups = nests_of(block)
    nodes = [written.node for group in groups for written in group]
    if any(map(may_divide_by_zero, in_order(nodes))):
        raise RefusedLoops("whole numbers are divided, where PyTorch looks for zero")
    real = target.real
    stored = {"real": real, "int": "int64", "bool": "bool"}
    dtypes = {n.name: stored[n.type] for n in in_order(nodes) if n.op == READ}
    dtypes |= {w.name: stored[w.node.type] for group in groups for w in group}
    if wide is not None:
        dtypes |= dict.fromkeys(block.find_halves(wide), "bfloat16")
    setting = KernelSetting(
        known={},
        typical={},
        ranges=block.sizes,
        dtypes=dtypes,
        dims=block.dims,
        scalars={name: place for place, name in enumerate(scalars)},
        target=target,
    )
    kernels = [write_kernel(nest_of(block, group, dtypes), setting) for group in groups]
    # A statistic in which rows lie side by side is written along these.
    read = (operand for kernel in kernels for operand in kernel.operands)
    own = block.dims.keys() - {part.name for part in block.operands}
    if any(each.name in own and each.unit not in {None, each.dimensions - 1} for each in read):
        raise RefusedLoops("it reads down the columns of what lies in rows")
    return kernels


def nests_of(block: LoopedBlock) -> list[tuple[BlockValue, ...]]:
    """Return what is written by one loop each: by one all that has only columns, or rows."""
    alone = [(written,) for written in (*block.scaled, *block.summed)]
    return [group for group in (block.of_columns, block.of_rows, *alone) if group]


def nest_of(block: LoopedBlock, group: Sequence[BlockValue], dtypes: Mapping[str, str]) -> Nest:
    """Return the loops that write some values."""
    outputs = tuple(
        Output(name=w.name, indices=w.indices, node=w.node, dtype=dtypes[w.name]) for w in group
    )
    if group is block.of_columns:
        return Nest(outputs=outputs, lane=block.columns, in_place=True)
    if group is block.of_rows:
        is_wide = any(block.columns in output.indices for output in outputs)
        lane = block.columns if is_wide else None
        return Nest(outputs=outputs, lane=lane, outer=(block.rows,), in_place=True)
    outer, lane = outputs[0].indices
    if group[0] in block.summed:
        return Nest(outputs=outputs, lane=lane, outer=(outer,), vectors=2, rows=4, in_place=True)
    return Nest(outputs=outputs, lane=lane, outer=(outer,), in_place=True)
