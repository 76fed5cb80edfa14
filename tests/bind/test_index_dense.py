"""Index notation by PyTorch's operations: values and derivatives, and which operations they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from pullback.bind.dense import contraction, evaluate, matrices, prepared, slices
from pullback.define import parse as lines
from pullback.define import shape
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math import derived as derivatives
from pullback.define.math import extents, lower, notation
from pullback.define.math.formula import Formula
from pullback.define.math.index import size
from pullback.define.math.node import SUM, Node, in_order
from pullback.diagnostic import PullbackError
from tests.define.indexed import FORMULAS, SIZES

each_formula = pytest.mark.parametrize(
    ("text", "reference"), FORMULAS.items(), ids=[text.partition("(")[0] for text in FORMULAS]
)
Reference = Callable[..., Tensor]


def formula(text: str) -> Formula:
    return notation.parse(lines.parse(f"test::{text}"))


def evaluated(
    indexed: Formula,
    tensors: Mapping[str, object],
    dtype: torch.dtype | None = None,
    spare: frozenset[str] = frozenset(),
) -> list[Tensor]:
    """Return all outputs of a formula."""
    given = {name: value for name, value in tensors.items() if isinstance(value, Tensor)}
    shapes = {name: tuple(value.shape) for name, value in given.items()}
    solved = shape.solve(indexed.line, {t.name: shapes.get(t.name) for t in indexed.line.tensors})
    sizes = extents.sizes_of_call(indexed, solved)
    floating = [value.dtype for value in given.values() if value.is_floating_point()]
    dtypes = [dtype or floating[0]] * len(indexed.nodes)
    arguments = {p.name: tensors.get(p.name) for p in indexed.line.parameters}
    device = next(iter(given.values())).device
    wanted = [True] * len(dtypes)
    watched = any(value.requires_grad for value in given.values())
    found = evaluate.evaluate(
        indexed, arguments, sizes, wanted, dtypes, device, reuse=not watched, spare=spare
    )
    return [value for value in found if value is not None]


def value_of(text: str, **tensors: object) -> Tensor:
    return evaluated(formula(text), tensors)[0]


def gradients_of(
    indexed: Formula, tensors: Mapping[str, object], grad: Tensor
) -> dict[str, Tensor]:
    """Return the gradients for the inputs of a formula, by their names."""
    derived = derivatives.backward(indexed)
    assert derived
    found = evaluated(derived.formula, {"grad": grad, **with_outputs(indexed, tensors)})
    return {
        output.name.removeprefix("grad_"): value
        for output, value in zip(derived.formula.line.outputs, found, strict=True)
    }


def with_outputs(indexed: Formula, tensors: Mapping[str, object]) -> dict[str, object]:
    """Return what a derivative may be given: the inputs and the outputs of a formula."""
    outputs = zip(indexed.line.outputs, evaluated(indexed, tensors), strict=True)
    return {**tensors, **{output.name: value for output, value in outputs}}


def inputs_of(indexed: Formula, seed: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Return random tensors; whole numbers are indices of `v`."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(tensor: TensorSpec) -> Tensor:
        sizes = [SIZES[str(dim)] for dim in tensor.dims]
        if tensor.dtype:
            return torch.randint(SIZES["v"], sizes, generator=generator)
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)

    return {tensor.name: drawn(tensor) for tensor in indexed.line.tensors}


def assert_near(found: Tensor, expected: Tensor) -> None:
    """Compare with what as many roundings as there are index values may do, term by term."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if not expected.numel():
        return
    terms = math.prod(sorted(SIZES.values())[-4:])
    allowed = terms * torch.finfo(expected.dtype).eps * (1 + expected.abs().max())
    assert (found - expected).abs().max() <= allowed


def name_of(tensor: TensorSpec) -> str:
    return tensor.name


def leaves_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.requires_grad_() for name, t in tensors.items() if t.is_floating_point()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@each_formula
def test_value_is_that_of_torch(
    text: str, reference: Reference, dtype: torch.dtype, seed: int
) -> None:
    indexed = formula(text)
    inputs = inputs_of(indexed, seed, dtype)
    [found] = evaluated(indexed, inputs)
    assert_near(found, reference(*inputs.values()).to(dtype))


@each_formula
def test_derivatives_are_those_of_autograd(text: str, reference: Reference, seed: int) -> None:
    indexed = formula(text)
    inputs = inputs_of(indexed, seed)
    leaves = leaves_of(inputs)
    value = reference(*inputs.values())
    grad = torch.randn_like(value)
    expected = torch.autograd.grad(value, list(leaves.values()), grad)
    plain = {name: tensor.detach() for name, tensor in inputs.items()}
    found = gradients_of(indexed, plain, grad)
    # Autograd sees through the operations as well.
    seen = torch.autograd.grad(evaluated(indexed, inputs)[0], list(leaves.values()), grad)
    for name, of_operator, wanted in zip(leaves, seen, expected, strict=True):
        assert_near(found[name], wanted)
        assert_near(of_operator, wanted)


