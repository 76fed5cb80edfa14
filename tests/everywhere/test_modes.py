"""Autocast, memory, anomaly mode and double backward, in more detail than the matrix."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import in_python
import pytest
import torch
from modes import seen_by_modes
from rows import BY_NAME
from torch import Tensor, func
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from traced import compiled
from ways import double_backward, on_tensors, same, total

import pullback as pb
from pullback.define.operator import Autocast
from tests.telling import telling

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


@pytest.fixture
def x(seed: int) -> Tensor:
    return torch.rand(3, dtype=torch.float64) + 0.5


def leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


# --- saved-tensor hooks


def packed(call: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Tensor]:
    """Return what a call's hooks are given, in order."""
    found: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        found.append(tensor.detach().clone())
        return tensor

    given = [leaf(a) if isinstance(a, Tensor) else a for a in arguments]
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        assert call(*given) is not None
    return found


STOCK: dict[str, type[Function]] = {
    "fn_product": in_python.Product,
    "fn_linear": in_python.Linear,
    "fn_exp": in_python.Exp,
    "fn_sin_cos": in_python.SinCos,
    "fn_convolve": in_python.Convolve,
    "fn_swish": in_python.Swish,
}


@pytest.mark.parametrize("name", STOCK)
def test_hooks_are_given_what_the_function_saves(name: str, seed: int) -> None:
    row = BY_NAME[name]
    for example in range(len(row.examples)):
        arguments = row.arguments(seed, example)
        same(packed(row.operator, arguments), packed(STOCK[name].apply, arguments))


def test_hooks_are_given_an_intermediate_on_ctx_too(seed: int) -> None:
    """PyTorch's own hooks never see what a Function keeps as an attribute."""
    row = BY_NAME["fn_kept_swish"]
    (x,) = row.arguments(seed)
    same(packed(row.operator, (x,)), [x, torch.sigmoid(x)])


SAVED: dict[str, Callable[..., list[Tensor]]] = {
    "cpp_product": lambda a, b: [a, b],
    "cpp_linear": lambda x, weight, bias: [x, weight],
    "cpp_exp": lambda x: [x.exp()],
    "cpp_sin_cos": lambda x: [x.sin(), x.cos()],
    "py_sin_cos": lambda x: [x.sin(), x.cos()],
    "np_sin": lambda x: [x],
    "lib_linear": lambda x, weight, bias: [x, weight],
    "op_sin": lambda x: [x],
    "own_exp": lambda x: [x.exp()],
    "ext_product": lambda a, b: [a, b],
}


# An extension compiles PyTorch's headers.
@pytest.mark.parametrize("name", telling({n: n for n in SAVED}, SAVED.keys() - {"ext_product"}))
def test_hooks_are_given_what_the_derivative_reads(name: str, seed: int) -> None:
    row = BY_NAME[name]
    arguments = row.arguments(seed)
    same(packed(row.operator, arguments), SAVED[name](*arguments))


# --- checkpoints


