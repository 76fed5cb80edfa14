"""The tutorials' own Functions, unchanged: their figures, and all that PyTorch can do with them."""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from loading import EXAMPLES
from table import as_tuple, loss_of
from test_tutorials import ADD_MODEL, EPS, LEGENDRE, PRINTED, SUM_OF_2000, roundings_of_step
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

import pullback as pb
from tests.telling import telling

# No kernel, so no compiler: every operator here is a class in Python.


@functools.cache
def tutorial(name: str) -> ModuleType:
    """Import a file of examples/functions, under a name that no other example has."""
    path = EXAMPLES / "functions" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"functions_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, kw_only=True)
class Case:
    """One Function and its operator.

    Attributes:
        module: of examples/functions.
        operator: its name there.
        function: that of the class there.
        shapes: of the tensors, which come first; the tutorial's where gradients are checked.
        scalars: the arguments after them.
        dtype: float32 where the Function allocates its result so.
        orders: how many times it can be differentiated, 2 standing for any number.
    """

    module: str
    operator: str
    function: str
    shapes: tuple[tuple[int, ...], ...]
    scalars: tuple[float, ...] = ()
    dtype: torch.dtype = torch.float64
    orders: int = 2

    def __str__(self) -> str:
        return self.operator

    def made(self) -> pb.Operator:
        """Return the operator."""
        return getattr(tutorial(self.module), self.operator)

    def plain(self) -> Any:
        """Return the Function as its author wrote it."""
        return getattr(tutorial(self.module), self.function)

    @property
    def by_operator(self) -> Callable[..., Any]:
        """A function of the tensors alone, by the operator."""
        operator, scalars = self.made(), self.scalars
        return lambda *tensors: operator(*tensors, *scalars)

    @property
    def by_apply(self) -> Callable[..., Any]:
        """The same by the Function itself."""
        apply, scalars = self.plain().apply, self.scalars
        return lambda *tensors: apply(*tensors, *scalars)

    @property
    def loss(self) -> Callable[..., Tensor]:
        """A number that depends on each output of the operator in its own way."""
        function = self.by_operator
        return lambda *tensors: loss_of(function(*tensors))

    def tensors(self, *, small: bool = False) -> list[Tensor]:
        """Draw the tensors away from 0, where relu has a kink; `small` ones have few elements."""
        shapes = (
            [tuple(min(n, 4) for n in shape) for shape in self.shapes] if small else self.shapes
        )
        # AddModelFunction allocates on the GPU if there is one.
        device = getattr(tutorial(self.module), "device", "cpu")
        drawn = [torch.randn(shape, dtype=self.dtype, device=device) for shape in shapes]
        return [tensor + 0.1 * tensor.sign() for tensor in drawn]

    def tracked(self, *, small: bool = False) -> list[Tensor]:
        return [tensor.requires_grad_() for tensor in self.tensors(small=small)]


XWB = ((20, 20), (30, 20), (30,))
IMAGE = ((10, 10), (3, 3))

CASES = (
    Case(
        module="add_model",
        operator="add2",
        function="AddModelFunction",
        shapes=((4,), (4,)),
        scalars=(4,),
        dtype=torch.float32,
    ),
    Case(module="linear", operator="linear", function="LinearFunction", shapes=XWB),
    Case(module="linear", operator="linear_setup", function="LinearSetupFunction", shapes=XWB),
    Case(
        module="mul_constant",
        operator="mul_constant",
        function="MulConstant",
        shapes=((2, 3),),
        scalars=(2.5,),
    ),
    Case(module="cube", operator="cube_operator", function="MyCube", shapes=((2, 3),)),
    Case(module="legendre", operator="P3", function="LegendrePolynomial3", shapes=((5,),)),
    Case(
        module="scipy_conv",
        operator="scipy_conv",
        function="ScipyConv2dFunction",
        shapes=IMAGE,
        orders=1,
    ),
    Case(module="my_relu", operator="my_relu", function="MyReLU", shapes=((2, 3),)),
    Case(module="linear_f", operator="linear_f", function="LinearF", shapes=((5, 2), (1, 2), (1,))),
)
each_case = pytest.mark.parametrize("case", CASES, ids=str)
# Three inputs; two outputs; NumPy: what a tracer may take each for differs most.
TELLING = ("linear", "cube_operator", "scipy_conv")
each_telling = pytest.mark.parametrize("case", telling({str(c): c for c in CASES}, TELLING))
# Finite differences need float64.
IN_FLOAT64 = [case for case in CASES if case.dtype is torch.float64]
each_in_float64 = pytest.mark.parametrize("case", IN_FLOAT64, ids=str)


