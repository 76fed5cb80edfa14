"""What PyTorch does wrong without a word: here pullback is right, or raises.

Each test first shows that PyTorch is silently wrong, so that the test means something. Where a
newer PyTorch mends it, that half is left out.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from in_python import Swish
from torch import Tensor, func
from torch.autograd import Function, forward_ad
from ways import same

import pullback as pb
from pullback import PullbackError

# ruff: noqa: ANN001, ANN205 (the Functions are as people write them)
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false
# pyright: reportUnknownParameterType=false

pytestmark = pytest.mark.compiler

# What PyTorch does here was seen up to this version.
SEEN = (2, 13)
# Of a Function; of a function that is given as `backward=`, which torch.func looks into.
CUT = r"PB309|PB378|PB327"
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
fresh = itertools.count()


def name_for(namespace: str = "silent") -> str:
    return f"{namespace}::op{next(fresh)}"


def wrong(found: Callable[[], Any], right: Any) -> None:
    """Assert that PyTorch gives something else than what is right, with a warning at most."""
    if RELEASE > SEEN:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = found()
    with pytest.raises(AssertionError):
        same(value, right)


@pytest.fixture
def x(seed: int) -> Tensor:
    return torch.rand(3, dtype=torch.float64) + 0.5


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


def tangent(call: Callable[..., Any], *inputs: Tensor) -> Tensor | None:
    """Return the tangent of an output for ones, None if it has none."""
    with forward_ad.dual_level():
        output = call(*(forward_ad.make_dual(x, torch.ones_like(x)) for x in inputs))
        return forward_ad.unpack_dual(output).tangent


def pushed(call: Callable[..., Any], *inputs: Tensor) -> Tensor:
    return func.jvp(call, inputs, tuple(map(torch.ones_like, inputs)))[1]


def compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(call, fullgraph=True, backend="aot_eager")


def penalty(call: Callable[..., Any], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the gradient of a squared gradient, to which another term contributes as well."""
    leaves = [leaf(x) for x in inputs]
    loss = (call(*leaves) ** 2).sum() + torch.stack([(t**3).sum() for t in leaves]).sum()
    first = torch.autograd.grad(loss, leaves, create_graph=True)
    return torch.autograd.grad(torch.stack([(g**2).sum() for g in first]).sum(), leaves)


# --- forward mode


def square_op(*, derivative: bool) -> tuple[str, Any]:
    name = name_for("silent_op")

    @torch.library.custom_op(name, mutates_args=())
    def square(x: Tensor) -> Tensor:
        return x * x

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad * ctx.saved_tensors[0]

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    square.register_fake(torch.empty_like)
    if derivative:
        square.register_autograd(backward, setup_context=keep)
    return name, square


def test_forward_mode_of_a_custom_op_with_a_derivative(x: Tensor) -> None:
    name, square = square_op(derivative=True)
    if RELEASE <= SEEN:
        assert tangent(square, x) is None
    wrong(lambda: pushed(square, x), 2 * x)
    wrong(lambda: func.jacfwd(square)(x), torch.diag(2 * x))
    op = pb.operator(name)
    for call in (op, op.overload, square):
        same(tangent(call, x), 2 * x)
        same(pushed(call, x), 2 * x)
        same(func.jacfwd(call)(x), torch.diag(2 * x))
        same(func.hessian(lambda t: call(t).sum())(x), torch.diag(2 * torch.ones_like(x)))  # noqa: B023


def test_forward_mode_of_a_custom_op_without_one(x: Tensor) -> None:
    name, square = square_op(derivative=False)
    if RELEASE <= SEEN:
        assert tangent(square, x) is None
    op = pb.operator(f"{name}(x[...]) -> y[...]")
    for use in (tangent, pushed):
        with pytest.raises(RuntimeError, match="PB309"):
            use(op, x)


def numpy_square(x: Tensor) -> Tensor:
    return torch.from_numpy(x.detach().numpy() ** 2)


