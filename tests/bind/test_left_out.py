"""Outputs that `output_mask` leaves out: zeros for their gradients, and who asks for no others."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import pullback as pb
from pullback.define.dimension import Expression
from pullback.define.shape import evaluate
from pullback.diagnostic import PullbackError
from tests.define.strategies import expressions
from tests.telling import examples, telling

pytestmark = pytest.mark.compiler
numbers = itertools.count()
seen: list[tuple[int, ...]] = []
LARGE = 10**4
NOTHING = pb.source("inline void nothing() {}", call="nothing()", dtypes=("float32",))
# Either sign on both sides of `//` and `%`; none is below zero in the calls below.
LEFT_OUT = (
    *("n + (2 - n)//2", "(4 - n) % 4", "(n - 9)//4 + 3", "(n - 9) % (0 - 5) + 5", "..., n"),
    *("min(n, 3)", "max(3 - n, n - 3)", "min(n, k) + max(k, 0 - k)", "n*2, ..., (4 - n) % 4"),
    *("(n - k)//k + 10", "(n - 4) % k + 3", "k*k, ..., (k - n)//3 + 4", "3"),
)


# Two inputs of one size, and the same by PyTorch: some gradients need nothing of the other input.
PAIRS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, ...]]] = {
    "(o[n], l[n]) = (x*x, tanh(k))": lambda x, k: (x * x, torch.tanh(k)),
    "(o[n], l[n]) = o = x*sum[m](x[m]); l = tanh(k)": lambda x, k: (x * x.sum(), torch.tanh(k)),
    "o[n] = max[m](x[m] + k[n]*m)": lambda x, k: ((x + k[:, None] * torch.arange(len(x))).amax(1),),
    "o[n] = sum[m](where(m <= n, x[m]**2, 0)) + exp(k)": lambda x, k: ((x**2).cumsum(0) + k.exp(),),
    "(o[n], l[]) = o = mean[m](x[m]*k[n])**2; l = mean[n, m](tanh(x[n]*k[m]))": lambda x, k: (
        (x.mean() * k) ** 2,
        torch.tanh(x[:, None] * k).mean(),
    ),
}


def note(*tensors: Tensor) -> Tensor:
    """Write down the shapes of all but the first, and return that."""
    seen[:] = [tuple(tensor.shape) for tensor in tensors[1:]]
    return tensors[0].clone()


def line_of(name: str, inputs: str, left_out: Sequence[object]) -> str:
    """Return the line of an operator of x[..., n] whose outputs but the first are left out."""
    outputs = ", ".join(f"grad_{place}[{dims}]" for place, dims in enumerate(left_out))
    return f"pbleft::{name}({inputs}) -> (grad_x[..., n], {outputs})"


def noted(name: str, left_out: Sequence[object]) -> dict[str, str | None]:
    """Return a backward that notes the shapes of the gradients of what is left out."""
    zeros = [f"grad_grad_{place}" for place in range(len(left_out))]
    parameters = ", ".join(["grad_grad_x[..., n]", *(f"{zero}[*]" for zero in zeros)])
    pb.operator(
        f"pbleft::note_{name}({parameters}) -> y[..., n]",
        python=note,
        backward={"grad_grad_x": "grad", **dict.fromkeys(zeros)},
    )
    return {"x": f"pbleft::note_{name}({', '.join(['grad_grad_x', *zeros])})"}


def first_alone(operator: pb.Operator, *arguments: object) -> Tensor:
    """Call an operator of whose outputs nobody wants any but the first."""
    return operator(*arguments, output_mask=[True] + [False] * (len(operator.line.outputs) - 1))[0]


@functools.cache
def sized() -> pb.Operator:
    line = line_of("sized", "x[..., n], k: int, y[...]", LEFT_OUT)
    return pb.operator(line, cpu=NOTHING, backward={**noted("sized", LEFT_OUT), "y": None})


def calls(k: int, left: tuple[int, ...], right: tuple[int, ...]) -> Iterator[list[Any]]:
    """Yield arguments of `sized`, whose `...` is that of x and y together."""
    for n in (5, 6, 3, 7, 4, 2, 1, 0):
        yield [torch.zeros(*left, n, requires_grad=True), k, torch.zeros(right)]


def shapes_of_left_out(*arguments: object) -> list[tuple[int, ...]]:
    """Return the shapes of those outputs of `sized` where they are wanted."""
    return [tuple(output.shape) for output in sized()(*arguments)[1:]]


def by_backward(step: Callable[[Tensor], Tensor], x: Tensor) -> None:
    step(x).sum().backward()


def by_forward_mode(step: Callable[[Tensor], Tensor], x: Tensor) -> None:
    torch.func.jvp(step, (x.detach(),), (torch.ones_like(x),))


each_way = pytest.mark.parametrize("way", [by_backward, by_forward_mode])
each_batch = pytest.mark.parametrize(
    ("left", "right"), [((), ()), ((), (2,)), ((3, 1), (2,))], ids=["none", "of y", "broadcast"]
)


@each_way
@each_batch
def test_the_zeros_for_an_output_have_its_shape(
    way: Callable[[Callable[[Tensor], Tensor], Tensor], None],
    left: tuple[int, ...],
    right: tuple[int, ...],
) -> None:
    for k in (-3, -1, 1, 2):
        for x, *rest in calls(k, left, right):
            seen.clear()
            way(lambda x, rest=rest: first_alone(sized(), x, *rest), x)
            assert seen == shapes_of_left_out(x, *rest)


@pytest.mark.parametrize(
    ("k", "left", "right", "dynamic"),
    [
        (-3, (3, 1), (2,), True),
        pytest.param(2, (), (2,), True, marks=pytest.mark.thorough),
        pytest.param(-3, (), (), False, marks=pytest.mark.thorough),
    ],
    ids=["broadcast", "of y", "static"],
)
def test_they_have_it_in_a_compiled_step(
    k: int, left: tuple[int, ...], right: tuple[int, ...], dynamic: bool
) -> None:
    operator = sized()

    def step(x: Tensor, k: int, y: Tensor) -> Tensor:
        return first_alone(operator, x, k, y)

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for arguments in itertools.islice(calls(k, left, right), 3):
        seen.clear()
        compiled(*arguments).sum().backward()
        assert seen == shapes_of_left_out(*arguments)


def size_of(dim: Expression, values: dict[str, int]) -> int:
    """Return a size by Python's arithmetic; -1 stands for a division by zero."""
    try:
        return evaluate(dim, values)
    except ZeroDivisionError:
        return -1


