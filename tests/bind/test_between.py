"""Long reductions on a GPU: matrices in half precision, and loops for what is between them.

CUDA on the CPU rehearses the loops. A matrix unit is stood in for: its products are those of
float32 from operands in half precision.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import pullback as pb
from pullback.bind.dense import between, evaluate, matrices
from pullback.bind.dense.space import GpuWays
from pullback.bind.loops import backends, nests
from pullback.bind.math import gpu_ways, passing
from pullback.define.math import cost, derived
from pullback.define.math.formula import Formula
from pullback.define.math.node import SUM, in_order
from tests.bind.gpu_ways import both_ways, rehearsed_thoroughly, way
from tests.bind.test_blocks import drawn, sizes_of
from tests.define.long_reductions import LINES, SIZES
from tests.define.test_passes import formula
from tests.telling import telling

__all__ = ["way"]  # a fixture

pytestmark = pytest.mark.compiler

CPU = torch.device("cpu")
numbers = itertools.count()


# Loops, and the sizes of a large call.
Noted = tuple[nests.Own, Mapping[str, int]]


def enlarged(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of a large call: 4096 rows and columns of 64 features."""
    return {name: 64 if name in "dejuw" else 4096 for name in sizes}


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Noted]:
    """Take the loops for small products that large ones would have; note them."""
    found: list[Noted] = []
    find, does_too_much = gpu_ways.find_loops, gpu_ways.does_too_much

    def observed(own: Formula, sizes: Mapping[str, int], *given: Any) -> nests.Own | None:
        loops = find(own, sizes, *given)
        found.extend([(loops, enlarged(sizes))] if loops else [])
        return loops

    monkeypatch.setattr(between, "LEAST", 0)
    monkeypatch.setattr(gpu_ways, "find_loops", observed)
    monkeypatch.setattr(
        gpu_ways,
        "does_too_much",
        lambda own, sizes, times: does_too_much(own, enlarged(sizes), times),
    )
    return found


class Largest(TorchDispatchMode):
    """Notes the largest tensor that an operation computes."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        found = func(*args, **(kwargs or {}))
        if torch.Tag.pointwise in func.tags and isinstance(found, Tensor):
            self.numel = max(self.numel, found.numel())
        return found


# Pairs of points, whose differences would be 34 GB for an attention of 8 x 4096 of them.
PAIRS = ("distances", "distances of each head", "distances of two sets", "Gaussian")


@pytest.mark.ci
@pytest.mark.parametrize("name", telling({n: n for n in LINES}, ["distances"]))
def test_loops_between_products_compute_what_pytorch_does(
    name: str, noted: list[Noted], seed: int
) -> None:
    """Of every line with long reductions and of its gradients; none has another number.

    What is summed up for each pair of points is in no memory.
    """
    indexed = formula(LINES[name][0])
    backward = derived.backward(indexed)
    for each in (indexed, *([backward.formula] if backward else [])):
        arguments: dict[str, Any] = {p.name: None for p in each.line.parameters}
        arguments |= drawn(each, {**SIZES, "d": 24} if name in PAIRS else SIZES)
        sizes = {name: int(size) for name, size in sizes_of(each, arguments).items()}
        every = [True] * len(each.line.outputs)
        dtypes = [getattr(torch, o.dtype) if o.dtype else torch.float64 for o in each.line.outputs]
        want = evaluate.evaluate(each, arguments, sizes, every, dtypes, CPU)
        with pb.cuda.on_cpu(), Largest() as largest:
            got = evaluate.evaluate(
                each,
                arguments,
                sizes,
                every,
                dtypes,
                CPU,
                ways=GpuWays(find_loops=gpu_ways.find_loops),
            )
        for value, wanted in zip(got, want, strict=True):
            torch.testing.assert_close(value, wanted, rtol=1e-10, atol=1e-10)
        if name in PAIRS:
            assert largest.numel < sizes["n"] * sizes.get("m", 1) * sizes["d"]
    assert noted
    for each in noted:
        require_work_is_needed(*each)


@pytest.mark.thorough
def test_a_gpu_computes_no_distance_for_each_column_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads without elements are work: eight batches in a block of 512 took 4.5 s."""
    monkeypatch.setattr(backends.CudaOnCpuBackend, "is_preferred", False)
    text = LINES["distances"][0].removeprefix("f")
    own = define(re.sub(r"\b([qkvsop])\[", r"\1[..., ", text))
    given = [torch.empty(8, 4096, 64).requires_grad_() for _ in range(3)]
    with pb.cuda.on_cpu():
        assert "own loop" not in str(own.plan(*given))


