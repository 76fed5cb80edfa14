"""Operators inside torch.func, torch.compile, torch.export, modules that are copied and pickled."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from typing import Any

import pytest
import torch
from operators import BY_NAME, DIFFERENTIABLE, TABLE, Case, as_tuple, draw, linear_backward, precise
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import pullback as pb
from pullback import PullbackError
from tests.telling import telling

pytestmark = pytest.mark.compiler
each_case = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
# A traced call takes long: an optional tensor, an index, scalars, complex numbers, other sizes.
each_traced = pytest.mark.parametrize(
    "case", telling(BY_NAME, ("linear", "gather", "affine", "conj_mul", "correlate"))
)
each_derived = pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda case: case.name)
twice = [case for case in DIFFERENTIABLE if case.orders == 2 and not case.dtypes[0].is_complex]
each_twice = pytest.mark.parametrize("case", twice, ids=lambda case: case.name)


def is_floating(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype != torch.int64


def loss_of(outputs: object) -> Tensor:
    """A real number that depends on each output in its own way."""
    parts = [
        (index + 1) * (o.real.square().sum() + o.imag.sum() if o.is_complex() else o.square().sum())
        for index, o in enumerate(as_tuple(outputs))
    ]
    return torch.stack(parts).sum()


# --- what PyTorch itself checks


@pytest.mark.ci(3)
@each_traced
def test_opcheck_passes(case: Case, seed: int) -> None:
    overload = case.operator.overload
    for example in case.examples:
        arguments = draw(example, case.dtypes[0] if case.name == "half" else precise(case), seed)
        tracked = [a.requires_grad_() if is_floating(a) else a for a in arguments]
        torch.library.opcheck(overload, tuple(tracked))
        torch.library.opcheck(overload, tuple(draw(example, case.dtypes[0], seed)))


def test_opcheck_passes_on_backwards(seed: int) -> None:
    assert BY_NAME["square"].operator
    x, w, _ = draw(BY_NAME["linear"].examples[0], torch.float64, seed)
    torch.library.opcheck(
        linear_backward().overload, (torch.randn(5, 2, dtype=torch.float64), x, w)
    )
    torch.library.opcheck(
        torch.ops.pbtest.square_backward.default, (x.requires_grad_(), x.detach().requires_grad_())
    )


# --- torch.func


@each_derived
def test_func_grad_and_vjp_agree_with_the_reference(case: Case, seed: int) -> None:
    for example in case.examples:
        arguments = draw(example, precise(case), seed)
        which = tuple(i for i, a in enumerate(arguments) if is_floating(a))
        found = grad(lambda *a: loss_of(case.operator(*a)), argnums=which)(*arguments)
        wanted = grad(lambda *a: loss_of(case.expected(*a)), argnums=which)(*arguments)
        torch.testing.assert_close(found, wanted)
        floating = [arguments[i] for i in which]

        def of_floating(*some: Tensor) -> Any:
            every = dict(enumerate(arguments)) | dict(zip(which, some, strict=True))  # noqa: B023
            return case.operator(*(every[i] for i in range(len(every))))

        outputs, pull = vjp(of_floating, *floating)[:2]
        ones = (
            torch.ones_like(outputs)
            if isinstance(outputs, Tensor)
            else tuple(map(torch.ones_like, outputs))
        )
        expected = torch.autograd.grad(
            case.expected(*(a.requires_grad_() if is_floating(a) else a for a in arguments)),
            [arguments[i] for i in which],
            as_tuple(ones),
        )
        torch.testing.assert_close(pull(ones), expected)


@each_twice
def test_jacobians_and_hessians_agree_with_the_reference(case: Case, seed: int) -> None:
    for example in case.examples:
        arguments = draw(example, torch.float64, seed)
        if not all(a.numel() for a in arguments if isinstance(a, Tensor)):
            continue
        for transform in (jacrev, jacfwd):
            found = transform(case.operator)(*arguments)
            wanted = transform(case.reference)(*arguments)
            torch.testing.assert_close(found, wanted)
        found = hessian(lambda *a: loss_of(case.operator(*a)))(*arguments)
        wanted = hessian(lambda *a: loss_of(case.expected(*a)))(*arguments)
        torch.testing.assert_close(found, wanted)
        backwards = jacrev(jacrev(lambda *a: loss_of(case.operator(*a))))(*arguments)
        torch.testing.assert_close(backwards, wanted)


def test_jacobians_of_an_operator_that_is_differentiable_once(seed: int) -> None:
    arguments = draw(BY_NAME["linear"].examples[0], torch.float64, seed)
    every = (0, 1, 2)
    found = jacrev(BY_NAME["linear"].operator, argnums=every)(*arguments)
    torch.testing.assert_close(found, jacrev(nn.functional.linear, argnums=every)(*arguments))


def batched(arguments: tuple[Any, ...], dims: tuple[int | None, ...], size: int) -> list[Any]:
    """Return the arguments with a batch dimension where `dims` says; the elements differ."""
    result: list[Any] = []
    for argument, dim in zip(arguments, dims, strict=True):
        if dim is None:
            result.append(argument)
            continue
        steps = torch.arange(1, size + 1)
        rows = [
            argument * int(s) if is_floating(argument) else argument.roll(int(s)) for s in steps
        ]
        result.append(torch.stack(rows).movedim(0, dim))
    return result


def combinations(arguments: tuple[Any, ...]) -> list[tuple[int | None, ...]]:
    choices: list[tuple[int | None, ...]] = [
        (None, *range(a.dim() + 1), -1) if isinstance(a, Tensor) else (None,) for a in arguments
    ]
    return [dims for dims in itertools.product(*choices) if any(d is not None for d in dims)]


@each_case
def test_vmap_over_every_combination_of_dimensions_agrees_with_a_loop(
    case: Case, seed: int
) -> None:
    size = 3
    for example in case.examples:
        arguments = draw(example, case.dtypes[0], seed)
        if sum(a.dim() for a in arguments if isinstance(a, Tensor)) > 6:
            continue
        for dims in combinations(arguments):
            mapped = batched(arguments, dims, size)
            found = as_tuple(vmap(case.operator, in_dims=dims)(*mapped))
            rows = [
                as_tuple(
                    case.operator(
                        *(
                            a if d is None else a.select(d, index)
                            for a, d in zip(mapped, dims, strict=True)
                        )
                    )
                )
                for index in range(size)
            ]
            for column, output in zip(zip(*rows, strict=True), found, strict=True):
                torch.testing.assert_close(output, torch.stack(column), rtol=0, atol=0)


def test_an_operator_with_batch_dimensions_is_called_once_under_vmap() -> None:
    calls: list[torch.Size] = []

    def negate(x: Tensor) -> Tensor:
        calls.append(x.shape)
        return -x

    together = pb.operator("pbtest::together(x[..., n]) -> y[..., n]", python=negate)
    x = torch.randn(5, 4, 3)
    torch.testing.assert_close(vmap(vmap(together))(x), -x)
    assert calls == [(5, 4, 3)]
    alone = pb.operator("pbtest::alone(x[n]) -> y[n]", python=negate)
    calls.clear()
    torch.testing.assert_close(vmap(alone)(x[0]), -x[0])
    assert calls == [(3,)] * 4


@each_derived
def test_vmap_of_grad_agrees_with_a_loop(case: Case, seed: int) -> None:
    arguments = draw(case.examples[0], precise(case), seed)
    dims = tuple(0 if isinstance(a, Tensor) else None for a in arguments)
    mapped = batched(arguments, dims, 3)
    pull = grad(lambda *a: loss_of(case.operator(*a)))
    found = vmap(pull, in_dims=dims)(*mapped)
    rows = [
        pull(*(a if d is None else a[index] for a, d in zip(mapped, dims, strict=True)))
        for index in range(3)
    ]
    torch.testing.assert_close(found, torch.stack(rows))
    outer = grad(lambda *a: vmap(lambda *b: loss_of(case.operator(*b)), in_dims=dims)(*a).sum())
    torch.testing.assert_close(outer(*mapped), found)


def test_transforms_nest(seed: int) -> None:
    cube = BY_NAME["cube"].operator
    x, t = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    third = grad(grad(grad(lambda x: cube(x)[0])))
    torch.testing.assert_close(vmap(third)(x), torch.full_like(x, 6))
    _, pushed = jvp(vmap(grad(lambda x: cube(x)[0])), (x,), (t,))[:2]
    torch.testing.assert_close(pushed, 6 * x * t)
    _, twice = jvp(lambda x: jvp(lambda y: cube(y)[1], (x,), (t,))[1], (x,), (t,))[:2]
    torch.testing.assert_close(twice, 6 * t * t)


# --- torch.compile and torch.export


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


# The matrix compiles each kind for fixed sizes.
each_sizes = pytest.mark.parametrize(
    "dynamic", telling({"static": False, "dynamic": True}, ["dynamic"])
)


@pytest.mark.ci(3)
@each_traced
@each_sizes
def test_compile_gives_the_same_values_and_gradients(case: Case, dynamic: bool, seed: int) -> None:
    def step(*arguments: Any) -> Tensor:
        return loss_of(2 * as_tuple(case.operator(*arguments))[0])

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for example in case.examples[:2]:
        arguments = draw(example, case.dtypes[0], seed)
        tracked = [a.requires_grad_() if is_floating(a) else a for a in arguments]
        leaves = [a for a in tracked if is_floating(a)]
        wanted, found = step(*tracked), compiled(*tracked)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        torch.testing.assert_close(
            torch.autograd.grad(found, leaves), torch.autograd.grad(wanted, leaves)
        )


def test_a_dynamic_graph_serves_other_sizes(seed: int) -> None:
    frames: list[torch.fx.GraphModule] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        frames.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def compiled(case: Case) -> Any:
        def step(*arguments: Any) -> Any:
            return case.operator(*arguments)

        return torch.compile(step, fullgraph=True, backend=count, dynamic=True)

    # Without gradients: PyTorch's convolution, of which its backward is made, looks at the sizes.
    correlate = BY_NAME["correlate"]
    step = compiled(correlate)
    for h, w, p, q in ((5, 6, 2, 3), (9, 7, 3, 2), (12, 4, 5, 3)):
        x, k = torch.randn(h, w), torch.randn(p, q)
        y = step(x, k)
        assert y.shape == (h - p + 1, w - q + 1)
        torch.testing.assert_close(y, correlate.expected(x, k)[0])
    assert len(frames) == 1
    matvec = BY_NAME["matvec"]
    step = compiled(matvec)
    for b, n, m in ((5, 6, 2), (9, 7, 3), (2, 3, 8)):
        leaves = torch.randn(b, n, m, requires_grad=True), torch.randn(m, requires_grad=True)
        found = torch.autograd.grad(step(*leaves).square().sum(), leaves)
        wanted = torch.autograd.grad(matvec.expected(*leaves)[0].square().sum(), leaves)
        torch.testing.assert_close(found, wanted)
    assert len(frames) == 2


def test_a_wrong_size_is_noticed_while_tracing() -> None:
    linear = BY_NAME["linear"].operator
    step = torch.compile(
        lambda *some: linear(*some),  # noqa: PLW0108  (as in a model)
        fullgraph=True,
        backend="aot_eager",
    )
    with pytest.raises(RuntimeError, match="dimension 'i' is 3"):
        step(torch.randn(2, 3), torch.randn(2, 4))


@pytest.mark.thorough
def test_inductor_compiles_operators_and_their_backward(seed: int) -> None:
    mul, linear, cube = (BY_NAME[name].operator for name in ("mul", "linear", "cube"))

    def step(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y, dx = cube(linear(mul(x, x + 1), w, b).sin())
        return (y * dx).sum()

    leaves = [torch.randn(*s, requires_grad=True) for s in ((5, 3), (2, 3), (2,))]
    found, wanted = torch.compile(step, fullgraph=True)(*leaves), step(*leaves)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves), torch.autograd.grad(wanted, leaves)
    )


class Layer(nn.Module):
    """A module that holds an operator."""

    def __init__(self, operator: pb.Operator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, *arguments: Any) -> Any:
        return self.operator(*arguments)


@pytest.mark.ci(3)
@each_case
@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
def test_export_keeps_the_operator(case: Case, strict: bool, seed: int) -> None:
    arguments = draw(case.examples[0], case.dtypes[0], seed)
    program = torch.export.export(Layer(case.operator), arguments, strict=strict)
    called = [n.target for n in program.graph.nodes if n.op == "call_function"]
    assert case.operator.overload in called
    found = as_tuple(program.module()(*arguments))
    torch.testing.assert_close(found, as_tuple(case.operator(*arguments)), rtol=0, atol=0)


def test_an_exported_program_is_saved_and_loaded_with_dynamic_sizes(seed: int) -> None:
    arguments = draw(BY_NAME["linear"].examples[0], torch.float32, seed)
    shapes = ({0: torch.export.Dim("n", min=2)}, None, None)
    program = torch.export.export(
        Layer(BY_NAME["linear"].operator), arguments, dynamic_shapes={"arguments": shapes}
    )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    x = torch.randn(11, 3)
    torch.testing.assert_close(
        loaded(x, *arguments[1:]), BY_NAME["linear"].expected(x, *arguments[1:])[0]
    )


# --- modules


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = BY_NAME["linear"].operator
        self.weight = nn.Parameter(torch.randn(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x, self.weight)


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_a_module_that_holds_an_operator_is_copied(how: str) -> None:
    model = Model()
    if how == "deepcopy":
        other = copy.deepcopy(model)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
    assert other.linear is model.linear
    x = torch.randn(4, 3)
    torch.testing.assert_close(other(x), model(x))
    with torch.no_grad():
        other.weight.zero_()
    assert model.weight.any()
    named = dict(model.named_parameters())
    gradients = grad(lambda p: functional_call(model, p, (x,)).sum())(named)
    torch.testing.assert_close(gradients["weight"], x.sum(0).expand(2, 3))


def test_an_operator_that_is_not_defined_cannot_be_unpickled() -> None:
    operator = pb.operator("pbtest::pickled(x[n]) -> y[n]", python=torch.clone)
    text = pickle.dumps(operator).replace(b"pbtest::pickled", b"pbtest::unknown")
    with pytest.raises(PullbackError, match=r"PB342.*pbtest::unknown"):
        pickle.loads(text)
