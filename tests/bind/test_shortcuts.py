"""Calls of one loop that the runtime makes alone, once a call like them was made."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from pullback.bind.loops.own_call import LoopCall
from pullback.bind.math import choose
from pullback.bind.math.call import call_of
from pullback.bind.math.execute import Executor
from pullback.bind.math.recur import RecurrentExecutor
from pullback.bind.registry import operators
from pullback.diagnostic import PullbackError
from tests.bind import recurrences
from tests.fresh import python

pytestmark = pytest.mark.compiler
_numbers = itertools.count()
BAG = "(table[v, d], index[n, k]: int64) -> y[n, d] = sum[k](table[index[n, k], d])"


def define(rest: str) -> tuple[pb.Operator, Callable[[], bool]]:
    """Return a new operator, and whether the runtime has made all of its calls alone since asked.

    That is those of its gradients, too.
    """
    operator = pb.operator(f"shortcuts::f{next(_numbers)}{rest}")
    name = operator.kind.definition.line.qualname
    made_in_python: list[str] = []

    def made_alone() -> bool:
        alone = not made_in_python
        made_in_python.clear()
        for each, own in operators.items():
            if each.startswith(name.replace("::", "::_")) or each == name:
                watch(each, own.kind, made_in_python)
        return alone

    made_alone()
    return operator, made_alone


def watch(name: str, kind: Any, made_in_python: list[str]) -> None:
    """Note each call that an operator's executor computes."""
    execute = kind.shortcuts.execute
    if not isinstance(execute, Executor | RecurrentExecutor):
        return

    def noted(*arguments: object, **options: Any) -> object:
        made_in_python.append(name)
        return execute(*arguments, **options)

    kind.shortcuts.execute = noted


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_a_bag_is_the_same_however_its_tensors_lie(seed: int) -> None:
    """Each way to lie is a kind of call of its own: the third call of each is the runtime's."""
    bag, alone = define(BAG)
    table, index = draw(30, 8, seed=seed), torch.arange(60).reshape(12, 5) * 7 % 30
    wanted = table[index].sum(1)
    ways: list[tuple[Tensor, Tensor]] = [
        (table, index),
        (table.t().contiguous().t(), index),
        (torch.ops.aten._neg_view.default(-table), index),
        (table, index.t().contiguous().t()),
        (torch.nn.Parameter(table), index),
        (table.repeat(1, 2)[:, ::2].copy_(table), index),
    ]
    for one, other in ways:
        for _ in range(3):
            alone()
            torch.testing.assert_close(bag(one, other), wanted)
        assert alone()
    # Other sizes and dtypes are other calls.
    torch.testing.assert_close(bag(table[:, :3].contiguous(), index), wanted[:, :3])
    assert not alone()
    torch.testing.assert_close(bag(table.double(), index), table.double()[index].sum(1))
    assert not alone()


def test_an_index_outside_is_found_in_a_call_that_is_known() -> None:
    bag, alone = define(BAG)
    table, index = torch.ones(30, 8), torch.zeros(4, 3, dtype=torch.int64)
    for _ in range(3):
        alone()
        bag(table, index)
    assert alone()
    index[2, 1] = 30
    with pytest.raises(PullbackError, match=r"PB149.*'table' is read at 30"):
        bag(table, index)
    index[2, 1] = 29
    assert bag(table, index).tolist() == [[3.0] * 8] * 4


