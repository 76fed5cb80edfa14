"""As a whole or by blocks: how PyTorch's operations compute what has no loop of its own.

By blocks, no matrix of all rows and columns is held, and on a CPU generated loops compute what is
between products of matrices (`bind/dense/blocks.py`); what several passes need is computed again in
each. Where the whole exceeds the bound of `slices` blocks are taken; below, the clock decides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from pullback.bind.dense import blocks, panels, slices
from pullback.bind.dense.attention import Fused
from pullback.bind.dense.value import is_traced
from pullback.bind.levels import run_isolated
from pullback.bind.loops.backends import Backend, CudaBackend, find_backend, has_gpu_loops
from pullback.bind.loops.rates import cpu_rates
from pullback.bind.loops.specialise import round_sizes
from pullback.bind.math.call import Choice, IndexedCall, compute_by_pytorch, compute_fused
from pullback.bind.math.fused import find_fused
from pullback.bind.math.products import count_products, panels_on, products_of
from pullback.bind.memo import Memo
from pullback.define.math import absent, extents
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine
from pullback.define.math.index import size as size_of
from pullback.define.math.node import REDUCTIONS, Node, in_order
from pullback.define.math.passes import Unfit
from pullback.define.math.passing import Passing, make_passing
from pullback.define.math.tiles import Pair, find_tiles, is_outer, open_outputs

# Smaller values are computed as a whole: they lie in the cache.
LARGE = 4 * 2**20
# A product of matrices does so many times the operations of a loop in a second.
MATRIX = 10
# Blocks are taken if they take up to so many times as long as the whole, which holds the matrix.
NEAR = 1.1
Clock = Callable[[Callable[[], object]], float]
Measure = Callable[[Mapping[str, Callable[[], object]], Clock], Mapping[str, float]]


@dataclass(frozen=True)
class Found:
    """A formula in passes, and what its largest value would take as a whole.

    Attributes:
        passing: the formula.
        whole: the bytes of that value.
    """

    passing: Passing
    whole: int


def choose_blocks(
    call: IndexedCall, choices: list[Choice], backend: Backend | None, measure: Measure
) -> list[Choice]:
    """Return choices in which what PyTorch's operations compute is done by blocks, if it should.

    Args:
        call: all of it.
        choices: who computes which outputs.
        backend: of its device; None where nothing can be timed.
        measure: times some ways.
    """
    left = [k for choice in choices if not choice.takes_own for k in choice.outputs]
    part = call.wanting(left).unflattened
    found = find_passing(part) if left else None
    if found is None:
        return choices
    reason = why_blocks(part, found, backend, measure)
    fused = choose_fused(part, found, None if reason is None else found.passing, backend, measure)
    if reason is None and fused is None:
        return choices
    shown = fused[1] if fused else f"{describe(part, found)}{reason}"
    return [
        choice
        if choice.takes_own
        else replace(choice, passing=found.passing, fused=fused and fused[0], reason=shown)
        for choice in choices
    ]


def choose_fused(
    call: IndexedCall,
    found: Found,
    other: Passing | None,
    backend: Backend | None,
    measure: Measure,
) -> tuple[Fused, str] | None:
    """Return one operation for all of a call, and why it is the faster way; None if it is not.

    Args:
        call: the outputs that are wanted.
        found: these by blocks.
        other: how they are computed else: by blocks, or as a whole.
        backend: of the device.
        measure: times some ways.
    """
    dtypes = [*(t.dtype for t in tensors_of(call)), *call.outputs.dtypes]
    fused = find_fused(found.passing, dtypes, call.outputs.device) if backend else None
    if fused is None or backend is None or compute_fused(call, fused) is None:
        return None
    key = (
        *(fused.attending.attention, fused.gradients, torch.get_num_threads(), dtypes[0]),
        *call.outputs.wanted[: 1 if not fused.gradients else None],
        *round_sizes(call.indexed, call.sizes).items(),
    )
    ways: dict[str, Callable[[], object]] = {
        "fused": lambda: compute_fused(call, fused),
        "blocks" if other else "whole": lambda: compute_by_pytorch(call, other),
    }
    seconds = _measured.get_or_make(key, lambda: _time(call, found, ways, backend, measure))
    if seconds["fused"] > min(seconds.values()):
        return None
    return fused, f"scaled_dot_product_attention; {show_seconds(seconds)}"


def show_seconds(seconds: Mapping[str, float]) -> str:
    """Return what was measured, in words."""
    shown = (
        f"{name} {1e3 * s:.3g} ms" if math.isfinite(s) else f"{name} given up"
        for name, s in seconds.items()
    )
    return f"measured: {', '.join(shown)}"


def take_blocks(call: IndexedCall, measure: Measure) -> list[Choice]:
    """Return the choice of blocks, whatever they cost; as a whole if there are none."""
    call = call.unflattened
    found = find_passing(call)
    if found is None:
        return []
    backend = find_backend(call.outputs.device)
    fused = choose_fused(call, found, found.passing, backend, measure)
    return [
        Choice(
            outputs=tuple(call.places),
            own=None,
            reason=fused[1] if fused else describe(call, found),
            passing=found.passing,
            fused=fused and fused[0],
        )
    ]


def keeps_statistics(call: IndexedCall, choices: Sequence[Choice]) -> bool:
    """Return whether what is recorded keeps statistics of rows: as blocks compute them."""
    given = {t.dtype for t in tensors_of(call) if t.is_floating_point()} | {call.dtype}
    by_blocks = [choice.passing is not None and not choice.takes_own for choice in choices]
    return len(given) == 1 and bool(by_blocks) and all(by_blocks)


def find_passing(call: IndexedCall) -> Found | None:
    """Return the wanted outputs of a call in passes over blocks; None if nothing is large."""
    if call.needed.dense < LARGE or 0 in call.sizes.values():
        return None
    if any(map(is_traced, call.named.values())):
        return None
    if any(map(partial(is_empty, call), in_order(call.indexed.nodes))):
        return None  # what a condition leaves out is computed before
    missing = frozenset(call.named.keys() - call.present)
    wanted = tuple(call.outputs.wanted)
    pairs = find_pairs(call, missing)
    if not pairs:
        return None
    passing = _passing(_Key(call.indexed), missing, wanted, tuple(pairs))
    if passing is None or not passing.sweeps:
        return None
    return Found(passing, max(pairs[s.pair] for sweeps in passing.sweeps for s in sweeps))


def is_empty(call: IndexedCall, node: Node) -> bool:
    """Return whether a node is a reduction over nothing."""
    many = extents.evaluate_size(node.size, call.sizes) if node.op in REDUCTIONS else None
    return many is not None and many <= 0


def itemsize_of(call: IndexedCall) -> int:
    """Return the bytes of a number in a computation."""
    is_double = any(v.dtype == torch.float64 for v in tensors_of(call))
    return 8 if is_double or torch.float64 in call.outputs.dtypes else 4


def tensors_of(call: IndexedCall) -> list[Tensor]:
    """Return the tensors of a call."""
    return [value for value in call.named.values() if isinstance(value, Tensor)]


class _Key:
    """A formula by what it is: a key that is quickly compared."""

    def __init__(self, indexed: Formula) -> None:
        self.indexed = indexed
        self.content = (indexed.layout, indexed.nodes, tuple(indexed.sizes.items()))

    def __hash__(self) -> int:
        return hash(self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.content == other.content


@functools.lru_cache(maxsize=512)
def _passing(
    key: _Key, missing: frozenset[str], wanted: tuple[bool, ...], pairs: tuple[Pair, ...]
) -> Passing | None:
    """Return a formula in passes; None if it has none."""
    try:
        return make_passing(key.indexed, _present(key, missing), pairs, wanted)
    except Unfit:
        return None


def _present(key: _Key, missing: frozenset[str]) -> tuple[Node, ...]:
    nodes = key.indexed.nodes
    return absent.drop_absent(nodes, set(missing)) if missing else nodes


@functools.lru_cache(maxsize=512)
def _tiles(
    key: _Key, missing: frozenset[str], wanted: tuple[bool, ...]
) -> tuple[Mapping[str, Affine], list[tuple[Pair, Node]]]:
    """Return the ranges of all indices, and the values that blocks could be taken of."""
    labels = [output.labels for output in key.indexed.line.outputs]
    indices, opened, _ = open_outputs(_present(key, missing), labels, key.indexed.sizes)
    asked = [node for node, is_wanted in zip(opened, wanted, strict=True) if is_wanted]
    return indices.ranges, list(find_tiles(asked, indices))


def find_pairs(call: IndexedCall, missing: frozenset[str]) -> dict[Pair, int]:
    """Return the pairs of indices that blocks are taken of, with the bytes of the largest value.

    The value is large, and either a product of matrices or larger than inputs and outputs together.
    Where it has more indices, blocks of two leave the least of it that are longer than others. What
    loops on a GPU sum up where they compute it is in no memory.
    """
    ranges, tiles = _tiles(_Key(call.indexed), missing, tuple(call.outputs.wanted))
    itemsize = itemsize_of(call)

    def extent(index: str) -> int:
        if index == BATCH or index not in ranges:
            return call.sizes.get(index, 1)
        value = extents.evaluate_size(ranges[index], call.sizes)
        return 0 if value is None else int(value)

    taken = bytes_taken(call)
    found: dict[Pair, int] = {}
    free: dict[Pair, set[frozenset[str]]] = {}
    skips = has_gpu_loops(call.outputs.device)
    for pair, part in tiles:
        if skips and is_outer(part):
            continue
        many = math.prod(extent(index) for index in part.free) * itemsize
        is_wide = min(map(extent, pair)) >= blocks.LEAST
        is_product = part.op in REDUCTIONS and part.type == "real"
        if is_wide and many >= LARGE and (is_product or many > taken):
            found[pair] = max(found.get(pair, 0), many)
            free.setdefault(pair, set()).add(part.free)
    areas = {pair: math.prod(map(extent, pair)) for pair in found}

    def is_longest(pair: Pair, within: frozenset[str]) -> bool:
        return areas[pair] == max(areas[other] for other in found if other <= within)

    kept = {p: n for p, n in found.items() if any(is_longest(p, each) for each in free[p])}
    return dict(sorted(kept.items(), key=lambda item: (-item[1], sorted(item[0]))))


def bytes_taken(call: IndexedCall) -> int:
    """Return the bytes of the inputs and the outputs."""
    taken = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(call))
    shapes = zip(call.outputs.shapes, call.outputs.dtypes, call.outputs.wanted, strict=True)
    return taken + sum(math.prod(s) * d.itemsize for s, d, is_wanted in shapes if is_wanted)


# --- as a whole, or not


def why_blocks(
    call: IndexedCall, found: Found, backend: Backend | None, measure: Measure
) -> str | None:
    """Return why blocks are taken; None if they are not."""
    bound = slices.most_bytes(bytes_taken(call), call.outputs.device)
    rates = backend.rates() if backend else cpu_rates()
    by_blocks, whole = count_products(call, found.passing)
    # Products that are computed again cost more than it would to move the whole.
    moved = rates.seconds(0, call.needed.dense)
    is_slower = (by_blocks - whole) / (MATRIX * rates.operations) > moved
    if found.whole > bound:
        return "; this saves memory, not time" if is_slower else ""
    if backend is None:
        return None if is_slower else ""
    if isinstance(backend, CudaBackend):
        return None  # a block takes a GPU less time than the host
    key = (
        *(id(found.passing), torch.get_num_threads(), *call.outputs.dtypes),
        *round_sizes(call.indexed, call.sizes).items(),
    )
    ways: dict[str, Callable[[], object]] = {
        "blocks": lambda: compute_by_pytorch(call, found.passing),
        "whole": lambda: compute_by_pytorch(call),
    }
    seconds = _measured.get_or_make(key, lambda: _time(call, found, ways, backend, measure))
    if seconds["blocks"] > NEAR * seconds["whole"]:
        return None
    return f"; {show_seconds(seconds)}"


# The formulas in passes are kept by `_passing`, so their ids are not used again soon.
_measured: Memo[tuple[object, ...], Mapping[str, float]] = Memo(1024)


def _time(
    call: IndexedCall,
    found: Found,
    ways: Mapping[str, Callable[[], object]],
    backend: Backend,
    measure: Measure,
) -> Mapping[str, float]:
    """Return the seconds that some ways take, of which "blocks" may have to be compiled before."""

    def measured() -> Mapping[str, float]:
        sweeps = (sweep for part in found.passing.sweeps for sweep in part)
        has_loops = any(blocks.has_loops(sweep, call.outputs.device) for sweep in sweeps)
        if has_loops and "blocks" in ways:
            ways["blocks"]()
        return measure(ways, backend.time)

    return run_isolated(measured)


def describe(call: IndexedCall, found: Found) -> str:
    """Return the blocks, passes and products of a formula, and what it holds in either way."""
    sweeps = [sweep for part in found.passing.sweeps for sweep in part]
    device = call.outputs.device

    def extent(size: Affine) -> int:
        return int(extents.evaluate_size(size, call.sizes) or 1)

    rows, columns = blocks.size_block(sweeps[-1], extent, device, call.sizes)
    passes = count(len(found.passing.sweeps), "pass", "passes")
    products = count(len(list(products_of(found.passing, device))), "product", "products")
    kept = [sweep.tensors[name] for sweep in sweeps for name in sweep.vectors.values()]
    kept += [own.labels for own in found.passing.statistics]
    ranges = {**found.passing.passes.ranges, BATCH: size_of(BATCH)}
    held = sum(math.prod(extent(ranges[label]) for label in labels) for labels in kept)
    held = max(held * itemsize_of(call), 1000)
    if own := panels_on(found.passing, device):
        held += panels.held_bytes(own, extent, device, call.sizes, itemsize_of(call))
    by_loops = all(blocks.has_loops(sweep, device) for sweep in sweeps)
    how = " with own loops" if by_loops else ""
    if by_loops and call.half:
        products += " of bfloat16"
    return (
        f"blocks of {rows} x {columns}{how}, {passes}, {products}; {held / 1e6:.2g} MB held, "
        f"not a matrix of {found.whole / 1e6:.3g} MB"
    )


def count(number: int, one: str, many: str) -> str:
    """Return a number with the word for it."""
    return f"{number} {one if number == 1 else many}"
