"""Functions that do not fit their line, or misbehave: each has its error, and none is silent."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, func
from torch.autograd import Function

import pullback as pb
from pullback.bind.functions import context
from pullback.bind.functions.memory import AliasNotice

# pyright: reportIncompatibleMethodOverride=false


def x(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64, requires_grad=True)


def error_of(line: str, function: Any, *, code: str, match: str, **options: Any) -> None:
    with pytest.raises(pb.PullbackError, match=match) as caught:
        pb.operator(line, function=function, **options)
    assert caught.value.finding.code == code


def call_error(operator: Any, *arguments: Any, code: str, match: str) -> None:
    with pytest.raises(pb.PullbackError, match=match) as caught:
        operator(*arguments)
    assert caught.value.finding.code == code


class Double(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


def made(forward: Any = None, backward: Any = None) -> type[Function]:
    """Return a Function with another forward or backward than Double's."""
    members = {"forward": forward, "backward": backward}
    methods = {name: staticmethod(m) for name, m in members.items() if m is not None}
    return type("Made", (Double,), methods)


# --- at the definition


@pytest.mark.parametrize("function", [torch.sin, Double.apply, int, "Double"])
def test_what_is_no_function_is_refused(function: Any) -> None:
    error_of("pbbad::a(x[...]) -> y[...]", function, code="PB371", match="Function")


def test_a_function_without_forward_is_refused() -> None:
    empty = type("Empty", (Function,), {})
    error_of("pbbad::a(x[...]) -> y[...]", empty, code="PB371", match="has no forward")


@pytest.mark.parametrize(
    "line", ["pbbad::a(x[...], k: int) -> y[...]", "pbbad::a(x[...], z[...]) -> y[...]"]
)
def test_another_number_of_parameters_is_refused(line: str) -> None:
    error_of(line, Double, code="PB372", match=r"takes \(x")


def test_a_spread_of_tensors_needs_a_list() -> None:
    spread = made(lambda ctx, *tensors: sum(tensors))
    error_of("pbbad::a(x[...]) -> y[...]", spread, code="PB372", match="does not end with a list")


def test_neither_line_nor_example_is_refused() -> None:
    error_of("pbbad::a", Double, code="PB355", match="neither a line nor an example")


def test_a_second_derivative_of_its_own_is_refused() -> None:
    error_of(
        "pbbad::a(x[...]) -> y[...]",
        Double,
        backward=lambda grad: grad,
        code="PB355",
        match="brings",
    )
    error_of(
        "pbbad::a(x[...]) -> y[...]",
        Double,
        python=torch.sin,
        code="PB352",
        match="is given with",
    )


def test_an_unknown_policy_is_refused() -> None:
    error_of("pbbad::a(x[...]) -> y[...]", Double, autocast="lowr", code="PB355", match="autocast")


@pytest.mark.parametrize(
    "line",
    [
        "pbbad::a(xs[...]*) -> y[...]",
        "pbbad::a(x[...]) -> y[*]",
        "pbbad::a(x[...]) -> x[...]",
    ],
)
def test_what_only_a_function_can_have_is_refused_elsewhere(line: str) -> None:
    with pytest.raises(pb.PullbackError, match="does not go with python=") as caught:
        pb.operator(line, python=torch.sin)
    assert caught.value.finding.code == "PB353"


def test_a_line_against_its_example() -> None:
    arguments = (torch.ones(2, 3),)
    error_of("pbbad::a(x[n, m]) -> y[m, n]", Double, example=arguments, code="PB368", match="shape")


def test_python_state_that_changes_is_noticed() -> None:
    calls: list[int] = []

    def forward(ctx: Any, x: Tensor) -> Tensor:
        calls.append(1)
        return x * len(calls)

    error_of(
        "pbbad::a", made(forward), example=(torch.ones(3),), code="PB365", match="called again"
    )


# --- at a call


def test_something_that_is_no_tensor() -> None:
    number = pb.operator("pbbad::number(x[...]) -> y[...]", function=made(lambda ctx, x: 3.0))
    call_error(number, x(2), code="PB373", match="returned a float for 'y'")


def test_another_number_of_outputs() -> None:
    two = pb.operator("pbbad::two(x[...]) -> y[...]", function=made(lambda ctx, x: (x + 1, x + 2)))
    call_error(two, x(2), code="PB373", match="returned 2 values, the line says 1")


def test_another_shape_or_dtype() -> None:
    shape = pb.operator("pbbad::shape(x[n]) -> y[n]", function=made(lambda ctx, x: x[:1] * 2))
    call_error(shape, x(2), code="PB331", match=r"forward of Made returned 'y' of shape \(1\)")
    dtype = pb.operator("pbbad::dtype(x[n]) -> y[n]", function=made(lambda ctx, x: x.float()))
    call_error(dtype, x(2), code="PB331", match="float32")


