"""Reads along the lanes at places that are divided by a number, or taken modulo one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pullback.define.math.node import Node
from pullback.kernels.loops.places import Digits

if TYPE_CHECKING:
    from pullback.kernels.loops.memory import KernelReads


def read(reads: KernelReads, node: Node, copy: Mapping[str, int], own: Sequence[int]) -> str | None:
    """Return elements each in several lanes, over and over, or of several rows; None if apart.

    Args:
        reads: those of the kernel.
        node: the read.
        copy: of which copies of the indices.
        own: the dimensions whose place differs from lane to lane.
    """
    found = reads.emitter.places.digits([node.places[d] for d in own])
    is_picked = any((node.name, d) in reads.picked for d in own)
    if found is None or (is_picked and reads.emitter.here.edge):
        return None
    kinds = {(0, 1): "load_divided", (1, 0): "load_turned"}
    kind = kinds.get((found[0].left, found[0].whole)) if [*own] == [len(node.places) - 1] else None
    emitter = reads.emitter
    if not emitter.target.needs_neighbours:
        return reads.gathered(node, copy, [*own], emitter.target.divided) if kind else None
    if kind is None:
        by_dimension = dict(zip(own, found, strict=True))
        return None if is_picked else interleaved(reads, node, copy, by_dimension)
    emitter.line("", emitter.target.divided)
    [digits], last = found, own[0]
    operand = reads.operand(node, last)
    places = [*(reads.safe(node, d, copy) for d in range(last)), "0"]
    address = emitter.operands.address(operand, places)
    first, far = (
        f"int64_t({emitter.places.place(each, copy)})" for each in (digits.dividend, digits.shift)
    )
    size = emitter.extents.text(emitter.dims[node.name][last])
    if is_picked:  # that a lane is outside has to be noted
        emitter.line(f"outside |= !{kind}_inside<{digits.divisor}>({first}, {far}, {size});")
    return f"{kind}<{operand.stored}, {digits.divisor}>({address}, {first}, {far}, {size})"


def interleaved(
    reads: KernelReads, node: Node, copy: Mapping[str, int], own: Mapping[int, Digits]
) -> str | None:
    """Return elements of as many rows as the divisor, in turn; None where some are outside."""
    emitter = reads.emitter
    if emitter.here.edge or not all(reads.is_inside(node, d) for d in own):
        return None
    emitter.line("", emitter.target.divided)
    operand = reads.operand(node, None)
    places = [
        emitter.places.place(own[d].shift, copy) if d in own else reads.safe(node, d, copy)
        for d in range(len(node.places))
    ]
    address = emitter.operands.address(operand, places)
    steps = {d: emitter.operands.step(operand, d) for d in own}
    step, far = (
        " + ".join(f"{steps[d]} * {factor(digits)}" for d, digits in own.items())
        for factor in (lambda digits: digits.left, lambda digits: digits.whole)
    )
    [digits, *_] = own.values()
    first = f"int64_t({emitter.places.place(digits.dividend, copy)})"
    return (
        f"load_interleaved<{operand.stored}, {digits.divisor}>({address}, {first}, {step}, {far})"
    )