SCATTERS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "rows": ("(x[v, d], i[n]: int64) -> y[n, d] = x[i[n], d]", lambda x, i: x[i]),
    "bag": (
        "(x[v, d], i[n, k]: int64) -> y[n, d] = sum[k](x[i[n, k], d])",
        lambda x, i: x[i].sum(1),
    ),
    "some outside": (
        "(x[v, d], i[n]: int64) -> y[n, d] = pad(x[i[n], d])",
        lambda x, i: functional.pad(x, (0, 0, 0, 10))[i],
    ),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_what_a_gradient_adds_where_data_says_is_sorted_by_the_runtime(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call has indices of its own. In Python a call took seven times as long. 2 s each."""
    line, eager = SCATTERS[name]
    operator, alone = define(line)
    monkeypatch.setattr(choose, "CLEAR", 0)  # the clock is not asked
    for k in range(4):
        alone()
        generator = torch.Generator().manual_seed(seed + k)
        x = torch.randn(300, 8, generator=generator, dtype=torch.float64, requires_grad=True)
        shape = (200, 5) if name == "bag" else (900,)
        i = torch.randint(310 if name == "some outside" else 300, shape, generator=generator)
        grad = torch.randn(shape[0], 8, generator=generator, dtype=torch.float64)
        found, wanted = (torch.autograd.grad(f(x, i), x, grad)[0] for f in (operator, eager))
        torch.testing.assert_close(found, wanted)
    assert alone()


def test_the_clock_has_loops_called_as_the_runtime_calls_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Python takes for a call, 0.1 ms, had PyTorch's operations chosen for small ones."""
    in_python: list[object] = []
    run = LoopCall.run

    def noted(self: LoopCall, *given: Any) -> list[Tensor]:
        in_python.append(self)
        return run(self, *given)

    monkeypatch.setattr(LoopCall, "run", noted)
    operator, _ = define("(x[n, k]) -> y[n] = sum[k](x**2)")
    call = call_of(operator.definition, (torch.ones(40, 300),))
    [choice] = choose.choose_executors(call)
    way = choose.make_loop_call(call, choice)
    assert in_python
    in_python.clear()
    way()
    assert not in_python


def test_one_tensor_may_stand_for_two(seed: int) -> None:
    """That is noted as a call with two tensors."""
    operator, alone = define("(x[n, k], y[n, k]) -> z[n, k] = sum[j](x[n, j])*y[n, k]")
    x, y = draw(40, 30, seed=seed), draw(40, 30, seed=seed + 1)
    for _ in range(3):
        alone()
        torch.testing.assert_close(operator(x, x), x.sum(1, keepdim=True) * x)
    torch.testing.assert_close(operator(x, y), x.sum(1, keepdim=True) * y)
    assert alone()


RECURRENCES = {
    "lru": ((3, 90, 17), (3, 90, 17), (3, 17)),
    "biquad": ((3, 1500), (3,), (2,)),
    "gae": ((5, 80), (5, 80)),
    "scan": ((2, 70, 9), (9, 5), (2, 70, 5), (2, 70, 5), (2, 70, 9)),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.thorough) if n in {"scan", "biquad"} else n
        for n in RECURRENCES
    ],
)
def test_recurrences_and_their_gradients_are_the_runtimes(name: str, seed: int) -> None:
    """Both directions run without Python from the third call on, and each has its own values."""
    known = recurrences.RECURRENCES[name]._replace(shapes=RECURRENCES[name])
    operator, alone = define(known.line)
    leaves: list[Tensor] = []
    for k in range(3):
        alone()
        leaves = [(0.4 * each).requires_grad_() for each in known.draw(seed=seed + k)]
        results: list[Any] = []
        for y in (operator(*leaves), known.loop(*leaves)):
            weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
            results.append((y, *torch.autograd.grad(y, leaves, weight)))
        for found, wanted in zip(*results, strict=True):
            torch.testing.assert_close(found, wanted)
    assert alone()
    # A gradient that is not asked for makes another kind of call.
    (found,) = torch.autograd.grad(operator(*leaves).sum(), leaves[0])
    (wanted,) = torch.autograd.grad(known.loop(*leaves).sum(), leaves[0])
    torch.testing.assert_close(found, wanted)


def test_a_matrix_that_each_step_reads_is_laid_out_without_python(seed: int) -> None:
    """Its rows are a power of two apart, and a cache would keep few of them. Costs two seconds."""
    operator, alone = define(
        "(x[b, t, d], w[d, j]) -> h[b, t, d] = tanh(x + sum[j](w[d, j]*pad(h[b, t - 1, j])))"
    )
    w = draw(256, 256, seed=seed) / 16
    for k in range(3):
        alone()
        x = draw(17, 70, 256, seed=seed + k)
        h, wanted = torch.zeros_like(x[:, 0]), list[Tensor]()
        for given in x.unbind(1):
            h = (given + h @ w.T).tanh()
            wanted.append(h)
        torch.testing.assert_close(operator(x, w), torch.stack(wanted, 1))
    assert alone()


@pytest.mark.parametrize(
    ("step", "function"),
    [
        ("x*pad(y[b, t - 1], 1)", lambda x: x.cumprod(1)),
        ("x + pad(y[b, t - 1])", lambda x: x.cumsum(1)),
        ("x + pad(y[b, t + 1])", lambda x: x.flip(1).cumsum(1).flip(1)),
    ],
    ids=["product", "sum", "backwards"],
)
def test_cumulative_functions_of_pytorch_are_called_without_python(
    step: str, function: Callable[[Tensor], Tensor], seed: int
) -> None:
    operator, alone = define(f"(x[b, t]) -> y[b, t] = {step}")
    for k in range(3):
        alone()
        x = draw(3, 80, seed=seed + k)
        torch.testing.assert_close(operator(x), function(x))
    assert alone()


