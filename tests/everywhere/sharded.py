"""Processes that call operators of every kind with DTensors, over gloo, and compare."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, multiprocessing
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import Placement

import pullback as pb

LIMIT = 600.0  # seconds; on a slow machine compilers may need a hundred
SEED = 7
MOST = 8  # ways in which an operator's tensors are placed on one mesh
Outcomes = dict[str, str | None]
Placed = tuple[Placement, ...]

LINES = {
    "sqdist": "(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)",
    "gauss": "(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])",
    "softmax": "(x[..., n]) -> y[..., n]"
    " = exp(x[n] - max[m](x[m]))/sum[m](exp(x[m] - max[k](x[k])))",
    "linear": "(x[n, i], w[o, i], b[o]?) -> y[n, o] = sum[i](x[n, i]*w[o, i]) + b[o]",
    "embed": "(table[v, d], index[n]: int64) -> y[n, d] = table[index[n], d]",
    # Along m statistics of rows are merged, and places are counted through all processes.
    "causal": "(q[n, d], k[m, d], v[m, e]) -> o[n, e] ="
    " s[n, m] = where(m <= n + 9, sum[d](q[n, d]*k[m, d]), -inf);"
    " p[n, m] = exp(s[n, m] - max[r](s[n, r]));"
    " o[n, e] = sum[m](p[n, m]*v[m, e])/sum[m](p[n, m])",
    "relative": "(q[n, d], k[m, d], v[m, e], b[c]) -> o[n, e] ="
    " s[n, m] = sum[d](q[n, d]*k[m, d]) + pad(b[n - m + size(m) - 1]);"
    " p[n, m] = exp(s[n, m] - max[r](s[n, r]));"
    " o[n, e] = sum[m](p[n, m]*v[m, e])/sum[m](p[n, m])",
    "entropy": "(x[n, d], w[m, d], index[n]: int64) -> l[n] = s[n, m] = sum[d](x[n, d]*w[m, d]);"
    " z[n] = max[m](s[n, m]);"
    " l = z[n] + log(sum[m](exp(s[n, m] - z[n]))) - sum[d](x[n, d]*w[index[n], d])",
    "contrastive": "(q[n, d], k[m, d]) -> l[n] = s[n, m] = sum[d](q[n, d]*k[m, d]);"
    " l[n] = log(sum[m](exp(s[n, m]))) - mean[m](s[n, m])",
    "greatest": "(x[n, m]) -> y[n] = 2*max[m](x[n, m]) + 1",
    "normal": "(x[m, d]) -> y[m, d] = mu[d] = mean[k](x[k, d]);"
    " y = (x - mu[d])/sqrt(mean[k]((x[k, d] - mu[d])**2) + 0.1)",
    "late": "(q[n, d], k[m, d], v[m, e]) -> o[n, e] ="
    " s[n, m] = where(m >= 8*n + 7, sum[d](q[n, d]*k[m, d]), -inf);"
    " p[n, m] = exp(s[n, m] - max[r](s[n, r]));"
    " o[n, e] = sum[m](p[n, m]*v[m, e])/sum[m](p[n, m])",
    "correlate": "(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])",
    "chamfer": "(x[n, d], y[m, d]) -> z[n] = min[m](sum[d]((x[n, d] - y[m, d])**2))",
    "scaled": "(x[n, d], c: float, bias[]) -> y[n] = c*sum[d](x[n, d]) + bias",
    "product": "(x[..., n], y[..., n]) -> z[...] = sum[n](x[n]*y[n]**2)",
    # Of a recurrence the batch, and what no step mixes.
    "lru": "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d]"
    " = a*h[t - 1, d] + x; h[-1, d] = h0",
    "mixed": "(x[..., t, d], w[d, d]) -> y[..., t] ="
    " h[t, d] = x[t, d] + sum[e](w[d, e]*pad(h[t - 1, e])); y = sum[d](h[t, d]**2)",
    # Pointwise formulas are split along every dimension.
    "biased": "(x[..., n], b[n], a[...]) -> y[..., n] = a*tanh(x + b)",
}
SCALE = """
#include <cstdint>
template <class T>
void scale(T* y, const T* x, const T* w, int64_t n, int64_t batch) {
  for (int64_t i = 0; i < batch * n; ++i) y[i] = x[i] * w[i % n];
}
template <class T>
void scale_grad(T* gx, T* gw, const T* g, const T* x, const T* w, int64_t n, int64_t batch) {
  for (int64_t i = 0; gx && i < batch * n; ++i) gx[i] = g[i] * w[i % n];
  for (int64_t j = 0; gw && j < n; ++j) gw[j] = 0;
  for (int64_t i = 0; gw && i < batch * n; ++i) gw[i % n] += g[i] * x[i];
}
"""


def in_cpp(name: str) -> pb.Operator:
    """A kernel, and one for its gradients, of which one is a sum over `...`."""
    pb.operator(
        f"{name}_grad(grad[..., n], x[..., n], w[n]) -> (grad_x[..., n], grad_w[n])",
        cpu=pb.source(code=SCALE, call="scale_grad(grad_x, grad_w, grad, x, w, n, batch)"),
    )
    return pb.operator(
        f"{name}(x[..., n], w[n]) -> y[..., n]",
        cpu=pb.source(code=SCALE, call="scale(y, x, w, n, batch)"),
        backward=f"{name}_grad",
    )


def in_numpy(name: str) -> pb.Operator:
    """A Python kernel that needs all of `n`, and a derivative that PyTorch sees through."""

    def kernel(x: Tensor) -> Any:
        e = np.exp(x.numpy() - x.numpy().max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def backward(grad: Tensor, y: Tensor) -> Tensor:
        return y * (grad - (grad * y).sum(-1, keepdim=True))

    return pb.operator(f"{name}(x[..., n]) -> y[..., n]", python=kernel, backward=backward)


def in_batches(name: str) -> pb.Operator:
    """Two tensors that broadcast along `...`; its derivatives are PyTorch's operators."""
    return pb.operator(
        f"{name}(a[...], b[...]) -> c[...]",
        python=lambda a, b: a * b,
        backward={"a": "grad * b", "b": "grad * a"},
    )


