"""Gradients, their orders and their wiring; what is saved is in test_saved.py."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from operators import BY_NAME, DIFFERENTIABLE, Case, as_tuple, draw, linear_backward, precise
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import pullback as pb

pytestmark = pytest.mark.compiler
each_case = pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda case: case.name)
twice_differentiable = [case for case in DIFFERENTIABLE if case.orders == 2]
each_twice = pytest.mark.parametrize("case", twice_differentiable, ids=lambda case: case.name)


def tracked(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments, those of a floating dtype as leaves that require a gradient."""
    return tuple(
        a.clone().requires_grad_() if isinstance(a, Tensor) and a.dtype != torch.int64 else a
        for a in arguments
    )


def leaves(arguments: tuple[Any, ...]) -> list[Tensor]:
    return [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]


# --- against numbers


@each_case
def test_gradients_agree_with_finite_differences(case: Case, seed: int) -> None:
    for example in case.examples:
        arguments = tracked(draw(example, precise(case), seed))
        twice = case.orders == 2
        assert gradcheck(
            case.operator,
            arguments,
            check_forward_ad=twice,
            check_batched_grad=True,
            check_batched_forward_grad=twice,
        )


@each_twice
def test_second_derivatives_agree_with_finite_differences(case: Case, seed: int) -> None:
    for example in case.examples:
        arguments = tracked(draw(example, precise(case), seed))
        if all(a.numel() for a in leaves(arguments)):
            assert gradgradcheck(
                case.operator,
                arguments,
                check_fwd_over_rev=True,
                check_rev_over_rev=True,
                fast_mode=True,
            )


@each_case
def test_gradients_agree_with_those_of_the_reference(case: Case, seed: int) -> None:
    for example, dtype in itertools.product(case.examples, case.dtypes):
        arguments = tracked(draw(example, dtype, seed))
        outputs, expected = as_tuple(case.operator(*arguments)), case.expected(*arguments)
        generator = torch.Generator().manual_seed(seed)
        grads = [torch.randn(o.shape, generator=generator).to(o.dtype) for o in outputs]
        found = torch.autograd.grad(outputs, leaves(arguments), grads)
        wanted = torch.autograd.grad(expected, leaves(arguments), grads)
        for gradient, other in zip(found, wanted, strict=True):
            assert (gradient.shape, gradient.dtype) == (other.shape, other.dtype)
            # A few dozen products and sums at most: 64 roundings of the largest.
            scale = max(float(other.abs().max()) if other.numel() else 0, 8)
            bound = 64 * torch.finfo(dtype).eps * scale
            torch.testing.assert_close(gradient, other, rtol=0, atol=bound)


@pytest.mark.parametrize("layout", ["expanded", "transposed"])
def test_incoming_gradients_may_have_any_layout(layout: str, seed: int) -> None:
    for case in (BY_NAME["mul"], BY_NAME["linear"], BY_NAME["matvec"], BY_NAME["square"]):
        arguments = tracked(draw(case.examples[0], torch.float64, seed))
        output = case.operator(*arguments)
        grad = torch.randn(output.shape[::-1], dtype=torch.float64).permute(
            *reversed(range(output.dim()))
        )
        if layout == "expanded":
            grad = torch.randn((), dtype=torch.float64).expand(output.shape)
        found = torch.autograd.grad(output, leaves(arguments), grad)
        wanted = torch.autograd.grad(case.expected(*arguments), leaves(arguments), grad)
        torch.testing.assert_close(found, wanted)


# --- only what is needed


