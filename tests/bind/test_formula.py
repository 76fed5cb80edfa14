"""Formula operators inside of everything else that PyTorch does."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from formula_lines import CASES, SWISH, Case, doubles, swish
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vmap
from torch.nn import functional
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import pullback as pb
from pullback.bind import runtime
from pullback.bind.dense.elements import FormulaNotice
from pullback.kernels import toolchain
from tests.telling import telling

pytestmark = pytest.mark.compiler
numbers = itertools.count()
AGAIN = "ignore:.*is defined again"


@functools.cache
def define(rest: str, **given: Any) -> Any:
    return pb.operator(f"pbf::f{next(numbers)}{rest}", **given)


each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def as_tuple(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def tracked(arguments: tuple[Any, ...]) -> list[Tensor]:
    return [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]


def loss(values: Any) -> Tensor:
    parts = [
        (k + 1) * (v * v).sum() for k, v in enumerate(as_tuple(values)) if v.is_floating_point()
    ]
    return torch.stack(parts).sum()


@pytest.mark.ci(3)
@each_case
def test_a_line_gives_values_and_gradients_of_pytorch(case: Case, seed: int) -> None:
    assert_agrees_with_pytorch(case, 1)


@pytest.mark.parametrize(
    "case", telling(CASES, ("broadcasting", "a bias", "several outputs", "scalars"))
)
def test_a_line_gives_three_derivatives_of_pytorch(case: Case, seed: int) -> None:
    assert_agrees_with_pytorch(case, 3)


def assert_agrees_with_pytorch(case: Case, orders: int) -> None:
    """Each order is a kernel of its own, which is compiled."""
    line, reference, arguments = case
    operator, some = define(line), arguments()
    found, wanted = as_tuple(operator(*some)), as_tuple(reference(*some))
    assert_close(found, wanted)
    ours, theirs = loss(found), loss(wanted)
    for _ in range(orders):
        pair = [
            torch.autograd.grad(value, tracked(some), create_graph=True, materialize_grads=True)
            for value in (ours, theirs)
        ]
        assert_close(*pair, rtol=1e-6, atol=1e-6 * float(theirs.detach().abs() + 1))
        ours, theirs = (torch.stack([(g * g).sum() for g in gs]).sum() for gs in pair)
        if not (ours.requires_grad and theirs.requires_grad):
            break


MIXED = ("broadcasting", "an outer product", "permuted", "a bias", "several outputs", "scalars")


@pytest.mark.parametrize(
    "case", telling({name: CASES[name] for name in MIXED}, ("an outer product", "scalars"))
)
def test_gradcheck_and_gradgradcheck_pass_in_every_mode(case: Case, seed: int) -> None:
    line, _, arguments = case
    some = arguments()
    assert gradcheck(define(line), some, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(define(line), some, check_fwd_over_rev=True, check_batched_grad=True)


@pytest.mark.parametrize(
    ("dtype", "accuracy", "allowed"),
    [(torch.float32, "4ulp", 1e-4), (torch.float64, "1ulp", 1e-10)],
)
def test_gradients_in_which_functions_share_their_parts_are_pytorchs(
    dtype: torch.dtype, accuracy: Any, allowed: float, seed: int
) -> None:
    """An exponential, a gelu's tail, a quotient: also where arguments are large."""
    shared = define(
        "(x[...], y[...]) -> (a[...], b[...], c[...], d[...], s[...]) = a = gelu(x)**2; "
        "b = y*logaddexp(x, y)**2; c = where(x > 0, x, expm1(x))**2; d = (x/(1 + y**2))**2; "
        "s = softplus(-x)*sigmoid(x)*sigmoid(-x)",
        accuracy=accuracy,
    )

    def in_torch(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            nn.functional.gelu(x) ** 2,
            y * torch.logaddexp(x, y) ** 2,
            torch.where(x > 0, x, torch.expm1(x)) ** 2,
            (x / (1 + y**2)) ** 2,
            nn.functional.softplus(-x) * torch.sigmoid(x) * torch.sigmoid(-x),
        )

    wide = [(torch.randn(3, 999) * torch.tensor([[1.0], [8.0], [30.0]])).double() for _ in "xy"]
    wide = [t.to(dtype).double().requires_grad_() for t in wide]
    given = [t.detach().to(dtype).requires_grad_() for t in wide]
    found = torch.autograd.grad(loss(shared(*given)), given)
    expected = torch.autograd.grad(loss(in_torch(*wide)), wide)
    assert_close(found, expected, rtol=allowed, atol=allowed, check_dtype=False)