def test_an_operator_without_a_derivative_whose_kernel_leaves_pytorch(x: Tensor) -> None:
    name = name_for("silent_library")
    library = torch.library.Library("silent_library", "FRAGMENT")
    library.define(f"{name.partition('::')[2]}(Tensor x) -> Tensor")
    library.impl(name, numpy_square, "CPU")
    square = getattr(torch.ops.silent_library, name.partition("::")[2])

    def gradient(call: Callable[..., Any]) -> Tensor:
        other = leaf(x)
        return torch.autograd.grad(call(other).sum() + other.sum(), other)[0]

    wrong(lambda: gradient(square), 2 * x + 1)
    wrong(lambda: func.grad(lambda t: square(t).sum())(x), 2 * x)
    op = pb.operator(f"{name}(x[...]) -> y[...]")
    for call in (op, square):
        with pytest.raises(RuntimeError, match="PB308"):
            gradient(call)
        with pytest.raises(RuntimeError, match="PB308"):
            func.grad(lambda t: call(t).sum())(x)  # noqa: B023
        with pytest.raises(RuntimeError, match="PB309"):
            pushed(call, x)


# --- lists


class Sum(Function):
    @staticmethod
    def forward(ctx, tensors, weights):
        ctx.weights = weights
        return sum(w * t for w, t in zip(weights, tensors, strict=True))

    @staticmethod
    def backward(ctx, grad):
        return [w * grad for w in ctx.weights], None


class SumWithoutGradients(Sum):
    @staticmethod
    def backward(ctx, grad):
        return None, None


def test_a_list_among_the_arguments_of_a_function(x: Tensor) -> None:
    leaves = [leaf(x), leaf(x + 1)]
    if RELEASE <= SEEN:
        assert not Sum.apply(leaves, [2.0, 3.0]).requires_grad
    op = pb.operator(f"{name_for()}(tensors[n]*, weights: float[]) -> y[n]", function=Sum)
    found = torch.autograd.grad(op(leaves, [2.0, 3.0]).sum(), leaves)
    same(found, (torch.full_like(x, 2), torch.full_like(x, 3)))
    with pytest.raises(PullbackError, match="PB341"):
        op([leaves[0], None], [2.0, 3.0])


def test_a_list_for_which_backward_returns_none(x: Tensor) -> None:
    line = f"{name_for()}(tensors[n]*, weights: float[]) -> y[n]"
    op = pb.operator(line, function=SumWithoutGradients)
    leaves = [leaf(x), leaf(x)]
    with pytest.raises(RuntimeError, match="PB374"):
        op(leaves, [1.0, 2.0]).sum().backward()


def test_a_list_with_a_none_in_a_custom_op(x: Tensor) -> None:
    name = name_for("silent_op")

    @torch.library.custom_op(name, mutates_args=())
    def total(tensors: list[Tensor | None]) -> Tensor:
        return sum((t for t in tensors if t is not None), torch.zeros(()).double())

    def backward(ctx: Any, grad: Tensor) -> Any:
        return [grad if given else None for given in ctx.given]

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.given = [tensor is not None for tensor in inputs[0]]

    total.register_autograd(backward, setup_context=keep)
    if RELEASE <= SEEN:
        assert total([leaf(x), leaf(x)]).requires_grad
        assert not total([leaf(x), None]).requires_grad
    with pytest.raises(PullbackError, match="PB384"):
        pb.operator(name)


# --- what a compiler drops