def of_all(name: str) -> pb.Operator:
    """A mean over all elements, which no process can compute of its part."""
    pb.operator(
        f"{name}_grad(grad[], x[...]) -> grad_x[...]",
        python=lambda grad, x: (2 * grad * x) / x.numel(),
    )
    return pb.operator(
        f"{name}(x[...]) -> s[]",
        python=lambda x: (x**2).mean(),
        backward={"x": f"{name}_grad(grad, x)"},
    )


def adopted(name: str) -> pb.Operator:
    """A Function that keeps on its ctx what is no tensor."""

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            ctx.sizes = x.shape[:-1]
            return x @ w

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
            (grad,) = grads
            x, w = ctx.saved_tensors
            assert grad.shape[:-1] == ctx.sizes
            return grad @ w.T, x.flatten(0, -2).T @ grad.flatten(0, -2)

    return pb.operator(f"{name}(x[..., n], w[n, m]) -> y[..., m]", function=Linear)


MADE = {
    "in_cpp": in_cpp,
    "in_numpy": in_numpy,
    "in_batches": in_batches,
    "of_all": of_all,
    "adopted": adopted,
}
# Sizes that no number of processes divides; of 5 rows the last of four processes has none.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "sqdist": {"x": (7, 3), "y": (5, 3)},
    "gauss": {"x": (7, 3), "y": (5, 3), "v": (5,)},
    "softmax": {"x": (3, 5, 4)},
    "linear": {"x": (7, 5), "w": (6, 5), "b": (6,)},
    "embed": {"table": (9, 3), "index": (7,)},
    "causal": {"q": (3, 2), "k": (23, 2), "v": (23, 3)},
    "relative": {"q": (3, 2), "k": (23, 2), "v": (23, 3), "b": (25,)},
    "entropy": {"x": (4, 2), "w": (31, 2), "index": (4,)},
    "contrastive": {"q": (3, 2), "k": (19, 2)},
    "greatest": {"x": (2, 7)},
    "normal": {"x": (17, 2)},
    "late": {"q": (2, 2), "k": (23, 2), "v": (23, 3)},
    "correlate": {"x": (8, 7), "k": (3, 2)},
    "chamfer": {"x": (7, 3), "y": (5, 3)},
    "scaled": {"x": (7, 5), "bias": ()},
    "product": {"x": (5, 1, 4), "y": (6, 4)},
    "lru": {"a": (5, 3, 4), "x": (5, 3, 4), "h0": (5, 4)},
    "mixed": {"x": (5, 3, 4), "w": (4, 4)},
    "biased": {"x": (5, 6, 3), "b": (3,), "a": (6,)},
    "in_cpp": {"x": (5, 2, 3), "w": (3,)},
    "in_numpy": {"x": (5, 2, 3)},
    "in_batches": {"a": (5, 1, 3), "b": (6, 3)},
    "of_all": {"x": (5, 3)},
    "adopted": {"x": (5, 2, 3), "w": (3, 4)},
}


