"""Every kind of operator in every way of PyTorch: right, or refused as the docs say."""

from __future__ import annotations

import matrix
import pytest
import torch
from rows import OWN, OWN_FIRST, Row
from ways import Way

import pullback as pb

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


# An error in one of these is one that most users meet.
MOST_USED = ("forward", "backward", "double backward", "`func.jvp`", "`vmap`, every `in_dims`")
# Compiling takes long there, ten seconds for Inductor to begin with, and to each of them all kinds
# but a few are calls of one sort. `func.grad` is compiled of all kinds.
FEW_KINDS = ("cpp_product", "index_softmax", "fn_product")
COMPILED = {
    "compile with inductor": (),
    "compile of `func.hessian`": FEW_KINDS,
    "compile of `func.jvp`": FEW_KINDS,
    "compile of `vmap`": FEW_KINDS,
    "compile of `vmap(grad)`": FEW_KINDS,
}


# What runs its CUDA where CUDA runs on the CPU.
IN_CUDA = ("index_softmax", "formula_swish")
# Each process would ask PyTorch for a GPU of its own; and Dynamo does not trace `unflatten` where
# a mode changes what a device is.
NOT_PRETENDED = ("DDP", "FSDP2", "compile of `func.hessian`")


def marks(way: Way, row: Row) -> tuple[pytest.MarkDecorator, ...]:
    """Return `thorough` for a cell beside these: every way for one of a kind, all in a few ways."""
    told = row in OWN_FIRST or (row in OWN and way.name in MOST_USED)
    if way.name in COMPILED:
        told = row.name in COMPILED[way.name]
    return () if told else (pytest.mark.thorough,)


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    ("way", "row"),
    [
        pytest.param(way, row, id=f"{way.name}-{row.label}", marks=marks(way, row))
        for way, row in matrix.CELLS
    ],
)
def test_it_is_right_or_refused(way: Way, row: Row, seed: int) -> None:
    refusal = way.refusal(row)
    if refusal is None:
        way.check(row, seed)
        return
    with pytest.raises(RuntimeError, match=refusal.pattern):
        way.check(row, seed)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("way", "row"),
    [
        pytest.param(way, row, id=f"{way.name}-{row.label}")
        for way, row in matrix.CELLS
        if row.name in IN_CUDA and way.name not in NOT_PRETENDED and way.refusal(row) is None
    ],
)
def test_so_it_is_where_its_loops_are_in_cuda(way: Way, row: Row, seed: int) -> None:
    with pb.cuda.on_cpu():
        way.check(row, seed)


def test_the_page_is_up_to_date() -> None:
    text = matrix.PAGE.read_text()
    assert matrix.page(text) == text, "python tests/everywhere/matrix.py writes it anew"