class OwnRules(Function):
    """Derivatives that can be told from those of its forward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 20 * grad * x

    @staticmethod
    def jvp(ctx, tangent):
        return 100 * tangent


def test_a_compiled_gradient_of_a_function(x: Tensor) -> None:
    right = 20 * x
    gradient = func.grad(lambda t: OwnRules.apply(t).sum())
    same(gradient(x), right)
    wrong(lambda: compiled(gradient)(x), right)
    each = func.vmap(func.grad(OwnRules.apply))
    wrong(lambda: compiled(each)(x), right)
    op = pb.operator(f"{name_for()}(x[...]) -> y[...]", function=OwnRules)
    same(compiled(func.grad(lambda t: op(t).sum()))(x), right)
    same(compiled(func.vmap(func.grad(op)))(x), right)
    same(compiled(lambda t: func.vjp(op, t)[1](torch.ones_like(t))[0])(x), right)
    other = leaf(x)
    same(torch.autograd.grad(compiled(op)(other).sum(), other)[0], right)


def test_a_compiled_jvp_of_a_function(x: Tensor) -> None:
    right = torch.full_like(x, 100)
    same(pushed(OwnRules.apply, x), right)
    wrong(lambda: compiled(lambda t: pushed(OwnRules.apply, t))(x), right)
    op = pb.operator(f"{name_for()}(x[...]) -> y[...]", function=OwnRules)
    same(pushed(op, x), right)
    with pytest.raises(RuntimeError, match="PB379"):
        compiled(lambda t: pushed(op, t))(x)


# --- second derivatives


def test_the_second_derivative_through_a_saved_intermediate(x: Tensor) -> None:
    right = penalty(torch.nn.functional.silu, x)
    wrong(lambda: penalty(Swish.apply, x), right)
    op = pb.operator(f"{name_for()}(x[...]) -> y[...]", function=Swish)
    same(penalty(op, x), right)


class InNumpy(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return numpy_square(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(2 * grad.detach().numpy() * x.detach().numpy())


class Detached(InNumpy):
    """The gradient alone is detached, so that what backward returns still has a history."""

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * grad.detach() * x


def in_numpy(grad: Tensor, x: Tensor) -> Tensor:
    return torch.from_numpy(2 * grad.detach().numpy() * x.detach().numpy())


def detached(grad: Tensor, x: Tensor) -> Tensor:
    return 2 * grad.detach() * x


def cut_operators() -> dict[str, pb.Operator]:
    line = "(x[...]) -> y[...]"
    return {
        "a Function in NumPy": pb.operator(name_for() + line, function=InNumpy),
        "a Function that detaches": pb.operator(name_for() + line, function=Detached),
        "a backward in NumPy": pb.operator(
            name_for() + line, python=lambda x: x * x, backward=in_numpy
        ),
        "a backward that detaches": pb.operator(
            name_for() + line, python=lambda x: x * x, backward=detached
        ),
    }


@pytest.mark.parametrize("which", list(cut_operators()))
def test_a_backward_that_is_cut_off_from_its_gradient(which: str, x: Tensor) -> None:
    right = penalty(torch.square, x)
    for stock in (InNumpy, Detached):
        wrong(lambda: penalty(stock.apply, x), right)  # noqa: B023
    op = cut_operators()[which]
    other = leaf(x)
    same(torch.autograd.grad(op(other).sum(), other)[0], 2 * x)
    with pytest.raises(RuntimeError, match=r"PB378"):
        penalty(op, x)
    for use in (tangent, pushed, lambda call, t: func.jacfwd(call)(t)):
        with pytest.raises(RuntimeError, match=CUT):
            use(op, x)
    with pytest.raises(RuntimeError, match=CUT):
        func.hessian(lambda t: (op(t) ** 2).sum())(x)
    with pytest.raises(RuntimeError, match=CUT):
        func.jacrev(func.jacrev(lambda t: (op(t) ** 2).sum()))(x)


class HalfInNumpy(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b, torch.from_numpy(grad.detach().numpy() * a.detach().numpy())


def half_in_numpy(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return grad * b, torch.from_numpy(grad.detach().numpy() * a.detach().numpy())


@pytest.mark.parametrize("kind", ["function", "python"])
def test_a_backward_of_which_one_gradient_is_cut_off(kind: str, x: Tensor) -> None:
    b = x + 1
    right = penalty(torch.mul, x, b)
    wrong(lambda: penalty(HalfInNumpy.apply, x, b), right)
    line = f"{name_for()}(a[...], b[...]) -> c[...]"
    if kind == "function":
        op = pb.operator(line, function=HalfInNumpy)
    else:
        op = pb.operator(line, python=lambda a, b: a * b, backward=half_in_numpy)
    with pytest.raises(RuntimeError, match=r"PB378"):
        penalty(op, x, b)
    for use in (tangent, pushed):
        with pytest.raises(RuntimeError, match=CUT):
            use(op, x, b)
    # The other one is there.
    same(tangent(lambda a: op(a, b), x), b)


# --- in place


class Doubled(Function):
    """Changes its input, and does not say so."""

    @staticmethod
    def forward(ctx, x):
        return x.mul_(2).clone()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def doubled(x: Tensor) -> Tensor:
    return x.mul_(2).clone()


def twice(grad: Tensor) -> Tensor:
    return 2 * grad


def beside(call: Callable[..., Any], x: Tensor) -> Tensor:
    """Return a gradient to which the input itself contributes, after the call."""
    other = leaf(x)
    middle = other * 1
    return torch.autograd.grad(call(middle).sum() + (middle**2).sum(), other)[0]


@pytest.mark.parametrize("kind", ["function", "python"])
def test_an_input_that_is_changed_without_a_word(kind: str, x: Tensor) -> None:
    for right in (2 + 2 * x, 2 + 8 * x):  # of an input that stays, and of one that is changed
        wrong(lambda: beside(Doubled.apply, x), right)
    line = f"{name_for()}(x[...]) -> y[...]"
    if kind == "function":
        op = pb.operator(line, function=Doubled)
    else:
        op = pb.operator(line, python=doubled, backward=twice)
    with pytest.raises(RuntimeError, match=r"PB375|PB331"):
        beside(op, x)
    with pytest.raises(RuntimeError, match=r"PB375|PB331"), torch.no_grad():
        op(x.clone())
    with pytest.raises(RuntimeError, match=r"PB375|PB331"):
        func.grad(lambda t: op(t * 1).sum())(x)


class DoubledInPlace(Function):
    """Changes its input and says so."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def test_an_input_that_is_changed_as_the_line_says(x: Tensor) -> None:
    op = pb.operator(f"{name_for()}(x[...]) -> x[...]", function=DoubledInPlace)
    same(beside(op, x), 4 + 0 * x + 2 * 4 * x - 2)
    given = x.clone()
    assert op(given) is given
    same(given, 2 * x)