def same(found: Any, wanted: Any) -> None:
    """Compare outputs or gradients, to the last bit."""
    torch.testing.assert_close(as_tuple(found), as_tuple(wanted), rtol=0, atol=0)


def gradients(function: Callable[..., Any], tensors: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss_of(function(*tensors)), tensors)


# --- Each operator, crossed with all that PyTorch can do with one


@each_case
def test_the_operator_is_apply_to_the_last_bit(case: Case, seed: int) -> None:
    tensors = case.tracked()
    same(case.by_operator(*tensors), case.by_apply(*tensors))
    same(gradients(case.by_operator, tensors), gradients(case.by_apply, tensors))
    with torch.no_grad():
        same(case.by_operator(*tensors), case.by_apply(*tensors))


@each_case
def test_each_gradient_alone_is_that_of_apply(case: Case, seed: int) -> None:
    for which in range(len(case.shapes)):
        tensors = [t.requires_grad_(i == which) for i, t in enumerate(case.tensors())]
        found, wanted = (
            torch.autograd.grad(loss_of(by(*tensors)), tensors[which])
            for by in (case.by_operator, case.by_apply)
        )
        same(found, wanted)


@each_telling
def test_opcheck_passes(case: Case, seed: int) -> None:
    torch.library.opcheck(case.made().overload, (*case.tracked(small=True), *case.scalars))


@each_in_float64
def test_gradcheck_at_the_tutorials_sizes(case: Case, seed: int) -> None:
    assert gradcheck(case.by_operator, case.tracked(), eps=1e-6, atol=1e-4)


@each_in_float64
def test_second_derivatives(case: Case, seed: int) -> None:
    if case.orders > 1:
        assert gradgradcheck(case.by_operator, case.tracked(small=True))
        return
    tensors = case.tracked(small=True)
    first = torch.autograd.grad(case.loss(*tensors), tensors, create_graph=True)
    # SciPy cannot be differentiated; PyTorch alone would leave this part out.
    with pytest.raises(pb.PullbackError, match="PB378"):
        torch.autograd.grad(loss_of(first), tensors)


@each_telling
def test_compiled_whole_it_is_eager(case: Case, seed: int) -> None:
    # One function of Python is compiled here for each case, and PyTorch allows eight.
    torch.compiler.reset()
    tensors = case.tracked()
    compiled = torch.compile(case.loss, fullgraph=True, backend="aot_eager")
    found, wanted = compiled(*tensors), case.loss(*tensors)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(found, tensors), torch.autograd.grad(wanted, tensors)
    )


@each_case
def test_func_grad_is_autograd_grad(case: Case, seed: int) -> None:
    tensors = case.tensors()
    every = tuple(range(len(tensors)))
    found = torch.func.grad(case.loss, every)(*tensors)
    same(found, gradients(case.by_operator, [tensor.requires_grad_() for tensor in tensors]))


@each_case
def test_vmap_is_a_loop(case: Case, seed: int) -> None:
    samples = [case.tensors() for _ in range(3)]
    found = torch.vmap(case.by_operator)(*map(torch.stack, zip(*samples, strict=True)))
    each = [as_tuple(case.by_operator(*sample)) for sample in samples]
    same(found, tuple(map(torch.stack, zip(*each, strict=True))))