def test_the_gradient_of_a_divisor_is_right_where_that_of_what_it_divides_is_out_of_range() -> None:
    """It is -(g/y)*(x/y), but not so computed where g/y is infinite, or rounded to 0."""
    powers = torch.tensor([[0.0, -134.0, -130.0, 126.0], [-90.0, 126.0, 62.0, -88.0]])
    g, x, y, expected = powers.repeat_interleave(9, 0).exp2().unbind(1)
    leaves = x.requires_grad_(), y.requires_grad_()
    divide = define("(x[...], y[...]) -> z[...] = x/y")
    _, found = torch.autograd.grad(divide(*leaves), leaves, g)
    assert (found == -expected).all()


def test_a_formula_itself_is_computed_as_it_is_written() -> None:
    """Beside g/y, a gradient takes g*(x/y) from it; with g/y rounded to 0 that would be 0."""
    quotients = define("(g[...], x[...], y[...]) -> (a[...], b[...]) = a = g/y; b = g*(x/y)")
    g, x, y = (torch.full((9,), size) for size in (1e-25, 1e30, 1e30))
    assert (quotients(g, x, y)[1] == g).all()


@each_case
def test_strides_are_those_that_the_fake_kernel_says(case: Case, seed: int) -> None:
    line, _, arguments = case
    some = arguments()
    with torch._subclasses.FakeTensorMode() as mode:  # pyright: ignore
        fake = [mode.from_tensor(a) if isinstance(a, Tensor) else a for a in some]
        outputs = as_tuple(define(line)(*fake))
    for real, said in zip(as_tuple(define(line)(*some)), outputs, strict=True):
        assert (real.shape, real.dtype) == (said.shape, said.dtype)
        assert real.stride() == said.stride() or real.numel() == 0


@pytest.mark.parametrize("name", ["broadcasting", "permuted", "several outputs", "scalars"])
def test_opcheck_passes(name: str, seed: int) -> None:
    line, _, arguments = CASES[name]
    torch.library.opcheck(define(line).overload, arguments())


# --- torch.func