class Counted:
    """Two operators, one of each kind, that count how often their kernels run."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        calls = self.calls

        def square(x: Tensor) -> Tensor:
            calls["python"] += 1
            return x * x

        class Square(Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                calls["function"] += 1
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore
                return 2 * grad * ctx.saved_tensors[0]

        line = "(x[...]) -> y[...]"
        self.operators = {
            "python": pb.operator(
                f"everywhere::counted_python{line}",
                python=square,
                backward=lambda grad, x: 2 * grad * x,
            ),
            "function": pb.operator(f"everywhere::counted_function{line}", function=Square),
        }


@pytest.fixture(scope="session")
def counted() -> Counted:
    return Counted()


@pytest.mark.parametrize("kind", ["python", "function"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_runs_the_kernel_again(
    counted: Counted, kind: str, reentrant: bool, x: Tensor
) -> None:
    operator = counted.operators[kind]
    counted.calls.clear()
    first = leaf(x)
    y: Any = checkpoint(lambda t: operator(t.sin()), first, use_reentrant=reentrant)
    assert counted.calls[kind] == 1
    y.sum().backward()
    # The second run stops where all is saved again; an operator saves its inputs before it runs.
    early = kind == "python" and not reentrant
    assert counted.calls[kind] == (1 if early else 2)
    same(first.grad, x.sin().mul(2) * x.cos())


@pytest.mark.parametrize("kind", ["python", "function"])
def test_a_selective_checkpoint_keeps_what_it_is_told_to(
    counted: Counted, kind: str, x: Tensor
) -> None:
    operator = counted.operators[kind]
    kept = operator.overload if kind == "python" else seen_by_modes(operator)

    def policy(_: Any, each: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if each is kept else CheckpointPolicy.MUST_RECOMPUTE

    counted.calls.clear()
    first = leaf(x)
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    y: Any = checkpoint(
        lambda t: operator(t.sin()), first, use_reentrant=False, context_fn=contexts
    )
    y.sum().backward()
    assert counted.calls[kind] == 1
    same(first.grad, x.sin().mul(2) * x.cos())


@pytest.mark.parametrize("name", ["cpp_product", "py_product", "fn_product", "own_product"])
def test_a_checkpoint_restores_autocast(name: str, seed: int) -> None:
    """The second run casts as the first did, though backward is outside of autocast."""
    operator = BY_NAME[name].casting("lower")
    a, b = (t.float() for t in BY_NAME[name].arguments(seed))
    one, other = leaf(a), leaf(b)
    with torch.autocast("cpu", dtype=torch.float16):
        y: Any = checkpoint(operator, one, other, use_reentrant=False)
    assert y.dtype == torch.float16
    y.float().sum().backward()
    expected = torch.autograd.grad((one.half() * other.half()).float().sum(), (one, other))
    same((one.grad, other.grad), expected)


# --- autocast


@pytest.mark.parametrize("policy", ["lower", "float32", "promote"])
@pytest.mark.parametrize("name", ["py_linear", "fn_linear", "lib_linear"])
def test_autocast_in_bfloat16_and_compiled(name: str, policy: Autocast, seed: int) -> None:
    row = BY_NAME[name]
    operator = row.casting(policy)
    arguments = [
        t.to(torch.bfloat16 if i else torch.float32) for i, t in enumerate(row.arguments(seed))
    ]
    expected = {"lower": torch.bfloat16}.get(policy, torch.float32)

    def step(*given: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return operator(*given)

    for run in (step, compiled(step)):
        leaves = [leaf(a) for a in arguments]
        y = run(*leaves)
        assert y.dtype == expected
        plain = [leaf(a) for a in arguments]
        wanted = row.reference(*(p.to(expected) for p in plain))
        # Sums of four products, each rounded to eight bits.
        same(y, wanted, rtol=0.02, atol=0.02)
        y.float().sum().backward()
        wanted.float().sum().backward()
        same([t.grad for t in leaves], [p.grad for p in plain], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["cpp_product", "np_sin", "fn_product", "own_product"])
def test_autocast_leaves_float64_and_a_region_without_it_alone(name: str, seed: int) -> None:
    row = BY_NAME[name]
    operator = row.casting("lower")
    arguments = row.arguments(seed)
    with torch.autocast("cpu", dtype=torch.float16):
        same(operator(*arguments), row.reference(*arguments))
        with torch.autocast("cpu", enabled=False):
            single = [a.float() for a in arguments]
            assert operator(*single).dtype == torch.float32
    assert operator(*single).dtype == torch.float32


def test_a_backward_inside_of_autocast_does_not_cast(seed: int) -> None:
    """Forward ran outside: the gradients belong to what it was given."""

    def backward(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return grad @ w.T, x.T @ grad

    operator = pb.operator(
        "everywhere::cast_by_nobody(x[n, i], w[i, o]) -> y[n, o]",
        python=torch.mm,
        backward=backward,
    )
    x, w = (leaf(torch.randn(3, 3)) for _ in range(2))
    y, wanted = operator(x, w), x @ w
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(y.square().sum(), (x, w))
    same(found, torch.autograd.grad(wanted.square().sum(), (x, w)))


@pytest.mark.parametrize("name", ["cpp_product", "py_product", "fn_product", "own_product"])
def test_autocast_around_torch_func(name: str, seed: int) -> None:
    operator = BY_NAME[name].casting("lower")
    a, b = (t.float() for t in BY_NAME[name].arguments(seed))
    with torch.autocast("cpu", dtype=torch.float16):
        found = func.grad(lambda t: operator(t, b).float().sum())(a)
        pushed = func.jvp(lambda t: operator(t, b), (a,), (a,))[1]
        mapped = func.vmap(operator, in_dims=(0, None))(a, b)
    same(found, b.half().float().expand_as(a))
    same(pushed, a.half() * b.half())
    same(mapped, a.half() * b.half())


# --- anomaly mode


@pytest.mark.parametrize("name", ["cpp_linear", "np_convolve", "fn_convolve"])
def test_anomaly_mode_names_the_line_of_what_cannot_be_differentiated_twice(
    name: str, seed: int
) -> None:
    row = BY_NAME[name]
    function, tensors = on_tensors(row.arguments(seed), row.operator)

    def in_my_model(*leaves: Tensor) -> tuple[Tensor, ...]:
        return function(*leaves)

    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="PB3"):
            double_backward(in_my_model, tensors)
    assert any("in in_my_model" in str(each.message) for each in caught)


# --- double backward of what is compiled


def gradient_penalty(call: Callable[..., Any]) -> Callable[..., Tensor]:
    gradient = func.grad(total(lambda *ts: (call(*ts),)))
    return lambda *ts: (gradient(*ts) ** 2).sum()


@pytest.mark.parametrize("name", ["cpp_product", "py_product", "lib_product"])
def test_double_backward_inside_of_what_is_compiled(name: str, seed: int) -> None:
    """What to do instead of differentiating a compiled function twice."""
    row = BY_NAME[name]
    arguments = row.arguments(seed)
    expected = func.grad(gradient_penalty(row.reference))(*arguments)
    penalty = gradient_penalty(row.operator)
    same(compiled(func.grad(penalty))(*arguments), expected)
    leaves = [leaf(a) for a in arguments]
    compiled(penalty)(*leaves).backward()
    same(leaves[0].grad, expected)


@pytest.mark.parametrize("name", ["fn_product", "own_product"])
def test_a_function_is_not_differentiated_twice_inside_of_what_is_compiled(
    name: str, seed: int
) -> None:
    row = BY_NAME[name]
    arguments = row.arguments(seed)
    penalty = gradient_penalty(row.operator)
    with pytest.raises(RuntimeError, match=r"PB379.*torch.compiler.disable"):
        compiled(func.grad(penalty))(*arguments)
    expected = func.grad(gradient_penalty(row.reference))(*arguments)
    apart: Any = torch.compiler.disable(func.grad(penalty))
    same(torch.compile(lambda *ts: apart(*ts) * 1, backend="aot_eager")(*arguments), expected)


@pytest.mark.parametrize("name", ["cpp_product", "py_product", "fn_product", "own_product"])
def test_double_backward_of_what_is_compiled_says_so(name: str, seed: int) -> None:
    row = BY_NAME[name]
    leaves = [leaf(a) for a in row.arguments(seed)]
    y = compiled(row.operator)(*leaves)
    first = torch.autograd.grad((y**2).sum(), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.stack([g.sum() for g in first]).sum().backward()
