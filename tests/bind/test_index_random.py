"""Random formulas in index notation: values, and two orders of gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from index_random import Formula, formulas, inputs
from torch import Tensor

import pullback as pb
from pullback.bind.math import choose, verify
from tests.telling import examples

pytestmark = pytest.mark.compiler
numbers = itertools.count()


def gradients(
    run: Callable[..., Tensor], some: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the value, its gradients, and the gradients of a function of these."""
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in some]
    wrt = [t for t in leaves if t.requires_grad]
    value = run(*leaves)
    first = derived(
        (value * torch.sin(torch.arange(value.numel()).view(value.shape) + 1.0)).sum(), wrt
    )
    second = derived(sum((torch.cos(g + 0.3)).sum() for g in first), wrt)
    return value.detach(), [g.detach() for g in first], [g.detach() for g in second]


def derived(value: Tensor | float, wrt: Sequence[Tensor]) -> list[Tensor]:
    if not isinstance(value, Tensor) or not value.requires_grad:
        return [torch.zeros_like(t) for t in wrt]
    return list(
        torch.autograd.grad(
            value, wrt, create_graph=True, allow_unused=True, materialize_grads=True
        )
    )


def assert_agrees(formula: Formula) -> None:
    operator = pb.operator(f"pbindexrandom::f{next(numbers)}{formula.line}")
    some = inputs()
    found, wanted = gradients(operator, some), gradients(formula.reference, some)
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


@settings(max_examples=examples(25, 200))
@given(formulas())
def test_a_formula_and_two_orders_of_its_gradients_are_pytorchs(formula: Formula) -> None:
    # By PyTorch's operations: a loop takes most of a second to compile.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "choose_executors", lambda *_: [])
        patch.setattr(verify, "verify_at_definition", lambda *_: None)
        assert_agrees(formula)


@settings(max_examples=examples(3, 12))
@given(formulas())
def test_so_are_those_that_own_loops_compute(formula: Formula) -> None:
    assert_agrees(formula)


@pytest.mark.thorough
@settings(max_examples=examples(4, 10), deadline=None)
@given(formulas(), st.sampled_from(["none", "race"]), st.sampled_from(["forward", "random:2"]))
def test_so_are_those_that_loops_in_cuda_compute(
    formula: Formula, check: Literal["none", "race"], order: str
) -> None:
    with pb.cuda.on_cpu(check=check, order=order):
        assert_agrees(formula)