@settings(max_examples=examples(40, 400))
@given(st.data())
def test_they_have_the_shape_that_python_gives(data: st.DataObject) -> None:
    dims: list[Expression] = data.draw(st.lists(expressions(["n", "m", "k"]), min_size=1))
    name = f"drawn{next(numbers)}"
    operator = pb.operator(
        line_of(name, "x[..., n], y[m], k: int", dims),
        python=lambda x, y, k: (
            x.clone(),
            *(x.new_zeros(size_of(dim, {"n": len(x), "m": len(y), "k": k})) for dim in dims),
        ),
        backward={**noted(name, dims), "y": None},
    )
    for n, m, k in data.draw(st.lists(st.tuples(*[st.integers(0, 6)] * 2, st.integers(-6, 6)))):
        wanted = [size_of(dim, {"n": n, "m": m, "k": k}) for dim in dims]
        if all(0 <= size < LARGE for size in wanted):
            x = torch.zeros(n, requires_grad=True)
            first_alone(operator, x, torch.zeros(m), k).sum().backward()
            assert seen == [(size,) for size in wanted]


# --- what has no shape


def test_a_dimension_that_only_none_would_have_is_nothing() -> None:
    line = line_of("hidden", "x[..., n], w[m]?", ["m", "n, m + 1"])
    operator = pb.operator(line, cpu=NOTHING, backward={**noted("hidden", "ab"), "w": None})
    for w, wanted in ((None, [(0,), (3, 1)]), (torch.zeros(2), [(2,), (3, 3)])):
        first_alone(operator, torch.zeros(3, requires_grad=True), w).sum().backward()
        assert seen == wanted


def test_an_input_of_any_shape_gives_no_size() -> None:
    operator = pb.operator(
        line_of("free", "x[..., n], w[*]", ["n"]),
        python=lambda x, w: (x.clone(), x.new_zeros(x.shape[-1])),
        backward={**noted("free", "a"), "w": None},
    )
    for w in (torch.zeros(()), torch.zeros(2, 3)):
        first_alone(operator, torch.zeros(3, requires_grad=True), w).sum().backward()
        assert seen == [(3,)]


def test_a_size_below_zero_is_named_when_its_zeros_are_needed() -> None:
    line = line_of("below", "x[..., n], k: int", ["n - k"])
    operator = pb.operator(line, cpu=NOTHING, backward=noted("below", "a"))
    x = torch.zeros(3, requires_grad=True)
    y = first_alone(operator, x, 5)
    text = r"PB114.*dimension 0 of 'grad_0' would be -2: n - k with n = 3, k = 5"
    with pytest.raises(RuntimeError, match=text):
        y.sum().backward()


def test_wrong_inputs_are_refused_in_the_same_words_with_and_without_a_gradient() -> None:
    for x, y in (
        (torch.zeros(()), torch.zeros(())),
        (torch.zeros(2, 3), torch.zeros(4)),
        (torch.zeros(3), torch.zeros(3, dtype=torch.float64)),
        (torch.zeros(3), torch.zeros(3, device="meta")),
    ):
        said: list[str] = []
        for needed in (False, True):
            with pytest.raises(PullbackError) as caught:
                first_alone(sized(), x.requires_grad_(needed), 1, y)
            said.append(str(caught.value))
        assert said[0] == said[1]


@pytest.mark.parametrize("line", telling({line: line for line in PAIRS}, list(PAIRS)[:1]))
def test_a_hessian_needs_no_gradient_that_is_left_out(line: str, seed: int) -> None:
    # Of one output by one input, forward over reverse: the dimension of `vmap` is in few tensors.
    operator = pb.operator(f"pbleft::pair{next(numbers)}(x[n], k[n]) -> {line}")
    given = [torch.randn(3, dtype=torch.float64) for _ in range(2)]
    for output, place in itertools.product(range(len(PAIRS[line](*given))), range(2)):

        def of(
            way: Callable[..., Tensor | tuple[Tensor, ...]],
            value: Tensor,
            output: int = output,
            place: int = place,
        ) -> Tensor:
            found = way(*given[:place], value, *given[place + 1 :])
            return ((found if isinstance(found, tuple) else (found,))[output] ** 2).sum()

        want = torch.autograd.functional.hessian(functools.partial(of, PAIRS[line]), given[place])
        for hessian in (torch.func.hessian, twice_reverse, twice_forward):
            got = hessian(functools.partial(of, operator))(given[place])
            torch.testing.assert_close(got, want)


def twice_reverse(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return torch.func.jacrev(torch.func.jacrev(function))


def twice_forward(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return torch.func.jacfwd(torch.func.jacfwd(function))
