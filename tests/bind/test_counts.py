"""Int scalars that say how far an index runs, against loops in Python under autograd."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError
from pullback.bind.kinds.formula import Mathematics
from pullback.bind.loops.backends import CpuBackend
from pullback.bind.loops.nests import Own
from pullback.bind.math import recur
from pullback.bind.operator import Operator
from pullback.define.math import derived, notation
from pullback.verify.inputs.inputs import find_inputs
from pullback.verify.target import target_of

DOUBLE = torch.float64
Inputs = tuple[Tensor, ...]


def stacked(steps: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(steps) if steps else like.new_zeros(0, *like.shape)


def heat(u0: Tensor, k: Tensor, steps: int) -> Tensor:
    found, u = list[Tensor](), u0
    for _ in range(steps):
        zero = u[:1] * 0
        left, right = torch.cat([zero, u[:-1]]), torch.cat([u[1:], zero])
        u = u + k * (right - 2 * u + left)
        found.append(u)
    return stacked(found, u0)


def leapfrog(q0: Tensor, p0: Tensor, steps: int) -> Tensor:
    q, p, found = q0, p0, list[Tensor]()
    for _ in range(steps + 1):
        p = p - 0.1 * torch.sin(q)
        q = q + 0.1 * p
        found.append(q * p)
    return stacked(found, q0)


def powers(x: Tensor, order: int) -> Tensor:
    return torch.stack([(1 + x**2) ** (k - order) for k in range(2 * order + 1)], -1)


def lags(x: Tensor, w: Tensor, lags: int) -> Tensor:
    total = torch.zeros_like(x)
    for k in range(min(lags, len(x))):
        total = total + torch.cat([x.new_zeros(k), x[: len(x) - k]])
    return total * w


def waves(x: Tensor, w: Tensor, n: int) -> Tensor:
    return sum((torch.tanh(x * j) * w * n for j in range(n)), torch.zeros_like(x))


def drawn(*sizes: int) -> Callable[[], Inputs]:
    def draw() -> Inputs:
        generator = torch.Generator().manual_seed(3)
        return tuple(torch.rand(n, dtype=DOUBLE, generator=generator) for n in sizes)

    return draw


# A line; the same in Python; the inputs.
CASES: dict[str, tuple[Callable[..., Tensor], Callable[[], Inputs]]] = {
    "heat(u0[x], k[x], steps: int) -> u[t < steps, x] = u[t - 1, x]"
    " + k*(pad(u[t - 1, x + 1]) - 2*u[t - 1, x] + pad(u[t - 1, x - 1])); u[-1, x] = u0": (
        heat,
        drawn(4, 4),
    ),
    "leapfrog(q0[b], p0[b], steps: int) -> y[t < steps + 1, b] ="
    " q[t < steps + 1, b] = q[t - 1, b] + 0.1*p[t, b]; q[-1, b] = q0;"
    " p[t < steps + 1, b] = p[t - 1, b] - 0.1*sin(q[t - 1, b]); p[-1, b] = p0; y = q*p": (
        leapfrog,
        drawn(3, 3),
    ),
    "powers(x[n], order: int) -> y[n, k < 2*order + 1] = (1 + x**2)**(k - order)": (
        powers,
        drawn(3),
    ),
    "lags(x[t], w[t], lags: int) -> y[t] = sum[k < lags](pad(x[t - k]))*w": (lags, drawn(5, 5)),
    "parts(x[i], w[i], n: int) -> y[i] = wave[i, j < n] = tanh(x*j);"
    " y = n*sum[j < n](wave[i, j])*w": (
        waves,
        drawn(4, 4),
    ),
}


def zero_of(leaves: Sequence[Tensor]) -> Tensor:
    """Nothing, of which each leaf has a gradient: PyTorch refuses what depends on none."""
    return torch.cat([0 * leaf for leaf in leaves]).sum()


@pytest.fixture(scope="session")
def operators() -> dict[str, Operator]:
    return {text: pb.operator(f"counts::{text}") for text in CASES}


@pytest.mark.ci(3)
@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_values_and_derivatives_are_those_of_a_loop_in_python(
    operators: dict[str, Operator], text: str, count: int
) -> None:
    own, (theirs, draw) = operators[text], CASES[text]
    given = draw()
    found, wanted = own(*given, count), theirs(*given, count)
    torch.testing.assert_close(found, wanted)
    assert own(*(t.to("meta") for t in given), count).shape == wanted.shape
    weights = torch.rand(wanted.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))

    def twice(function: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in given]
        value = (function(*leaves, count) * weights).sum() + zero_of(leaves)
        first = torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)
        squares = torch.cat([g**2 for g in first]).sum() + zero_of(leaves)
        return [*first, *torch.autograd.grad(squares, leaves, materialize_grads=True)]

    for one, other in zip(twice(own), twice(theirs), strict=True):
        torch.testing.assert_close(one, other)
    tangents = tuple(torch.ones_like(t) for t in given)
    pushed = [
        torch.func.jvp(lambda *leaves, f=f: f(*leaves, count), given, tangents)[1]
        for f in (own, theirs)
    ]
    torch.testing.assert_close(*pushed)
    several = torch.stack([given[0], given[0] * 0.5])
    batched = torch.func.vmap(lambda first: own(first, *given[1:], count))(several)
    torch.testing.assert_close(
        batched, torch.stack([theirs(t, *given[1:], count) for t in several])
    )


def operator_of(operators: dict[str, Operator], name: str) -> Operator:
    return next(own for text, own in operators.items() if text.startswith(name))


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("order", ["backward", "jvp", "second"])
def test_derivatives_take_the_number_and_read_back(
    operators: dict[str, Operator], text: str, order: str
) -> None:
    formula = operators[text].kind.definition.formula
    assert formula is not None
    made = derived.jvp(formula) if order == "jvp" else derived.backward(formula)
    if order == "second" and made is not None:
        made = derived.backward(made.formula)
    assert made is not None
    own = made.formula
    assert {*formula.counts} == {scalar.name for scalar in own.line.scalars}
    given = {name: size for name, size in own.sizes.items() if name in own.line.dimensions}
    line = replace(own.line, formula=notation.format_formula(own))
    read = notation.parse(line, sizes=given, trusted=True)
    assert (read.nodes, read.groups, read.counts) == (own.nodes, own.groups, own.counts)


def test_a_printed_derivative_names_the_number(operators: dict[str, Operator]) -> None:
    shown = str(operator_of(operators, "lags").derivative())
    assert (
        "grad_x[t] = sum[i < lags](where(0 <= i + t < size(t), grad[i + t]*w[i + t], 0))" in shown
    )
    assert "size(lags)" not in shown
    # Nothing else says there that it is a size.
    total = pb.operator("counts::total(x[n], m: int) -> y[n] = x*sum[k < m](1.0)")
    assert "grad_x = grad[n]*size(m)" in str(total.derivative())


def test_a_number_below_zero_is_refused(operators: dict[str, Operator]) -> None:
    for text, own in operators.items():
        given, [name] = CASES[text][1](), own.kind.definition.counts
        for inputs in (given, [t.requires_grad_() for t in given], [t.to("meta") for t in given]):
            with pytest.raises(PullbackError, match=rf"PB156.*{own.line.qualname}: '{name}' is -2"):
                own(*inputs, -2)
    few = pb.operator("counts::few(x[n], m: int) -> y[n, k < m - 2] = x*k")
    assert few(torch.ones(3), 2).shape == (3, 0)
    with pytest.raises(PullbackError, match=r"PB114.*'y' would be -1: m - 2 with m = 1"):
        few(torch.ones(3), 1)
    for device, many in itertools.product(("cpu", "meta"), (2**62, 2**63 - 1)):
        with pytest.raises(
            PullbackError, match=r"PB114.*'y' would have 3 x .* more than any memory"
        ):
            few(torch.ones(3, device=device), many)
    # Of a sum there is nothing below zero, as there is nothing at zero.
    left = pb.operator("counts::left(x[n], m: int) -> y[n] = x*sum[k < m - 2](k + 1.0)")
    assert [left(torch.ones(1), m).item() for m in (0, 2, 5)] == [0, 0, 6]


def test_tracing_keeps_the_number_symbolic(operators: dict[str, Operator]) -> None:
    """One graph is compiled for all numbers; a number that is fixed in the code is fixed."""
    heats, given = operator_of(operators, "heat"), CASES[next(iter(CASES))][1]()
    graphs = list[object]()

    def seen(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    def run(u0: Tensor, k: Tensor, steps: int) -> Tensor:
        return heats(u0, k, steps).square().sum() + heats(k, u0, 2).sum()

    def calls(run: Callable[..., Tensor], inputs: Sequence[Tensor], steps: int) -> Tensor:
        return run(*inputs, steps)

    compiled = torch.compile(run, backend=seen, fullgraph=True, dynamic=True)
    for steps in (2, 3, 6, 9):
        torch.testing.assert_close(calls(compiled, given, steps), calls(run, given, steps))
    assert len(graphs) == 1
    whole = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=True)
    leaves = [t.clone().requires_grad_() for t in given]
    for steps in (3, 5):
        found, wanted = (torch.autograd.grad(calls(f, leaves, steps), leaves) for f in (whole, run))
        torch.testing.assert_close(found, wanted)


def test_tracing_keeps_an_int_symbolic_that_nothing_runs_up_to() -> None:
    """It may be a size all the same: were it fixed, the size would be, too."""
    scaled = pb.operator("counts::scaled(x[n], k: int) -> y[n] = k*x/sum[m](where(m < k, x[m], 0))")

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scaled(x, x.shape[0])

    x = torch.rand(5, dtype=DOUBLE)
    size = torch.export.Dim("n", min=2)
    program = torch.export.export(Model(), (x,), dynamic_shapes={"x": {0: size}})
    longer = torch.rand(9, dtype=DOUBLE)
    torch.testing.assert_close(program.module()(longer), 9 * longer / longer.sum())


def test_one_kernel_serves_all_numbers(
    operators: dict[str, Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recur, "FEW", 0)
    written, compiling = set[str](), CpuBackend.compile

    def compile(self: CpuBackend, own: Own) -> Path:
        written.add(own.identity)
        return compiling(self, own)

    monkeypatch.setattr(CpuBackend, "compile", compile)
    heats = operator_of(operators, "heat")
    u0, k = torch.linspace(-1, 1, 40), torch.linspace(0, 0.2, 40)
    for steps in (3, 10, 64, 1000):
        # A rounding of 6e-8 in each step.
        found, wanted = heats(u0, k, steps), heat(u0.double(), k.double(), steps)
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-4)
    assert len(written) == 1
    assert "u: own loop" in str(heats.plan(u0, k, 1000))
    bumps = pb.operator(
        "counts::bumps(x[n], m: int) -> y[n] = sum[k < m](exp(-(x - 0.1*k)**2))"
        "/sum[k < m](1 + cos(x*k)**2)"
    )
    written.clear()
    x = torch.linspace(0, 1, 5000)
    for m in (3, 7, 12, 16, 100, 500):
        k = torch.arange(m, dtype=DOUBLE)
        above = (-((x[:, None] - 0.1 * k) ** 2)).exp().sum(1)
        below = (1 + torch.cos(x[:, None] * k) ** 2).sum(1)
        # x*k is rounded by 3e-5 at most.
        torch.testing.assert_close(bumps(x, m).double(), above / below, rtol=1e-4, atol=0)
    assert len(written) == 1


@pytest.mark.thorough
def test_cuda_on_the_cpu_computes_the_same(operators: dict[str, Operator]) -> None:
    with pb.cuda.on_cpu():
        for text, own in operators.items():
            theirs, draw = CASES[text]
            for count in (0, 5):
                torch.testing.assert_close(own(*draw(), count), theirs(*draw(), count))


def test_pytorch_alone_computes_the_same(operators: dict[str, Operator]) -> None:
    for text, own in operators.items():
        theirs, draw = CASES[text]
        assert isinstance(own.kind, Mathematics)
        alone = own.kind.in_pytorch()
        for count in (0, 1, 4):
            results = list[tuple[Tensor, ...]]()
            for way in (alone, theirs):
                leaves = [t.requires_grad_() for t in draw()]
                value = way(*leaves, count)
                assert isinstance(value, Tensor)
                total = value.square().sum() + zero_of(leaves)
                results.append((value, *torch.autograd.grad(total, leaves)))
            torch.testing.assert_close(*results)


def test_what_only_a_number_counts_is_not_split() -> None:
    own = pb.operator(
        "counts::split(u0[b], steps: int) -> u[t < steps, b] = tanh(u[t - 1, b]); u[-1, b] = u0"
    )
    ways = [way for _, table in own.kind.tables() for way in table]
    assert {way.split for way in ways if way.reason is None} == {"b"}
    assert [way.reason for way in ways if way.split == "t"] == ["its size depends on others"]


def test_the_checker_gives_a_number_that_is_not_negative(operators: dict[str, Operator]) -> None:
    target = target_of(operator_of(operators, "powers"))
    found = find_inputs(target, seed=0, isolate=False)
    assert found.arguments[1] == 5


# --- drawn lines, against a loop in Python


def draw_line(chance: random.Random) -> tuple[str, Callable[..., Tensor]]:
    """Return a line `(x[n], w[d], m: int) -> y[t, d]`, and the loop that it stands for."""
    times, more = chance.choice(((1, 0), (1, 1), (2, 0), (2, 1)))
    limit = f"{times}*m + {more}" if times > 1 else f"m + {more}" if more else "m"
    shift, back = chance.choice((-1, 0, 2)), chance.choice((0, 1, 2))
    number = chance.choice(("0.1*t", "m", "size(t) - t", "float(t < m)"))
    window = chance.choice(("1", "m", "m//2 + 1"))
    direction = chance.choice((-1, 1))
    inputs = f"w*sum[j < {window}](pad(x[t + j + {shift}])*(j + 1))"
    earlier = f" + 0.5*pad(y[t {'-' if direction > 0 else '+'} {back}, d])" if back else ""
    part = chance.choice((True, False))
    text = f"(x[n], w[d], m: int) -> y[t < {limit}, d] = "
    if part:
        text += f"own[t < {limit}, d] = {inputs}; y = own*({number} + 1){earlier}"
    else:
        text += f"{inputs}*({number} + 1){earlier}"

    def loop(x: Tensor, w: Tensor, m: int) -> Tensor:
        length = times * m + more
        many = {"1": 1, "m": m, "m//2 + 1": m // 2 + 1}[window]
        found: dict[int, Tensor] = {}
        for t in range(length)[::direction]:
            places = [(j, t + j + shift) for j in range(many)]
            value = sum(((j + 1) * x[p] for j, p in places if 0 <= p < len(x)), 0 * x.sum()) * w
            own = {"0.1*t": 0.1 * t, "m": m, "size(t) - t": length - t, "float(t < m)": t < m}
            value = value * (own[number] + 1)
            if back and t - direction * back in found:
                value = value + 0.5 * found[t - direction * back]
            found[t] = value
        return stacked([found[t] for t in range(length)], w)

    return text, loop


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 20))]
)
def test_drawn_lines_are_loops_in_python(number: int, seed: int) -> None:
    text, theirs = draw_line(random.Random(f"{seed} {number}"))
    own = pb.operator(f"counts::drawn{number}{text}")
    generator = torch.Generator().manual_seed(number)
    for m in (0, 1, 4):
        results = list[list[Tensor]]()
        given = [torch.randn(s, dtype=DOUBLE, generator=generator) for s in (5, 2)]
        for way in (own, theirs):
            leaves = [t.clone().requires_grad_() for t in given]
            value = way(*leaves, m)
            zero = zero_of(leaves)
            first = torch.autograd.grad(value.cos().sum() + zero, leaves, create_graph=True)
            total = torch.cat([g * g for g in first]).sum() + zero
            results.append([value, *first, *torch.autograd.grad(total, leaves)])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, msg=lambda m: f"{text}\n{m}")
