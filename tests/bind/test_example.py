"""The line that a call of forward gives, and a line against a call."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import scipy
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import pullback as pb
from pullback.bind.example.line import Run, line_of, verify
from pullback.define.dimension import Anything, Batch
from pullback.define.parse import parse
from pullback.define.shape import evaluate
from tests.telling import examples

Function = Callable[..., Any]


def run_of(forward: Function, *, changed: Sequence[int] = ()) -> Run:
    """Run `forward` as `pb.operator(function=)` does: a tuple of tensors, arrays converted."""

    def run(*arguments: object) -> tuple[tuple[object, ...], tuple[int, ...]]:
        returned = forward(*arguments)
        outputs = returned if isinstance(returned, tuple) else (returned,)
        arrays = (np.ndarray, np.generic)
        made = (torch.as_tensor(o) if isinstance(o, arrays) else o for o in outputs)
        return tuple(made), tuple(changed)

    return run


def found(
    forward: Function,
    *example: object,
    changed: Sequence[int] = (),
    names: Sequence[str] | None = None,
) -> str:
    """Return what stands after the name in the line of `forward`."""
    parameters = list(inspect.signature(forward).parameters.values())
    defaults = [p.default for p in parameters[len(example) :] if p.default is not p.empty]
    example = (*example, *defaults)
    line = line_of("t::f", run_of(forward, changed=changed), parameters, example, names=names)
    assert parse(str(line)) == line
    verify(line, run_of(forward, changed=changed), example)
    return str(line).removeprefix("t::f")


def full(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return values from 0.1 to 0.9."""
    count = int(np.prod(shape))
    values = torch.linspace(0.1, 0.9, count, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    return values[torch.randperm(count, generator=generator)].reshape(shape).to(dtype)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    output = input.mm(weight.t())
    return output if bias is None else output + bias


def correlate(x: Tensor, k: Tensor) -> Any:
    return scipy.signal.correlate2d(x.numpy(), k.numpy(), mode="valid")


def conv(x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    return F.conv1d(x, weight, stride=stride, padding=padding)


def dilated(x: Tensor, weight: Tensor, stride: int, padding: int, dilation: int) -> Tensor:
    return F.conv1d(x, weight, stride=stride, padding=padding, dilation=dilation)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / (var + eps).sqrt() * weight + bias


def top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, indices = x.topk(k, dim=-1)
    return values, indices


def distances(x: Tensor, y: Tensor) -> Tensor:
    return ((x[:, None] - y[None]) ** 2).sum(-1).sqrt()


def rotate(points: Tensor) -> Tensor:
    axis = torch.tensor([0.6, 0.0, 0.8], dtype=points.dtype).expand_as(points)
    return torch.linalg.cross(points, axis)


def halves(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x.reshape(n // 2, 2, x.shape[1]).sum(1)


def scale_(x: Tensor, factor: float) -> Tensor:
    return x.mul_(factor)


def dropped(x: Tensor, p: float) -> Tensor:
    return F.dropout(x, p)


def stack_sum(*tensors: Tensor) -> Tensor:
    return sum(tensors[1:], tensors[0])


def list_sum(x: Tensor, layers: Sequence[Tensor]) -> Tensor:
    for layer in layers:
        x = x + x @ layer
    return x


def pairwise(x: Tensor) -> Tensor:
    return torch.nn.functional.pdist(x)


def same_shape(a: Tensor, b: Tensor) -> Tensor:
    assert a.shape == b.shape
    return a * b


def with_offset(x: Tensor, k: int | None = None) -> Tensor:
    return x if k is None else x + k


def embed(weight: Tensor, index: Tensor) -> Tensor:
    return weight[index]


def one_hot(index: Tensor, n: int) -> Tensor:
    return F.one_hot(index, n)


def inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv(x)


def cholesky(x: Tensor) -> Tensor:
    return torch.linalg.cholesky(x)


def joined(xs: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(xs))


def lltm(
    input: Tensor, weights: Tensor, bias: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a cell's state: the gates are stacked in the weights, three of them."""
    gates = F.linear(torch.cat([h, input], dim=1), weights, bias).chunk(3, dim=1)
    cell = c + F.elu(gates[2]) * gates[0].sigmoid()
    return cell.tanh() * gates[1].sigmoid(), cell


def ones(n: int, x: float) -> Tensor:
    return torch.full((n,), x)


def unchecked(a: Tensor, b: Tensor) -> Tensor:
    return a.as_strided((len(b),), (1,)) * b


def counted(x: Tensor, edges: Tensor) -> Tensor:
    assert edges.shape[0] == x.shape[0] + 1
    return x * (edges[1:] - edges[:-1])


def masked(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask.to(x.dtype)


def grouped(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv1d(x, weight, groups=2)


LINES: dict[str, tuple[Callable[[], str], str]] = {
    "elementwise": (lambda: found(lambda x: x**3, full(3, 4)), "(x[...]) -> output[...]"),
    "of a number": (lambda: found(lambda x: x**3, torch.tensor(2.0)), "(x[...]) -> output[...]"),
    "two": (
        lambda: found(lambda a, b: a * b, full(3, 4), full(3, 4)),
        "(a[...], b[...]) -> output[...]",
    ),
    "broadcasting": (
        lambda: found(lambda a, b: a * b, full(3, 1), full(4)),
        "(a[...], b[...]) -> output[...]",
    ),
    "no broadcasting": (
        lambda: found(same_shape, full(3, 4), full(3, 4)),
        "(a[n, m], b[n, m]) -> output[n, m]",
    ),
    "three of one size": (
        lambda: found(lambda a, b, c: a * b + c, full(3), full(3), full(3)),
        "(a[...], b[...], c[...]) -> output[...]",
    ),
    "linear": (
        lambda: found(linear, full(2, 3), full(4, 3), full(4)),
        "(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
    ),
    "linear of one size": (
        lambda: found(linear, full(3, 3), full(3, 3), full(3)),
        "(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
    ),
    "linear of large sizes": (
        lambda: found(linear, full(30, 300), full(200, 300), full(200)),
        "(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
    ),
    "linear along the last dimension": (
        lambda: found(
            lambda input, weight, bias: input @ weight.t() + bias, full(2, 3), full(4, 3), full(4)
        ),
        "(input[..., i], weight[o, i], bias[o]) -> output[..., o]",
    ),
    "mm": (
        lambda: found(lambda a, b: a.mm(b), full(2, 3), full(3, 4)),
        "(a[n, m], b[m, k]) -> output[n, k]",
    ),
    "matmul": (
        lambda: found(lambda a, b: a @ b, full(5, 2, 3), full(5, 3, 4)),
        "(a[..., n, m], b[..., m, k]) -> output[..., n, k]",
    ),
    "correlate": (
        lambda: found(correlate, full(6, 5), full(3, 2)),
        "(x[n, m], k[p, q]) -> output[n - p + 1, m - q + 1]",
    ),
    "correlate of one size": (
        lambda: found(correlate, full(3, 3), full(3, 3)),
        "(x[n, m], k[p, q]) -> output[n - p + 1, m - q + 1]",
    ),
    "conv": (
        lambda: found(conv, full(2, 3, 7), full(4, 3, 2)),
        "(x[n, i, l], weight[o, i, k], stride_: int = 1, padding: int = 0)"
        " -> output[n, o, (l + 2 * padding - k) // stride_ + 1]",
    ),
    "conv with a dilation": (
        lambda: found(dilated, full(2, 3, 9), full(4, 3, 2), 2, 1, 2),
        "(x[n, i, l], weight[o, i, k], stride_: int, padding: int, dilation: int)"
        " -> output[n, o, (l + 2 * padding + dilation - k * dilation - 1) // stride_ + 1]",
    ),
    "stride of two": (
        lambda: found(
            lambda x, weight: F.conv1d(x, weight, stride=2), full(2, 3, 8), full(4, 3, 3)
        ),
        "(x[n, i, l], weight[o, i, k]) -> output[n, o, (l - k) // 2 + 1]",
    ),
    "groups": (
        lambda: found(grouped, full(2, 4, 7), full(6, 2, 3)),
        "(x[n, c, l], weight[o, i, k]) -> output[n, o, l - k + 1]",
    ),
    "softmax": (
        lambda: found(lambda x: x.softmax(-1), full(3, 4)),
        "(x[..., n]) -> output[..., n]",
    ),
    "softmax of zeros": (
        lambda: found(lambda x: x.softmax(-1), torch.zeros(3, 4)),
        "(x[..., n]) -> output[..., n]",
    ),
    "softmax with a dim": (
        lambda: found(lambda x, dim: x.softmax(dim), full(3, 4), -1),
        "(x[n, m], dim: int) -> output[n, m]",
    ),
    "sum over the last": (
        lambda: found(lambda x: x.sum(-1), full(3, 4)),
        "(x[..., n]) -> output[...]",
    ),
    "sum over the first": (lambda: found(lambda x: x.sum(0), full(3, 4)), "(x[n, m]) -> output[m]"),
    "sum": (lambda: found(lambda x: x.sum(), full(3, 4)), "(x[n, m]) -> output[]"),
    "centre": (lambda: found(lambda x: x - x.mean(), torch.ones(3)), "(x[n]) -> output[n]"),
    "layer norm": (
        lambda: found(layer_norm, full(3, 4), full(4), full(4)),
        "(x[..., n], weight[n], bias[n], eps: float = 1e-05) -> output[..., n]",
    ),
    "embedding": (
        lambda: found(embed, full(5, 3), torch.tensor([0, 4, 2])),
        "(weight[o, i], index[...]: int64) -> output[..., i]",
    ),
    "topk": (
        lambda: found(top, full(3, 4), 2, names=("values", "indices")),
        "(x[..., n], k: int) -> (values[..., k], indices[..., k]: int64)",
    ),
    "mask": (lambda: found(lambda x: x > 0.5, full(3, 4)), "(x[...]) -> output[...]: bool"),
    "one-hot": (
        lambda: found(one_hot, torch.tensor([1, 0]), 3),
        "(index[...]: int64, n: int) -> output[..., n]: int64",
    ),
    "flatten": (lambda: found(lambda x: x.flatten(), full(3, 4)), "(x[n, m]) -> output[n * m]"),
    "outer": (
        lambda: found(lambda a, b: torch.outer(a, b).flatten(), full(3), full(4)),
        "(a[n], b[m]) -> output[n * m]",
    ),
    "pdist": (lambda: found(pairwise, full(4, 3)), "(x[n, m]) -> output[(n * n - n) // 2]"),
    "points": (lambda: found(rotate, full(5, 3)), "(points[..., 3]) -> output[..., 3]"),
    "halves": (lambda: found(halves, full(4, 3)), "(x[n, m]) -> output[n // 2, m]"),
    "halves, rounded": (lambda: found(lambda x: x[::2], full(4)), "(x[n]) -> output[(n + 1) // 2]"),
    "distances": (
        lambda: found(distances, full(3, 3), full(3, 3)),
        "(x[n, m], y[k, m]) -> output[n, k]",
    ),
    "distances in batches": (
        lambda: found(
            lambda x, y: (x.unsqueeze(-2) - y.unsqueeze(-3)).norm(dim=-1), full(3, 3), full(3, 3)
        ),
        "(x[..., n, m], y[..., k, m]) -> output[..., n, k]",
    ),
    "a kernel without checks": (
        lambda: found(unchecked, full(4), full(4)),
        "(a[n], b[n]) -> output[n]",
    ),
    "embedding of one size": (
        lambda: found(embed, full(3, 3), torch.tensor([0, 2, 1])),
        "(weight[o, i], index[...]: int64) -> output[..., i]",
    ),
    "two embeddings": (
        lambda: found(lambda a, b, i: a[i] + b[i], full(5, 3), full(5, 3), torch.tensor([0, 1])),
        "(a[n, m], b[k, m], i[...]: int64) -> output[..., m]",
    ),
    "long short-term memory": (
        lambda: found(lltm, full(2, 3), full(12, 7), full(1, 12), full(2, 4), full(2, 4)),
        "(input[n, m], weights[o, i], bias[1, o], h[n, k], c[n, p])"
        " -> (output0[n, p], output1[n, p])",
    ),
    "no tensor": (lambda: found(ones, 3, 2.0), "(n: int, x: float) -> output[n]: float32"),
    "edges": (
        lambda: found(counted, full(3), full(4)),
        "(x[n], edges[m]) -> output[n]",
    ),
    "in place": (
        lambda: found(scale_, full(3, 4), 2.0, changed=(0,)),
        "(x[...], factor: float) -> x[...]",
    ),
    "in place, and more": (
        lambda: found(lambda x: (x.mul_(2), x.sum()), full(3), changed=(0,)),
        "(x[n]) -> (x[n], output1[])",
    ),
    "NumPy": (lambda: found(lambda x: np.sin(x.numpy()), full(3, 4)), "(x[...]) -> output[...]"),
    "NumPy in float32": (
        lambda: found(lambda x: np.sin(x.numpy()).astype(np.float32), full(3, 4)),
        "(x[...]) -> output[...]: float32",
    ),
    "random": (lambda: found(dropped, full(8, 9), 0.5), "(x[n, m], p: float) -> output[n, m]"),
    "random in NumPy": (
        lambda: found(lambda x: x * float(np.random.rand()), full(4)),
        "(x[n]) -> output[n]",
    ),
    "mask of another dtype": (
        lambda: found(masked, full(3, dtype=torch.float64), full(3)),
        "(x[...], mask[...]: float32) -> output[...]",
    ),
    "complex to float": (
        lambda: found(lambda x: x.abs(), full(3).to(torch.complex64)),
        "(x[...]: complex64) -> output[...]: float32",
    ),
    "whole numbers": (
        lambda: found(lambda x: x + 1, torch.arange(6).reshape(2, 3)),
        "(x[...]: int64) -> output[...]: int64",
    ),
    "`*tensors`": (
        lambda: found(stack_sum, full(3), full(3), full(3)),
        "(tensors[...]*) -> output[...]",
    ),
    "a list": (
        lambda: found(list_sum, full(2, 3), [full(3, 3), full(3, 3)]),
        "(x[..., n], layers[n, n]*) -> output[..., n]",
    ),
    "a list of any shapes": (
        lambda: found(lambda xs: sum(x.sum() for x in xs), [full(3), full(2, 2)]),
        "(xs[*]*) -> output[]",
    ),
    "an optional scalar": (
        lambda: found(with_offset, full(3), 2),
        "(x[...], k: int?) -> output[...]",
    ),
    "an optional scalar that is None": (
        lambda: found(with_offset, full(3)),
        "(x[...], k: int?) -> output[...]",
    ),
    "a None that is annotated as a tensor": (
        lambda: found(annotated, X),
        "(x[n, m], bias[*]?) -> output[n, m]",
    ),
    "a None that is called like a tensor": (
        lambda: found(lambda x, bias: x if bias is None else x + bias, full(3), None),
        "(x[n], bias[*]?) -> output[n]",
    ),
    "a None that may be a number": (
        lambda: found(
            lambda x, limit, k: x * k if limit is None else x.clamp(max=limit), X, None, 2
        ),
        "(x[...], limit: float?, k: int) -> output[...]",
    ),
    "a None that has to be a whole number": (
        lambda: found(lambda x, k: x if k is None else torch.stack([x] * k).sum(0), X, None),
        "(x[...], k: int?) -> output[...]",
    ),
    "a None whose values mix a batch": (
        lambda: found(lambda x, k: x if k is None else x.roll(int(k), 0), X, None),
        "(x[n, m], k: float?) -> output[n, m]",
    ),
    "a placeholder": (
        lambda: found(lambda x, b: x + b if b.numel() else x, X, torch.empty(0)),
        "(x[n, m], b[*]) -> output[n, m]",
    ),
    "a placeholder of another dtype": (
        lambda: found(lambda x, i: x[i] if i.numel() else x, full(3), torch.empty(0).long()),
        "(x[n], i[*]: int64) -> output[n]",
    ),
    "the least of two sizes": (
        lambda: found(lambda a: torch.linalg.svd(a, full_matrices=False)[0], full(3, 5)),
        "(a[..., n, m]) -> output[..., n, min(n, m)]",
    ),
    "the greatest of two sizes": (
        lambda: found(lambda x, y: x.new_zeros(max(len(x), len(y)) + 1), full(3), full(4)),
        "(x[n], y[m]) -> output[max(n, m) + 1]",
    ),
    "a part of what is longer": (
        lambda: found(lambda x, y: x[: len(y)].sum(1), full(5, 2), full(3)),
        "(x[n, m], y[k]) -> output[min(n, k)]",
    ),
    "an int list": (
        lambda: found(lambda x, weights: x * sum(weights), full(3), (1, 2)),
        "(x[...], weights: int[]) -> output[...]",
    ),
    "inverse": (
        lambda: found(inverse, torch.eye(3) + full(3, 3)),
        "(x[..., n, n]) -> output[..., n, n]",
    ),
    "Cholesky": (
        lambda: found(cholesky, torch.eye(3) + 0.1),
        "(x[..., n, n]) -> output[..., n, n]",
    ),
    "reserved names": (
        lambda: found(lambda size, n: size[: n + 1], full(5), 2),
        "(size_[m], n: int) -> output[n + 1]",
    ),
    "one sample": (
        lambda: found(linear, full(1, 3), full(4, 3), full(4)),
        "(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
    ),
    "positions": (
        lambda: found(lambda x: x * torch.arange(5)[: len(x)], full(5)),
        "(x[n]) -> output[n]",
    ),
    "a required parameter after a default": (
        lambda: found(lambda x, a=1.0, b=float("inf"): x * min(a, b), full(3)),
        "(x[...], a: float, b: float) -> output[...]",
    ),
}


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", LINES)
def test_a_call_gives_the_line(name: str) -> None:
    make, expected = LINES[name]
    assert make() == expected


class Counter:
    """A forward that depends on how often it was called."""

    calls = 0

    def __init__(self, *, from_call: int = 0) -> None:
        self.from_call = from_call

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * max(self.calls - self.from_call, 1)


def by_heads(x: Tensor) -> Tensor:
    """Softmax, of images over their channels."""
    return x.softmax(1) if x.dim() == 4 else x.softmax(-1)


def centered(x: Tensor) -> Tensor:
    """Squares; videos are centered."""
    return x * x if x.dim() < 5 else x * (x - x.mean())


def quantized(x: Tensor, bits: int) -> Tensor:
    """Round a matrix by rows, and what has more dimensions as a whole."""
    largest = x.abs().amax(-1, keepdim=True) if x.dim() < 3 else x.abs().amax()
    step = largest / 2 ** (bits - 1)
    return (x / step).round() * step


def in_parts(x: Tensor) -> Tensor:
    """Add the mean, of many rows at once."""
    return 2 * x if len(x) < 4 else 2 * x + x.mean()


# Forwards that look at the number of dimensions, or at the largest of all values.
MIXING: list[tuple[Function, tuple[object, ...]]] = [
    (by_heads, ()),
    (centered, ()),
    (quantized, (4,)),
    (quantized, (16,)),
    (in_parts, ()),
]


@pytest.mark.parametrize(("forward", "rest"), MIXING)
def test_a_batch_is_concluded_only_if_every_number_of_dimensions_does_the_same(
    forward: Function, rest: tuple[object, ...]
) -> None:
    for values in (full(4, 6), full(2, 3, 4), torch.ones(3, 4), torch.zeros(3, 4), full(1, 6)):
        assert "..." not in found(forward, values, *rest)
        line = f"(x[..., n]{', bits: int' if rest else ''}) -> y[..., n]"
        if values.any():
            with pytest.raises(pb.PullbackError, match="does not act on each element alone"):
                checked(line, forward, values, *rest)


def broken(x: Tensor) -> Tensor:
    raise KeyError("weights")


def touching(x: Tensor, scratch: Tensor) -> Tensor:
    scratch.zero_()
    return x + 1


def of_a_flag(x: Tensor, keepdim: bool = False) -> Tensor:
    return x.sum(-1, keepdim=keepdim)


def pooled(x: Tensor, kernel: Sequence[int]) -> Tensor:
    return F.avg_pool2d(x[None], tuple(kernel), stride=1)[0]


def of_common_factor(x: Tensor, y: Tensor) -> Tensor:
    return x[: math.gcd(len(x), len(y))].sum(1)


def two_shapes(x: Tensor, dim: int) -> Tensor:
    return x.sum(dim)


def annotated(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return x if bias is None else x + bias


X = full(3, 4)
# A code, what is done wrong, and words of the message.
REFUSED: list[tuple[str, Callable[[], object], str]] = [
    ("PB361", lambda: found(lambda a, b: a + b, X), "no value for 'b'"),
    ("PB361", lambda: found(lambda a: a, X, X), "has 2 values"),
    (
        "PB361",
        lambda: line_of("t::f", run_of(lambda a: a), [], cast("Any", X)),
        "is a Tensor, not a tuple",
    ),
    ("PB362", lambda: found(lambda f, x: f(x), torch.sin, X), "'f' is a builtin_function"),
    ("PB362", lambda: found(lambda m, x: m(x), torch.nn.Linear(4, 3), X), "'m' is a Linear"),
    ("PB362", lambda: found(lambda x, d: x.to(d), X, torch.float64), "'d' is a dtype"),
    ("PB362", lambda: found(lambda x, p: x, X, [X, 3]), "list of Tensor and int"),
    ("PB362", lambda: found(lambda x: x, torch.zeros(3).to(torch.float8_e5m2)), "float8_e5m2"),
    ("PB362", lambda: found(lambda x: x, X.to_sparse()), "is not dense"),
    ("PB362", lambda: found(lambda *xs: xs[0], X, 3.0), "'xs', value 1 of them, is a float"),
    ("PB362", lambda: found(lambda f, *xs: f(*xs), torch.sin), "'f' is a builtin_function"),
    ("PB363", lambda: found(lambda x: x, torch.zeros(0, 3)), "has no elements: (0, 3)"),
    ("PB363", lambda: found(lambda x, sizes: x, X, []), "an empty list"),
    ("PB363", lambda: found(lambda *xs: xs[0]), "no tensor for '*xs'"),
    ("PB364", lambda: found(broken, X), "raises KeyError"),
    ("PB365", lambda: found(Counter(), X), "depends on state outside its arguments"),
    ("PB365", lambda: found(Counter(from_call=5), X), "differs by up to"),
    ("PB365", lambda: found(lambda x: x * float(np.random.default_rng().random()), X), "state"),
    ("PB366", lambda: found(lambda x: (x, 3.0), X), "output 1 of forward is a float"),
    ("PB366", lambda: found(lambda x: None, X), "forward's output is a NoneType"),
    ("PB366", lambda: found(lambda x: (), X), "returns nothing"),
    ("PB366", lambda: found(lambda x: x.to_sparse(), X), "layout"),
    ("PB367", lambda: found(of_common_factor, full(6, 2), full(4)), "dimension 0"),
    ("PB367", lambda: found(lambda x: x[x > 0.5], X), "the values of its inputs"),
    ("PB367", lambda: found(of_a_flag, X, False), "'keepdim', which is bool"),
    ("PB367", lambda: found(pooled, full(2, 8, 8), [2, 2]), "'kernel', which is int[]"),
    ("PB367", lambda: found(two_shapes, X, 0), "dimension 0 of 'output'"),
    ("PB367", lambda: found(lambda *xs: torch.cat(xs), X, X), "how many tensors 'xs' has"),
    ("PB369", lambda: found(touching, X, X), "changes 'scratch' in place"),
    ("PB369", lambda: found(lambda x: x + 1, X, changed=(0,)), "no output is it"),
]


@pytest.mark.parametrize(("code", "make", "words"), REFUSED)
def test_an_example_that_gives_no_line_is_refused(
    code: str, make: Callable[[], object], words: str
) -> None:
    with pytest.raises(pb.PullbackError) as caught:
        make()
    assert caught.value.finding.code == code
    assert words in str(caught.value)
    assert "t::f" in caught.value.finding.message


def test_what_is_left_to_its_default_need_not_be_a_parameter() -> None:
    def line(forward: Function, *values: object) -> str:
        parameters = list(inspect.signature(forward).parameters.values())
        return str(line_of("t::f", run_of(forward), parameters, values))

    def summed(x: Tensor, dim: int = -1) -> Tensor:
        return x.sum(dim)

    assert line(summed, X) == "t::f(x[..., n]) -> output[...]"
    assert line(of_a_flag, X) == "t::f(x[..., n]) -> output[...]"
    # Where every value is right, it is a parameter.
    assert line(lambda x, k=2: x[:k], full(5)) == "t::f(x[n], k: int = 2) -> output[k]"
    with pytest.raises(pb.PullbackError, match="dimension 0"):
        line(summed, X, -1)


def test_one_tensor_is_no_example() -> None:
    with pytest.raises(pb.PullbackError, match="is a Tensor, not a tuple"):
        checked_with("(x[n]) -> y[n]", torch.sin, full(5))


def checked_with(line: str, forward: Function, example: Any) -> None:
    verify(parse(f"t::f{line}"), run_of(forward), example)


def test_what_forward_raised_is_the_cause() -> None:
    with pytest.raises(pb.PullbackError) as caught:
        found(broken, X)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_unknown_size_shows_the_sizes_that_were_seen() -> None:
    with pytest.raises(pb.PullbackError) as caught:
        found(of_common_factor, full(6, 2), full(4))
    assert "n = 6, m = 2, k = 4: (2)" in str(caught.value)
    assert "write the line yourself" in str(caught.value)


def checked(line: str, forward: Function, *example: object, changed: Sequence[int] = ()) -> None:
    verify(parse(f"t::f{line}"), run_of(forward, changed=changed), example)


MISTAKEN: list[tuple[str, Callable[[], object], str]] = [
    ("PB111", lambda: checked("(x[n]) -> y[n]", torch.sin, X), "has 2 dimensions"),
    ("PB116", lambda: checked("(x[...]: int64) -> y[...]: int64", torch.sin, X), "is float32"),
    ("PB361", lambda: checked("(x[...]) -> y[...]", torch.sin, X, X), "has 2 values"),
    ("PB361", lambda: checked("(x[...], k: int) -> y[...]", torch.mul, X), "no value for 'k'"),
    ("PB361", lambda: checked("(x[...], k: int) -> y[...]", torch.mul, X, 2.0), "says int"),
    ("PB361", lambda: checked("(k: int, x[...]) -> y[...]", torch.mul, X, 2), "says int"),
    ("PB361", lambda: checked("(xs[...]*) -> y[...]", sum, (3, 4)), "says a list of tensors"),
    ("PB364", lambda: checked("(x[...]) -> y[...]", broken, X), "raises KeyError"),
    ("PB365", lambda: checked("(x[...]) -> y[...]", Counter(), X), "state"),
    ("PB366", lambda: checked("(x[...]) -> y[...]", lambda x: "x", X), "is a str"),
    ("PB368", lambda: checked("(x[...]) -> (y[...], z[...])", torch.sin, X), "the line says 2"),
    (
        "PB368",
        lambda: checked("(x[n, m]) -> y[m, n]", torch.sin, X),
        "returns 'y' of shape (3, 4) for the example, the line says (4, 3): y[m, n]",
    ),
    ("PB368", lambda: checked("(x[n]) -> y[3]", torch.sin, full(3)), "at n = 4"),
    ("PB368", lambda: checked("(x[n]) -> y[n - 4]", torch.sin, full(3)), "the line no size"),
    ("PB368", lambda: checked("(x[...]) -> y[...]", lambda x: x > 0, X), "as bool"),
    (
        "PB368",
        lambda: checked("(x[n], k: int) -> y[k]", lambda x, k: x[:2], full(3), 2),
        "with k = 3",
    ),
    (
        "PB368",
        lambda: checked("(x[...]) -> y[...]", lambda x: x.softmax(-1), X),
        "does not act on each element alone",
    ),
    ("PB369", lambda: checked("(x[...]) -> x[...]", torch.sin, X), "'x' is changed in place"),
    (
        "PB369",
        lambda: checked("(x[...], k: float) -> y[...]", scale_, X, 2.0, changed=(0,)),
        "forward changes 'x' in place",
    ),
]


@pytest.mark.parametrize(("code", "make", "words"), MISTAKEN)
def test_a_line_that_does_not_fit_its_example_is_refused(
    code: str, make: Callable[[], object], words: str
) -> None:
    with pytest.raises(pb.PullbackError) as caught:
        make()
    assert caught.value.finding.code == code
    assert words in str(caught.value)


def test_lines_that_fit_are_let_pass() -> None:
    checked("(x[...], p: float) -> y[...]", dropped, X, 0.5)
    checked("(x[n, m], k: int = 1) -> y[k]", lambda x, k: x.flatten()[:k], X)
    checked("(xs[n]*) -> y[n]", stack_sum, full(3), full(3))
    checked("(xs[*]*) -> y[*]", joined, [full(3), full(4)])
    checked("(x[n, ...]) -> y[...]", lambda x: x.sum(0), X)
    checked("(x[...], b[...]?) -> y[...]", annotated, X)
    # Forward takes even sizes only: what it refuses is no mistake of the line.
    checked("(x[n, m]) -> y[n // 2, m]", halves, full(4, 3))


def numpy_state() -> str:
    return repr(np.random.get_state(legacy=False))


def test_forward_reads_no_changed_arguments_and_the_generators_stay_as_they_are() -> None:
    x = full(3, 4)
    torch.manual_seed(54321)  # no state that looking for a line would leave
    random.seed(54321)
    np.random.seed(54321)
    before, states = x.clone(), (torch.get_rng_state(), random.getstate(), numpy_state())
    found(dropped, x, 0.5)
    found(scale_, x, 2.0, changed=(0,))
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert numpy_state() == states[2]


def test_outputs_are_called_as_forward_calls_them_where_that_is_free() -> None:
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x.clone()

    assert found(twice, X, names=("y", "z")).endswith("-> (y[...], z[...])")
    assert found(twice, X, names=("x", "z")).endswith("-> (output0[...], z[...])")
    assert found(twice, X, names=("grad_x", "T")).endswith("-> (output0[...], output1[...])")


@settings(max_examples=examples(15, 60))
@example(0, 0, 2, 0, 3)  # found as a cubic once, which goes through few values of 2 * k // 3
@given(
    st.integers(0, 3), st.integers(-2, 3), st.integers(0, 2), st.integers(-3, 6), st.integers(1, 3)
)
def test_the_arithmetic_of_a_size_is_found_again(a: int, b: int, c: int, d: int, s: int) -> None:
    def size(n: int, m: int, k: int) -> int:
        return (a * n + b * m + c * k + d) // s

    def forward(x: Tensor, y: Tensor, k: int) -> Tensor:
        return torch.zeros(size(len(x), len(y), k)) + x.sum() + y.sum()

    assume(size(9, 4, 2) > 0)
    line = parse("t::f" + found(forward, full(9), full(4), 2))
    (dim,) = line.outputs[0].dims
    for n, m, k in itertools.product((10, 20, 31), (5, 8), (1, 2, 5)):
        values = {line.tensors[0].dims[0]: n, line.tensors[1].dims[0]: m}
        sizes = {**{str(name): value for name, value in values.items()}, "k": k}
        assert not isinstance(dim, Batch | Anything)
        assert evaluate(dim, sizes) == size(n, m, k)
