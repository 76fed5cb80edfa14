"""Blocks as products of matrices and what loops compute between them."""

from __future__ import annotations

import pytest

from pullback.define.math import derived
from pullback.define.math.blocks import Sweep
from pullback.define.math.formula import Formula
from pullback.define.math.looped_block import LoopedBlock
from pullback.define.math.passing import make_passing
from tests.define.long_reductions import LINES
from tests.define.test_passes import formula, pairs_of


def sweeps_of(indexed: Formula) -> list[Sweep]:
    pairs = sorted(pairs_of(indexed), key=sorted)
    found = make_passing(indexed, indexed.nodes, pairs, [True] * len(indexed.nodes))
    return [sweep for sweeps in found.sweeps for sweep in sweeps]


def gradients_of(name: str) -> Formula:
    found = derived.backward(formula(LINES[name][0]))
    assert found
    return found.formula


def block_of(sweep: Sweep) -> LoopedBlock:
    block = sweep.block((None,) * len(sweep.conditions), lambda _: False)
    assert block
    found = sweep.looped(block)
    assert found
    return found


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", LINES)
def test_every_pass_has_loops(name: str) -> None:
    sweeps = sweeps_of(formula(LINES[name][0]))
    assert all(sweep.has_loops for sweep in sweeps)
    if LINES[name][2]:
        assert all(sweep.has_loops for sweep in sweeps_of(gradients_of(name)))


def test_an_attention_is_two_products_and_a_loop_between_them() -> None:
    (sweep,) = sweeps_of(formula(LINES["plain"][0]))
    block = block_of(sweep)
    assert (len(block.products), len(block.sinks)) == (1, 1)
    # What was summed up so far is multiplied once a row when the maximum changes.
    (scaled,) = block.scaled
    assert str(scaled.node.op) == "mul"
    assert not block.of_columns


def test_differences_are_summed_and_no_difference_of_products() -> None:
    block = block_of(sweeps_of(gradients_of("distances"))[-1])
    # The gradient of v is a product, those of q and k are not.
    assert (len(block.sinks), len(block.summed)) == (1, 2)


def test_its_gradient_has_five_products_and_one_loop() -> None:
    block = block_of(sweeps_of(gradients_of("plain"))[-1])
    assert (len(block.products), len(block.sinks)) == (2, 3)
    # The weights of grad_v, and what grad_q and grad_k have in common.
    assert len(block.of_rows) == 2
    assert not block.of_columns
    assert not block.scaled


@pytest.mark.parametrize("name", ["relative bias", "clamped bias", "bias by data"])
def test_the_gradient_of_a_bias_that_is_read_at_a_place_is_a_sum_in_the_same_pass(
    name: str,
) -> None:
    """It has no more products than a plain attention."""
    block = block_of(sweeps_of(gradients_of(name))[-1])
    (placing,) = block.placings
    assert (len(block.products), len(block.sinks)) == (2, 3)
    assert (placing.tile is None) == (name == "relative bias")


def test_conditions_on_a_sum_are_kept_in_mind() -> None:
    block = block_of(sweeps_of(gradients_of("causal"))[-1])
    assert {sink.own.labels: sink.is_guarded for sink in block.sinks} == {
        ("n__0", "d__0"): True,
        ("m__0", "d__0"): True,
        ("m__0", "e__0"): False,
    }