class KeptOnCtx(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.x


def test_a_tensor_kept_on_ctx_and_changed_before_backward(x: Tensor) -> None:
    def changed(call: Callable[..., Any]) -> Tensor:
        other = leaf(x)
        middle = other * 1
        y = call(middle)
        middle.mul_(10)
        return torch.autograd.grad(y.sum(), other)[0]

    wrong(lambda: changed(KeptOnCtx.apply), 2 * x)
    op = pb.operator(f"{name_for()}(x[...]) -> y[...]", function=KeptOnCtx)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        changed(op)


# --- gradients that PyTorch makes fit


def test_a_gradient_that_forgets_a_sum(x: Tensor) -> None:
    """Autograd sums a gradient that broadcasts, without a word; with `...` so does pullback."""

    class Row(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum().expand(2).clone()

        @staticmethod
        def backward(ctx, grad):
            return grad.sum().expand(5, 3)

    wrong(lambda: gradient_of(Row.apply, x), torch.full_like(x, 2))

    def rule(grad: Tensor) -> Tensor:
        return grad.sum().expand(5, 3)

    op = pb.operator(
        f"{name_for()}(x[n]) -> y[2]",
        python=lambda x: np.full(2, float(x.sum())),
        backward=rule,
    )
    with pytest.raises(RuntimeError, match="PB305"):
        gradient_of(op, x)


def gradient_of(call: Callable[..., Any], x: Tensor) -> Tensor:
    other = leaf(x)
    return torch.autograd.grad(call(other).sum(), other)[0]