def test_a_bias_at_two_places_has_the_gradient_of_autograd(seed: int) -> None:
    """A relative position on a grid: its scatter is in the body of other sums."""

    def reference(x: Tensor, k: Tensor, u: Tensor, b: Tensor) -> Tensor:
        rows, columns = (
            torch.arange(n)[:, None] - torch.arange(m) + m - 1
            for n, m in zip(x.shape[:2], k.shape[:2], strict=True)
        )
        bias = b[rows[:, None, :, None], columns[None, :, None, :]]
        scores = torch.einsum("ijd,pqd->ijpq", x, k) + bias
        return scores.flatten(2).softmax(-1) @ u.flatten(0, 1)

    indexed = formula(
        "grid(x[i, j, d], k[p, q, d], u[p, q, o], b[h, w]) -> z[i, j, o]"
        " = s[i, j, p, q] = sum[d](x[i, j, d]*k[p, q, d])"
        " + pad(b[i - p + size(p) - 1, j - q + size(q) - 1]);"
        " share[i, j, p, q] = exp(s[i, j, p, q] - max[a, c](s[i, j, a, c]));"
        " z = sum[p, q](share[i, j, p, q]*u)/sum[p, q](share[i, j, p, q])"
    )
    leaves = leaves_of(inputs_of(indexed, seed))
    value = reference(*leaves.values())
    grad = torch.randn_like(value)
    expected = torch.autograd.grad(value, list(leaves.values()), grad)
    plain = {name: tensor.detach() for name, tensor in leaves.items()}
    assert_near(evaluated(indexed, plain)[0], value.detach())
    found = gradients_of(indexed, plain, grad)
    for name, wanted in zip(leaves, expected, strict=True):
        assert_near(found[name], wanted)


@each_formula
def test_second_derivatives_are_those_of_autograd(
    text: str, reference: Reference, seed: int
) -> None:
    indexed = formula(text)
    inputs = inputs_of(indexed, seed)
    leaves = leaves_of(inputs)
    value = reference(*inputs.values())
    leaves["grad"] = torch.randn_like(value).requires_grad_()
    reals = [leaf for name, leaf in leaves.items() if name != "grad"]
    first = torch.autograd.grad(value, reals, leaves["grad"], create_graph=True)
    arriving = [torch.randn_like(gradient) for gradient in first]
    expected = torch.autograd.grad(
        first, list(leaves.values()), arriving, allow_unused=True, materialize_grads=True
    )
    gradient = derivatives.backward(indexed)
    assert gradient
    second = derivatives.backward(gradient.formula)
    assert second
    # What arrives comes first; the gradients are those of the backward's own tensors.
    names = [parameter.name for parameter in second.formula.line.parameters]
    reached = [n.removeprefix("grad_") for n in map(name_of, gradient.formula.line.outputs)]
    plain = {name: tensor.detach() for name, tensor in inputs.items()}
    given = {**with_outputs(indexed, plain), "grad": leaves["grad"].detach()}
    order = list(leaves)
    for name, place in zip(names, second.arrives, strict=False):
        given[name] = arriving[order.index(reached[place])]
    tensors = [tensor.name for tensor in gradient.formula.line.tensors]
    found = dict(
        zip(map(tensors.__getitem__, second.gives), evaluated(second.formula, given), strict=True)
    )
    if (of_output := found.pop(indexed.line.outputs[0].name, None)) is not None:
        for name, part in gradients_of(indexed, plain, of_output).items():
            found[name] = found[name] + part if name in found else part
    for name, value in found.items():
        assert_near(value, expected[order.index(name)])


@each_formula
def test_tangent_is_that_of_forward_mode(text: str, reference: Reference, seed: int) -> None:
    indexed = formula(text)
    inputs = inputs_of(indexed, seed)
    real = [name for name, tensor in inputs.items() if tensor.is_floating_point()]
    directions = {name: torch.randn_like(inputs[name]) for name in real}

    def of_real(*tensors: Tensor) -> Tensor:
        return reference(*{**inputs, **dict(zip(real, tensors, strict=True))}.values())

    primals = tuple(inputs[name] for name in real)
    value, expected, *_ = torch.func.jvp(of_real, primals, tuple(directions.values()))
    derived = derivatives.jvp(indexed)
    assert derived
    given = {f"tangent_{name}": direction for name, direction in directions.items()}
    output = indexed.line.outputs[0].name
    assert_near(evaluated(derived.formula, {output: value, **inputs, **given})[0], expected)