@each_telling
def test_vmap_of_func_grad_is_a_loop(case: Case, seed: int) -> None:
    samples = [case.tensors() for _ in range(3)]
    gradient = torch.func.grad(case.loss, tuple(range(len(case.shapes))))
    found = torch.vmap(gradient)(*map(torch.stack, zip(*samples, strict=True)))
    each = [gradient(*sample) for sample in samples]
    torch.testing.assert_close(found, tuple(map(torch.stack, zip(*each, strict=True))))


@pytest.mark.parametrize("case", [case for case in IN_FLOAT64 if case.orders > 1], ids=str)
def test_forward_mode_by_gradcheck(case: Case, seed: int) -> None:
    tensors = case.tracked(small=True)
    assert gradcheck(case.by_operator, tensors, check_forward_ad=True, check_backward_ad=False)


@each_telling
def test_export_keeps_it_as_one_node(case: Case, seed: int) -> None:
    function = case.by_operator

    class Module(nn.Module):
        def forward(self, *tensors: Tensor) -> object:
            return function(*tensors)

    tensors = tuple(case.tensors())
    program = torch.export.export(Module(), tensors)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count(case.made().overload) == 1
    same(program.module()(*tensors), case.by_apply(*tensors))


def test_every_operator_but_the_circulating_one_is_in_the_table() -> None:
    modules = [tutorial(path.stem) for path in sorted((EXAMPLES / "functions").glob("*.py"))]
    names = {
        name for m in modules for name, value in vars(m).items() if isinstance(value, pb.Operator)
    }
    assert names - {case.operator for case in CASES} == {"circulating"}


# --- T1


def test_add_model_from_the_tutorials_first_loss_prints_the_tutorials_figures(seed: int) -> None:
    module = tutorial("add_model")
    model = module.AddModel(1024).to(module.device)
    with torch.no_grad():
        scale = math.sqrt(ADD_MODEL[0] / model().sum().item())
        model.a.mul_(scale)
        model.b.mul_(scale)
    printed = module.train(model)
    assert list(printed) == list(range(0, 500, 25))
    for (epoch, loss), figure in zip(printed.items(), ADD_MODEL, strict=False):
        # As in test_tutorials: the first figure is rounded too, and scales the others.
        allowed = PRINTED * (1 + figure / ADD_MODEL[0]) + figure * roundings_of_step(epoch)
        assert abs(loss - figure) <= allowed, epoch


def test_add_model_shrinks_by_the_same_factor_every_25_epochs() -> None:
    for before, after in pairwise(tutorial("add_model").main().values()):
        allowed = roundings_of_step(25) + roundings_of_step(0)
        assert abs(after / before / 0.98**50 - 1) <= allowed


# --- T3, T4, T5


@pytest.mark.thorough
def test_linear_is_right_in_both_its_styles() -> None:
    figures = tutorial("linear").main()
    assert len(figures) == 5
    assert all(figures.values())


@pytest.mark.parametrize("name", ["linear", "linear_setup"])
def test_linear_needs_no_bias(name: str, seed: int) -> None:
    case = next(case for case in CASES if case.operator == name)
    operator, plain = case.made(), case.plain()
    x, w, _ = case.tracked()
    same(operator(x, w), plain.apply(x, w, None))
    same(gradients(operator, [x, w]), gradients(lambda x, w: plain.apply(x, w, None), [x, w]))
    layer = tutorial("linear").Linear(20, 30, bias=False).double()
    assert [parameter for parameter, _ in layer.named_parameters()] == ["weight"]
    assert gradcheck(layer, (x,))


def test_mul_constant_and_a_gradient_that_never_arrives() -> None:
    assert tutorial("mul_constant").main() == {
        "3.5 x": [3.5, -7.0, 14.0],
        "gradient": [3.5, 3.5, 3.5],
        "gradient where none arrives": None,
    }


def test_cube_until_nothing_is_left() -> None:
    assert tutorial("cube").main() == {
        "x³": [1.0, 8.0, 27.0],
        "3x²": [3.0, 12.0, 27.0],
        "6x": [6.0, 12.0, 18.0],
        "6": [6.0, 6.0, 6.0],
    }


