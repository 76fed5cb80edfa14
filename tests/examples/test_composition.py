"""Every operator of the examples, crossed with what a built-in operator can do."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.kernels import compile as compilation
from pullback.kernels import glue, toolchain

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [
    pytest.mark.compiler,
    pytest.mark.filterwarnings("ignore::pullback.bind.register.RedefinitionNotice"),
]

# Operator -> the file and name, the shapes of its tensors, its scalars, a dtype its kernel takes.
TABLE: dict[str, tuple[str, str, list[tuple[int, ...]], tuple[float, ...], torch.dtype]] = {
    "add2": ("add_model/train.py", "add2", [(3, 4), (3, 4)], (), torch.float32),
    "q": ("gradients/gradients.py", "q", [(4,), (4,)], (), torch.float64),
    "linear": ("linear/linear.py", "linear", [(5, 3), (2, 3), (2,)], (), torch.float64),
    "linear_backward": (
        "linear/linear.py", "linear_backward", [(5, 2), (5, 3), (2, 3)], (), torch.float64,
    ),
    "mul_constant": ("mul_constant/mul_constant.py", "mul_constant", [(4,)], (5.0,), torch.float64),
    "cube": ("cube/cube.py", "my_cube", [(4,)], (), torch.float64),
    "legendre3": ("legendre/train.py", "legendre3", [(4,)], (), torch.float64),
    "scipy_conv2d": (
        "scipy_conv/scipy_conv.py", "scipy_conv2d", [(6, 5), (3, 2)], (), torch.float64,
    ),
    "relu": ("relu_network/train.py", "my_relu", [(4,)], (), torch.float64),
}  # fmt: skip
each = pytest.mark.parametrize("name", TABLE)


class Case:
    """An operator of the table, with inputs."""

    def __init__(self, name: str) -> None:
        file, attribute, shapes, self.scalars, self.dtype = TABLE[name]
        sys.modules.pop("linear.linear", None)
        self.operator: pb.Operator = runpy.run_path(str(EXAMPLES / file))[attribute]
        self.tensors = tuple(torch.randn(*shape, dtype=self.dtype) for shape in shapes)

    def __call__(self, *tensors: Tensor) -> Any:
        return self.operator(*tensors, *self.scalars)

    def total(self, *tensors: Tensor) -> Tensor:
        """Return a number that depends on every output."""
        outputs = self(*tensors)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return torch.stack([(output * output).sum() for output in outputs]).sum()

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        return tuple(tensor.clone().requires_grad_() for tensor in self.tensors)


def gradients(function: Callable[..., Tensor], leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(function(*leaves), leaves)


def same(left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-5) for a, b in zip(left, right, strict=True))


@each
def test_opcheck_passes(name: str, seed: int) -> None:
    case = Case(name)
    torch.library.opcheck(case.operator.overload, (*case.leaves, *case.scalars))


@each
def test_gradients_are_right(name: str, seed: int) -> None:
    case = Case(name)
    if case.dtype is torch.float64:
        assert torch.autograd.gradcheck(case, case.leaves)
    else:  # float32 alone: compared exactly, (a + b)² has the gradient 2(a + b)
        a, b = case.tensors
        assert same(gradients(case.total, case.leaves), (2 * (a + b), 2 * (a + b)))


@each
def test_func_grad_agrees_with_autograd(name: str, seed: int) -> None:
    case = Case(name)
    wanted = tuple(range(len(case.tensors)))
    assert same(
        torch.func.grad(case.total, argnums=wanted)(*case.tensors),
        gradients(case.total, case.leaves),
    )


@each
def test_vmap_of_grad_agrees_with_a_loop(name: str, seed: int) -> None:
    case = Case(name)
    wanted = tuple(range(len(case.tensors)))
    derivative = torch.func.grad(case.total, argnums=wanted)
    batched = tuple(torch.stack([tensor, 2 * tensor, -tensor]) for tensor in case.tensors)
    loop = [derivative(*row) for row in zip(*batched, strict=True)]
    stacked = tuple(torch.stack(column) for column in zip(*loop, strict=True))
    assert same(torch.vmap(derivative)(*batched), stacked)


@each
def test_compile_takes_the_whole_graph(name: str, seed: int) -> None:
    case = Case(name)
    compiled = torch.compile(case.total, fullgraph=True, backend="aot_eager")
    assert same(gradients(compiled, case.leaves), gradients(case.total, case.leaves))


@each
def test_export_keeps_it_as_one_node(name: str, seed: int) -> None:
    case = Case(name)

    class Module(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Any:
            return case(*tensors)

    program = torch.export.export(Module(), case.tensors)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert case.operator.overload in targets
    found, expected = program.module()(*case.tensors), case(*case.tensors)
    assert same(
        found if isinstance(found, tuple) else (found,),
        expected if isinstance(expected, tuple) else (expected,),
    )


@pytest.mark.nvcc
def test_the_cuda_kernel_of_add_model_compiles() -> None:
    if not any(
        isinstance(f, toolchain.Compiler) and f.language == "cuda" for f in toolchain.survey()
    ):
        pytest.skip("no nvcc")
    definition = Case("add2").operator.definition
    assert definition.cuda
    plan = glue.plan_of(definition.line, definition.cuda, "cuda", "sm_90")
    library = compilation.open_library(compilation.compile(plan))
    assert getattr(library, glue.symbol_of(definition.line, "cuda"))
