"""Operators that somebody else registered, taken over: what they lack is added, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, func

import pullback as pb

pytestmark = pytest.mark.compiler


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    """A library of somebody else's."""
    library = torch.library.Library("pbext", "DEF")
    # An operator with a kernel, and nothing else: NumPy, so that PyTorch cannot look into it.
    library.define("square(Tensor x, float k=2.0) -> Tensor")
    library.impl("square", lambda x, k=2.0: torch.from_numpy(k * x.detach().numpy() ** 2), "CPU")
    library.define("slopes(Tensor x, Tensor w) -> (Tensor grad_x, Tensor grad_w)")
    library.impl("slopes", lambda x, w: (x.detach() * 2, w.detach() * 3), "CPU")
    library.define("composite(Tensor x) -> Tensor")
    library.impl("composite", lambda x: x.sin() * 2, "CompositeImplicitAutograd")
    library.define("kinds(Tensor x, Device t) -> Tensor")
    library.define("view(Tensor(a) x) -> Tensor(a)")
    library.define("many(Tensor[] xs, int[] n, int? k=None, str s='a', *, bool b=True) -> Tensor")
    library.define("lists(Tensor[] xs, int[] n=[1, 2], int? k=None, str s='a') -> (Tensor, Tensor)")
    library.define("change(Tensor(a!) x) -> Tensor(a!)")

    @torch.library.custom_op("pbext::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    @torch.library.custom_op("pbext::bare", mutates_args=())
    def bare(x: Tensor) -> Tensor:
        return x**3

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 3 * grad * ctx.saved_tensors[0] ** 2

    cube.register_autograd(backward, setup_context=setup_context)
    cube.register_fake(torch.empty_like)
    yield library
    library._destroy()


def test_outputs_that_are_called_as_gradients_make_no_mask(library: object) -> None:
    """Its schema has none, whatever its outputs are called."""
    slopes = pb.operator(
        "pbext::slopes(x[...], w[...]) -> (grad_x[...], grad_w[...])",
        backward={"x": "2*grad_grad_x", "w": "3*grad_grad_w"},
    )
    x, w = (torch.linspace(-1, 1, 6, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(slopes, (x, w), check_forward_ad=True)


def test_by_its_line_an_operator_gets_what_it_lacks(library: object) -> None:
    square = pb.operator(
        "pbext::square(x[...], k: float = 2.0) -> y[...]",
        backward=lambda grad, x, k: 2 * k * grad * x,
    )
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(square, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda t: square(t, 3.0), (x,))
    plain = x.detach()
    eye = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(func.hessian(lambda t: square(t).sum())(plain), 4 * eye)
    torch.testing.assert_close(func.vmap(square)(plain.view(2, 3)), 2 * plain.view(2, 3) ** 2)
    compiled = torch.compile(lambda t: square(t * 2, 3.0), fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(found, 24 * plain)
    # The same operator by PyTorch's name.
    assert torch.autograd.gradcheck(torch.ops.pbext.square, (x,))
    assert pb.operator("pbext::square").line == square.line


def test_by_name_a_custom_op_gets_forward_mode_and_torch_func(library: object) -> None:
    x = torch.linspace(-1, 1, 4, dtype=torch.float64)
    stock = torch.ops.pbext.cube
    # What PyTorch does alone: the tangent is lost without a word.
    assert not func.jvp(stock, (x,), (x,))[1].any()
    cube = pb.operator("pbext::cube")
    assert str(cube.line) == "pbext::cube(x[*]) -> output[*]"
    torch.testing.assert_close(func.jvp(cube, (x,), (x,))[1], 3 * x**3)
    torch.testing.assert_close(func.jvp(stock, (x,), (x,))[1], 3 * x**3)
    torch.testing.assert_close(func.hessian(lambda t: cube(t).sum())(x), torch.diag(6 * x))
    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(cube, (leaf,))
    compiled = torch.compile(lambda t: cube(t * 1).sum(), fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(leaf), leaf)
    torch.testing.assert_close(found, 3 * x**2)


def test_a_custom_op_without_a_derivative(library: object) -> None:
    bare = pb.operator("pbext::bare(x[...]) -> y[...]")
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="PB308"):
        bare(x).sum().backward()
    with pytest.warns(match="defined again"):
        bare = pb.operator(
            "pbext::bare(x[...]) -> y[...]", backward=lambda grad, x: 3 * grad * x * x
        )
    assert torch.autograd.gradgradcheck(bare, (x,))


def test_a_composite_operator_needs_nothing(library: object) -> None:
    composite = pb.operator("pbext::composite")
    x = torch.linspace(0, 1, 3, dtype=torch.float64)
    torch.testing.assert_close(func.jvp(composite, (x,), (x,))[1], 2 * x * x.cos())
    assert torch.autograd.gradcheck(composite, (x.requires_grad_(),))


def test_forward_mode_of_an_own_derivative(library: torch.library.Library) -> None:
    """A derivative in C++, or by `torch.library.register_autograd`, stays."""
    library.define("own(Tensor x) -> Tensor")
    library.impl("own", lambda x: x.detach() ** 2, "CompositeExplicitAutograd")

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad * ctx.saved_tensors[0]

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    torch.library.register_autograd(
        "pbext::own", backward, setup_context=setup_context, lib=library
    )
    own = pb.operator("pbext::own(x[...]) -> y[...]")
    x = torch.linspace(0, 1, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(own, (x.clone().requires_grad_(),))
    with pytest.raises(pb.PullbackError, match="PB309"):
        func.jvp(own, (x,), (x,))
    with pytest.warns(match="defined again"):
        own = pb.operator("pbext::own(x[...]) -> y[...]", jvp=lambda tangent, x: 2 * tangent * x)
    torch.testing.assert_close(func.jvp(own, (x,), (x,))[1], 2 * x * x)


def test_lists_and_optional_numbers_have_a_line(library: object) -> None:
    lists = pb.operator("pbext::lists")
    expected = "xs[*]*, n: int[] = [1, 2], k: int?, s: str = 'a'"
    assert str(lists.line) == f"pbext::lists({expected}) -> (output0[*], output1[*])"
    assert str(pb.operator("pbext::change").line) == "pbext::change(x[*]) -> x[*]"


@pytest.mark.parametrize(
    ("line", "options", "code", "match"),
    [
        ("pbext::nothing", {}, "PB381", "not registered"),
        ("pbext::composit", {}, "PB381", "composite"),
        ("pbext::cube(x[...], k: int) -> y[...]", {}, "PB382", "other parameters"),
        ("pbext::cube(x[...]) -> (y[...], z[...])", {}, "PB382", "other parameters"),
        ("pbext::cube(x[...]) -> y[...]", {"backward": {"x": "grad"}}, "PB383", "of its own"),
        ("pbext::kinds", {}, "PB384", "'t' is a"),
        ("pbext::view", {}, "PB384", "a view of its input"),
        ("pbext::many", {}, "PB384", "for keywords only"),
        ("pbext::square(x[...], k: float = 2.0) -> y[...]", {"python": abs}, "PB354", "already"),
    ],
)
def test_what_cannot_be_taken_over(
    library: object, line: str, options: dict[str, Any], code: str, match: str
) -> None:
    with pytest.raises(pb.PullbackError, match=match) as caught:
        pb.operator(line, **options)
    assert caught.value.finding.code == code