class Count(TorchDispatchMode):
    """Counts the calls of our operators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "pbf":
            self.calls.append(func.__name__)
        return func(*args, **(kwargs or {}))


# `linearize` of PyTorch's own functions warns of the tensors that they close over as well.
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_transforms_of_torch_func_agree_with_pytorch(seed: int) -> None:
    ours = define(SWISH)
    x, b = doubles(4).detach(), doubles(4).detach()
    for transform in (jacfwd, jacrev, hessian):
        assert_close(transform(ours)(x, b), transform(swish)(x, b))
        assert_close(transform(ours, argnums=(0, 1))(x, b), transform(swish, argnums=(0, 1))(x, b))
    assert_close(jvp(ours, (x, b), (b, x)), jvp(swish, (x, b), (b, x)))
    assert_close(grad(lambda x: ours(x, b).sum())(x), grad(lambda x: swish(x, b).sum())(x))
    assert_close(
        jvp(grad(lambda x: ours(x, b).sum()), (x,), (b,)),
        jvp(grad(lambda x: swish(x, b).sum()), (x,), (b,)),
    )
    value, push = linearize(lambda x: ours(x, b), x)
    assert_close((value, push(b)), jvp(lambda x: swish(x, b), (x,), (b,)))


IN_DIMS = [(0, 0), (1, None), (None, 0), (-1, 1), (0, 1)]


@pytest.mark.parametrize("in_dims", IN_DIMS, ids=str)
def test_vmap_is_one_call(in_dims: tuple[int | None, ...], seed: int) -> None:
    ours, x, b = define(SWISH), doubles(3, 3).detach(), doubles(3, 3).detach()
    with Count() as count:
        found = vmap(ours, in_dims)(x, b)
    assert_close(found, vmap(swish, in_dims)(x, b))
    assert len(count.calls) == 1
    per_sample = [vmap(grad(lambda x, b, f=f: f(x, b).sum()), in_dims) for f in (ours, swish)]
    assert_close(per_sample[0](x, b), per_sample[1](x, b))


def test_vmap_of_vmap_is_one_call(seed: int) -> None:
    ours, x, b = define(SWISH), doubles(3, 4, 5).detach(), doubles(4, 5).detach()
    with Count() as count:
        found = vmap(vmap(ours), (0, None))(x, b)
    assert_close(found, vmap(vmap(swish), (0, None))(x, b))
    assert len(count.calls) == 1
    outer = define("(a[n], b[m]) -> c[n, m] = a*b")
    nested = vmap(vmap(outer, (None, 0)), (0, None))(x[0], x[1])
    assert_close(nested, torch.einsum("in,jm->ijnm", x[0], x[1]))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.float64))
        self.operator = define("(x[..., n], w[n]) -> y[..., n] = silu(x*w)")

    def forward(self, x: Tensor) -> Tensor:
        return self.operator(x, self.weight)


def test_modules_are_called_functionally_copied_and_pickled(seed: int) -> None:
    layer, x = Layer(), doubles(3, 4).detach()
    wanted = nn.functional.silu(x * layer.weight)
    weights: dict[str, Tensor] = dict(layer.named_parameters())
    assert_close(functional_call(layer, weights, (x,)), wanted)
    (gradient,) = torch.autograd.grad(wanted.sum(), layer.weight)
    found = grad(lambda w: functional_call(layer, w, (x,)).sum())(
        {name: weight.detach() for name, weight in weights.items()}
    )
    assert_close(found["weight"], gradient)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert_close(copied(x), wanted)
    assert pickle.loads(pickle.dumps(layer.operator)) is layer.operator


# --- compilation


@each_case
def test_compiled_code_gives_the_same(case: Case, seed: int) -> None:
    line, reference, arguments = case
    operator, some = define(line), arguments()
    torch.compiler.reset()
    compiled = torch.compile(operator.__call__, fullgraph=True, backend="aot_eager")
    found, wanted = compiled(*some), reference(*some)
    assert_close(as_tuple(found), as_tuple(wanted))
    gradients = [
        torch.autograd.grad(loss(values), tracked(some), materialize_grads=True)
        for values in (found, wanted)
    ]
    assert_close(*gradients)


def test_an_exported_program_runs(seed: int) -> None:
    layer, x = Layer(), doubles(3, 4).detach()
    dynamic = {"x": {0: torch.export.Dim("rows")}}
    program = torch.export.export(layer, (x,), dynamic_shapes=dynamic)
    longer = doubles(7, 4).detach()
    assert_close(program.module()(longer), layer(longer))


POLICIES: dict[str, tuple[torch.dtype, torch.dtype]] = {
    "as_is": (torch.float32, torch.float32),
    "lower": (torch.bfloat16, torch.float32),
    "float32": (torch.float32, torch.float32),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_autocast_does_what_the_policy_says(policy: Any, seed: int) -> None:
    result, gradient = POLICIES[policy]
    operator = define("(x[...]) -> y[...] = tanh(x)*x", autocast=policy)
    x = doubles(5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = operator(x)
    assert y.dtype == result
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == gradient


# --- autograd


def test_outputs_without_a_gradient_cost_nothing_and_break_nothing(seed: int) -> None:
    operator = define(CASES["several outputs"][0])
    for used in itertools.product([False, True], repeat=3):
        if not any(used):
            continue
        x, y = doubles(3), doubles(2, 3)
        pairs = [
            torch.autograd.grad(
                loss(tuple(v for v, u in zip(f(x, y), used, strict=True) if u)), (x, y)
            )
            for f in (operator, CASES["several outputs"][1])
        ]
        assert_close(*pairs)
    x, y = doubles(3), torch.randn(3, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(operator(x, y)[1].sum(), x)
    assert_close(gradient, y)


# What a derivative reads says nothing of n, of `...`, or not all of it.
SIZED_BY_OTHERS = [
    ("(x[n], b[m]) -> y[n, m] = b*3 + 1", (3,), (2,)),
    ("(x[..., n], b[n]) -> y[..., n] = 2*b", (3, 2), (2,)),
    ("(k[n]: int64, b[m]) -> y[n, m] = b*b", (3,), (2,)),
    ("(k[...]: int64, b[...]) -> y[...] = 2*b", (3,), (1,)),
]


@pytest.mark.parametrize(("line", "first", "second"), SIZED_BY_OTHERS)
def test_a_derivative_has_its_shape_from_what_it_does_not_read(
    line: str, first: tuple[int, ...], second: tuple[int, ...], seed: int
) -> None:
    torch.manual_seed(seed)
    other = torch.ones(first, dtype=torch.int64) if "int64" in line else doubles(*first)
    operator, given = define(line), (other, doubles(*second))
    assert gradcheck(operator, given, check_forward_ad=True)
    assert gradgradcheck(operator, given)


def test_an_input_that_is_not_used_has_no_gradient(seed: int) -> None:
    operator = define("(x[...], y[...]) -> z[...] = exp(x)")
    x, y = doubles(3), doubles(3)
    z = operator(x, y)
    assert_close(
        torch.autograd.grad(z.sum(), y, allow_unused=True, materialize_grads=True)[0], 0 * y
    )
    only = operator(x.detach(), y)
    assert not only.requires_grad or only.sum().backward() is None


def test_what_is_saved_may_not_be_changed_and_the_rest_may(seed: int) -> None:
    sigmoid, cube = define("(x[...]) -> y[...] = sigmoid(x)"), define("(x[...]) -> y[...] = x**3")
    assert sigmoid.derivative().saved == ("y",)
    assert cube.derivative().saved == ("x",)
    x = doubles(3)
    inner = x * 1
    y = sigmoid(inner)
    inner.add_(1)
    y.sum().backward()
    inner = x * 1
    y = cube(inner)
    inner.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_checkpoint_recomputes(seed: int) -> None:
    operator, x, b = define(SWISH), doubles(4), doubles(4)
    y = checkpoint(operator, x, b, use_reentrant=False)
    assert isinstance(y, Tensor)
    assert_close(
        torch.autograd.grad(y.sum(), (x, b)), torch.autograd.grad(swish(x, b).sum(), (x, b))
    )


def test_an_element_is_the_same_wherever_it_is(seed: int) -> None:
    """A long loop has two vectors in turns, then one, then what fills none: with the same bits."""
    long = define("(x[...], y[...]) -> z[...] = tanh(x)*sigmoid(y) + log(1 + x**2)*exp(-y**2)")
    x, y, weight = torch.randn(3, 101)
    leaves = [x.requires_grad_(), y.requires_grad_()]
    wanted = [long(x, y), *torch.autograd.grad(long(x, y), leaves, weight)]
    for size, first in itertools.product((1, 7, 8, 16, 17, 33, 63, 100), (0, 1)):
        part = slice(first, first + size)
        some = [leaf.detach()[part].requires_grad_() for leaf in leaves]
        value = long(*some)
        found = [value, *torch.autograd.grad(value, some, weight[part])]
        assert all(torch.equal(f, w[part]) for f, w in zip(found, wanted, strict=True)), (
            size,
            first,
        )


def test_channels_last_stays(seed: int) -> None:
    operator = define("(x[...]) -> y[...] = gelu(x)")
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    y = operator(x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert gradient.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("made", ["cpu", "python"])
def test_formulas_are_derivatives_of_other_kernels(made: str, seed: int) -> None:
    source = """template <class T> void f(T* y, const T* x, double beta, long n) {
        for (long i = 0; i < n; ++i) y[i] = log1p(exp(beta * x[i])) / beta; }"""
    kernel: dict[str, Any] = {
        "cpu": {
            "cpu": pb.source(
                "#include <cmath>\nusing namespace std;\n" + source, call="f(y, x, beta, numel(x))"
            )
        },
        "python": {"python": lambda x, beta: torch.log1p(torch.exp(beta * x)) / beta},
    }[made]
    operator = pb.operator(
        f"pbf::written_{made}(x[...], beta: float = 1.0) -> y[...]",
        **kernel,
        backward={"x": "grad * -expm1(-beta * y)"},
        jvp={"y": "tangent_x * -expm1(-beta * y)"},
    )
    for beta in (1.0, 2.5):
        x = doubles(3)
        assert gradcheck(lambda x: operator(x, beta), x, check_forward_ad=True)  # noqa: B023
        assert gradgradcheck(lambda x: operator(x, beta), x)  # noqa: B023
        wanted = torch.sigmoid(beta * x)
        assert_close(torch.autograd.grad(operator(x, beta).sum(), x)[0], wanted)
        assert_close(vmap(grad(lambda x: operator(x, beta)))(x), wanted)  # noqa: B023


# --- names, threads, definitions


def test_a_first_call_may_come_from_eight_threads_at_once(seed: int) -> None:
    operator = pb.operator("pbf::threads(x[...]) -> y[...] = sinh(x)*cos(x)")
    x, gate = torch.randn(100, dtype=torch.float64), threading.Barrier(8)
    found: list[Tensor] = []

    def run() -> None:
        leaf = x.clone().requires_grad_()
        gate.wait()
        (first,) = torch.autograd.grad(operator(leaf).sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first.sum(), leaf)[0])

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for second in found:
        assert_close(second, -2 * torch.cosh(x) * torch.sin(x) * 1.0)


@pytest.mark.filterwarnings(AGAIN)
def test_a_graph_keeps_the_derivative_that_it_was_made_with(seed: int) -> None:
    x = doubles(4)
    old = pb.operator("pbf::again(x[...]) -> y[...] = x**3")
    y = old(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    y = old(x)
    new = pb.operator("pbf::again(x[...]) -> y[...] = sin(x)")
    assert_close(torch.autograd.grad(first.sum(), x)[0], 6 * x)
    (kept,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert_close(kept, 3 * x**2)
    assert_close(torch.autograd.grad(kept.sum(), x)[0], 6 * x)
    for operator in (old, new):
        assert_close(operator(x), torch.sin(x))
        assert_close(torch.autograd.grad(operator(x).sum(), x)[0], torch.cos(x))
    assert_close(jvp(new, (x,), (x,))[1], x * torch.cos(x))
    assert_close(vmap(new)(x), torch.sin(x))


def test_a_traced_function_is_the_same_operator(seed: int) -> None:
    @pb.formula("pbf::traced")
    def traced(x: Any, b: Any, beta: float = 1.5, *, shift: int = 2) -> Any:
        t = torch.where((x > 0) & ~(b > 1), x, -x.abs())
        return {"y": t * torch.sigmoid(beta * b) + shift, "z": torch.clamp(x, min=-0.5) % 2}

    def plain(x: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        t = torch.where((x > 0) & ~(b > 1), x, -x.abs())
        return t * torch.sigmoid(1.5 * b) + 2, (torch.clamp(x, min=-0.5) % 2).expand(2, 5)

    x, b = doubles(5), doubles(2, 5)
    assert_close(traced(x, b), plain(x, b))
    pairs = [torch.autograd.grad(loss(f(x, b)), (x, b)) for f in (traced, plain)]
    assert_close(*pairs)


def test_without_a_compiler_pytorch_runs_the_formula(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def refuse() -> runtime.Runtime:
        raise toolchain.CompilerMissing.error("no C++ compiler can be used")

    monkeypatch.setattr(runtime, "load", refuse)
    for name in ("broadcasting", "an outer product", "scalars", "whole numbers", "a bias"):
        line, reference, arguments = CASES[name]
        with pytest.warns(FormulaNotice, match="runs by PyTorch's operations"):
            operator = pb.operator(f"pbf::slow{next(numbers)}{line}")
        some = arguments()
        assert_close(operator(*some), reference(*some))
        assert gradcheck(operator, some)
        assert gradgradcheck(operator, some)


@pytest.mark.parametrize("line", ["(x[...]) -> y[...] = x*tanh(x)", "(x[n]) -> y[] = sum[n](x**4)"])
def test_a_formula_is_compiled_once_under_all_its_names(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.linspace(0, 1, 7)
    first, second = (pb.operator(f"pbnamed{len(line)}::{name}{line}") for name in ("a", "b"))
    first(x)
    # The runtime is there by now.
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    third = pb.operator(f"pbnamed{len(line)}::c{line}")
    assert torch.equal(first(x), second(x))
    compiled = set(tmp_path.rglob("*.so"))
    assert torch.equal(second(x), third(x))
    assert compiled
    assert set(tmp_path.rglob("*.so")) == compiled


# A formula, PyTorch's own, and the shapes of calls whose gradients are summed over many elements:
# parts end within every dimension, and rows of few channels are joined.
SUMMED = {
    "channels": (
        "(x[b, c, s], g[c], h[c]) -> y[b, c, s] = silu(x*g + h)",
        lambda x, g, h: functional.silu(x * g[:, None] + h[:, None]),
        [
            ((7, 3, 40_001), (3,), (3,)),
            ((70_001, 3, 5), (3,), (3,)),
            ((1, 300, 999), (300,), (300,)),
        ],
    ),
    "bias": (
        "(x[..., d], w[d], s[]) -> y[..., d] = tanh(x*w)*s",
        lambda x, w, s: torch.tanh(x * w) * s,
        [
            ((3, 100, 1000), (1000,), ()),
            ((200_000, 3), (3,), ()),
            ((5, 7, 11, 13, 101), (101,), ()),
        ],
    ),
    "outer": (
        "(a[i], b[j], c[k]) -> y[i, j, k] = a*b*c",
        lambda a, b, c: a[:, None, None] * b[:, None] * c,
        [((71,), (65,), (67,)), ((2,), (3,), (70_001,)), ((200_001,), (2,), (1,))],
    ),
    "rows": (
        "(x[n, m], r[n]) -> y[n, m] = x*exp(r)",
        lambda x, r: x * r.exp()[:, None],
        [((1000, 301), (1000,)), ((100_000, 3), (100_000,))],
    ),
}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize("dtype", telling(DTYPES, ["float32", "bfloat16"]))
def test_gradients_that_are_summed_over_large_spaces(
    name: str, dtype: torch.dtype, seed: int
) -> None:
    """They are as PyTorch's in float64, contiguous, and of the tensors' dtype."""
    line, peer, calls = SUMMED[name]
    op = pb.operator(f"test::summed_{name}_{str(dtype)[6:]}{line}")
    for shapes in calls:
        given = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
        exact = [leaf.detach().double().requires_grad_() for leaf in given]
        value, want = op(*given), peer(*exact)
        for arriving in (torch.randn(value.shape).to(dtype), torch.ones((), dtype=dtype)):
            full = arriving.expand(value.shape)
            pairs = zip(
                torch.autograd.grad(value, given, full, retain_graph=True),
                torch.autograd.grad(want, exact, full.double(), retain_graph=True),
                strict=True,
            )
            for own, theirs in pairs:
                assert own.dtype == dtype
                assert own.is_contiguous()
                off = (own.double() - theirs).abs().max() / theirs.abs().max()
                most = 4 if dtype == torch.bfloat16 else 400  # few of a sum in single precision
                assert off < most * torch.finfo(dtype).eps, (shapes, float(off))