class Generated(Function):
    """PyTorch's own way of batching is used for it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor | None = None) -> Tensor:
        return x.tanh() if y is None else x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass


def test_wrong_arguments() -> None:
    double = pb.operator("pbbad::double(x[n]) -> y[n]", function=Double)
    call_error(double, x(2, 3), code="PB111", match="has 2 dimensions")
    for wrong in (3.0, {"x": 1}, [x(2)], np.ones(2), object()):
        call_error(double, wrong, code="PB341", match=f"'x' is an? {type(wrong).__name__}")
    call_error(double, code="PB341", match="missing")
    tanh = pb.operator("pbbad::tanh(x[n], y[n]?) -> z[n]", function=Generated)
    call_error(func.vmap(lambda t: tanh(t, 3.0)), x(2, 3), code="PB341", match="'y' is a float")


def test_an_output_that_is_its_input_is_copied_with_a_notice() -> None:
    same = pb.operator("pbbad::same(x[...]) -> y[...]", function=made(lambda ctx, x: x))
    a = x(3)
    with pytest.warns(AliasNotice, match="'y' shares memory") as said:
        y = same(a)
    assert [each.filename for each in said] == [__file__]
    y.sum().backward()
    with torch.no_grad():
        y.add_(1)
    assert a.tolist() == [1, 1, 1]
    assert a.grad is not None
    assert a.grad.tolist() == [2, 2, 2]


def test_an_output_that_shares_memory_through_numpy_is_copied() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy().view(np.float64))

    shared = pb.operator("pbbad::shared(x[...]) -> y[...]", function=made(forward))
    a = x(3)
    with pytest.warns(AliasNotice):
        assert shared(a).data_ptr() != a.data_ptr()


def test_an_input_that_is_changed_without_a_word() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.mul_(2) + 1

    silent = pb.operator("pbbad::silent(x[...]) -> y[...]", function=made(forward))
    # Also the second time, and where no gradient is recorded.
    for call in (silent, silent, torch.no_grad()(silent), func.grad(lambda t: silent(t).sum())):
        call_error(call, torch.ones(2), code="PB375", match="changed an input in place")


def test_a_python_kernel_that_changes_its_input() -> None:
    changes = pb.operator("pbbad::changes(x[...]) -> y[...]", python=lambda x: x.mul_(2).clone())
    call_error(changes, torch.ones(2), code="PB331", match="changed an input in place")


def test_in_place_by_the_line_or_by_forward_alone() -> None:
    declared = pb.operator("pbbad::declared(x[...]) -> x[...]", function=Double)
    call_error(declared, torch.ones(2), code="PB375", match="does not mark it dirty")

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    marked = pb.operator("pbbad::marked(x[...]) -> y[...]", function=made(forward))
    call_error(marked, torch.ones(2), code="PB375", match="marks 1 of its inputs")


def test_an_output_that_is_a_view_may_be_changed_in_place() -> None:
    numpy = pb.operator("pbbad::view(x[n, m]) -> y[m, n]", python=lambda x: x.numpy().T.copy().T.T)
    plain = pb.operator(
        "pbbad::view2(x[n, m]) -> y[m, n]", python=lambda x: (x * 2).t(), backward={"x": None}
    )
    for operator in (numpy, plain):
        operator(x(2, 3) * 1).mul_(3)


# --- in backward


def test_no_backward() -> None:
    only = type("Only", (Function,), {"forward": staticmethod(lambda ctx, x: x + 1)})
    forward_only = pb.operator("pbbad::forward_only(x[...]) -> y[...]", function=only)
    call_error(forward_only(x(2)).sum().backward, code="PB308", match="Only has no backward")
    call_error(func.grad(lambda t: forward_only(t).sum()), x(2), code="PB308", match="backward")


def test_a_gradient_of_another_shape_through_torch_func() -> None:
    wrong = pb.operator(
        "pbbad::wrong(x[n]) -> y[n]", function=made(backward=lambda ctx, grad: grad[:1].repeat(7))
    )
    gradient = func.grad(lambda t: wrong(t).sum())
    call_error(
        gradient, torch.ones(3), code="PB374", match=r"shape \(7\) for an input of shape \(3\)"
    )


def test_too_few_gradients_through_torch_func() -> None:
    class Add(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            return a + b

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad

    add = pb.operator("pbbad::add(a[...], b[...]) -> c[...]", function=Add)
    gradient = func.grad(lambda a, b: add(a, b).sum())
    call_error(gradient, torch.ones(2), torch.ones(2), code="PB374", match="returned 1 values")


def test_none_for_a_list_whose_tensors_need_gradients() -> None:
    class Sum(Function):
        @staticmethod
        def forward(ctx: Any, tensors: list[Tensor]) -> Tensor:
            return torch.stack(tensors).sum(0)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> None:
            return None

    total = pb.operator("pbbad::sum(tensors[n]*) -> y[n]", function=Sum)
    call_error(
        total([x(2), x(2)]).sum().backward, code="PB374", match="None for the list 'tensors'"
    )


def second_derivatives(function: type[Function], name: str) -> tuple[Any, Any]:
    """Return two ways to ask for the second derivative of an operator's sum at ones."""
    operator = pb.operator(f"pbbad::{name}(x[n]) -> y[n]", function=function)

    def eager() -> Tensor:
        a = x(2)
        (first,) = torch.autograd.grad(operator(a).sum(), a, create_graph=True)
        return torch.autograd.grad(first.sum(), a)[0]

    gradient = func.grad(lambda s: operator(s).sum())
    return eager, lambda: func.grad(lambda t: gradient(t).sum())(x(2).detach())