def require_work_is_needed(own: nests.Own, sizes: Mapping[str, int]) -> None:
    """Loops of a large call read matrices as they lie, and compute few values anew.

    They do not look in every row for what data places, nor add up a row for each column.
    """
    line, [output] = own.indexed.line, own.indexed.line.outputs
    shapes = [tensor.labels for tensor in line.tensors]
    longest = max(shapes, key=len)
    if {*output.labels} <= {*longest}:
        assert list(output.labels) == [label for label in longest if label in output.labels]
    for part in (part for part in in_order(own.indexed.nodes) if part.op == SUM):
        summed = {str(part.size).strip("|"), *part.free}
        whether = [tensor.labels for tensor in line.tensors if tensor.dtype == "bool"]
        assert not any({*labels} < summed for labels in whether)
    needed = cost.cost(own.indexed, sizes, [True], 4)
    assert own.work(sizes) < 100 * max(needed.flops, needed.read + needed.written)


# --- half precision


@dataclass
class Units:
    """The products of matrices of one call: of halves, and of others."""

    halves: int = 0
    others: int = 0
    operands: list[Tensor] = field(default_factory=list[Tensor])

    def stand_in(self, multiply: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return what multiplies as a matrix unit does, where that is asked for."""

        def run(x: Tensor, y: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
            self.operands += [x, y]
            if out_dtype is None:
                self.others += 1
                return multiply(x, y)
            assert x.dtype == y.dtype
            assert x.dtype in matrices.HALVES
            assert out_dtype == torch.float32
            self.halves += 1
            return multiply(x.float(), y.float())

        return run


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Iterator[Units]:
    found, find = Units(), matrices.find_half
    monkeypatch.setattr(matrices, "has_matrix_units", lambda device: True)
    monkeypatch.setattr(gpu_ways, "find_half", lambda a, d, _: find(a, d, torch.device("cuda")))
    monkeypatch.setattr(torch, "mm", found.stand_in(torch.mm))
    monkeypatch.setattr(torch, "bmm", found.stand_in(torch.bmm))
    monkeypatch.setattr(passing, "find_fused", lambda *_: None)
    with pb.cuda.on_cpu():
        yield found


ATTENTION = (
    "(q[..., n, d], k[..., m, d], v[..., m, e]) -> o[..., n, e] = "
    "s[..., n, m] = 5*tanh(sum[d](q[..., n, d]*k[..., m, d])/40); p[..., n, m] = "
    "exp(s[..., n, m] - max[r](s[..., n, r])); o = sum[m](p[..., n, m]*v[..., m, e])"
    "/sum[m](p[..., n, m])"
)
SCALED = (
    "(x[n, d], w[d, m], a[d], c: float) -> y[n, m] = "
    "sum[d](c*a[d]*x[n, d]*w[d, m])/sqrt(1 + sum[k](x[n, k]**2))"
)
ENTROPY = (
    "(x[n, d], w[m, d], t[n]: int64) -> l[n] = s[n, m] = sum[d](x[n, d]*w[m, d])/4; "
    "l = max[m](s[n, m]) + log(sum[m](exp(s[n, m] - max[r](s[n, r])))) - s[n, t[n]]"
)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(5 * torch.tanh(q @ k.mT / 40), -1) @ v


def entropy(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(x @ w.T / 4, t, reduction="none")


def scaled(x: Tensor, w: Tensor, a: Tensor) -> Tensor:
    return (0.5 * a * x) @ w / torch.sqrt(1 + (x**2).sum(1, keepdim=True))


def define(line: str) -> pb.Operator:
    return pb.operator(f"pbbetween::f{next(numbers)}{line}")


def with_gradients(run: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    """Return an output and its gradients, of numbers that are not all alike."""
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in given]
    output = run(*leaves)
    arriving = (torch.arange(output.numel()).reshape(output.shape) % 7 * 0.1 + 0.5).to(output)
    wrt = [leaf for leaf in leaves if leaf.requires_grad]
    return [output.detach(), *torch.autograd.grad(output, wrt, arriving)]


def errors(found: list[Tensor], run: Callable[..., Tensor], given: list[Tensor]) -> list[float]:
    """Return how far results are from those in float64, relative to the largest of each."""
    exact = with_gradients(run, [t.double() if t.is_floating_point() else t for t in given])
    pairs = zip(found, exact, strict=True)
    return [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in pairs]


Case = tuple[str, Callable[..., Tensor], tuple[tuple[int, ...], ...]]
LONG: dict[str, Case] = {
    "attention": (ATTENTION, attention, ((2, 90, 16), (2, 70, 16), (2, 70, 24))),
    "cross-entropy": (ENTROPY, entropy, ((90, 24), (70, 24), (90,))),
    "numbers and quotients": (SCALED, scaled, ((60, 24), (24, 30), (24, 1))),
}
CASES = {
    f"{name}, {str(dtype).removeprefix('torch.')}": (name, dtype)
    for name in LONG
    for dtype in matrices.HALVES
}


@pytest.mark.ci
@pytest.mark.parametrize("case", telling(CASES, ["attention, bfloat16"]))
@pytest.mark.usefixtures("noted")
def test_halves_are_multiplied_as_they_are_and_are_no_further_off_than_eager(
    case: tuple[str, torch.dtype], units: Units, seed: int
) -> None:
    name, dtype = case
    line, eager, shapes = LONG[name]
    operator = define(line)
    own = (lambda *t: operator(*t, 0.5)) if operator.line.scalars else operator
    given = [torch.randn(s).to(dtype) if len(s) > 1 else torch.randint(70, s) for s in shapes]
    given = [t.flatten() if t.shape[-1] == 1 else t for t in given]
    with_gradients(own, given)  # loops are compared with PyTorch's operations before
    units.halves = units.others = 0
    found = with_gradients(own, given)
    assert units.halves
    # A float16 may have too small a range for what was computed.
    assert not units.others or dtype == torch.float16
    others = errors(with_gradients(eager, given), eager, given)
    for error, other in zip(errors(found, eager, given), others, strict=True):
        assert error <= max(other, torch.finfo(dtype).eps), (error, other)


def test_a_matrix_with_more_digits_keeps_them(units: Units, seed: int) -> None:
    own = define("(x[n, d], w[m, d]: float32) -> y[n, m] = sum[d](x[n, d]*w[m, d])")
    x, w = torch.randn(80, 20).bfloat16(), torch.randn(70, 20)
    expected = (x.double() @ w.double().T).bfloat16()
    torch.testing.assert_close(own(x, w), expected, rtol=2**-7, atol=0.0)
    leaves = [t.requires_grad_() for t in (x, w)]
    _, grad = torch.autograd.grad(own(x, w), leaves, torch.ones(80, 70).bfloat16())
    assert grad.dtype == torch.float32
    torch.testing.assert_close(
        grad.double(), x.double().sum(0).expand(70, 20), rtol=1e-5, atol=1e-5
    )
    assert not units.halves


def test_what_is_kept_of_halves_has_the_digits_of_single(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Rows whose logarithm of a sum is some hundreds, where a bfloat16 is right to one or two."""
    monkeypatch.setattr(passing, "LARGE", 0)
    monkeypatch.setattr(passing.slices, "MOST_BYTES", 0)
    monkeypatch.setattr(passing.slices, "MOST_TIMES", 0)
    own, x, w = define(ENTROPY), torch.randn(90, 24).bfloat16(), torch.randn(70, 24).bfloat16()
    given = [30 * x, 2 * w, torch.randint(70, (90,))]
    assert set(own.plan(*given).kept) == {"max_n", "sum_n"}
    value, *gradients = with_gradients(own, given)
    assert value.dtype == gradients[0].dtype == torch.bfloat16
    assert max(errors([value, *gradients], entropy, given)) < 2**-7
    assert math.isfinite(float(value.sum()))


# --- 16 bytes at a time


@both_ways
def test_what_is_read_16_bytes_at_a_time_may_be_read_in_any_order(way: str, seed: int) -> None:
    own = define(
        "(x[n, d], y[m, d]) -> z[n, m] = sum[d](abs(x[n, size(d) - 1 - d] - pad(y[m, 2*d - 3])))"
    )
    x, y = torch.randn(2, 70, 8, device="cuda").unbind()
    read = torch.zeros_like(y)
    read[:, 2:6] = y[:, 1::2]
    torch.testing.assert_close(own(x, y), (x.flip(1)[:, None] - read).abs().sum(-1))


@rehearsed_thoroughly
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_tensors_that_begin_anywhere_are_read(way: str, dtype: torch.dtype, seed: int) -> None:
    """Calls of the same shapes, whose tensors begin at a multiple of 16 bytes or not."""
    own = define("(x[n, d], y[m, d]) -> z[n, m] = sum[d](abs(x[n, d] - y[m, d]))")
    memory = torch.randn(2, 8 + 50 * 16).to(dtype).to("cuda")
    for begin in (0, 0, 0, 1, 1, 1, 4, 0, 2):
        x, y = memory[:, begin : begin + 50 * 16].view(2, 50, 16).unbind()
        expected = (x.double()[:, None] - y.double()).abs().sum(-1)
        torch.testing.assert_close(own(x, y), expected.to(dtype), rtol=2e-2, atol=1e-6)