def test_my_cubes_second_derivative_is_right(seed: int) -> None:
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(tutorial("cube").my_cube, x)
    assert gradgradcheck(tutorial("cube").my_cube, x)


# --- T6


def test_legendre_prints_the_tutorials_figures() -> None:
    """What is allowed is explained in test_tutorials: rounding, seen against float64."""
    module = tutorial("legendre")
    losses, found = module.main()
    exact, precise = module.main(torch.float64)
    for loss, true, figure in zip(losses, exact, LEGENDRE, strict=True):
        assert abs(loss - figure) <= PRINTED + figure * SUM_OF_2000 + abs(loss - true)
    for name, figure in {"b": -2.2085268, "d": 0.2554861}.items():
        trained = found[name] - precise[name]
        assert abs(found[name] - figure) <= 0.5e-7 + abs(figure) * EPS + abs(trained)
    assert abs(found["a"]) < 1e-8
    assert abs(found["c"]) < 1e-8


@pytest.mark.thorough
def test_legendre_trains_as_with_apply_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tutorial("legendre")
    ours = module.main()
    monkeypatch.setattr(module, "P3", module.LegendrePolynomial3.apply)
    assert module.main() == ours


# --- T7


def test_scipys_right_backward_passes_and_the_circulating_one_is_caught_twice() -> None:
    assert tutorial("scipy_conv").main() == {
        "right": {"input": True, "filter": True},
        "circulating": {"input": False, "filter": False},
    }


def test_the_circulating_backward_is_its_functions_wrong_as_it_is(seed: int) -> None:
    module = tutorial("scipy_conv")
    tensors = [torch.randn(shape, requires_grad=True) for shape in IMAGE]
    found = gradients(module.circulating, tensors)
    assert [gradient.shape for gradient in found] == [tensor.shape for tensor in tensors]
    same(found, gradients(module.CirculatingFunction.apply, tensors))


def test_scipys_module_passes_gradcheck_at_the_tutorials_size(seed: int) -> None:
    module = tutorial("scipy_conv").ScipyConv2d(3, 3).double()
    assert [(name, p.shape) for name, p in module.named_parameters()] == [("filter", (3, 3))]
    image = torch.randn(20, 20, dtype=torch.float64, requires_grad=True)
    assert gradcheck(module, (image,), eps=1e-6, atol=1e-4)


# --- T9


@pytest.mark.thorough
def test_the_relu_network_is_that_of_apply_to_the_last_bit() -> None:
    module = tutorial("my_relu")
    losses = module.main()
    assert len(losses) == 5
    assert losses == module.train(module.MyReLU.apply)
    assert losses == module.train(lambda x: x.clamp(min=0))  # pyright: ignore[reportUnknownLambdaType]


# --- T10


def test_my_linear_learns_the_target_as_pytorchs_layer_does() -> None:
    module = tutorial("linear_f")
    figures = module.main(seed=0)

    torch.manual_seed(0)
    assert module.check()
    drawn = module.MyLinear(2, 1)
    plain = nn.Linear(2, 1, dtype=torch.float64)
    plain.load_state_dict(drawn.state_dict())
    torch.manual_seed(0)
    module.check()
    module.MyLinear(2, 1)
    losses = module.train(plain)
    at = torch.tensor([[3.0, 2.0]], dtype=torch.float64)
    assert figures == pytest.approx(
        {"first loss": losses[0], "last loss": losses[-1], "y(3, 2)": plain(at).item()}, rel=1e-9
    )
    # 300 steps on one point each leave it this near.
    assert abs(figures["y(3, 2)"] - 16) < 0.1


def test_the_operator_keeps_the_symbolic_for_the_exporter() -> None:
    module = tutorial("linear_f")
    kept = module.linear_f.definition.function
    assert kept is module.LinearF

    class Graph:
        @staticmethod
        def op(*written: object) -> object:
            return written

    assert kept.symbolic(Graph, "x", "w", "b") == ("MYLINEAR", "x", "w", "b")
