"""Attention as one operation of PyTorch: where it is one, where it is trusted, what it returns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import pullback as pb
from pullback.bind.dense import attention, finite, flash
from pullback.bind.dense.attention import Fused
from pullback.bind.dense.flash import Operation, Scores
from pullback.bind.dense.record import Outputs, Records
from pullback.bind.math import choose, fused, passing
from pullback.bind.math.gpu_ways import find_loops
from pullback.bind.memo import Memo
from tests.bind.gpu_ways import on_a_gpu, way
from tests.bind.test_blocks import by_pytorch, everything_by_blocks
from tests.telling import telling
from tests.threads import threads

__all__ = ["by_pytorch", "everything_by_blocks", "way"]  # fixtures

names = itertools.count()
LINE = (
    "(q[..., n, d], k[..., m, d], v[..., m, e]) -> o[..., n, e] = "
    "s[..., n, m] = {}; p[..., n, m] = exp(s[..., n, m] - max[r](s[..., n, r])); "
    "o = sum[m](p[..., n, m]*v[..., m, e])/sum[m](p[..., n, m])"
)
SCORES = "sum[d](q[..., n, d]*k[..., m, d])/2"


def eager(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False) -> Tensor:
    scores = q @ k.transpose(-1, -2) / 2
    if is_causal:
        outside = torch.arange(k.shape[-2]) > torch.arange(q.shape[-2])[:, None]
        scores = scores.masked_fill(outside, -torch.inf)
    return torch.softmax(scores, -1) @ v


def operator(*, is_causal: bool = False) -> pb.Operator:
    scores = f"where(m <= n, {SCORES}, -inf)" if is_causal else SCORES
    return pb.operator(f"pbone::f{next(names)}{LINE.format(scores)}")


def leaves(*lead: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    shapes = ((9, 4), (11, 4), (11, 4))
    return [torch.randn(*lead, *s, dtype=dtype, requires_grad=True) for s in shapes]


@pytest.fixture
def noted(
    by_pytorch: None, everything_by_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> list[bool]:
    """Let the clock prefer the one operation; note whether it took each call."""
    taken: list[bool] = []
    compute = Fused.compute

    def observed(self: Fused, arguments: Mapping[str, object]) -> Outputs | None:
        found = compute(self, arguments)
        taken.append(found is not None)
        return found

    def prefer(ways: Mapping[str, Callable[[], object]], _: object) -> dict[str, float]:
        return {name: float(name != "fused") for name in ways}

    monkeypatch.setattr(passing, "find_fused", fused.find_fused)
    monkeypatch.setattr(passing, "_measured", Memo[object, object](1024))
    monkeypatch.setattr(choose, "measure_seconds", prefer)
    monkeypatch.setattr(Fused, "compute", observed)
    return taken


@pytest.mark.parametrize(
    ("lead", "is_causal", "orders"),
    [
        ((2, 3), True, 0),
        pytest.param((), False, 2, marks=pytest.mark.thorough),
        pytest.param((2, 3), True, 2, marks=pytest.mark.thorough),
    ],
)
def test_values_and_gradients_of_some_orders_are_torchs(
    lead: tuple[int, ...], is_causal: bool, orders: int, noted: list[bool], seed: int
) -> None:
    op, given = operator(is_causal=is_causal), leaves(*lead)
    shown = str(op.plan(*given))
    assert shown.count("PyTorch, fused (scaled_dot_product_attention; measured: ") == 2
    expected = eager(*given, is_causal=is_causal)
    _ = op(*given)  # what is called is compared before
    noted.clear()
    found = op(*given)
    assert noted == [True]
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    noted.clear()
    got = torch.autograd.grad(found, given, grad, retain_graph=True)
    assert noted[-1:] == [True]
    torch.testing.assert_close(got, torch.autograd.grad(expected, given, grad, retain_graph=True))
    for each in range(orders):
        found, expected = (
            torch.cat(
                [g.flatten() for g in torch.autograd.grad(y.sin().sum(), given, create_graph=True)]
            )
            for y in (found, expected)
        )
        torch.testing.assert_close(found, expected, msg=f"order {each + 1}")


GROUPED = {
    # The heads of a group share keys and values, in whatever order the dimensions are.
    "groups": ("q[g, h, n, d], k[g, m, d], v[g, m, e]", (2, 3), (2,), "g, h"),
    "groups last": ("q[h, g, n, d], k[g, m, d], v[g, m, e]", (3, 2), (2,), "h, g"),
    "one group": ("q[h, n, d], k[m, d], v[m, e]", (3,), (), "h"),
}


@pytest.mark.parametrize("grouped", telling(GROUPED, ["groups"]))
def test_heads_may_share_keys_and_values(
    grouped: tuple[str, tuple[int, ...], tuple[int, ...], str], noted: list[bool], seed: int
) -> None:
    """Values and gradients of grouped heads are those of PyTorch, by its one operation."""
    inputs, lead, shared, heads = grouped
    scores, value = inputs.split(", v")
    read = scores.replace("], k", "]*k")
    op = pb.operator(
        f"pbone::f{next(names)}({inputs}) -> o[{heads}, n, e] = "
        f"s[{heads}, n, m] = sum[d]({read})/2; "
        f"p[{heads}, n, m] = exp(s[{heads}, n, m] - max[r](s[{heads}, n, r])); "
        f"o = sum[m](p[{heads}, n, m]*v{value})/sum[m](p[{heads}, n, m])"
    )
    q, (k, v) = leaves(*lead)[0], leaves(*shared)[1:]
    assert str(op.plan(q, k, v)).count("PyTorch, fused (scaled_dot_product_attention;") == 2
    _ = op(q, k, v)  # what is called is compared before
    noted.clear()
    found = op(q, k, v)
    assert noted == [True]
    each = [t.unsqueeze(1) if heads == "g, h" else t for t in (k, v)]
    expected = eager(q, *each)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    got, want = (torch.autograd.grad(y, (q, k, v), grad) for y in (found, expected))
    assert noted[-1:] == [True]
    torch.testing.assert_close(got, want)


def require_eagers(op: pb.Operator, given: list[Tensor], noted: list[bool]) -> None:
    """Stop unless one operation gives the values and the gradients of eager, up to its dtype."""
    assert str(op.plan(*given)).count("PyTorch, fused") == 2
    exact = [tensor.detach().cpu().double().requires_grad_() for tensor in given]
    _ = op(*given)  # what is called is compared before
    noted.clear()
    found, expected = op(*given), eager(*exact, is_causal=True)
    assert noted == [True]
    grad = torch.randn_like(found)
    got = torch.autograd.grad(found, given, grad)
    assert noted[-1:] == [True]
    want = torch.autograd.grad(expected, exact, grad.cpu().double())
    for own, reference in ((found, expected), *zip(got, want, strict=True)):
        # A GPU's operation was seen 9 of its digits away.
        digits = 16 if own.is_cuda else 4
        bound = digits * torch.finfo(own.dtype).eps * reference.abs().max().item()
        torch.testing.assert_close(own.cpu().double(), reference, rtol=0, atol=bound)


HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize("dtype", telling(HALVES, ["bfloat16"]))
def test_halves_are_as_near_as_their_digits(
    dtype: torch.dtype, noted: list[bool], seed: int
) -> None:
    """Statistics are kept in single precision: in half they would lose digits."""
    require_eagers(operator(is_causal=True), leaves(2, dtype=dtype), noted)


@pytest.mark.thorough
def test_values_are_the_same_whether_recorded_or_not(noted: list[bool], seed: int) -> None:
    op, given = operator(), leaves(2, dtype=torch.float32)
    with torch.no_grad():
        plain = op(*given)
    assert torch.equal(op(*given), plain)
    with threads(3):
        assert torch.equal(op(*given), plain)


def test_the_clock_is_asked_once_for_recorded_calls_and_others(
    noted: list[bool], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    asked = itertools.count()

    def changing(ways: Mapping[str, Callable[[], object]], _: object) -> dict[str, float]:
        slower = "fused" if next(asked) else "blocks"
        return {name: float(name == slower) for name in ways}

    monkeypatch.setattr(choose, "measure_seconds", changing)
    op, given = operator(), leaves(2, dtype=torch.float32)
    recorded = op(*given)
    with torch.no_grad():
        assert torch.equal(op(*given), recorded)
    assert next(asked) == 1


def require_gradients_by_blocks(
    found: Tensor, given: list[Tensor], grad: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = torch.autograd.grad(found, given, grad)
    monkeypatch.setattr(passing, "find_fused", lambda *_: None)
    want = torch.autograd.grad(operator(is_causal=True)(*given), given, grad)
    torch.testing.assert_close(got, want, equal_nan=True)


PLACES = {
    f"{value} in {'qkv'[place]}": (place, value)
    for place in range(3)
    for value in (torch.nan, torch.inf, -torch.inf)
}


@pytest.mark.ci(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [40, 3])
def test_a_gpus_loops_see_what_is_not_finite(rows: int, dtype: torch.dtype, seed: int) -> None:
    """Wherever it is, and what a product would make infinite; a call's record asks again."""
    records, sizes = Records(), (rows * 8, rows * 24, rows * 7)

    def asked(given: Mapping[str, object]) -> Outputs | None:
        tensors = [value for value in given.values() if isinstance(value, Tensor)]
        loops = finite.find_squares(tensors, find_loops)
        assert loops is not None
        total, is_sure = finite.compute_checked(add_first, loops, (3, 0.5), *tensors)
        return [total] if is_sure else None

    def add_first(*tensors: Tensor) -> tuple[Tensor]:
        return (sum(tensor[0] for tensor in tensors),)  # pyright: ignore

    given = {name: torch.randn(size).to(dtype) for name, size in zip("qkv", sizes, strict=True)}
    with pb.cuda.on_cpu():
        for _ in range(3):
            found = records.outputs(given, (), asked)
            assert found is not None
            torch.testing.assert_close(found[0], add_first(*given.values())[0])
        for (name, tensor), value in itertools.product(
            given.items(), (torch.nan, torch.inf, -torch.inf, 1e20)
        ):
            place = int(torch.randint(len(tensor), ()))
            changed = tensor.index_fill(0, torch.tensor([place]), value)
            assert records.outputs({**given, name: changed}, (), asked) is None