@functools.cache
def operator(name: str) -> Any:
    qualname = f"sharded::{name}"
    return MADE[name](qualname) if name in MADE else pb.operator(qualname + LINES[name])


def whole(name: str) -> dict[str, Tensor]:
    """Return the inputs, the same in every process."""
    generator = torch.Generator().manual_seed(SEED)
    return {
        key: torch.randint(9, shape, generator=generator)
        if key == "index"
        else torch.randn(shape, generator=generator, dtype=torch.float64)
        for key, shape in SHAPES[name].items()
    }


def called(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    scalars = {"c": 1.5} if name == "scaled" else {}
    return operator(name)(**tensors, **scalars)


@functools.cache
def expected(name: str) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Return the output of a single process, a gradient for it, and the gradients of the inputs."""
    tensors = {k: t.requires_grad_(t.is_floating_point()) for k, t in whole(name).items()}
    output = called(name, tensors)
    grad = torch.randn(
        output.shape, generator=torch.Generator().manual_seed(SEED + 1), dtype=output.dtype
    )
    real = {k: t for k, t in tensors.items() if t.requires_grad}
    grads = torch.autograd.grad(output, list(real.values()), grad)
    return output.detach(), grad, dict(zip(real, grads, strict=True))


def spread(tensor: Tensor, mesh: DeviceMesh, placements: Placed) -> DTensor:
    """Return a tensor as a DTensor; a partial one is in random parts."""
    kept = [Replicate() if isinstance(p, Partial) else p for p in placements]
    found = distribute_tensor(tensor, mesh, kept)
    local = found.to_local()
    for dim, placement in enumerate(placements):
        if isinstance(placement, Partial):
            generator = torch.Generator().manual_seed(SEED + dim)
            parts = torch.rand(mesh.size(dim), generator=generator, dtype=torch.float64)
            local = local * (parts / parts.sum())[mesh.get_local_rank(dim)]
    return DTensor.from_local(local, mesh, placements, shape=tensor.shape, stride=tensor.stride())


def each_placement(tensor: Tensor, partial: bool) -> Iterator[Placement]:
    yield Replicate()
    yield from (Shard(dim) for dim in range(tensor.dim()))
    if partial:
        yield Partial()


def near(found: Tensor, wanted: Tensor, what: str) -> None:
    assert isinstance(found, DTensor), what
    assert found.shape == wanted.shape, what
    torch.testing.assert_close(found.full_tensor(), wanted, msg=lambda text: f"{what}: {text}")


def compare(name: str, mesh: DeviceMesh, given: Mapping[str, Placed], arriving: Placed) -> None:
    """Call an operator and its backward with the inputs and the gradient placed so."""
    output, grad, grads = expected(name)
    tensors = {k: spread(t, mesh, given[k]) for k, t in whole(name).items()}
    leaves = {k: t.requires_grad_() for k, t in tensors.items() if k in grads}
    found = called(name, tensors)
    what = f"{name} {dict(given)} {arriving}"
    near(found.detach(), output, what)
    own_grads = torch.autograd.grad(found, list(leaves.values()), spread(grad, mesh, arriving))
    for k, own in zip(grads, own_grads, strict=True):
        near(own, grads[k], f"gradient of {k}: {what}")


def placements(name: str, mesh: DeviceMesh) -> None:
    """Compare what inputs and gradients can be: each placement of each, and many together."""
    tensors, grad = whole(name), expected(name)[1]
    each = [
        list(itertools.product(each_placement(t, partial=t.is_floating_point()), repeat=mesh.ndim))
        for t in (*tensors.values(), grad)
    ]
    *inputs, arriving = each
    cases = list(itertools.product(*inputs))
    # In steps that share no factor with their number: in few cases all placements come up.
    steps = range(len(cases) // MOST + 1, len(cases) + 2)
    step = next(k for k in steps if math.gcd(k, len(cases)) == 1)
    for k in range(min(MOST, len(cases))):
        given = dict(zip(tensors, cases[k * step % len(cases)], strict=True))
        compare(name, mesh, given, arriving[k % len(arriving)])


def moved(name: str, mesh: DeviceMesh, given: Mapping[str, Placed]) -> tuple[int, Placed]:
    """Return how many collectives a call makes, and how its output is placed."""
    tensors = {k: spread(t, mesh, given[k]) for k, t in whole(name).items()}
    with CommDebugMode() as counted:
        output = called(name, tensors)
    assert isinstance(output, DTensor)
    return counted.get_total_counts(), output.placements


def accepted_splits_move_nothing(mesh: DeviceMesh) -> None:
    r, s0, s1, part = (Replicate(),), (Shard(0),), (Shard(1),), (Partial(),)
    for name, given, placed in (
        ("sqdist", {"x": s0, "y": r}, s0),
        ("sqdist", {"x": r, "y": s0}, s1),
        ("sqdist", {"x": s1, "y": s1}, part),
        ("gauss", {"x": s0, "y": r, "v": r}, s0),
        ("gauss", {"x": r, "y": s0, "v": s0}, part),
        ("gauss", {"x": r, "y": r, "v": part}, part),
        ("softmax", {"x": s0}, s0),
        ("softmax", {"x": s1}, s1),
        ("embed", {"table": s0, "index": r}, part),
        ("linear", {"x": s1, "w": s1, "b": r}, part),
        ("linear", {"x": r, "w": s0, "b": s0}, s1),
        ("linear", {"x": r, "w": r, "b": r}, r),
        ("embed", {"table": s1, "index": r}, s1),
        ("embed", {"table": r, "index": s0}, s0),
        ("product", {"x": s0, "y": r}, s0),
        ("lru", {"a": s0, "x": s0, "h0": s0}, s0),
        ("lru", {"a": (Shard(2),), "x": (Shard(2),), "h0": s1}, (Shard(2),)),
        ("mixed", {"x": s0, "w": r}, s0),
        ("biased", {"x": s0, "b": r, "a": r}, s0),
        ("biased", {"x": (Shard(2),), "b": s0, "a": r}, (Shard(2),)),
        ("in_cpp", {"x": s0, "w": r}, s0),
        ("in_cpp", {"x": s1, "w": r}, s1),
        ("in_numpy", {"x": s1}, s1),
        ("in_batches", {"a": s0, "b": r}, s0),
        ("in_batches", {"a": r, "b": s0}, s1),
        ("adopted", {"x": s1, "w": r}, s1),
    ):
        assert moved(name, mesh, given) == (0, placed), f"{name} {given}"


def steps_are_not_split(mesh: DeviceMesh) -> None:
    t = (Shard(1),)
    count, placed = moved("lru", mesh, {"a": t, "x": t, "h0": (Replicate(),)})
    assert count, "each step needs the one before it"
    assert placed != t
    count, placed = moved("mixed", mesh, {"x": (Shard(2),), "w": (Shard(1),)})
    assert count, "each step mixes all of 'd'"


def a_maximum_is_taken_in_parts_where_all_have_elements(mesh: DeviceMesh) -> None:
    given = {"x": (Replicate(),), "y": (Shard(0),)}
    few = mesh.size() == 4  # of five rows the last of four processes has none
    assert moved("chamfer", mesh, given) == (1 if few else 2, (Replicate(),))


def no_process_loses_a_nan(mesh: DeviceMesh) -> None:
    rows = 8
    for row in range(rows):
        y = torch.ones(rows, 3, dtype=torch.float64)
        y[row] = torch.nan
        x = torch.zeros(2, 3, dtype=torch.float64)
        z = operator("chamfer")(spread(x, mesh, (Replicate(),)), spread(y, mesh, (Shard(0),)))
        assert z.full_tensor().isnan().all(), f"row {row}"


def statistics_are_merged(
    mesh: DeviceMesh, dtype: torch.dtype = torch.float64, near_enough: float = 1e-10
) -> None:
    """What is long stays where it is: processes add numbers of rows up, and nothing is gathered."""
    r, s0 = (Replicate(),), (Shard(0),)
    for name, given, gradients in (
        ("causal", {"q": r, "k": s0, "v": s0}, ((Partial(),), s0, s0)),
        ("relative", {"q": r, "k": s0, "v": s0, "b": r}, ((Partial(),), s0, s0, (Partial(),))),
        ("entropy", {"x": r, "w": s0, "index": r}, (r, s0)),
        ("contrastive", {"q": r, "k": s0}, ((Partial(),), s0)),
        ("softmax", {"x": (Shard(2),)}, ((Shard(2),),)),
        ("greatest", {"x": (Shard(1),)}, ((Shard(1),),)),
    ):
        tensors = {
            k: spread(t.to(dtype) if t.is_floating_point() else t, mesh, given[k])
            for k, t in whole(name).items()
        }
        leaves = [t.requires_grad_() for t in tensors.values() if t.is_floating_point()]
        with CommDebugMode() as counted:
            output = called(name, tensors)
            assert isinstance(output, DTensor)
            found = output.new_empty(0)
            if gradients:
                found = torch.autograd.grad(output, leaves, torch.ones_like(output))
        names = {str(operation).rpartition(".")[2] for operation in counted.get_comm_counts()}
        assert names == {"all_reduce"}, f"{name}: {names}"
        if gradients:
            assert tuple(map(placements_of, found)) == gradients, name
        one = {k: t.to(dtype) if t.is_floating_point() else t for k, t in whole(name).items()}
        expected_here = called(name, one)
        error = (output.full_tensor() - expected_here).abs().max()
        assert error <= near_enough, f"{name} {dtype} {error}"
        gathered = [torch.empty_like(output.full_tensor()) for _ in range(mesh.size())]
        distributed.all_gather(gathered, output.full_tensor().detach().contiguous())
        assert all(own.equal(gathered[0]) for own in gathered), "each process has the same"


def so_they_are_in_single_precision(mesh: DeviceMesh) -> None:
    statistics_are_merged(mesh, torch.float32, 1e-4)


def placements_of(tensor: Tensor) -> Placed:
    assert isinstance(tensor, DTensor)
    return tensor.placements


def rows_without_a_column_are_as_in_one_process(mesh: DeviceMesh) -> None:
    """A process that sees nothing of a row adds nothing to it; where none does it is NaN."""
    tensors = whole("causal")
    for change in ("nothing", "infinite", "nan"):
        k = tensors["k"].clone()
        if change != "nothing":
            k[20] = torch.inf if change == "infinite" else torch.nan
        wanted = late(tensors["q"], k, tensors["v"])
        given = [
            spread(t, mesh, (p,))
            for t, p in zip(
                (tensors["q"], k, tensors["v"]), (Replicate(), Shard(0), Shard(0)), strict=True
            )
        ]
        found = late(*given)
        assert isinstance(found, DTensor)
        torch.testing.assert_close(found.full_tensor(), wanted, equal_nan=True)
        assert change == "infinite" or wanted[-1].isnan().all()


def late(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """An attention of each row to the last columns, of the last row to none."""
    return operator("late")(q, k, v)


def a_place_outside_is_told(mesh: DeviceMesh) -> None:
    tensors = whole("entropy") | {"index": torch.tensor([0, 31, 5, 6])}
    given = {
        k: spread(t, mesh, (Shard(0) if k == "w" else Replicate(),)) for k, t in tensors.items()
    }
    with pytest.raises(pb.PullbackError) as caught:
        called("entropy", given)
    assert caught.value.finding.code == "PB149"


def an_absent_tensor_is_no_argument(mesh: DeviceMesh) -> None:
    x, w = (whole("linear")[k] for k in "xw")
    for placement in (Replicate(), Shard(0), Shard(1), Partial()):
        given = spread(x, mesh, (placement,)), spread(w, mesh, (Shard(1),))
        near(operator("linear")(*given), x @ w.T, str(placement))
    given = spread(x, mesh, (Partial(),)), spread(w, mesh, (Replicate(),))
    assert operator("linear")(*given).placements == (Partial(),)


def gradients_are_asked_for_one_by_one(mesh: DeviceMesh) -> None:
    grad, grads = expected("gauss")[1:]
    for wanted in ("x", "y", "xv", "xyv", "v"):
        tensors = {k: spread(t, mesh, (Shard(0),)) for k, t in whole("gauss").items()}
        leaves = [tensors[k].requires_grad_() for k in wanted]
        output = called("gauss", tensors)
        found = torch.autograd.grad(output, leaves, spread(grad, mesh, (Shard(0),)))
        for k, own in zip(wanted, found, strict=True):
            near(own, grads[k], f"{k} of {wanted}")


def second_derivatives(mesh: DeviceMesh) -> None:
    def second(tensors: Mapping[str, Tensor]) -> Sequence[Tensor]:
        leaves = [t.requires_grad_() for t in tensors.values()]
        first = torch.autograd.grad(called("gauss", tensors).sum(), leaves, create_graph=True)
        total = functools.reduce(torch.add, [(own**2).sum() for own in first])
        return torch.autograd.grad(total, leaves)

    wanted = second(whole("gauss"))
    for placement in (Replicate(), Shard(0)):
        spread_out = {k: spread(t, mesh, (placement,)) for k, t in whole("gauss").items()}
        for own, other in zip(second(spread_out), wanted, strict=True):
            near(own, other, str(placement))


def plain_tensors_are_refused(mesh: DeviceMesh) -> None:
    tensors = whole("sqdist")
    with pytest.raises(pb.PullbackError) as caught:
        operator("sqdist")(spread(tensors["x"], mesh, (Shard(0),)), tensors["y"])
    assert caught.value.finding.code == "PB357"
    scaled = whole("scaled")
    found = operator("scaled")(spread(scaled["x"], mesh, (Shard(1),)), 1.5, scaled["bias"])
    near(found, expected("scaled")[0], "a plain number is the same in every process")


def wrong_sizes_are_told_of_the_whole(mesh: DeviceMesh) -> None:
    x, y = (spread(torch.ones(8, size), mesh, (Shard(0),)) for size in (3, 4))
    with pytest.raises(pb.PullbackError, match="dimension 'd' is 3 in"):
        operator("sqdist")(x, y)


def what_no_rule_can_be_for_is_refused(mesh: DeviceMesh) -> None:
    class Total(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *xs: Tensor) -> Tensor:
            return torch.stack(xs).sum(0)

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

    class Positive(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x[x > 0]

    x = spread(torch.ones(8), mesh, (Shard(0),))
    for name, line, function, given, reason in (
        ("total", "(xs[n]*) -> y[n]", Total, [x, x], "is a list"),
        ("doubled", "(x[...]) -> x[...]", Doubled, x, "changed in place"),
        ("positive", "(x[...]) -> y[*]", Positive, x, "any shape"),
    ):
        with pytest.raises(pb.PullbackError, match=reason) as caught:
            pb.operator(f"sharded::{name}{line}", function=function)(given)
        assert caught.value.finding.code == "PB358"


def two_meshes_are_refused(mesh: DeviceMesh) -> None:
    other = init_device_mesh("cpu", (mesh.size(), 1))
    x = distribute_tensor(torch.ones(8, 3), mesh, [Shard(0)])
    y = distribute_tensor(torch.ones(8, 3), other, [Shard(0), Replicate()])
    with pytest.raises(pb.PullbackError, match="on two meshes"):
        operator("sqdist")(x, y)


def processes_outside_of_the_mesh_compute_nothing(mesh: DeviceMesh) -> None:
    part = DeviceMesh("cpu", [0])
    tensors = {k: distribute_tensor(t, part, [Shard(0)]) for k, t in whole("gauss").items()}
    leaves = [t.requires_grad_() for t in tensors.values()]
    output = called("gauss", tensors)
    grads = torch.autograd.grad(output, leaves, torch.ones_like(output))
    assert output.shape == expected("gauss")[0].shape
    assert [own.shape for own in grads] == [leaf.shape for leaf in leaves]
    if mesh.get_rank() == 0:
        near(output.detach(), expected("gauss")[0], "the first process has all of it")


def compiled(mesh: DeviceMesh) -> None:
    call = torch.compile(operator("gauss"), backend="aot_eager", fullgraph=True)
    tensors = {k: spread(t, mesh, (Shard(0),)) for k, t in whole("gauss").items()}
    near(call(*tensors.values()), expected("gauss")[0], "compiled")


NEAR_ENOUGH = {torch.float64: 1e-10, torch.bfloat16: 5e-2}


def a_graph_merges_statistics(
    mesh: DeviceMesh,
    names: Sequence[str] = ("entropy",),
    dtypes: Sequence[torch.dtype] = (torch.float64,),
) -> None:
    """What a call in `torch.compile` decides, it decides without values; one graph, any sizes."""
    r, s0 = (Replicate(),), (Shard(0),)
    given = {
        "causal": {"q": r, "k": s0, "v": s0},
        "entropy": {"x": r, "w": s0, "index": r},
        "normal": {"x": s0},
    }
    for name in names:
        for dtype in dtypes:
            torch.compiler.reset()
            call = torch.compile(operator(name), backend="aot_eager", fullgraph=True, dynamic=True)
            for more in (0, 1, 10):
                tensors = {
                    k: t if given[name][k] is r else torch.cat([t, t[:more]]).contiguous()
                    for k, t in whole(name).items()
                }
                tensors = {
                    k: t.to(dtype) if t.is_floating_point() else t for k, t in tensors.items()
                }
                found = with_gradients(
                    call, {k: spread(t, mesh, given[name][k]) for k, t in tensors.items()}
                )
                exact = {k: t.double() if t.is_floating_point() else t for k, t in tensors.items()}
                for own, wanted in zip(found, with_gradients(operator(name), exact), strict=True):
                    assert isinstance(own, DTensor)
                    assert own.shape == wanted.shape, f"{name} {more}"
                    error = (own.full_tensor() - wanted).abs().max()
                    assert error <= NEAR_ENOUGH[dtype], f"{name} {dtype} {more} {error}"


def with_gradients(call: Callable[..., Tensor], tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the output of a call, and the gradients of what is real."""
    leaves = [t.requires_grad_() for t in tensors.values() if t.is_floating_point()]
    output = call(*tensors.values())
    return [output.detach(), *torch.autograd.grad(output, leaves, torch.ones_like(output))]


def compiled_statistics_are_merged(mesh: DeviceMesh) -> None:
    a_graph_merges_statistics(mesh, ("causal", "normal"), tuple(NEAR_ENOUGH))


def so_it_does_in_half_precision(mesh: DeviceMesh) -> None:
    a_graph_merges_statistics(mesh, dtypes=(torch.bfloat16,))


def a_graph_tells_a_place_outside(mesh: DeviceMesh) -> None:
    tensors = whole("entropy") | {"index": torch.tensor([0, 31, 5, 6])}
    given = [spread(t, mesh, (Shard(0) if k == "w" else Replicate(),)) for k, t in tensors.items()]
    torch.compiler.reset()
    call = torch.compile(operator("entropy"), backend="aot_eager", fullgraph=True)
    with pytest.raises(RuntimeError, match=r"PB149.*'w' is read outside of its dimension 'm'"):
        call(*given)


SINGLE: tuple[Callable[[DeviceMesh], None], ...] = (
    accepted_splits_move_nothing,
    steps_are_not_split,
    a_maximum_is_taken_in_parts_where_all_have_elements,
    no_process_loses_a_nan,
    statistics_are_merged,
    rows_without_a_column_are_as_in_one_process,
    a_place_outside_is_told,
    an_absent_tensor_is_no_argument,
    gradients_are_asked_for_one_by_one,
    plain_tensors_are_refused,
    wrong_sizes_are_told_of_the_whole,
    what_no_rule_can_be_for_is_refused,
    two_meshes_are_refused,
    processes_outside_of_the_mesh_compute_nothing,
)
MESHES = {2: {"line": (2,)}, 3: {"line": (3,)}, 4: {"line": (4,), "square": (2, 2)}}
COMPILED = 2  # processes: a compiler takes its time
# The first one is telling.
GRAPHS = (
    a_graph_merges_statistics,
    a_graph_tells_a_place_outside,
    compiled_statistics_are_merged,
    so_it_does_in_half_precision,
    compiled,
)
# A sum over what is split, a dimension that cannot be, places that data gives, steps; kernels, a
# Function.
TELLING = ("gauss", "softmax", "embed", "lru", "in_cpp", "of_all", "adopted")


def checks(processes: int, *, few: bool) -> dict[str, Callable[[], None]]:
    """Return what so many processes do together, by name: all of it, or a telling part."""
    found: dict[str, Callable[[], None]] = {}
    for shape_name, shape in MESHES[processes].items():
        mesh = functools.cache(functools.partial(init_device_mesh, "cpu", shape))
        for name in TELLING if few else LINES:
            found[f"{name} on a {shape_name} of {processes}"] = lambda name=name, mesh=mesh: (
                placements(name, mesh())
            )
        if len(shape) == 1:
            graphs = GRAPHS if processes == COMPILED else ()
            dear = (so_they_are_in_single_precision, second_derivatives, *graphs[1:])
            for check in (*SINGLE, *graphs[:1], *(() if few else dear)):
                found[f"{check.__name__} of {processes}"] = lambda check=check, mesh=mesh: check(
                    mesh()
                )
    return found


def work(rank: int, processes: int, few: bool, folder: str) -> None:
    """Run all checks in one process and write down what failed."""
    store = torch.distributed.FileStore(f"{folder}/store", processes)  # pyright: ignore[reportPrivateImportUsage]
    distributed.init_process_group("gloo", rank=rank, world_size=processes, store=store)
    found: Outcomes = {}
    for name, check in checks(processes, few=few).items():
        try:
            check()
            found[name] = None
        except Exception:
            # The others wait for what this process does not do any more: they end as it does.
            found[name] = traceback.format_exc()
            break
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    os._exit(0)


@functools.cache
def outcomes(processes: int, *, few: bool) -> Outcomes:
    """Run the processes once; return what failed in any of them."""
    with tempfile.TemporaryDirectory() as folder:
        started: Any = multiprocessing.start_processes(  # pyright: ignore[reportPrivateImportUsage]
            work, (processes, few, folder), nprocs=processes, join=False, start_method="fork"
        )
        end = time.monotonic() + LIMIT
        try:
            while not started.join(timeout=1):
                assert time.monotonic() < end, "the processes wait for each other"
        finally:
            for process in started.processes:
                process.kill()
        every: list[Outcomes] = [
            json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(processes)
        ]
    names = checks(processes, few=few)
    known = {name: [own.get(name, "not reached") for own in every] for name in names}
    # What one process found says more than that another one lost it.
    return {name: max(filter(None, own), key=told, default=None) for name, own in known.items()}


def told(failure: str) -> bool:
    return "gloo" not in failure and failure != "not reached"
