"""Derivatives that are declared wrongly, and backwards that return what is no gradient."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from operators import BY_NAME
from torch import Tensor

import pullback as pb
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler

# --- declared

DECLARED: dict[str, tuple[Any, str, str]] = {
    "unknown name": ({"a": "gard", "b": None}, "PB121", "did you mean 'grad'"),
    "unknown name in a call": (
        {"a": "pbtest::mul(grad, bb)", "b": None},
        "PB121",
        "did you mean 'b'",
    ),
    "unknown operator": ({"a": "pbtest::mull(grad, b)", "b": None}, "PB321", "did you mean"),
    "unknown overload": (
        {"a": "aten::mul.Tenser(grad, b)", "b": None},
        "PB321",
        "Tensor",
    ),
    "too many arguments": ({"a": "pbtest::mul(grad, b, a)", "b": None}, "PB322", "3"),
    "too few arguments": ({"a": "pbtest::mul(grad)", "b": None}, "PB322", "'b' is not given"),
    "argument of another type": ({"a": "pbtest::mul(grad, 2)", "b": None}, "PB322", "int"),
    "several results": ({"a": "aten::max.dim(grad, 0)", "b": None}, "PB322", "2 values"),
    "unknown input": ({"a": "grad", "b": None, "q": "grad"}, "PB123", "'q'"),
    "missing input": ({"a": "grad"}, "PB123", "'b'"),
    "syntax": ({"a": "pbtest::mul(grad, b) * b", "b": None}, "PB122", "column 22"),
    "too deep": (
        {"a": "aten::neg(" * 3000 + "grad" + ")" * 3000, "b": None},
        "PB122",
        "no more than 100 calls",
    ),
    "unknown name in a formula": ({"a": "gard * b", "b": None}, "PB133", "did you mean 'grad'"),
    "unknown function in a formula": ({"a": "sine(grad)", "b": None}, "PB132", "'sin'"),
    "syntax of a formula": ({"a": "grad * ", "b": None}, "PB131", "the derivative of pbtest"),
    "syntax of a list": ({"a": "aten::sum.dim_IntList(grad, [b])", "b": None}, "PB122", "a list"),
    "list that does not end": ({"a": "aten::flip(grad, [0, 1", "b": None}, "PB122", "',' or ']'"),
    "list of another type": ({"a": "aten::flip(grad, [0.5])", "b": None}, "PB322", "List[float]"),
    "unknown index": ({"a": "grad[n]*b", "b": None}, "PB145", "pbtest::declared for 'a'"),
    "unbounded index": ({"a": "grad*sum[k](1.0)", "b": None}, "PB142", "pbtest::declared for 'a'"),
    "number": ({"a": 3, "b": None}, "PB122", "is an int, and not an expression"),
    "unknown named operator": ("pbtest::nowhere", "PB321", "nowhere"),
    "operator without its namespace": ("mul", "PB321", "did you mean 'pbtest::mul'"),
    "call instead of a name": ("mul(grad, b)", "PB321", "did you mean 'pbtest::mul'"),
    "function with an unknown name": (lambda gard: gard, "PB121", "did you mean 'grad'"),  # pyright: ignore
    "function of anything": (lambda *some: some, "PB324", "grad"),  # pyright: ignore
    "a number": (3, "PB355", "int"),
}


@pytest.mark.parametrize("kind", DECLARED)
def test_a_wrong_derivative_is_refused_where_it_is_declared(kind: str) -> None:
    backward, code, words = DECLARED[kind]
    assert BY_NAME["mul"].operator
    with pytest.raises(PullbackError, match=re.escape(words)) as caught:
        pb.operator(
            "pbtest::declared(a[...], b[...]) -> c[...]", python=torch.mul, backward=backward
        )
    assert caught.value.finding.code == code
    assert not hasattr(torch.ops.pbtest, "declared")


def test_a_named_backward_whose_names_do_not_fit_is_refused() -> None:
    pb.operator("pbtest::misnamed(gard[...], a[...]) -> grad_a[...]", python=torch.mul)
    pb.operator("pbtest::unasked(grad[...]) -> grad_q[...]", python=torch.clone)
    for backward, words in (("pbtest::misnamed", "'gard'"), ("pbtest::unasked", "'grad_q'")):
        with pytest.raises(PullbackError, match=words):
            pb.operator("pbtest::declared(a[...]) -> c[...]", python=torch.clone, backward=backward)


# A backward and what stops it, called with the gradient and an input of two dimensions

# Functions of grad and x, which have two dimensions; and the code of what stops them.
RETURNED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "extra leading dimension": (lambda grad, x: (grad * x)[None], "PB305"),
    "missing dimension": (lambda grad, x: (grad * x)[0], "PB305"),
    "reduced": (lambda grad, x: (grad * x).sum(0, keepdim=True), "PB305"),
    "a scalar": (lambda grad, x: (grad * x).sum(), "PB305"),
    "transposed": (lambda grad, x: (grad * x).T, "PB305"),
    "larger": (lambda grad, x: (grad * x).repeat(2, 1), "PB305"),
    "lower precision": (lambda grad, x: (grad * x).float(), "PB306"),
    "complex": (lambda grad, x: grad * x + 0j, "PB306"),
    "integer": (lambda grad, x: (grad * x).long(), "PB306"),
    "device": (lambda grad, x: torch.empty_like(x, device="meta"), "PB306"),
}
FORMS = ("function", "operator", "expression")


def squared(kind: str, form: str, dims: str) -> pb.Operator:
    """An operator whose backward is wrong, declared in one of the three forms."""
    function, _ = RETURNED[kind]
    name = f"{form}_{kind.replace(' ', '_')}_{len(dims)}"
    if form == "function":

        def backward(grad: Tensor, x: Tensor) -> Tensor:
            return function(grad, x)

        declared: Any = backward
    else:
        # Registered by hand: pullback's own operators are held to their lines.
        qualname = f"pbtest::{name}_pull"
        torch.library.custom_op(
            qualname,
            lambda grad, x: function(grad, x).clone(),
            mutates_args=(),
            schema="(Tensor grad, Tensor x) -> Tensor",
        )
        declared = qualname if form == "operator" else {"x": f"{qualname}(grad, x)"}
    return pb.operator(
        f"pbtest::{name}(x[{dims}]) -> y[{dims}]", python=torch.square, backward=declared
    )


@pytest.mark.parametrize("dims", ["n, m", "..."])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", RETURNED)
def test_a_gradient_that_is_not_its_input_s_is_refused(kind: str, form: str, dims: str) -> None:
    operator = squared(kind, form, dims)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match=RETURNED[kind][1]):
        operator(x).sum().backward()
    assert x.grad is None


def test_a_wrong_reduction_of_a_square_matrix_is_refused() -> None:
    """With n = m the sum over the wrong axis has a plausible shape, not with the line."""
    mean = pb.operator(
        "pbtest::wrong_axis(x[n, m]) -> y[n]",
        python=lambda x: x.sum(1),
        backward=lambda grad, x: grad,
    )
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="PB305"):
        mean(x).sum().backward()


def test_what_did_not_come_from_broadcasting_is_not_summed() -> None:
    """`...` are summed only where the output has them: not a whole batch more."""
    batch = pb.operator(
        "pbtest::too_large(x[..., n]) -> y[..., n]",
        python=torch.square,
        backward=lambda grad, x: (2 * grad * x)[None].expand(4, *x.shape),
    )
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="PB305"):
        batch(x).sum().backward()


@pytest.mark.parametrize(
    ("returned", "code"),
    [
        (lambda grad: grad, "PB325"),
        (lambda grad: (grad,), "PB325"),
        (lambda grad: (grad, grad, grad), "PB325"),
        (lambda grad: None, "PB325"),
        (lambda grad: {"a": grad}, "PB123"),
        (lambda grad: {"a": grad, "b": grad, "c": grad}, "PB123"),
        (lambda grad: (grad, 3), "PB326"),
        (lambda grad: (grad, "b"), "PB326"),
        (lambda grad: (grad, [grad]), "PB326"),
    ],
)
def test_a_python_backward_that_returns_a_wrong_number_is_refused(
    returned: Callable[[Tensor], object], code: str, request: pytest.FixtureRequest
) -> None:
    name = f"numbered_{re.sub(r'[^a-z0-9]', '_', request.node.name)}"

    def backward(grad: Tensor) -> object:
        return returned(grad)

    add = pb.operator(f"pbtest::{name}(a[n], b[n]) -> c[n]", python=torch.add, backward=backward)
    a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
    with pytest.raises(RuntimeError, match=code):
        add(a, b).sum().backward()
    assert a.grad is None
    assert b.grad is None


def test_gradients_by_name_or_none_are_taken() -> None:
    add = pb.operator(
        "pbtest::by_name(a[n], b[n]) -> c[n]",
        python=lambda a, b: a + 2 * b,
        backward=lambda grad: {"b": 2 * grad, "a": None},
    )
    a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
    add(a, b).sum().backward()
    assert a.grad is None
    torch.testing.assert_close(b.grad, torch.full((3,), 2.0))


def test_a_native_backward_of_another_number_of_outputs_is_refused() -> None:
    library = torch.library.Library("pbtest", "FRAGMENT")
    library.define("pair_pull(Tensor grad) -> (Tensor, Tensor)")
    with pytest.raises(PullbackError, match="2 values for 1"):
        pb.operator("pbtest::pair(x[n]) -> y[n]", python=torch.clone, backward="pbtest::pair_pull")
    library._destroy()


def test_a_backward_in_numpy_under_a_transform() -> None:
    def backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(2 * grad.numpy() * x.numpy())

    square = pb.operator(
        "pbwrong::numpy(x[...]) -> y[...]", python=lambda x: x * x, backward=backward
    )
    with pytest.raises(RuntimeError, match="PB327"):
        torch.func.grad(lambda t: square(t).sum())(torch.ones(2))
    leaf = torch.ones(2, requires_grad=True)
    square(leaf).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2, 2]


def test_a_backward_that_detaches_what_arrives_has_no_second_derivative() -> None:
    square = pb.operator(
        "pbwrong::detached(x[...]) -> y[...]",
        python=lambda x: x * x,
        backward=lambda grad, x: 2 * grad.detach() * x,
    )

    def loss(t: torch.Tensor) -> torch.Tensor:
        return (square(t) ** 2).sum()

    leaf = torch.ones(2, requires_grad=True)
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    assert first.tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="PB378"):
        first.sum().backward()
    for transform in (torch.func.hessian, torch.func.jacfwd):
        with pytest.raises(RuntimeError, match="PB378"):
            transform(loss)(torch.ones(2))
    with pytest.raises(RuntimeError, match="PB378"):
        torch.func.grad(lambda t: torch.func.grad(loss)(t).sum())(torch.ones(2))