@functools.cache
def three() -> pb.Operator:
    """An operator whose native backward writes which of its pointers were not null."""
    pb.operator(
        "pbtest::three_backward(grad[n]) -> (grad_a[n], grad_b[n], grad_c[n])",
        cpu=pb.source(
            """template <class T> void pull(T* a, T* b, T* c, long n) {
                const T seen = (a ? 1 : 0) + (b ? 2 : 0) + (c ? 4 : 0);
                T* all[] = {a, b, c};
                for (T* p : all) for (long i = 0; p && i < n; ++i) p[i] = seen;
            }""",
            call="pull(grad_a, grad_b, grad_c, n)",
        ),
    )
    return pb.operator(
        "pbtest::three(a[n], b[n], c[n]) -> y[n]",
        cpu=pb.source(
            """template <class T> void add(T* y, const T* a, const T* b, const T* c, long n) {
                for (long i = 0; i < n; ++i) y[i] = a[i] + b[i] + c[i];
            }""",
            call="add(y, a, b, c, n)",
        ),
        backward="pbtest::three_backward",
    )


SUBSETS = [s for n in (1, 2, 3) for s in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("subset", SUBSETS, ids=str)
def test_a_native_backward_gets_null_for_gradients_that_are_not_needed(
    subset: tuple[int, ...],
) -> None:
    seen = sum(1 << index for index in subset)
    some = [torch.ones(2, requires_grad=index in subset) for index in range(3)]
    three()(*some).sum().backward()
    for index, tensor in enumerate(some):
        if index in subset:
            torch.testing.assert_close(tensor.grad, torch.full((2,), float(seen)))
        else:
            assert tensor.grad is None
    # Asked for in the call of backward, all requiring a gradient.
    every = [torch.ones(2, requires_grad=True) for _ in range(3)]
    found = torch.autograd.grad(three()(*every).sum(), [every[index] for index in subset])
    for gradient in found:
        torch.testing.assert_close(gradient, torch.full((2,), float(seen)))


@pytest.mark.parametrize("subset", SUBSETS, ids=str)
def test_output_mask_chooses_the_outputs_of_a_backward(subset: tuple[int, ...], seed: int) -> None:
    input_, weight, _ = draw(BY_NAME["linear"].examples[0], torch.float64, seed)
    grad = torch.randn(5, 2, dtype=torch.float64)
    everything = linear_backward()(grad, input_, weight)
    mask = [index in subset for index in range(3)]
    some = linear_backward()(grad, input_, weight, output_mask=mask)
    for index, (gradient, wanted) in enumerate(zip(some, everything, strict=True)):
        if mask[index]:
            torch.testing.assert_close(gradient, wanted)
        else:
            assert gradient is None


def test_an_expression_is_evaluated_only_where_its_gradient_is_needed() -> None:
    calls: list[str] = []

    def pull(grad: Tensor, other: Tensor) -> Tensor:
        calls.append("pull")
        return grad * other

    pb.operator("pbtest::counted_pull(grad[...], other[...]) -> y[...]", python=pull)
    counted = pb.operator(
        "pbtest::counted(a[...], b[...]) -> c[...]",
        python=torch.mul,
        backward={"a": "pbtest::counted_pull(grad, b)", "b": "pbtest::counted_pull(grad, a)"},
    )
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    counted(a, b.detach()).sum().backward()
    assert len(calls) == 1
    torch.autograd.grad(counted(a, b).sum(), b)
    assert len(calls) == 2
    counted(a, b).sum().backward()
    assert len(calls) == 4


def test_one_call_serves_two_gradients() -> None:
    calls: list[str] = []

    def negate(grad: Tensor) -> Tensor:
        calls.append("neg")
        return -grad

    pb.operator("pbtest::shared_pull(grad[n]) -> y[n]", python=negate)
    shared = pb.operator(
        "pbtest::shared(a[n], b[n]) -> c[n]",
        python=lambda a, b: -(a + b),
        backward={"a": "pbtest::shared_pull(grad)", "b": "pbtest::shared_pull(grad)"},
    )
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    shared(a, b).sum().backward()
    assert calls == ["neg"]
    torch.testing.assert_close(a.grad, -torch.ones(3))
    torch.testing.assert_close(b.grad, -torch.ones(3))


def test_a_python_backward_is_told_what_is_needed() -> None:
    seen: list[list[bool]] = []

    def pull(grad: Tensor, needs_input_grad: list[bool]) -> tuple[Tensor | None, ...]:
        seen.append(list(needs_input_grad))
        return tuple(grad if needed else None for needed in needs_input_grad)

    told = pb.operator(
        "pbtest::told(a[n], b[n], k: int, c[n]) -> y[n]",
        python=lambda a, b, k, c: a + b + c,
        backward=pull,
    )
    for mask in itertools.product([False, True], repeat=3):
        if any(mask):
            a, b, c = (torch.ones(2, requires_grad=needed) for needed in mask)
            told(a, b, 1, c).sum().backward()
            assert seen.pop() == list(mask)
            for tensor, needed in zip((a, b, c), mask, strict=True):
                assert (tensor.grad is not None) is needed


# --- gradients that nothing arrives for


def two_outputs(name: str, backward: object) -> pb.Operator:
    return pb.operator(
        f"pbtest::{name}(x[n]) -> (y[n], z[n])",
        python=lambda x: (2 * x, 3 * x),
        backward=backward,  # pyright: ignore[reportArgumentType]
    )


def pull_two(grad_y: Tensor | None, grad_z: Tensor | None) -> Tensor:
    parts = [g * k for g, k in ((grad_y, 2), (grad_z, 3)) if g is not None]
    return functools.reduce(torch.add, parts)


def test_undefined_gradients_arrive_as_none_where_declared_and_as_zeros_elsewhere() -> None:
    seen: dict[str, tuple[Tensor | None, Tensor | None]] = {}

    def annotated(grad_y: Tensor | None, grad_z: Tensor | None) -> Tensor:
        seen["annotated"] = (grad_y, grad_z)
        return pull_two(grad_y, grad_z)

    def by_default(grad_y=None, grad_z=None):  # noqa: ANN001, ANN202  # pyright: ignore
        seen["by_default"] = (grad_y, grad_z)  # pyright: ignore
        return pull_two(grad_y, grad_z)  # pyright: ignore

    def plain(grad_y: Tensor, grad_z: Tensor) -> Tensor:
        seen["plain"] = (grad_y, grad_z)
        return pull_two(grad_y, grad_z)

    def native(mark: str) -> str:
        name = f"native{'_optional' * bool(mark)}"

        def run(grad_y: Tensor | None, grad_z: Tensor | None) -> Tensor:
            seen[name] = (grad_y, grad_z)
            return pull_two(grad_y, grad_z)

        line = f"pbtest::{name}_pull(grad_y[n]{mark}, grad_z[n]{mark}) -> grad_x[n]"
        pb.operator(line, python=run)
        return name

    forms: dict[str, object] = {"annotated": annotated, "by_default": by_default, "plain": plain}
    for mark in ("", "?"):
        name = native(mark)
        forms[name] = f"pbtest::{name}_pull"
        forms[f"{name}_in_expression"] = {"x": f"pbtest::{name}_pull(grad_y, grad_z)"}
    for name, backward in forms.items():
        operator = two_outputs(f"undefined_{name}", backward)
        for used in (0, 1):
            x = torch.randn(3, requires_grad=True)
            operator(x)[used].sum().backward()
            torch.testing.assert_close(x.grad, torch.full((3,), 2.0 + used))
            other = seen[name.removesuffix("_in_expression")][1 - used]
            if name.startswith(("plain", "native")) and "optional" not in name:
                assert other is not None
                assert not other.any()
            else:
                assert other is None


def test_what_stands_for_an_output_that_nobody_wanted_has_the_dtype_of_the_line() -> None:
    seen: list[torch.dtype] = []

    def backward(grad_grad_a: Tensor, grad_grad_b: Tensor) -> Tensor:
        seen.append(grad_grad_b.dtype)
        return grad_grad_a

    line = "pbtest::unwanted(x[n]) -> (grad_a[n], grad_b[n]: float32)"
    both = pb.operator(line, python=lambda x: (x.clone(), x.float()), backward=backward)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    both(x, output_mask=[True, False])[0].sum().backward()
    assert seen == [torch.float32]


def test_an_output_that_is_not_differentiable_has_no_gradient() -> None:
    argmax = pb.operator(
        "pbtest::argmax(x[n]) -> (value[], index[]: int64)",
        python=lambda x: (x.max(), x.argmax()),
        backward={"x": "aten::mul.Tensor(grad_value, aten::eq.Tensor(x, value))"},
    )
    x = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    value, index = argmax(x)
    assert not index.requires_grad
    assert index == 1
    (gradient,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(gradient, torch.tensor([0.0, 1.0, 0.0]))


def test_a_tensor_that_is_declared_complex_has_a_gradient() -> None:
    square = pb.operator(
        "pbderivatives::square(z[...]: complex128) -> w[...]: complex128",
        python=lambda z: z * z,
        backward=lambda grad, z: grad * 2 * z.conj(),
    )
    z = torch.tensor([1 + 2j, -0.5j], dtype=torch.complex128, requires_grad=True)
    assert gradcheck(square, [z])


def test_a_gradient_declared_none_is_zero() -> None:
    step = pb.operator(
        "pbtest::step(x[n], y[n]) -> z[n]",
        python=lambda x, y: x.sign() + y,
        backward={"x": None, "y": "grad"},
    )
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    found = torch.autograd.grad(step(x, y).sum(), (x, y), allow_unused=True)
    assert found[0] is None
    torch.testing.assert_close(found[1], torch.ones(3))


# --- where there is no derivative


def plain(name: str, **derivatives: Any) -> pb.Operator:
    return pb.operator(f"pbtest::{name}(x[...]) -> y[...]", python=torch.exp, **derivatives)


def test_double_backward_through_a_backward_without_derivative_raises(seed: int) -> None:
    case = BY_NAME["linear"]
    arguments = tracked(draw(case.examples[0], torch.float64, seed))
    (gradient,) = torch.autograd.grad(
        case.operator(*arguments).sum(), arguments[0], create_graph=True
    )
    with pytest.raises(RuntimeError, match=r"linear_backward: it has no derivative"):
        gradient.sum().backward()


def test_backward_through_an_operator_without_derivative_raises() -> None:
    x = torch.randn(3, requires_grad=True)
    y = plain("underived")(x)
    assert y.requires_grad
    with pytest.raises(RuntimeError, match=r"no-derivative \[PB308\]: pbtest::underived"):
        y.sum().backward()
    with torch.no_grad():
        assert not plain("underived_no_grad")(x).requires_grad


def test_forward_mode_without_derivative_raises(seed: int) -> None:
    x = torch.randn(3)
    underived = plain("unpushed")
    with pytest.raises(RuntimeError, match=r"no-forward-mode \[PB309\]: pbtest::unpushed"):
        torch.func.jvp(underived, (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="PB309"):
        underived(forward_ad.make_dual(x, x))
    with (
        torch.no_grad(),
        forward_ad.dual_level(),
        pytest.raises(RuntimeError, match="PB309"),
    ):
        underived(forward_ad.make_dual(x, x))
    # With a backward that has no derivative, two reverse passes cannot give it.
    linear = BY_NAME["linear"].operator
    arguments = draw(BY_NAME["linear"].examples[0], torch.float64, seed)
    with pytest.raises(RuntimeError, match="linear_backward: it has no derivative"):
        torch.func.jvp(lambda x: linear(x, *arguments[1:]), arguments[:1], arguments[:1])


# --- forward mode

JVPS: Mapping[str, Callable[[], object]] = {
    "expressions": lambda: {
        "c": "aten::add.Tensor(pbtest::mul(tangent_a, b), pbtest::mul(a, tangent_b))"
    },
    "operator": lambda: named_jvp() and "pbtest::push_mul",
    "function": lambda: lambda tangent_a, tangent_b, a, b: tangent_a * b + a * tangent_b,
    "derived": lambda: None,
}


@functools.cache
def named_jvp() -> pb.Operator:
    return pb.operator(
        "pbtest::push_mul(tangent_a[...], tangent_b[...], a[...], b[...]) -> tangent_c[...]",
        python=lambda tangent_a, tangent_b, a, b: tangent_a * b + a * tangent_b,
        backward=lambda grad, tangent_a, tangent_b, a, b: (
            grad * b,
            grad * a,
            grad * tangent_b,
            grad * tangent_a,
        ),
    )


@functools.cache
def with_jvp(form: str) -> pb.Operator:
    assert BY_NAME["mul"].operator
    return pb.operator(
        f"pbtest::pushed_{form}(a[...], b[...]) -> c[...]",
        python=torch.mul,
        backward={"a": "pbtest::mul(grad, b)", "b": "pbtest::mul(grad, a)"},
        jvp=JVPS[form](),  # pyright: ignore[reportArgumentType]
    )


@pytest.mark.parametrize("form", JVPS)
def test_forward_mode_in_every_form(form: str, seed: int) -> None:
    operator = with_jvp(form)
    shapes = [((3,), (3,)), ((4, 3), (3,)), ((), (2,)), ((0,), (0,))]
    for left, right in shapes:
        a, b = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in (left, right))
        assert gradcheck(operator, (a, b), check_forward_ad=True, check_batched_forward_grad=True)
        assert gradgradcheck(operator, (a, b), check_fwd_over_rev=True, check_rev_over_rev=True)
    a, b, t = (torch.randn(3, dtype=torch.float64) for _ in range(3))
    # One tangent alone: the other is zero.
    _, tangent = torch.func.jvp(lambda a: operator(a, b), (a,), (t,))[:2]
    torch.testing.assert_close(tangent, t * b)
    # Forward over forward: d/da of 2 a t.
    _, second = torch.func.jvp(
        lambda a: torch.func.jvp(lambda x: operator(x, x), (a,), (t,))[1], (a,), (t,)
    )[:2]
    torch.testing.assert_close(second, 2 * t * t)


def test_forward_mode_gives_the_tangent_while_reverse_mode_records(seed: int) -> None:
    for form in JVPS:
        a, b, t = (torch.randn(3, dtype=torch.float64) for _ in range(3))
        a.requires_grad_()
        with forward_ad.dual_level():
            c = with_jvp(form)(forward_ad.make_dual(a, t), b)
            value, tangent = forward_ad.unpack_dual(c)
            assert tangent is not None
            torch.testing.assert_close(tangent, t * b)
        (gradient,) = torch.autograd.grad(value.sum(), a)
        torch.testing.assert_close(gradient, b)


def test_a_jvp_that_returns_another_shape_or_dtype_raises() -> None:
    x = torch.randn(3, dtype=torch.float64)
    wrong = {"shape": lambda tangent: tangent[:2], "dtype": lambda tangent: tangent.float()}
    for name, push in wrong.items():
        operator = plain(f"pushed_wrong_{name}", jvp=push)
        with pytest.raises(RuntimeError, match="PB310"):
            torch.func.jvp(operator, (x,), (x,))


# --- threads


def test_several_threads_run_backward_at_once(seed: int) -> None:
    case = BY_NAME["linear"]
    failures: list[BaseException] = []
    shared = tracked(draw(case.examples[0], torch.float64, seed))
    loss = case.operator(*shared).square().sum()
    wanted_shared = torch.autograd.grad(loss, leaves(shared), retain_graph=True)

    def work(number: int) -> None:
        try:
            for step in range(30):
                arguments = tracked(draw(case.examples[0], torch.float64, number * 100 + step))
                found = torch.autograd.grad(case.operator(*arguments).sum(), leaves(arguments))
                wanted = torch.autograd.grad(case.expected(*arguments)[0].sum(), leaves(arguments))
                torch.testing.assert_close(found, wanted)
                again = torch.autograd.grad(loss, leaves(shared), retain_graph=True)
                torch.testing.assert_close(again, wanted_shared, rtol=0, atol=0)
                cube = BY_NAME["cube"].operator(arguments[0])[0]
                (gradient,) = torch.autograd.grad(cube.sum(), arguments[0])
                torch.testing.assert_close(gradient, 3 * arguments[0].square())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