@pytest.mark.parametrize("where", telling(PLACES, ["inf in v"]))
def test_what_is_not_finite_is_computed_by_blocks(
    where: tuple[int, float], noted: list[bool], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    (place, value), op, given = where, operator(is_causal=True), leaves()
    _ = op(*given)  # it is the way for calls like this
    # No row sees the last column: PyTorch's operation leaves it out, and the line has 0*v there.
    with torch.no_grad():
        given[place][-1, 0] = value
    noted.clear()
    found = op(*given)
    assert noted[-1:] == [False]
    torch.testing.assert_close(found, eager(*given, is_causal=True), equal_nan=True)
    require_gradients_by_blocks(found, given, torch.randn_like(found), monkeypatch)


@pytest.mark.thorough
def test_a_gradient_that_is_not_finite_is_computed_by_blocks(noted: list[bool], seed: int) -> None:
    op, given = operator(is_causal=True), leaves()
    found, expected = op(*given), eager(*given, is_causal=True)
    grad = torch.randn_like(expected)
    grad[0, 0] = torch.inf
    got, want = (torch.autograd.grad(y, given, grad) for y in (found, expected))
    torch.testing.assert_close(got, want, equal_nan=True)


def test_what_it_does_not_take_is_computed_by_blocks(noted: list[bool], seed: int) -> None:
    op = operator()
    q, k, v = leaves(2)
    assert "PyTorch, fused" not in str(
        op.plan(q, k, torch.cat([v, v], -1))
    )  # values of another width
    assert "PyTorch, fused" not in str(op.plan(q, k[:1], v))  # a batch that is broadcast
    assert "PyTorch, fused" in str(op.plan(q, k, v))


def test_it_is_not_trusted_where_it_differs(
    noted: list[bool], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    compute = Fused.compute

    def wrong(self: Fused, arguments: Mapping[str, object]) -> Outputs | None:
        found = compute(self, arguments)
        first = found[0] if found else None
        return found and [None if first is None else first * (1 + 1e-3), *found[1:]]

    monkeypatch.setattr(Fused, "compute", wrong)
    monkeypatch.setattr(fused, "_agreed", Memo[object, bool](8))
    assert "PyTorch, fused" not in str(operator().plan(*leaves()))


# --- on a GPU

OPERATIONS = {
    "flash": Operation(flash.attend_flash, flash.pull_flash),
    "efficient": Operation(flash.attend_efficiently, flash.pull_efficiently),
    "cudnn": Operation(flash.attend_by_cudnn, flash.pull_by_cudnn),
}


class Promised:
    """What PyTorch's operations for a GPU promise, on any device: halves, and what rows sum to."""

    def __init__(self, of: Scores) -> None:
        self.dtype = of.tensors[0].dtype
        self.wide = torch.promote_types(self.dtype, torch.float32)
        self.q, self.k, self.v = (tensor.to(self.wide) for tensor in of.tensors)
        self.scale = of.scale
        scores = of.scale * (self.q @ self.k.transpose(-1, -2))
        outside = torch.ones_like(scores, dtype=torch.bool).triu(1)
        self.scores = scores.masked_fill(outside, -torch.inf) if of.is_causal else scores

    def attend(self) -> tuple[Tensor, Tensor]:
        output = torch.softmax(self.scores, -1) @ self.v
        return output.to(self.dtype), self.scores.logsumexp(-1)

    def pull(self, grad: Tensor, output: Tensor, logs: Tensor) -> tuple[Tensor, ...]:
        assert logs.dtype == self.wide
        grad, output = grad.to(self.wide), output.to(self.wide)
        p = torch.exp(self.scores - logs[..., None])
        into = p * (grad @ self.v.mT - (grad * output).sum(-1, keepdim=True)) * self.scale
        found = into @ self.k, into.mT @ self.q, p.mT @ grad
        return tuple(each.to(self.dtype) for each in found)


def promised(name: str) -> Callable[..., object]:
    """Return a stand-in for an operation that is called with PyTorch's arguments for it."""
    schema = getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default._schema

    def run(*given: Any, **named: Any) -> object:
        a = dict(zip((each.name for each in schema.arguments), given, strict=False)) | named
        tensors = (a["query"], a["key"], a["value"])
        own = Promised(Scores(tensors=tensors, is_causal=a["is_causal"], scale=a["scale"]))
        assert a["dropout_p"] == 0
        rows = own.q.shape[-2]
        padding = -rows % 32 if name.startswith("efficient") else 0
        of_columns = name.startswith("cudnn")
        if "logsumexp" not in a:
            output, logs = own.attend()
            logs = torch.nn.functional.pad(logs, (0, padding), value=torch.inf)
            logs = logs.unsqueeze(-1) if of_columns else logs
            return output, logs, *([None] * (len(schema.returns) - 2))
        logs = a["logsumexp"]
        if of_columns:
            assert (a["attn_bias"], a["cum_seq_q"], a["cum_seq_k"]) == (None, None, None)
            assert logs.shape[-1] == 1
            logs = logs.squeeze(-1)
        assert logs.shape[-1] == rows + padding
        assert logs[..., rows:].isposinf().all()
        grad = a["grad_out" if "grad_out" in a else "grad_out_"]
        return *own.pull(grad, a["out"], logs[..., :rows]), *([None] * (len(schema.returns) - 3))

    return run


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.thorough)]
)
def test_values_and_gradients_are_those_of_a_gpus_operations(
    name: str, dtype: torch.dtype, noted: list[bool], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whether what rows sum to is kept, or computed again as in half precision."""
    monkeypatch.setattr(flash, "operation", promised)
    monkeypatch.setattr(attention, "find_operation", lambda _: OPERATIONS[name])
    monkeypatch.setattr(fused, "_agreed", Memo[object, bool](8))
    require_eagers(operator(is_causal=True), leaves(2, dtype=dtype), noted)


def test_what_cudnn_refuses_another_operation_computes(
    noted: list[bool], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def refusing(name: str) -> Callable[..., object]:
        def refuse(*_: object, **_named: object) -> object:
            raise RuntimeError("no valid execution plans")

        return refuse if name.startswith("cudnn") else promised(name)

    monkeypatch.setattr(flash, "operation", refusing)
    monkeypatch.setattr(attention, "find_operation", lambda _: OPERATIONS["cudnn"])
    monkeypatch.setattr(fused, "_agreed", Memo[object, bool](8))
    require_eagers(operator(is_causal=True), leaves(2), noted)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_gpus_operations_take_what_they_are_given(name: str) -> None:
    """PyTorch's own shape functions take the arguments."""
    query, key = (torch.empty(1, 3, n, 8, device="meta") for n in (40, 50))
    of = Scores(tensors=(query, key, key), is_causal=False, scale=0.5)
    output, logs = OPERATIONS[name].attend(of)
    assert (output.shape, logs.shape) == (query.shape, (1, 3, 40))
    gradients = OPERATIONS[name].pull(of, output, output, logs)
    assert [g.shape for g in gradients] == [query.shape, key.shape, key.shape]


@pytest.mark.parametrize(
    ("rows", "features", "is_causal", "takes"),
    [(9, 8, False, True), (9, 4, False, False), (9, 8, True, False), (11, 8, True, True)],
)
def test_no_operation_of_a_gpu_is_asked_for_what_it_does_not_take(
    rows: int, features: int, is_causal: bool, takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads that are not whole vectors; a triangle whose corner it may take for another one."""
    monkeypatch.setattr(flash.cuda, "can_use_flash_attention", lambda _: False)
    monkeypatch.setattr(flash.cuda, "can_use_efficient_attention", lambda _: True)
    with FakeTensorMode():
        q, k = (
            torch.empty(1, 2, n, features, dtype=torch.bfloat16, device="cuda") for n in (rows, 11)
        )
        found = flash.find_operation(Scores(tensors=(q, k, k), is_causal=is_causal, scale=1.0))
    assert found == (OPERATIONS["efficient"] if takes else None)


@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_on_a_gpu_attention_is_pytorchs(
    way: str, dtype: torch.dtype, noted: list[bool], seed: int
) -> None:
    shapes = ((2, 40, 16), (2, 40, 16), (2, 40, 16))
    given = [torch.randn(s, dtype=dtype, device="cuda", requires_grad=True) for s in shapes]
    require_eagers(operator(is_causal=True), given, noted)
