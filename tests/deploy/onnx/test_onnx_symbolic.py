"""The old `symbolic` of a Function, of an operator's and of a plain one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from exporting import call_of, called, export, inputs, own_nodes
from running import run
from torch import Tensor
from torch.onnx import symbolic_helper

import pullback as pb
from pullback.deploy.onnx.exporter import OnnxNotice
from pullback.deploy.onnx.symbolic import run_symbolic
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler
numbers = itertools.count()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("symbolic") / "model.onnx"


class Elu(torch.autograd.Function):
    """Exponential linear unit; `symbolic` is what each test makes it."""

    symbolic: Callable[..., Any]

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        return torch.where(x > 0, x, alpha * (torch.exp(x) - 1))


def with_symbolic(symbolic: Callable[..., Any]) -> type[Elu]:
    return type("Elu", (Elu,), {"symbolic": staticmethod(symbolic)})


def as_operator(function: type[Elu]) -> Callable[[Tensor], Tensor]:
    name = f"pbsymbolic::elu{next(numbers)}"
    made = pb.operator(f"{name}(x[...], alpha: float) -> y[...]", function=function)
    return lambda x: made(x, 1.5)


def plain(function: type[Elu]) -> Callable[[Tensor], Tensor]:
    return lambda x: function.apply(x, 1.5)  # pyright: ignore[reportReturnType]


each_way = pytest.mark.parametrize("way", [as_operator, plain], ids=["operator", "plain"])
# What is asked of `symbolic` is the same for both; how a node comes to be is not.
either_way = pytest.mark.parametrize(
    "way", [as_operator, pytest.param(plain, marks=pytest.mark.thorough)], ids=["operator", "plain"]
)


def exported(
    way: Callable[..., Any], symbolic: Callable[..., Any], file: Path, **options: Any
) -> ir.Model:
    """Export a Function with a `symbolic`, and hold the file against it."""
    function, x = way(with_symbolic(symbolic)), torch.tensor([[1.0, -2.0, 0.5]])
    model = export(function, x, path=file, dynamic=True, **options)
    x = torch.tensor([[3.0, -2.0, 0.5], [-1.0, 0.0, -0.1]])
    if not options.get("alone"):
        torch.testing.assert_close(run(file, inputs(x))[0], function(x))
    return model


@each_way
def test_a_node_of_ones_own_has_forward_as_its_body(way: Callable[..., Any], file: Path) -> None:
    model = exported(way, lambda g, x, alpha: g.op("MYELU", x, alpha_f=alpha), file)
    (node,) = own_nodes(model)
    assert node.op_type == "MYELU"
    assert node.domain == ("autograd" if way is plain else "pbsymbolic")
    assert node.attributes["alpha"].as_float() == 1.5
    assert list(node.attributes) == ["alpha"]


@either_way
def test_a_node_may_name_its_domain(way: Callable[..., Any], file: Path) -> None:
    def symbolic(g: Any, x: Any, alpha: float) -> Any:
        return g.op("com.acme::ELU", x, x, kind_s="exact", steps_i=[1, 2])

    (node,) = own_nodes(exported(way, symbolic, file))
    assert (node.domain, node.op_type) == ("com.acme", "ELU")
    assert node.attributes["kind"].as_string() == "exact"
    assert list(node.attributes["steps"].as_ints()) == [1, 2]
    assert len(node.inputs) == 2


@either_way
def test_operators_of_onnx_are_the_body(way: Callable[..., Any], file: Path) -> None:
    model = exported(way, lambda g, x, alpha: g.op("Elu", x, alpha_f=alpha), file)
    (node,) = own_nodes(model)
    assert node.op_type.lower().startswith("elu")
    (function,) = model.functions.values()
    assert [each.op_type for each in function] == ["Elu"]


@either_way
def test_a_chain_with_constants_and_questions_about_types(
    way: Callable[..., Any], file: Path
) -> None:
    parse_args: Any = symbolic_helper.parse_args  # pyright: ignore[reportPrivateImportUsage]

    @parse_args("v", "f")
    def symbolic(g: Any, x: Any, alpha: float) -> Any:
        assert x.type().sizes() == [None, 3]
        assert x.type().dim() == 2
        assert x.type().scalarType() == "Float"
        assert x.type().dtype() == torch.float32
        one = g.op("Constant", value_t=torch.tensor(1.0))
        low = g.op("Mul", g.op("Sub", g.op("Exp", x), one), alpha)
        return g.op("onnx::Where", g.op("Greater", x, 0.0), x, low).setType(x.type())

    (node,) = own_nodes(exported(way, symbolic, file))
    assert node.op_type.lower().startswith("elu")


def test_several_outputs_an_optional_input_and_a_list(file: Path) -> None:
    class Parts(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor | None, sizes: list[int]) -> tuple[Tensor, ...]:
            return x * len(sizes), x + 1

        @staticmethod
        def symbolic(g: Any, x: Any, w: Any, sizes: list[int]) -> Any:
            assert w is None
            return g.op("pbsymbolic::PARTS", x, sizes_i=sizes, outputs=2)

    def model(x: Tensor) -> tuple[Tensor, ...]:
        return Parts.apply(x, None, [3, 4])  # pyright: ignore[reportReturnType]

    x = torch.ones(2, 3)
    assert called(export(model, x, path=file)) == ["pbsymbolic::PARTS"]
    for found, wanted in zip(run(file, inputs(x)), model(x), strict=True):
        assert torch.equal(found, wanted)


def test_a_node_without_an_input_that_forward_uses_has_no_body(file: Path) -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            return x * w

        @staticmethod
        def symbolic(g: Any, x: Any, w: Any) -> Any:
            return g.op("SCALED", x)

    x = torch.ones(2, 3)
    with pytest.warns(OnnxNotice, match="symbolic leaves out 'w', which forward uses"):
        model = export(lambda x: Scaled.apply(x, x), x, path=file)
    assert called(model) == ["autograd::SCALED"]


def test_a_body_can_be_given_for_a_node_that_symbolic_names(file: Path) -> None:
    text = '<domain: "any", opset_import: ["": 18]> any (x) => (y) { y = Neg(x) }'

    def symbolic(g: Any, x: Any, alpha: float) -> Any:
        return g.op("MYELU", x)

    x = torch.randn(3)
    function = plain(with_symbolic(symbolic))
    export(function, x, path=file, bodies={"autograd::MYELU": text})
    assert torch.equal(run(file, inputs(x))[0], -x)


def test_a_node_of_ones_own_among_others_is_written_as_it_is(file: Path) -> None:
    def symbolic(g: Any, x: Any, alpha: float) -> Any:
        return g.op("Neg", g.op("com.acme::INNER", x))

    function = plain(with_symbolic(symbolic))
    with pytest.warns(
        OnnxNotice, match="the body of a node has a node com.acme::INNER without a body"
    ):
        model = export(function, torch.ones(3), path=file)
    assert called(model) == ["autograd::EluFunction"]


@pytest.mark.parametrize(
    ("symbolic", "said"),
    [
        (lambda g, x, alpha: x.nothing(), "raised AttributeError"),
        (lambda g, x, alpha: g.op("Elu", x, alpha=alpha), "does not say its type"),
        (lambda g, x, alpha: g.op("Elu", x, beta_f=1.0), "'beta', which it lacks in opset 18"),
        (lambda g, x, alpha: g.op("ReduceSum", x, axes_i=[1]), "g.op('Constant', value_t="),
        (lambda g, x, alpha: g.op("Elu", "x"), "gives a node a str as input"),
        (lambda g, x, alpha: None, "returns something that g.op did not"),
        (lambda g, x, alpha: (x, x), "returns 2 values, the operator 1"),
    ],
)
def test_what_symbolic_cannot_say_is_an_error(symbolic: Callable[..., Any], said: str) -> None:
    function = with_symbolic(symbolic)
    with pytest.raises(PullbackError, match="PB757") as error:
        run_symbolic(call_of(function, torch.ones(3), 1.5), function)
    assert said in str(error.value)


def test_an_argument_that_is_no_attribute_is_an_error(file: Path) -> None:
    class Odd(Elu):
        @staticmethod
        def forward(ctx: Any, x: Tensor, alpha: object) -> Tensor:
            return x + 1

        symbolic = staticmethod(lambda g, x, alpha: x)

    with pytest.raises(PullbackError, match="'alpha' is a dtype, which cannot be an attribute"):
        export(lambda x: Odd.apply(x, torch.float32), torch.ones(3), path=file)
