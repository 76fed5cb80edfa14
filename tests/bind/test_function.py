"""Existing Functions, unchanged: their values, and derivatives in every way PyTorch has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from functions import TABLE, Adopted, Linear, WithRules, tensors_in
from torch import Tensor, func
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import Function, forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import pullback as pb
from tests.telling import telling

# A traced call takes long: an optional tensor, an intermediate, two outputs, a list, own rules.
each_traced = pytest.mark.parametrize(
    "case",
    telling(
        {case.name: case for case in TABLE},
        ("Linear", "Swish", "SwishAttribute", "TwoOutputs", "ListSum", "WithRules"),
    ),
)


@pytest.fixture(params=TABLE, ids=[case.name for case in TABLE])
def case(request: pytest.FixtureRequest) -> Adopted:
    return request.param


def same(found: Any, expected: Any) -> None:
    """Compare two trees of tensors."""
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def on_tensors(
    case: Adopted, seed: int, call: Callable[..., Any]
) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """Return a function of the floating inputs alone, which leaves them as they are."""
    arguments = case.arguments(seed)
    leaves, spec = pytree.tree_flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    # What is changed in place is not the leaf itself.
    changed = bool(case.operator.line.changed)

    def function(*tensors: Tensor) -> Any:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor.clone() if changed else tensor
        outputs = call(*pytree.tree_unflatten(given, spec))
        return tuple(o for o in tensors_in(outputs if isinstance(outputs, tuple) else (outputs,)))

    return function, tuple(leaves[i] for i in places)


def total(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return a scalar function in which every output counts differently."""

    def function_of(*tensors: Tensor) -> Tensor:
        outputs = function(*tensors)
        return torch.stack([((i + 1) * o**2).sum() for i, o in enumerate(outputs)]).sum()

    return function_of


def both(case: Adopted, seed: int, use: Callable[..., Any]) -> None:
    """Compare what `use` makes of the operator with what it makes of the reference."""
    function, tensors = on_tensors(case, seed, case.operator)
    reference, _ = on_tensors(case, seed, case.reference)
    same(use(function, tensors), use(reference, tensors))


def numbers(tensors: tuple[Tensor, ...]) -> tuple[int, ...]:
    return tuple(range(len(tensors)))


def gradients(function: Any, tensors: tuple[Tensor, ...]) -> Any:
    leaves = [t.clone().requires_grad_() for t in tensors]
    return torch.autograd.grad(total(function)(*leaves), leaves)


def test_value_without_grad(case: Adopted, seed: int) -> None:
    with torch.no_grad():
        both(case, seed, lambda f, tensors: f(*tensors))
    with torch.inference_mode():
        both(case, seed, lambda f, tensors: f(*tensors))


def test_gradients(case: Adopted, seed: int) -> None:
    both(case, seed, gradients)


def test_through_the_dispatcher(case: Adopted, seed: int) -> None:
    function, tensors = on_tensors(case, seed, case.operator.overload)
    reference, _ = on_tensors(case, seed, case.reference)
    same(gradients(function, tensors), gradients(reference, tensors))


def test_each_output_alone(case: Adopted, seed: int) -> None:
    function, tensors = on_tensors(case, seed, case.operator)
    reference, _ = on_tensors(case, seed, case.reference)
    for index in range(len(function(*tensors))):
        leaves = [t.clone().requires_grad_() for t in tensors]
        found = torch.autograd.grad(function(*leaves)[index].sum(), leaves)
        expected = torch.autograd.grad(reference(*leaves)[index].sum(), leaves)
        same(found, expected)


def test_each_input_alone(case: Adopted, seed: int) -> None:
    function, tensors = on_tensors(case, seed, case.operator)
    reference, _ = on_tensors(case, seed, case.reference)
    for index in range(len(tensors)):
        leaves = [t.clone().requires_grad_(i == index) for i, t in enumerate(tensors)]
        found = torch.autograd.grad(total(function)(*leaves), leaves[index])
        same(found, torch.autograd.grad(total(reference)(*leaves), leaves[index]))


