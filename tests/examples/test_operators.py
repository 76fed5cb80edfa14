"""Every operator of the examples, crossed with all that PyTorch can do with an operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loading import example
from table import TABLE, Row, as_tuple
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap

from tests.telling import telling

pytestmark = pytest.mark.compiler
each_operator = pytest.mark.parametrize("row", TABLE, ids=str)
# One output and one input; three inputs; two outputs; NumPy; a Function; no derivative.
TELLING = (
    *("mul_constant", "linear_operator", "cube_operator", "correlate", "linear_f"),
    "linear_f_backward",
)
each_telling = pytest.mark.parametrize(
    "row",
    telling({str(row): row for row in TABLE}, [str(row) for row in TABLE if row.name in TELLING]),
)
derived = [row for row in TABLE if row.orders]
each_derived = pytest.mark.parametrize("row", derived, ids=str)
# Finite differences need float64.
each_derived_in_float64 = pytest.mark.parametrize(
    "row", [row for row in derived if row.dtype is torch.float64], ids=str
)


def tracked(row: Row) -> list[Tensor]:
    return [tensor.requires_grad_(row.orders > 0) for tensor in row.tensors()]


def every_argument(row: Row) -> tuple[int, ...]:
    return tuple(range(len(row.shapes)))


@each_operator
def test_the_kernel_agrees_with_pytorch(row: Row, seed: int) -> None:
    tensors = row.tensors()
    found = as_tuple(row.operator(*tensors, *row.scalars))
    torch.testing.assert_close(found, as_tuple(row.reference(*tensors, *row.scalars)))


@each_telling
def test_opcheck_passes(row: Row, seed: int) -> None:
    torch.library.opcheck(row.operator.overload, (*tracked(row), *row.scalars))


@each_derived_in_float64
def test_gradcheck_passes(row: Row, seed: int) -> None:
    def function(*tensors: Tensor) -> Any:
        return row.operator(*tensors, *row.scalars)

    assert gradcheck(function, tracked(row), check_batched_grad=True)
    if row.orders > 1:
        assert gradgradcheck(function, tracked(row))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=str(row))
        for row in derived
        if row.orders > 1 and row.dtype is torch.float64
    ],
)
def test_forward_mode_passes_gradcheck(row: Row, seed: int) -> None:
    def function(*tensors: Tensor) -> Any:
        return row.operator(*tensors, *row.scalars)

    assert gradcheck(function, tracked(row), check_forward_ad=True, check_backward_ad=False)


def test_the_gradient_of_add2_is_what_arrives(seed: int) -> None:
    a, b, arriving = (torch.randn(1024) for _ in range(3))
    add2 = example("add_model/add2").add2
    add2(a.requires_grad_(), b.requires_grad_()).backward(arriving)
    assert torch.equal(a.grad, arriving)  # pyright: ignore[reportArgumentType]
    assert torch.equal(b.grad, arriving)  # pyright: ignore[reportArgumentType]


@each_derived
def test_func_grad_agrees_with_pytorch(row: Row, seed: int) -> None:
    tensors = row.tensors()
    found = grad(row.loss, argnums=every_argument(row))(*tensors)
    wanted = grad(row.reference_loss, argnums=every_argument(row))(*tensors)
    torch.testing.assert_close(found, wanted)


@each_derived
def test_vmap_of_grad_agrees_with_a_loop(row: Row, seed: int) -> None:
    samples = [row.tensors() for _ in range(3)]
    mapped = [torch.stack(column) for column in zip(*samples, strict=True)]
    found = vmap(grad(row.loss, argnums=every_argument(row)))(*mapped)
    each = [grad(row.reference_loss, argnums=every_argument(row))(*sample) for sample in samples]
    wanted = tuple(torch.stack(column) for column in zip(*each, strict=True))
    torch.testing.assert_close(found, wanted)


@each_telling
def test_compile_captures_it_whole(row: Row, seed: int) -> None:
    # One function of Python is compiled here for each row, and PyTorch allows eight.
    torch.compiler.reset()
    tensors = tracked(row)
    compiled = torch.compile(row.loss, fullgraph=True, backend="aot_eager")
    found, wanted = compiled(*tensors), row.reference_loss(*tensors)
    torch.testing.assert_close(found, wanted)
    if row.orders:
        # A constant zero may be None.
        torch.testing.assert_close(
            torch.autograd.grad(found, tensors, materialize_grads=True),
            torch.autograd.grad(wanted, tensors, materialize_grads=True),
        )


@each_telling
def test_export_keeps_it_as_one_node(row: Row, seed: int) -> None:
    class Module(nn.Module):
        def forward(self, *tensors: Tensor) -> object:
            return row.operator(*tensors, *row.scalars)

    tensors = row.tensors()
    program = torch.export.export(Module(), tensors)
    assert [node.target for node in program.graph.nodes].count(row.operator.overload) == 1
    found = as_tuple(program.module()(*tensors))
    torch.testing.assert_close(found, as_tuple(row.reference(*tensors, *row.scalars)))


def test_linear_needs_no_bias(seed: int) -> None:
    module = example("linear/linear")
    x, w, _ = (
        tensor.requires_grad_()
        for tensor in next(r for r in TABLE if r.name == "linear_operator").tensors()
    )
    torch.library.opcheck(module.linear_operator.overload, (x, w))
    assert gradcheck(module.linear, (x, w))
    assert gradgradcheck(module.linear, (x, w))
    torch.testing.assert_close(module.linear(x, w), nn.functional.linear(x, w))
    layer = module.Linear(3, 2, bias=False).double()
    assert gradcheck(layer, (x,))
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_linear_computes_only_the_gradient_that_is_needed(which: int, seed: int) -> None:
    row = next(row for row in TABLE if row.name == "linear_operator")
    tensors = list(row.tensors())
    tensors[which].requires_grad_()
    (found,) = torch.autograd.grad(row.loss(*tensors), tensors[which])
    (wanted,) = torch.autograd.grad(row.reference_loss(*tensors), tensors[which])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", ["linear_operator", "correlate"])
def test_double_backward_where_one_input_needs_a_gradient(name: str, which: int, seed: int) -> None:
    row = next(row for row in TABLE if row.name == name)
    tensors = list(row.tensors())
    tensors[which].requires_grad_()

    def of_one(tensor: Tensor) -> Tensor:
        return row.operator(*tensors[:which], tensor, *tensors[which + 1 :])

    assert gradgradcheck(of_one, (tensors[which],))