def test_a_call_whose_data_decide_what_it_does_is_python_s(seed: int) -> None:
    """Here data say where a sum ends: steps of a call that was noted would be others'."""
    operator, _ = define("(x[n], i[m]: int64) -> y[m] = where(i < size(n), x[i], 0)")
    x = draw(5, seed=seed)
    for last in (3, 4, 5, 7, 2):
        i = torch.tensor([0, last])
        expected = torch.stack([x[0], x[last] if last < 5 else torch.zeros(())])
        torch.testing.assert_close(operator(x, i), expected)


def test_other_loops_are_chosen_after_a_reload(seed: int) -> None:
    operator, alone = define("(x[t, d]) -> y[t, d] = x + 0.5*pad(y[t - 1, d])")
    x = draw(100, 20, seed=seed)
    first = operator(x)
    for _ in range(2):
        alone()
        torch.testing.assert_close(operator(x), first)
    assert alone()
    operator.kind.reload()
    torch.testing.assert_close(operator(x), first)
    assert not alone()


@pytest.mark.parametrize(
    ("line", "reference", "scalars"),
    [
        (
            "(x[..., n], s: float, k: int) -> y[..., n] = s*x + k*sum[m](x[m])",
            lambda x, s, k: s * x + k * x.sum(-1, keepdim=True),
            [(0.5, 2), (-1.5, 3)],
        ),
        (
            "(x[..., n], order: int) -> y[..., n] = sum[k < order](x*k)",
            lambda x, order: x * sum(range(order)),
            [(3,), (5,), (3,)],
        ),
        (
            "(x[..., n], k: int) -> (y[..., n], top[...])"
            " = top = max[m](x[m]); y = k*x - max[m](x[m])",
            lambda x, k: (k * x - x.amax(-1, keepdim=True), x.amax(-1)),
            [(2,), (-1,)],
        ),
    ],
    ids=["scalars", "counts", "several outputs"],
)
def test_scalars_are_those_of_the_call(
    line: str, reference: Callable[..., Any], scalars: list[tuple[Any, ...]], seed: int
) -> None:
    operator, _ = define(line)
    x = draw(2, 3, 50, seed=seed)
    for given in 4 * scalars:
        torch.testing.assert_close(operator(x, *given), reference(x, *given))


@pytest.mark.parametrize(
    ("line", "reference", "shapes"),
    [
        (
            "(x[n, d], y[m, d]) -> z[n, m] = sum[d](abs(x[n, d] - y[m, d]))",
            lambda x, y: (x[:, None] - y).abs().sum(-1),
            [(40, 9), (300, 9)],
        ),
        (
            "(x[n, m], y[n, m]) -> (z[m], t[n])"
            " = z = sum[n](exp(-(x - y)**2)*y); t[n] = max[m](abs(x[n, m] - y[n, m]))",
            lambda x, y: ((torch.exp(-((x - y) ** 2)) * y).sum(0), (x - y).abs().amax(1)),
            [(4000, 30), (4000, 30)],
        ),
    ],
    ids=["laid out anew", "totals, and two loops"],
)
def test_it_makes_a_call_of_several_steps(
    line: str,
    reference: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "measure_choice", lambda _, with_loop: with_loop)
    operator, alone = define(line)
    for k in range(4):
        alone()
        given = [draw(*shape, seed=seed + k) for shape in shapes]
        torch.testing.assert_close(operator(*given), reference(*given), rtol=1e-4, atol=1e-5)
    assert alone()


FIRST_CALLS = """
import sys, torch, pullback as pb
f = pb.operator("first::f(x[n, d], c[m, d]) -> o[n] = sum[m](exp(-sum[d]((x[n, d] - c[m, d])**2)))")
x, c = torch.randn(9, 3, requires_grad=True), torch.randn(8, 3)
for _ in range(3):
    f(x, c).sum().backward()
assert x.grad.any()
print("torch._dynamo" in sys.modules)
"""


def test_first_calls_do_not_wait_for_pytorchs_compiler(tmp_path: Path) -> None:
    """To import it takes a second or more: neither comparing nor noting a call needs it."""
    script = tmp_path / "first.py"
    script.write_text(FIRST_CALLS)
    found = python(script, folder=tmp_path)
    assert (found.returncode, found.stdout) == (0, "False\n"), found.stderr