def saves(what: Any) -> type[Function]:
    """Return a Function of 2 exp(x), which saves x and something else in place of exp(x)."""

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, what(x))
        return 2 * x.exp()

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2 * ctx.saved_tensors[1]

    return made(forward, backward)


def test_a_second_derivative_through_an_intermediate_is_that_of_forward() -> None:
    for derivative in second_derivatives(saves(torch.exp), "again"):
        torch.testing.assert_close(derivative(), 2 * x(2).detach().exp())


def test_a_constant_intermediate_adds_nothing() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mask = torch.rand_like(x) + 1  # as a dropout's
        ctx.save_for_backward(x, mask)
        return x**2 * mask

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, mask = ctx.saved_tensors
        return grad * 2 * x * mask

    for derivative in second_derivatives(made(forward, backward), "mask"):
        assert all(2 <= value < 4 for value in derivative().tolist())
    for derivative in second_derivatives(saves(lambda x: torch.full_like(x, 3)), "constant"):
        assert derivative().tolist() == [0, 0]


def test_a_random_intermediate_has_no_second_derivative() -> None:
    eager, transformed = second_derivatives(saves(lambda x: x * torch.rand_like(x)), "random")
    for derivative in (eager, transformed):
        call_error(derivative, code="PB376", match="gives another one")


def test_a_second_derivative_through_an_intermediate_that_nobody_knows() -> None:
    cut = saves(lambda x: torch.from_numpy(np.exp(x.detach().numpy())))
    eager, transformed = second_derivatives(cut, "unknown")
    call_error(eager, code="PB376", match="it is cut off from the inputs")
    call_error(transformed, code="PB376", match="intermediate")

    def forward(ctx: Any, x: Tensor) -> Tensor:
        t = x.exp()
        ctx.save_for_backward(t)
        return t * 2

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2 * ctx.saved_tensors[0]

    eager, transformed = second_derivatives(made(forward, backward), "alone")
    call_error(eager, code="PB376", match="not all inputs are saved")
    torch.testing.assert_close(transformed(), 2 * x(2).detach().exp())


def test_a_second_derivative_that_numpy_cuts_off() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.from_numpy(3 * grad.detach().numpy() * x.detach().numpy() ** 2)

    cut = pb.operator("pbbad::cut(x[n]) -> y[n]", function=made(forward, backward))
    a = x(2)
    (first,) = torch.autograd.grad(cut(a).sum(), a, create_graph=True)
    assert first.tolist() == [3, 3]
    call_error((first + a).sum().backward, code="PB378", match="cut off")
    call_error(func.jacfwd(cut), torch.ones(2), code="PB309", match="cannot be differentiated")


def test_what_is_cut_off_is_seen_at_the_first_call_also_while_traced() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.from_numpy(2 * x.detach().numpy())

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.from_numpy(2 * grad.detach().numpy())

    cut = pb.operator("pbbad::linearized(x[n]) -> y[n]", function=made(forward, backward))
    call_error(func.linearize, cut, torch.ones(2), code="PB309", match="cannot be differentiated")


def test_forward_mode_while_traced() -> None:
    double = pb.operator("pbbad::traced(x[n]) -> y[n]", function=Double)

    def push(t: Tensor) -> Any:
        return func.jvp(double, (t,), (t,))

    with pytest.raises(RuntimeError, match="PB379"):
        torch.compile(push, fullgraph=True, backend="aot_eager")(torch.ones(2))


def test_a_context_that_is_gone() -> None:
    hidden = pb.operator("pbbad::gone(x[n]) -> y[n]", function=Double)
    forward = torch.ops.pbbad._gone_forward
    a = torch.ones(2)
    y, kept, number, owners = forward(a, [True], False)
    arguments = ([a], [a], [y], kept, number.clone())
    rest = ([True], [], [False, False])
    assert torch.ops.pbbad._gone_backward(*arguments, owners, *rest)[0].tolist() == [2, 2]
    del owners
    gc.collect()
    call_error(
        torch.ops.pbbad._gone_backward, *arguments, [], *rest, code="PB377", match="was freed"
    )
    assert hidden(a).tolist() == [2, 2]


def test_what_forward_keeps_is_given_free_with_the_graph() -> None:
    double = pb.operator("pbbad::freed(x[n]) -> y[n]", function=Double)
    gc.collect()
    before = len(context._owners)
    gradient = func.vmap(func.grad(lambda t: double(t).sum()))
    for _ in range(5):
        gradient(torch.ones(3, 2))
    compiled = torch.compile(lambda t: double(t).sum(), backend="aot_eager", fullgraph=True)
    compiled(x(2)).backward()
    gc.collect()
    assert len(context._owners) == before