@pytest.mark.parametrize("bytes_", [64, 800, 4000])
@each_formula
def test_slices_change_nothing(
    text: str, reference: Reference, bytes_: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed = formula(text)
    inputs = inputs_of(indexed, seed)
    grad = torch.randn_like(reference(*inputs.values()))
    expected = gradients_of(indexed, inputs, grad)
    prepared.prepare.cache_clear()  # with what was written down of calls with another bound
    monkeypatch.setattr(slices, "MOST_BYTES", bytes_)
    monkeypatch.setattr(slices, "MOST_TIMES", 0)
    assert_near(evaluated(indexed, inputs)[0], reference(*inputs.values()))
    for name, found in gradients_of(indexed, inputs, grad).items():
        assert_near(found, expected[name])


def test_slices_in_which_nothing_is_selected_join_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = "(x[n], y[m]) -> z[n, m] = sum[k](where(n + k <= 2, x[k]*y[m], 0))"
    indexed = notation.parse(lines.parse(f"pbslices::late{line}"))
    inputs = {"x": torch.arange(1.0, 34.0), "y": torch.arange(1.0, 20.0)}
    expected = evaluated(indexed, inputs)[0]
    prepared.prepare.cache_clear()
    monkeypatch.setattr(slices, "MOST_BYTES", 800)
    monkeypatch.setattr(slices, "MOST_TIMES", 0)
    assert_near(evaluated(indexed, inputs)[0], expected)
    assert expected[:3, 0].tolist() == [6, 3, 1]
    assert expected[3:].abs().max() == 0


@pytest.mark.parametrize("bytes_", [64, 800, 4000])
def test_slices_of_a_sum_that_a_range_limits_change_nothing(
    bytes_: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice may be too large too; it is cut again then."""
    own = formula(
        "limited(x[b, t, d], w[b, t, e]) -> (y[b, d, e], z[d]) = "
        "y = sum[t](w*pad(x[b, t - 2, d])); "
        "z = max[c, e](exp(sum[t](w[c, t, e]*pad(x[c, t + 3, d]))))"
    )
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.randn(7, 9, many, generator=generator, dtype=torch.float64) for many in (5, 6))
    prepared.prepare.cache_clear()
    monkeypatch.setattr(slices, "MOST_BYTES", bytes_)
    monkeypatch.setattr(slices, "MOST_TIMES", 0)
    y, z = evaluated(own, {"x": x, "w": w})
    assert_near(y, torch.einsum("btd,bte->bde", x[:, :-2], w[:, 2:]))
    ahead = torch.einsum("btd,bte->dbe", x[:, 3:], w[:, :-3])
    assert_near(z, ahead.exp().amax((1, 2)))


@each_formula
def test_inputs_of_any_layout_are_read_and_not_changed(
    text: str, reference: Reference, seed: int
) -> None:
    indexed = formula(text)
    inputs = inputs_of(indexed, seed)
    strided = {
        name: torch.stack([t, t], -1).transpose(0, -1).contiguous().transpose(0, -1)[..., 0]
        for name, t in inputs.items()
    }
    before = {name: tensor.clone() for name, tensor in strided.items()}
    [found] = evaluated(indexed, strided)
    assert_near(found, reference(*inputs.values()))
    assert found.is_contiguous()
    assert all(torch.equal(strided[name], before[name]) for name in before)
    spread = {name: t.flatten()[:1].expand(t.shape) for name, t in inputs.items()}
    assert_near(evaluated(indexed, spread)[0], reference(*spread.values()))


def test_an_output_is_memory_of_its_own() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    found = evaluated(formula("two(x[n, m]) -> (y[n], z[n]) = y = x[n, 0]; z = x[n, 0]"), {"x": x})
    found[0].zero_()
    assert found[1].tolist() == [0, 3]
    assert x[:, 0].tolist() == [0, 3]


# A sum multiplies the factors of the same indices first, and may find them computed already.
REGROUPED: dict[str, tuple[str, Callable[..., list[Tensor]]]] = {
    "an output": (
        "(x[i, o], w[v, i], t[v, i]) -> (a[v, i], b[v, o]) = a = w*t; b = sum[i](w*x*t*exp(w))",
        lambda x, w, t: [w * t, (w * t * w.exp()) @ x],
    ),
    "an earlier factor": (
        "(x[i, o], w[v, i], t[v, i]) -> b[v, o] = sum[i](x*w*t/exp(w*t))",
        lambda x, w, t: [(w * t / (w * t).exp()) @ x],
    ),
    "both": (
        "(x[i, o], w[v, i], t[v, i]) -> (a[v, i], b[v, o], c[v]) = "
        "a = w*t; b = sum[i](w*x*t/tanh(w*t)); c = sum[i](x[i, 0]*w*t*exp(w*t))",
        lambda x, w, t: [w * t, (w * t / (w * t).tanh()) @ x, (w * t * (w * t).exp()) @ x[:, 0]],
    ),
}


@pytest.mark.parametrize("kind", REGROUPED)
def test_what_a_sum_still_needs_is_not_written_over(kind: str, seed: int) -> None:
    line, reference = REGROUPED[kind]
    generator = torch.Generator().manual_seed(seed)
    shapes = {"x": (7, 5), "w": (6, 7), "t": (6, 7)}
    inputs = {n: torch.rand(s, dtype=torch.float64, generator=generator) for n, s in shapes.items()}
    found = evaluated(formula(f"own{line}"), inputs)
    for value, want in zip(found, reference(*inputs.values()), strict=True):
        assert_near(value, want)


@pytest.mark.parametrize(
    ("of_x", "of_w"), [((), ()), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (4,)), ((0,), (1,))]
)
def test_batch_dimensions_broadcast(of_x: Sequence[int], of_w: Sequence[int]) -> None:
    text = "scores(x[..., n, d], w[..., d]) -> y[..., n] = sum[d](x[..., n, d]*w[..., d])"
    x, w = (torch.randn(*of_x, 5, 4, dtype=torch.float64), torch.randn(*of_w, 4).double())
    expected = (x * w[..., None, :]).sum(-1)
    indexed = formula(text)
    assert_near(evaluated(indexed, {"x": x, "w": w})[0], expected)
    if expected.numel():
        grad = torch.randn_like(expected)
        found = gradients_of(indexed, {"x": x, "w": w}, grad)
        full = torch.broadcast_shapes(x.shape[:-2], w.shape[:-1])
        assert_near(found["w"].sum_to_size(*full, 4), torch.einsum("...n,...nd->...d", grad, x))


def test_convolution_takes_batch_dimensions(seed: int) -> None:
    text = (
        "conv(x[..., c, h, w], f[a, c, p, q]) -> y[..., a, i, j]"
        " = sum[c, p, q](x[..., c, i + p, j + q]*f[a, c, p, q])"
    )
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 2, 3, 6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    f = torch.randn(4, 3, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    value = torch.conv2d(x.flatten(0, 1), f).unflatten(0, (2, 2))
    indexed, plain = formula(text), {"x": x.detach(), "f": f.detach()}
    with Ops() as ops:
        assert_near(evaluated(indexed, plain)[0], value)
    assert "convolution" in ops.names
    grad = torch.randn_like(value)
    for name, wanted in zip("xf", torch.autograd.grad(value, (x, f), grad), strict=True):
        assert_near(gradients_of(indexed, plain, grad)[name], wanted)


def test_sum_over_windows_with_a_condition_of_its_own(seed: int) -> None:
    """It is a convolution but for what the condition leaves out."""
    text = "some(x[b, h], k[p]) -> y[b, h] = sum[p](where({}, k[p]*pad(x[b, h + p - 1]), 0))"
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    k = torch.randn(3, generator=generator, dtype=torch.float64)
    windows = torch.nn.functional.pad(x, (1, 1)).unfold(1, 3, 1) * k
    h, p = torch.arange(7)[:, None], torch.arange(3)
    for condition, kept in {"p < h": p < h, "h != 2*p": h != 2 * p, "b != p": None}.items():
        keep = torch.arange(2)[:, None, None] != p if kept is None else kept
        assert_near(value_of(text.format(condition), x=x, k=k), (windows * keep).sum(-1))


@pytest.mark.parametrize("shift", [-40, -3, 0, 1, 4, 40])
def test_padding_far_outside(shift: int, seed: int) -> None:
    text = (
        "far(x[b, c, h], k[a, c, p]) -> y[b, a, h]"
        f" = sum[c, p](k[a, c, p]*pad(x[b, c, h + p + {shift}]))"
    )
    indexed = formula(text)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    wide = torch.conv1d(torch.nn.functional.pad(x, (60, 60)), k)
    value = wide[..., 60 + shift : 65 + shift]
    plain = {"x": x.detach(), "k": k.detach()}
    assert_near(evaluated(indexed, plain)[0], value)
    grad = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    found = gradients_of(indexed, plain, grad)
    for name, wanted in zip("xk", torch.autograd.grad(value, (x, k), grad), strict=True):
        assert_near(found[name], wanted)


def test_sum_over_nothing_is_zero() -> None:
    found = value_of(
        "linear(x[n, i], w[o, i]) -> y[n, o] = sum[i](x[n, i]*w[o, i])",
        x=torch.ones(2, 0),
        w=torch.ones(3, 0),
    )
    assert torch.equal(found, torch.zeros(2, 3))
    text = "total(x[n, d]) -> y[d] = sum[n](exp(x[n, d]))"
    assert torch.equal(value_of(text, x=torch.ones(0, 3)), torch.zeros(3))
    assert value_of(text, x=torch.ones(3, 0)).shape == (0,)


@pytest.mark.parametrize("empty", ["b", "c", "a"])
def test_convolution_of_nothing(empty: str) -> None:
    sizes = {"b": 2, "c": 3, "a": 2, empty: 0}
    indexed = formula(next(text for text in FORMULAS if text.startswith("conv2d")))
    x, f = torch.ones(sizes["b"], sizes["c"], 5, 5), torch.ones(sizes["a"], sizes["c"], 2, 2)
    [found] = evaluated(indexed, {"x": x, "f": f})
    assert torch.equal(found, torch.full((sizes["b"], sizes["a"], 4, 4), 4.0 * sizes["c"]))
    gradients = gradients_of(indexed, {"x": x, "f": f}, torch.ones_like(found))
    assert torch.equal(gradients["x"], torch.zeros_like(x)) or empty != "a"
    assert gradients["f"].shape == f.shape


def test_maximum_over_nothing_is_refused() -> None:
    text = "most(x[n, d]) -> y[d] = max[n](x[n, d])"
    with pytest.raises(PullbackError, match="PB148"):
        value_of(text, x=torch.ones(0, 3))
    assert value_of(text, x=torch.ones(0, 0)).shape == (0,)
    assert value_of(text, x=torch.ones(3, 0)).shape == (0,)
    softmax = next(text for text in FORMULAS if text.startswith("softmax"))
    assert value_of(softmax, x=torch.ones(3, 0)).shape == (3, 0)


def test_maximum_over_nothing_is_not_seen_where_nothing_selects_it() -> None:
    text = "(x[n], a: float) -> y[] = where(a > 0, max[n](x[n]), 7)"
    assert value_of(f"chosen{text}", x=torch.empty(0), a=-1.0) == 7
    with pytest.raises(PullbackError, match="no values"):
        value_of(f"chosen{text}", x=torch.empty(0), a=1.0)
    per_row = "(x[n, m], b[n]) -> y[n] = where(b[n] > 0, max[m](x[n, m]), b[n])"
    assert value_of(f"row{per_row}", x=torch.empty(2, 0), b=-torch.ones(2)).tolist() == [-1, -1]
    with pytest.raises(PullbackError, match="no values"):
        value_of(f"row{per_row}", x=torch.empty(2, 0), b=torch.tensor([-1.0, 1.0]))


def test_first_maximum_has_the_gradient() -> None:
    indexed = formula("most(x[n, m]) -> y[n] = max[m](x[n, m])")
    x = torch.tensor([[1.0, 3.0, 3.0], [torch.nan, 2.0, torch.nan], [5.0, 5.0, 5.0]])
    expected = torch.tensor([[0.0, 1, 0], [1, 0, 0], [1, 0, 0]])
    [value] = evaluated(indexed, {"x": x})
    assert torch.equal(value.isnan(), torch.tensor([False, True, False]))
    assert torch.equal(gradients_of(indexed, {"x": x}, torch.ones(3))["x"], expected)
    leaf = x.clone().requires_grad_()
    [seen] = torch.autograd.grad(evaluated(indexed, {"x": leaf})[0].sum(), leaf)
    assert torch.equal(seen, expected)


BAD = [torch.inf, -torch.inf, torch.nan]


@pytest.mark.parametrize("bad", BAD)
def test_what_is_not_selected_is_not_seen(bad: float) -> None:
    """Guards select: an element that is not finite has no part where they do not hold."""
    padded = "padded(x[h], k[p]) -> y[h] = sum[p](k[p]*pad(x[h + p - 1]))"
    k = torch.tensor([bad, 1.0, 1.0])
    found = value_of(padded, x=torch.ones(4), k=k)
    assert found[0] == 2
    assert not found[1:].isfinite().any()
    text = next(text for text in FORMULAS if text.startswith("causal"))
    q, v = torch.randn(3, 2), torch.ones(3, 2)
    v[2, 0] = bad
    found = value_of(text, q=q, k=q, v=v)
    assert found[:2].isfinite().all()
    assert not found[2, 0].isfinite()


@pytest.mark.parametrize("bad", BAD)
def test_convolution_spreads_what_is_not_finite_as_its_sum_does(bad: float) -> None:
    indexed = formula(next(text for text in FORMULAS if text.startswith("stride")))
    k, x = torch.tensor([1.0, bad, 3.0]), torch.ones(7)
    grad = torch.ones_like(evaluated(indexed, {"x": x, "k": k})[0])
    found = gradients_of(indexed, {"x": x, "k": k}, grad)["x"]
    assert found.isfinite().tolist() == [True, False, True, False, True, False, True]
    indexed = formula(next(text for text in FORMULAS if text.startswith("correlate")))
    kernel = torch.ones(2, 2)
    kernel[0, 0] = bad
    found = gradients_of(indexed, {"x": torch.ones(3, 3), "k": kernel}, torch.ones(2, 2))["x"]
    assert found.isfinite().tolist() == [[False, False, True], [False, False, True], [True] * 3]


GATHER = "gather(x[v, d], idx[n]: int64) -> y[n, d] = x[idx[n], d]**2"


@pytest.mark.parametrize("wrong", [-1, 4])
def test_index_outside_is_refused(wrong: int) -> None:
    idx = torch.tensor([0, wrong, 3])
    with pytest.raises(PullbackError, match=rf"PB149.*'x' is read at {wrong} .* size 4"):
        value_of(GATHER, x=torch.ones(4, 2), idx=idx)
    with pytest.raises(PullbackError, match="PB149"):
        value_of(GATHER, x=torch.ones(0, 2), idx=torch.tensor([0]))
    assert value_of(GATHER, x=torch.ones(0, 2), idx=idx[:0]).shape == (0, 2)


def test_index_outside_is_not_seen_where_it_is_not_selected() -> None:
    text = "chosen(x[v], idx[n]: int64) -> y[n] = where(idx[n] >= 0, x[idx[n]], 0)"
    x = torch.tensor([5.0, 6.0])
    assert value_of(text, x=x, idx=torch.tensor([1, -1, 0])).tolist() == [6, 0, 5]
    with pytest.raises(PullbackError, match="PB149"):
        value_of(text, x=x, idx=torch.tensor([1, -1, 2]))
    indexed = formula(text)
    found = gradients_of(indexed, {"x": x, "idx": torch.tensor([1, -1, 0])}, torch.ones(3))
    assert found["x"].tolist() == [1, 1]


def test_scatter_of_batches_and_of_two_indices(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    idx = torch.randint(5, (2, 4), generator=generator)
    value = x[torch.arange(2)[:, None], idx] ** 2
    grad = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    [expected] = torch.autograd.grad(value, x, grad)
    batched = formula("take(x[b, v, d], i[b, n]: int64) -> y[b, n, d] = x[b, i[b, n], d]**2")
    plain = {"x": x.detach(), "i": idx}
    assert_near(evaluated(batched, plain)[0], value.detach())
    with Ops() as ops:
        assert_near(gradients_of(batched, plain, grad)["x"], expected)
    assert "index_add_" in ops.names
    pairs = formula("at(x[a, b, d], i[n]: int64, j[n]: int64) -> y[n, d] = x[i[n], j[n], d]**2")
    given = {"x": x.detach(), "i": idx[0] % 2, "j": idx[1]}
    value = x[given["i"], given["j"]] ** 2
    grad = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    [expected] = torch.autograd.grad(value, x, grad)
    with Ops() as ops:
        assert_near(gradients_of(pairs, given, grad)["x"], expected)
    assert "index_add_" in ops.names


class Ops(TorchDispatchMode):
    """Which operations run, and how large their largest result is."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.largest = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result: Any = func(*args, **(kwargs or {}))
        self.names.append(func.name().removeprefix("aten::").partition(".")[0])
        if isinstance(result, Tensor) and result.untyped_storage().nbytes() > self.largest:
            self.largest = result.untyped_storage().nbytes()
        return result


def test_long_pairwise_sums_stay_small() -> None:
    """No tensor over all three indices: 4000 * 4000 * 3 numbers would be 192 MB."""
    text = next(text for text in FORMULAS if text.startswith("gauss"))
    indexed = formula(text)
    x, y, v = torch.randn(3000, 8), torch.randn(3000, 8), torch.randn(3000)
    with Ops() as ops:
        [value] = evaluated(indexed, {"x": x, "y": y, "v": v})
    assert ops.largest <= slices.MOST_BYTES
    expected = torch.exp(-((x[:5, None] - y) ** 2).sum(-1)) @ v
    torch.testing.assert_close(value[:5], expected)
    total = formula("total(s[n], t[n]) -> l[] = sum[i, j](exp(-(s[i] - t[j])**2))")
    with Ops() as ops:
        [value] = evaluated(total, {"s": v.repeat(2).double(), "t": v.repeat(2).double()})
    assert ops.largest <= slices.MOST_BYTES
    torch.testing.assert_close(
        value, 4 * torch.exp(-((v.double()[:, None] - v.double()) ** 2)).sum()
    )


def test_half_precision_is_computed_in_single() -> None:
    x = torch.full((1, 4096), 0.1, dtype=torch.float16)
    found = value_of("total(x[n, m]) -> y[n] = sum[m](x[n, m])/size(m)", x=x)
    assert found.dtype == torch.float16
    assert found == x[0, 0]


def nodes_of(name: str) -> list[Node]:
    """Return the sums of a formula and of its gradients that are in no other."""
    indexed = formula(next(text for text in FORMULAS if text.startswith(f"{name}(")))
    derived = derivatives.backward(indexed)
    assert derived
    return [*indexed.nodes, *derived.formula.nodes]


def sums_in(node: Node) -> list[Node]:
    return [part for part in in_order([node]) if part.op == SUM]


def test_contractions_are_recognised() -> None:
    value, of_x, of_w, of_b = nodes_of("linear")
    for node in (value, of_x, of_w):
        [total] = sums_in(node)
        assert lower.is_contraction(lower.product_of(total))
    assert not lower.is_contraction(lower.product_of(sums_in(of_b)[0]))
    # A squared distance is no product: it would lose its last digits.
    assert not lower.is_contraction(lower.product_of(sums_in(nodes_of("sqdist")[0])[0]))


def test_convolutions_are_recognised() -> None:
    value, of_x, of_f = nodes_of("conv2d")
    steps: list[list[int]] = []
    for node in (value, of_x, of_f):
        total = node
        stencil = lower.stencil_of(lower.product_of(total))
        assert stencil is not None
        steps.append([window.step for window in stencil.windows])
    assert steps == [[1, 1], [-1, -1], [1, 1]]
    _, of_x, _ = nodes_of("stride")
    stencil = lower.stencil_of(lower.product_of(of_x))
    assert stencil is not None
    assert stencil.windows[0].step == -2


def test_scatters_are_recognised() -> None:
    [_, of_x] = nodes_of("gather")
    [total] = sums_in(of_x)
    scatter = lower.scatter_of(lower.product_of(total), {"v": size("v"), "d": size("d")})
    assert scatter is not None
    assert [index for index, _ in scatter.places] == ["v"]
    assert "v" not in scatter.value.free


def test_a_place_of_what_is_greatest_may_have_indices_of_sums_around(seed: int) -> None:
    indexed = formula(
        "greatest(w[n], x[n, m], v[m, o]) -> y[m]"
        " = sum[n](w[n]*sum[o](where(m == argmax[j](x[n, j]*v[j, o]), exp(v[m, o]), 0)))"
    )
    inputs = inputs_of(indexed, seed)
    w, x, v = inputs.values()
    places = (x[:, :, None] * v).argmax(1, keepdim=True) == torch.arange(len(v))[:, None]
    assert_near(evaluated(indexed, inputs)[0], w @ (places * v.exp()).sum(-1))


LOWERED = {
    "linear": ({"mm"}, {"mm"}),
    "attention": ({"mm", "_softmax"}, {"mm", "_softmax"}),
    "conv2d": ({"convolution"}, {"convolution", "convolution_backward"}),
    "correlate": ({"convolution"}, {"convolution", "convolution_backward"}),
    "gather": ({"index_select"}, {"index_add_"}),
    "bag": ({"_embedding_bag_forward_only"}, {"index_add_"}),
    "shifted": ({"index_select"}, {"index_add_"}),
    "chamfer": ({"amax"}, {"index_add_"}),
}


@pytest.mark.parametrize("name", LOWERED)
def test_operations_are_those_of_torch(name: str, seed: int) -> None:
    forward, backward = LOWERED[name]
    indexed = formula(next(text for text in FORMULAS if text.startswith(f"{name}(")))
    inputs = inputs_of(indexed, seed)
    with Ops() as ops:
        [value] = evaluated(indexed, inputs)
    assert forward <= set(ops.names)
    with Ops() as ops:
        gradients_of(indexed, inputs, torch.ones_like(value))
    assert backward <= set(ops.names)


@pytest.mark.parametrize("columns", [200, 31, 33, 129])
@pytest.mark.parametrize("lies", ["rows", "columns", "rows with gaps", "columns with gaps"])
def test_products_of_matrices_by_onednn_are_those_of_blas(
    lies: str, columns: int, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(matrices, "is_onednn_faster", lambda: True)
    gap = 5 if "gaps" in lies else 0
    generator = torch.Generator().manual_seed(seed)
    first, second = (
        torch.randn(n + gap, m + gap, generator=generator) for n, m in ((500, 150), (150, columns))
    )
    if lies.startswith("columns"):
        first, second = first.mT.contiguous().mT, second.mT.contiguous().mT
    first, second = first[:500, :150], second[:150, :columns]
    found = matrices.multiply(first, second)
    expected = first.double() @ second.double()
    assert (found - expected).abs().max() <= 1e-6 * (first.abs() @ second.abs()).max()
    firsts, seconds = (torch.stack([each, each.flip(0)]) for each in (first, second))
    both = matrices.multiply_each(firsts, seconds)
    assert torch.equal(both[0], found)
    torch.testing.assert_close(both[1], firsts[1] @ seconds[1])


def test_a_product_whose_derivative_is_asked_for_has_one(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(matrices, "is_onednn_faster", lambda: True)
    x, w = torch.randn(2, 150, 150, generator=torch.Generator().manual_seed(seed))
    whole = x.mm(w)
    moved = torch.func.jvp(lambda v: matrices.multiply(v, w), (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(moved, torch.ones_like(x).mm(w))
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(matrices.multiply(leaf, w).sum(), leaf)
    torch.testing.assert_close(grad, torch.ones_like(x).mm(w.mT))
    torch.testing.assert_close(torch.func.vmap(matrices.multiply)(x[None], w[None])[0], whole)


@each_formula
def test_tracers_see_the_operations(text: str, reference: Reference, seed: int) -> None:
    indexed = formula(text)
    inputs = inputs_of(indexed, seed)
    value = reference(*inputs.values())

    def run(*tensors: Tensor) -> Tensor:
        return evaluated(indexed, dict(zip(inputs, tensors, strict=True)))[0]

    with FakeTensorMode() as mode:
        fake = run(*(mode.from_tensor(tensor) for tensor in inputs.values()))
    assert fake.shape == value.shape
    if text.startswith(("attention", "layernorm", "bag", "conv2d", "padded")):
        traced = make_fx(run)(*inputs.values())
        assert_near(traced(*inputs.values()), value)


def test_softmax_of_a_part_is_divided_by_the_whole_sum(seed: int) -> None:
    text = "(x[n], b[j]) -> y[j] = where(j < size(n), exp(x[j] - max[k](x[k])), 0)"
    x = torch.randn(5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    part = value_of(f"part{text}/sum[k](exp(x[k] - max[m](x[m]))) + 0*b[j]", x=x, b=torch.ones(3))
    assert_near(part, x.softmax(0)[:3])


@pytest.mark.parametrize("bad", BAD)
def test_softmax_of_what_is_not_finite_is_that_of_its_terms(bad: float) -> None:
    weights = "exp(x[n, m] - max[k](x[n, k]))"
    text = f"(x[n, m], v[m]) -> y[n] = sum[m]({weights}*v[m])/sum[m]({weights})"
    x = torch.tensor([[0.0, bad, 1.0], [2.0, 3.0, 4.0]])
    found = value_of(f"mean{text}", x=x, v=torch.ones(3))
    e = torch.exp(x - x.amax(1, keepdim=True))
    torch.testing.assert_close(found, e.sum(1) / e.sum(1), equal_nan=True)
    text = f"(x[n, m]) -> y[n] = sum[m](where(x[n, m] > 9, {weights}, 0))/sum[m]({weights})"
    found, selected = value_of(f"part{text}", x=x), torch.where(x > 9, e, 0)
    torch.testing.assert_close(found, selected.sum(1) / e.sum(1), equal_nan=True)


@pytest.mark.parametrize(
    ("text", "reference", "shape"),
    [
        (
            "gate(x[n, 3, d]) -> y[n, d] = sigmoid(x[n, 0, d])*tanh(x[n, 2, d])",
            lambda x: x[:, 0].sigmoid() * x[:, 2].tanh(),
            (4, 3, 5),
        ),
        (
            "turned(x[n, 2, 2]) -> y[n] = x[n, 0, 1]*x[n, 1, 0] - exp(x[n, 1, 1])",
            lambda x: x[:, 0, 1] * x[:, 1, 0] - x[:, 1, 1].exp(),
            (4, 2, 2),
        ),
        (
            "mixed(x[3, d]) -> y[d] = sin(x[1, d]) + sum[k < 3](x[k, d])",
            lambda x: x[1].sin() + x.sum(0),
            (3, 5),
        ),
    ],
)
def test_what_a_constant_place_selects_is_computed_there_alone(
    text: str, reference: Reference, shape: tuple[int, ...], seed: int
) -> None:
    """So nothing is selected from whole tensors, of which most would be zeros."""
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    own = formula(text)
    leaf = x.clone().requires_grad_()
    wanted = reference(leaf)
    (expected,) = torch.autograd.grad(wanted.sum(), leaf)
    with Ops() as ops:
        found = gradients_of(own, {"x": x}, torch.ones_like(wanted))["x"]
    torch.testing.assert_close(found, expected)
    assert not any(name.startswith("where") for name in ops.names)


def test_a_constant_place_that_is_outside_selects_nothing() -> None:
    text = "pick(a[d], b[d], c[k]) -> y[k, d] = where(k == 1, a, 0) + where(k == 4, b, 0) - 1"
    a, b = torch.arange(3.0), torch.arange(3.0) + 5
    whole = value_of(text, a=a, b=b, c=torch.zeros(5))
    assert torch.equal(whole, torch.stack([-a.new_ones(3), a - 1, *-a.new_ones(2, 3), b - 1]))
    assert torch.equal(value_of(text, a=a, b=b, c=torch.zeros(3)), whole[:3])


@pytest.mark.parametrize("place", ["0", "size(d) - 1", "size(d)//2", "size(d) - size(d)"])
def test_of_nothing_no_element_is_the_first_or_the_last(place: str) -> None:
    x = torch.arange(6.0).view(2, 3)
    for text in (
        f"first(x[n, d]) -> y[n] = 1 + pad(x[n, {place}])",
        f"firsts(x[n, d]) -> y[n] = 1 + where(0 <= {place} < size(d), x[n, {place}], 0)",
    ):
        k = eval(place.replace("size(d)", "3"))
        assert torch.equal(value_of(text, x=x), 1 + x[:, k])
        assert value_of(text, x=x[:, :0]).tolist() == [1, 1]
        [gradient] = gradients_of(formula(text), {"x": x[:, :0]}, torch.ones(2)).values()
        assert gradient.shape == (2, 0)


@pytest.mark.parametrize("rest", ["exp(w)", "exp(w) + 1", "w*w"])
@pytest.mark.parametrize("sign", ["+", "-"])
def test_what_a_row_gets_may_be_the_same_for_all_of_its_elements(
    rest: str, sign: str, seed: int
) -> None:
    text = (
        f"row(w[u, v, d], i[t]: int64, c[t]) -> y[u, v, d]"
        f" = {rest} {sign} 3*sum[t](where(v == i[t], c, 0))"
    )
    w, i, c = torch.randn(2, 6, 4), torch.tensor([5, 2, 5]), torch.randn(3)
    added = torch.zeros(6).index_add(0, i, 3 * c)[:, None]
    whole = eval(rest, {"w": w, "exp": torch.exp})
    found = value_of(text, w=w, i=i, c=c)
    torch.testing.assert_close(found, whole + added if sign == "+" else whole - added)


@pytest.mark.parametrize("many", [3, 2, 5, 40])
def test_whether_a_factor_is_finite_is_not_asked_where_a_range_says_what_is_outside(
    many: int, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """It takes a pass over the factor, and on a GPU an answer to wait for.

    What is outside is not read: it may be anything.
    """
    own = formula(
        "held(x[b, t, d], w[b, s, e], u[k]) -> y[d, e] = "
        "sum[b, s](w[b, s, e]*pad(x[b, s + size(k) - 3, d])) + 0*sum[k](u[k])"
    )
    x, w, u = torch.randn(4, 30, 20), torch.randn(4, 28, 24), torch.randn(many)
    first, last = max(0, 3 - many), max(0, min(28, 33 - many))
    w[:, :first], w[:, last:] = math.nan, math.inf
    calls: list[object] = []
    is_finite = contraction.is_finite
    monkeypatch.setattr(contraction, "is_finite", lambda t: (calls.append(t), is_finite(t))[1])
    [y] = evaluated(own, {"x": x, "w": w, "u": u})
    assert not calls
    kept = slice(first, last), slice(first + many - 3, last + many - 3)
    torch.testing.assert_close(y, torch.einsum("bsd,bse->de", x[:, kept[1]], w[:, kept[0]]))
