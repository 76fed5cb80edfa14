"""What the outputs of some loops have in common: their indices, and the sums that they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.define.math.node import REDUCTIONS, SUM, Node, in_order, rename_index
from pullback.kernels.loops.nest import Output


def indices_of(outputs: Sequence[Output]) -> list[str]:
    """Return the indices of some outputs."""
    return list(dict.fromkeys(i for output in outputs for i in output.indices))


def outermost(output: Output) -> list[Node]:
    """Return the outermost sums of an output's element; none if something else is reduced."""

    def inner(node: Node) -> tuple[Node, ...]:
        return () if node.op in REDUCTIONS else node.args

    found = [node for node in in_order([output.node], inner) if node.op in REDUCTIONS]
    good = all(n.op == SUM and n.type == "real" for n in found)
    return found if good else []


def split_rows(outputs: Sequence[Output]) -> tuple[Sequence[Output], list[tuple[str, Output]]]:
    """Return the outputs with the fewest indices, and those with one more before, with that."""
    few = set(min((output.indices for output in outputs), key=len))
    if any(len({*output.indices} - few) > 1 or few - {*output.indices} for output in outputs):
        return outputs, []
    if any(output.indices[-1] not in few for output in outputs if output.indices):
        return outputs, []  # the lanes would not run along the rows
    rows = [(row, output) for output in outputs for row in output.indices if row not in few]
    return [output for output in outputs if few == {*output.indices}], rows


def rename_output(output: Output, old: str, new: str) -> Output:
    """Return an output one of whose indices has another name."""
    indices = tuple(new if index == old else index for index in output.indices)
    return replace(output, indices=indices, node=rename_index(output.node, old, new))
