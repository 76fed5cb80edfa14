"""A dimension that is read in blocks of another becomes two, where PyTorch's operations compute."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from pullback.bind.math import derive, passing
from pullback.bind.math.call import call_of
from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.define.math.formula import Formula
from pullback.define.math.unflatten import Blocks, find_blocks, unflatten, unflatten_sizes
from tests.define.dense import Dense

HEADS = (
    "(q[h, n, d], k[g, m, d], v[g, m, e]) -> y[h, n, e] = s[h, n, m] = sum[d](q*k[h//3, m, d]);"
    " p[h, n, m] = exp(s[h, n, m] - max[r](s[h, n, r]));"
    " y[h, n, e] = sum[m](p[h, n, m]*v[h//3, m, e])/sum[m](p[h, n, m])"
)
BLOCKS = Blocks("n", "b", 3)
TAKEN = {
    HEADS: Blocks("h", "g", 3),
    "(x[n], s[b]) -> y[n] = x*s[n//3]": BLOCKS,
    "(x[n], s[b]) -> y[] = sum[n](x[n]*s[n//3])": BLOCKS,
    "(x[n], s[b]) -> y[n] = x*s[n//3]*(n % 3) + size(n)": BLOCKS,
    "(x[n], s[b]) -> y[n] = x*s[n//3]/(n + 1)": BLOCKS,
    "(x[n, m], s[b, a]) -> y[n, m] = x*s[n//3, m//2]": BLOCKS,
    "(x[n], s[b]) -> y[b] = s*sum[p < 3](pad(x[3*b + p]))": BLOCKS,
    "(x[n], s[b], i[m]: int64) -> y[n, m] = x*s[n//3]*s[i[m]]": BLOCKS,
}
# The gradients of these are not read in blocks: where a maximum is, or one element of each.
IN_PLACES = {
    "(x[n], s[b]) -> y[n] = x*s[n//3] + max[k < size(n)](x[k]*s[k//3])": BLOCKS,
    "(x[n], s[b]) -> y[b] = s + pad(x[3*b + 2])": BLOCKS,
    "(x[n], s[b]) -> y[b] = s + pad(x[3*b + 5])": BLOCKS,
}
# Here something needs the dimension as it is.
WHOLE = [
    "(x[n], s[b]) -> y[n] = s[n//3] + pad(x[n + 1])",
    "(x[n], s[b]) -> y[b] = s + sum[p < 4](pad(x[3*b + p]))",
    "(x[n], s[b], i[m]: int64) -> y[n, m] = x*s[n//3]*x[i[m]]",
    "(x[n], s[b]) -> y[n] = x*s[n//3]*argmax[k < size(n)](x[k]*s[k//3])",
    "(x[n, b], s[b]) -> y[n, b] = x*s[n//3]",
    "(x[n, n], s[b]) -> y[n] = x[n, n]*s[n//3]",
    "(x[n], s[2]) -> y[n] = x*s[n//3]",
    "(x[n, m], s[2, 2]) -> y[n, m] = x*s[n % 2, m % 2]",
]
SIZES = {"g": 2, "h": 6, "b": 2, "n": 6, "m": 4, "a": 2, "d": 3, "e": 2}


def formula(text: str) -> Formula:
    return notation.parse(parse.parse(f"test::blocks{text}"))


def values(own: Formula, tensors: dict[str, Tensor], sizes: dict[str, int]) -> list[Tensor]:
    dense = Dense(tensors, sizes, own.ranges)
    pairs = zip(own.nodes, own.line.outputs, strict=True)
    return [dense(node, output.labels) for node, output in pairs]


@pytest.mark.parametrize("text", [*TAKEN, *IN_PLACES])
def test_a_dimension_in_blocks_has_the_same_values(text: str, seed: int) -> None:
    """Those of the line and of its gradients, by an evaluator that knows nothing of blocks."""
    own, blocks = formula(text), {**TAKEN, **IN_PLACES}[text]
    backward = derived.backward(own)
    assert backward
    for each in (own, backward.formula) if text in TAKEN else (own,):
        found = unflatten(each, blocks)
        assert blocks in find_blocks(each)
        assert found
        given = {
            t.name: torch.arange(4) % 2
            if t.dtype
            else torch.randn([SIZES[str(dim)] for dim in t.dims], dtype=torch.float64)
            for t in each.line.tensors
        }
        shapes = {
            t.name: [SIZES.get(str(d)) or int(str(d)) for d in t.dims]
            for t in found.formula.line.tensors
        }
        split = {name: value.reshape(shapes[name]) for name, value in given.items()}
        pairs = zip(
            values(each, given, SIZES),
            values(found.formula, split, unflatten_sizes(found, SIZES)),
            strict=True,
        )
        for want, got in pairs:
            torch.testing.assert_close(got.reshape(want.shape), want)


@pytest.mark.parametrize("text", WHOLE)
def test_what_is_read_otherwise_stays_one_dimension(text: str) -> None:
    own = formula(text)
    assert not [blocks for blocks in find_blocks(own) if unflatten(own, blocks)]


@pytest.mark.ci
@pytest.mark.parametrize("heads", [pytest.param(6, marks=pytest.mark.thorough), 4])
def test_heads_that_share_keys_have_the_gradients_of_pytorch(heads: int, seed: int) -> None:
    """With 4 heads for 2 keys the line's own groups of 3 are not even: the last has one head."""
    op = pb.operator(f"test::shared_by_{heads}{HEADS}")
    shapes = [(heads, 640, 8), (2, 640, 8), (2, 640, 8)]
    given = [torch.randn(shape, requires_grad=True) for shape in shapes]
    value, grad = op(*given), torch.randn(heads, 640, 8)
    found = torch.autograd.grad(value, given, grad)
    exact = [leaf.detach().double().requires_grad_() for leaf in given]
    q, k, v = exact
    shared = torch.arange(heads) // 3
    want = functional.scaled_dot_product_attention(q, k[shared], v[shared], scale=1.0)
    theirs = torch.autograd.grad(want, exact, grad.double())
    for got, wanted in zip((value, *found), (want, *theirs), strict=True):
        scale = float(wanted.detach().abs().max())
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("heads", [6, 4])
def test_heads_that_share_keys_go_by_blocks(heads: int) -> None:
    """Forward and in their gradient, so that no matrix is held: whatever the clock prefers."""
    op = pb.operator(f"test::blocks_of_{heads}{HEADS}")
    definition = op.kind.definition
    assert definition.formula
    backward = derived.backward(definition.formula)
    assert backward
    sizes = {"h": heads, "g": 2, "n": 640, "m": 640, "d": 8, "e": 8}
    for own in (definition, derive.operator_of(backward.formula, type(op.kind)).definition):
        given = [torch.randn([sizes[str(d)] for d in t.dims]) for t in own.line.tensors]
        call = call_of(own, given)
        assert (call.unflattened is not call) == (heads == 6)
        assert passing.find_passing(call.unflattened) or heads == 4