def test_double_backward(case: Adopted, seed: int) -> None:
    def use(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        leaves = [t.clone().requires_grad_() for t in tensors]
        first = torch.autograd.grad(total(function)(*leaves), leaves, create_graph=True)
        return torch.autograd.grad(torch.stack([(g**2).sum() for g in first]).sum(), leaves)

    if case.orders == 1:
        with pytest.raises(RuntimeError, match=r"PB376|PB378|differentiate twice|numpy"):
            use(*on_tensors(case, seed, case.operator))
        return
    both(case, seed, use)


def test_grad_vjp_jacrev(case: Adopted, seed: int) -> None:
    both(case, seed, lambda f, ts: func.grad(total(f), numbers(ts))(*ts))
    both(case, seed, lambda f, ts: func.vjp(total(f), *ts)[1](torch.ones((), dtype=torch.float64)))
    both(case, seed, lambda f, ts: func.jacrev(f, numbers(ts))(*ts))


def test_forward_mode(case: Adopted, seed: int) -> None:
    def dual(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        with forward_ad.dual_level():
            outputs = function(*(forward_ad.make_dual(t, t.sin()) for t in tensors))
            return [forward_ad.unpack_dual(o).tangent for o in outputs]

    def jvp(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        return func.jvp(function, tensors, tuple(t.sin() for t in tensors))

    if not case.forward_mode:
        function, tensors = on_tensors(case, seed, case.operator)
        for use in (dual, jvp):
            with pytest.raises(RuntimeError, match=r"PB309|differentiate twice"):
                use(function, tensors)
        return
    both(case, seed, dual)
    both(case, seed, jvp)
    both(case, seed, lambda f, ts: func.jacfwd(f, numbers(ts))(*ts))


def test_hessian(case: Adopted, seed: int) -> None:
    def use(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        return func.hessian(total(function), numbers(tensors))(*tensors)

    def reverse(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        return func.jacrev(func.grad(total(function), numbers(tensors)), numbers(tensors))(*tensors)

    if case.orders == 1:
        function, tensors = on_tensors(case, seed, case.operator)
        for refused in (use, reverse):
            with pytest.raises(RuntimeError, match=r"PB3\d\d|differentiate twice"):
                refused(function, tensors)
        return
    both(case, seed, use)
    both(case, seed, reverse)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_vmap(case: Adopted, seed: int, dim: int) -> None:
    def use(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        stacked = [torch.stack([t, t.sin(), t + 1], dim=dim) for t in tensors]
        values = func.vmap(function, in_dims=dim)(*stacked)
        grads = func.vmap(func.grad(total(function), numbers(tensors)), in_dims=dim)(*stacked)
        return values, grads

    both(case, seed, use)


def test_vmap_over_some_inputs(case: Adopted, seed: int) -> None:
    def use(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        found = []
        for index in range(len(tensors)):
            dims = tuple(0 if i == index else None for i in range(len(tensors)))
            given = [torch.stack([t, t + 1]) if i == index else t for i, t in enumerate(tensors)]
            gradient = func.grad(total(function), numbers(tensors))
            found.append(func.vmap(function, in_dims=dims)(*given))
            found.append(func.vmap(gradient, in_dims=dims)(*given))
        return found

    both(case, seed, use)


def test_grads_batched(case: Adopted, seed: int) -> None:
    def use(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        leaves = [t.clone().requires_grad_() for t in tensors]
        output = function(*leaves)[0]
        eye = torch.eye(output.numel(), dtype=output.dtype).view(-1, *output.shape)
        return torch.autograd.grad(output, leaves, eye, is_grads_batched=True)

    both(case, seed, use)


@pytest.mark.ci(3)
@each_traced
def test_compiled(case: Adopted, seed: int) -> None:
    torch._dynamo.reset()

    def use(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        whole = torch.compile(
            lambda *ts: total(function)(*(t.mul(1) for t in ts)),  # pyright: ignore
            fullgraph=True,
            backend="aot_eager",
            dynamic=True,
        )
        leaves = [t.clone().requires_grad_() for t in tensors]
        return torch.autograd.grad(whole(*leaves), leaves)

    function, tensors = on_tensors(case, seed, case.operator)
    reference, _ = on_tensors(case, seed, case.reference)
    same(use(function, tensors), gradients(reference, tensors))


@pytest.mark.ci(3)
@each_traced
def test_compiled_transforms(case: Adopted, seed: int) -> None:
    torch._dynamo.reset()
    function, tensors = on_tensors(case, seed, case.operator)
    reference, _ = on_tensors(case, seed, case.reference)

    def compiled(use: Callable[..., Any]) -> Any:
        return torch.compile(use, fullgraph=True, backend="aot_eager")(*tensors)

    of = numbers(tensors)
    same(compiled(func.grad(total(function), of)), func.grad(total(reference), of)(*tensors))
    rows = [torch.stack([t, t + 1]) for t in tensors]
    found = torch.compile(func.vmap(function), fullgraph=True, backend="aot_eager")(*rows)
    same(found, func.vmap(reference)(*rows))


def test_a_batching_rule_of_its_own_is_used() -> None:
    """What its author says of batching counts, in `vmap` and in what is built on it."""
    calls: list[str] = []

    class Recorded(WithRules):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor, k: float) -> Any:
            calls.append("vmap")
            return WithRules.vmap(info, in_dims, x, k)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:  # pyright: ignore
            calls.append("jvp")
            return WithRules.jvp(ctx, *tangents)

    operator = pb.operator("pbfn::rules(x[...], k: float) -> y[...]", function=Recorded)
    x = torch.linspace(0, 1, 6, dtype=torch.float64).view(2, 3)
    same(func.vmap(lambda t: operator(t, 2.0))(x), 2 * x.sin())
    assert calls == ["vmap"]
    for call in (operator, torch.ops.pbfn.rules):
        calls.clear()
        same(func.jvp(functools.partial(call, k=2.0), (x,), (x,))[1], 2 * x * x.cos())
        assert calls == ["jvp"]
    calls.clear()
    same(func.vmap(func.grad(lambda t: operator(t, 2.0).sum()))(x), 2 * x.cos())
    assert "vmap" in calls


def kept_by_compiled(operator: pb.Operator, *shapes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shapes of the floating tensors that a compiled call keeps for backward."""
    torch._dynamo.reset()
    kept: list[tuple[int, ...]] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            kept.append(tuple(tensor.shape))
        return tensor

    compiled = torch.compile(operator, fullgraph=True, backend="aot_eager")
    leaves = [torch.rand(shape, requires_grad=True) for shape in shapes]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = compiled(*leaves)
    output.sum().backward()
    assert all(leaf.grad is not None and leaf.grad.shape == leaf.shape for leaf in leaves)
    return kept


class TwoMaybe(Function):
    """Two outputs of an intermediate; a gradient that does not arrive is None, if asked for."""

    materialize = True
    seen: ClassVar[list[tuple[bool, bool]]] = []

    @classmethod
    def forward(cls, ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore
        ctx.set_materialize_grads(cls.materialize)
        middle = x.sin()
        ctx.save_for_backward(middle)
        return 2 * middle, middle * middle

    @classmethod
    def backward(cls, ctx: Any, one: Any, other: Any) -> Tensor:  # pyright: ignore
        cls.seen.append((one is None, other is None))
        (middle,) = ctx.saved_tensors
        slope = (1 - middle * middle).sqrt()
        return slope * ((0 if one is None else 2 * one) + (0 if other is None else other * middle))


class TwoOrNone(TwoMaybe):
    materialize = False


@functools.cache
def of_two(function: type[TwoMaybe]) -> pb.Operator:
    line = f"pbf::{function.__name__.lower()}(x[...]) -> (y[...], z[...])"
    return pb.operator(line, function=function)


ASKED: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], object]] = {
    "backward": lambda f, x: torch.autograd.grad(f(x), x),
    "double backward": lambda f, x: torch.autograd.grad(f(x), x, create_graph=True),
    "func.grad": lambda f, x: func.grad(f)(x.detach()),
}


@pytest.mark.parametrize("way", ASKED)
@pytest.mark.parametrize("function", [TwoMaybe, TwoOrNone])
def test_a_gradient_that_does_not_arrive_is_what_forward_asked_for(
    function: type[TwoMaybe], way: str
) -> None:
    operator = of_two(function)
    function.seen.clear()
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    ASKED[way](lambda x: operator(x)[0].sum(), x)
    assert set(function.seen) == {(False, not function.materialize)}


def test_a_compiled_call_keeps_what_forward_saves_and_no_more() -> None:
    class Shift(Linear):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:  # pyright: ignore
            ctx.save_for_backward(y.t())
            return x.sum(0) + y.exp()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore
            (yt,) = ctx.saved_tensors
            return grad.expand(7, 5, 3), grad * yt.t().exp()

    shift = pb.operator("pbfn::shift(x[k, n, m], y[n, m]) -> z[n, m]", function=Shift)
    assert kept_by_compiled(shift, (7, 5, 3), (5, 3)) == [(5, 3)]

    class ShiftInNumpy(Shift):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:  # pyright: ignore
            x.detach().numpy()
            return Shift.forward(ctx, x, y)

    unknown = pb.operator("pbfn::shift2(x[k, n, m], y[n, m]) -> z[n, m]", function=ShiftInNumpy)
    assert (7, 5, 3) in kept_by_compiled(unknown, (7, 5, 3), (5, 3))


def test_a_forward_that_saves_something_else_than_when_it_was_traced() -> None:
    class Fickle(Linear):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:  # pyright: ignore
            # A tracer's tensors have another type.
            ctx.save_for_backward(x if type(x) is Tensor else y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore
            return grad, grad * ctx.saved_tensors[0]

    fickle = pb.operator("pbfn::fickle(x[n], y[n]) -> z[n]", function=Fickle)
    with pytest.raises(RuntimeError, match="PB377"):
        kept_by_compiled(fickle, (3,), (3,))


def test_a_forward_that_asks_for_values_and_sizes_compiles() -> None:
    """What it asks is no business of the program that is traced."""

    class Asks(Linear):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore
            ctx.rows = x.nonzero().shape[0] if x.shape[0] != 5 else 0
            ctx.largest = x.max().item()
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore
            (x,) = ctx.saved_tensors
            assert ctx.largest == x.max().item()
            return 2 * grad * x

    asks = pb.operator("pbfn::asks(x[...]) -> y[...]", function=Asks)
    torch._dynamo.reset()
    programs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: asks(x * 1), fullgraph=True, dynamic=True, backend=programs)
    for size in (3, 4, 5, 6):
        leaf = torch.rand(size, 2, requires_grad=True)
        compiled(leaf).sum().backward()
        same(leaf.grad, 2 * leaf.detach())
    assert programs.frame_count == 1


def test_a_gradient_that_is_returned_transposed_lies_as_a_traced_program_expects(
    seed: int,
) -> None:
    class Transposed(Linear):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:  # pyright: ignore
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore
            x, w = ctx.saved_tensors
            return (w @ grad.T).T, (grad.T @ x).T

    operator = pb.operator("pbfn::turned(x[n, i], w[i, o]) -> y[n, o]", function=Transposed)

    def flat(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        grads = func.grad(lambda x, w: operator(x, w).square().sum(), argnums=(0, 1))(x, w)
        return tuple(own.view(-1) for own in grads)

    given = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    traced = make_fx(flat, tracing_mode="fake")(*given)
    x, w = (own.clone().requires_grad_() for own in given)
    wanted = torch.autograd.grad((x @ w).square().sum(), (x, w))
    same(traced(*given), tuple(own.flatten() for own in wanted))


def test_tensors_that_forward_takes_one_by_one_are_given_so_or_as_a_list() -> None:
    class Sum(Function):
        @staticmethod
        def forward(ctx: Any, scale: float, *tensors: Tensor) -> Tensor:  # pyright: ignore
            ctx.scale, ctx.count = scale, len(tensors)
            return scale * torch.stack(tensors).sum(0)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore
            return None, *[ctx.scale * grad] * ctx.count

    summed = pb.operator("pbfn::one_by_one(scale: float, tensors[n]*) -> y[n]", function=Sum)
    a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
    for _ in range(2):  # the first call of a kind goes another way than the next
        same(summed(2.0, a, b), 2 * (a + b))
        same(summed(2.0, [a, b]), 2 * (a + b))
    same(torch.autograd.grad(summed(2.0, a, b, a).sum(), a)[0], torch.full((3,), 4.0))
    same(func.grad(lambda a: summed(2.0, a, a).sum())(a.detach()), torch.full((3,), 4.0))
    compiled = torch.compile(
        lambda a, b: summed(2.0, a, b) * 1, fullgraph=True, backend="aot_eager"
    )
    same(compiled(a, b), 2 * (a + b))


def test_a_size_may_be_the_least_of_two_in_every_way_of_a_call() -> None:
    class Reduced(Function):
        """The reduced QR decomposition's Q."""

        @staticmethod
        def forward(ctx: Any, a: Tensor) -> Tensor:  # pyright: ignore
            ctx.save_for_backward(a)
            return torch.linalg.qr(a)[0]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore
            (a,) = ctx.saved_tensors
            return func.vjp(lambda a: torch.linalg.qr(a)[0], a)[1](grad)[0]

    reduced = pb.operator("pbfn::reduced(a[n, m]) -> q[n, min(n, m)]", function=Reduced)
    programs = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda a: reduced(a * 1) * 1, fullgraph=True, dynamic=True, backend=programs
    )
    for n, m in ((5, 3), (6, 4), (7, 2)):
        a = torch.randn(n, m, dtype=torch.float64)
        same(reduced(a), torch.linalg.qr(a)[0])
        same(compiled(a), torch.linalg.qr(a)[0])
        same(
            func.vmap(reduced)(torch.stack([a, 2 * a])), torch.linalg.qr(torch.stack([a, 2 * a]))[0]
        )
        same(func.jacrev(reduced)(a), func.jacrev(lambda a: torch.linalg.qr(a)[0])(a))
    assert programs.frame_count == 1
    same(reduced(a.mT.contiguous()), torch.linalg.qr(a.mT)[0])
