"""Backward compared with differences of forward: each wanted input and output, random directions.

Random directions miss a wrong Jacobian with probability 0. There is no fixed tolerance: it follows
from the noise of forward itself; and a mismatch is examined again before it is called wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from pullback.verify.call import Call
from pullback.verify.numbers.directional import (
    DirectionalComparison,
    Mismatch,
    Unjudged,
    backward_of,
    compare_once,
    judge,
    parts_of,
    slope_along,
    spacing_of,
)
from pullback.verify.numbers.iterated import is_right_over_steps
from pullback.verify.numbers.numeric import DOUBLE, draw_direction, flatten
from pullback.verify.randomness import make_generator
from pullback.verify.tracing.operations import names_in_forward

__all__ = [
    "DirectionalComparison",
    "Mismatch",
    "Unjudged",
    "backward_of",
    "compare",
    "compare_gradients",
    "parts_of",
    "slope_along",
    "spacing_of",
]

# Mismatches below this part of the derivative's size may be rounding in backward.
SMALL = 1e-4
# Operations that take a triangle: the elements that they leave out get no gradient.
TAKEN = frozenset({"tril", "triu"})


def compare(call: Call, *, seed: int = 0) -> list[Mismatch]:
    """Return where backward and differences of forward disagree.

    In float64 if the target takes it, otherwise in its own precision. It takes a few dozen forward
    calls for each wanted input and a backward for each output, but no Jacobian.

    Args:
        call: its ordinary forward and backward do not raise.
        seed: of the directions.
    """
    return compare_gradients(call, seed=seed).mismatches


@lru_cache(maxsize=16)
def compare_gradients(call: Call, *, seed: int = 0) -> DirectionalComparison:
    """Compare backward with differences of forward; a mismatch has to show for two directions."""
    digits = digits_of(call)
    call = call.double or call
    found = compare_once(call, call.wanted, seed=seed)
    if not found.mismatches:
        return found
    leaves = sorted({m.leaf for m in found.mismatches})
    again = {(m.leaf, m.output) for m in compare_once(call, leaves, seed=seed + 1000).mismatches}
    sure: list[Mismatch] = []
    unjudged = list(found.unjudged)
    for own in found.mismatches:
        reason = None
        if own.relative < digits:
            reason = "it is right to the digits of the inputs' own dtype"
        elif (own.leaf, own.output) not in again:
            reason = "it differs for one direction only"
        elif own.relative < SMALL and is_ill_conditioned(call, own, seed=seed):
            reason = "backward loses as many digits to rounding as it is off by"
        elif is_right_if_symmetric(call, own, seed=seed):
            reason = "the input stands for a symmetric matrix, and backward is right for those"
        elif is_right_over_steps(call, own, seed=seed):
            reason = "forward iterates to a tolerance, beyond which backward is right"
        if reason is None:
            sure.append(own)
        else:
            unjudged.append(Unjudged(leaf=own.leaf, output=own.output, reason=reason))
    return DirectionalComparison(mismatches=sure, unjudged=unjudged, agreed=found.agreed)


def digits_of(call: Call) -> float:
    """Return what a mismatch, relative to the derivative, has to exceed to count in float64.

    A kernel for bfloat16 that adds up in float32 is right; only float64 inputs require more: ten
    digits, since backward may take logarithms or divide where forward does not.
    """
    own = [torch.finfo(leaf.value.dtype).eps for leaf in call.leaves if leaf.wanted]
    eps = max(own, default=0.0)
    return 1e-10 if eps <= DOUBLE else max(4 * eps, 16 * torch.finfo(torch.float32).eps)


def is_ill_conditioned(call: Call, own: Mismatch, *, seed: int) -> bool:
    """Tell whether changes of the inputs in their last bits change the gradient by a mismatch.

    Backward of a decomposition divides by small differences; a kernel that computes in lower
    precision does not notice such changes.
    """
    run = call.forward()
    grads = run.random_grads()
    plain = flatten(run.backward(grads))
    generator = make_generator(seed + 5)
    eps = spacing_of(call, run)
    largest = 0.0
    for _ in range(3):
        values = [
            leaf.value * (1 + 2 * eps * torch.randn((), dtype=torch.float64, generator=generator))
            if leaf.wanted
            else leaf.value
            for leaf in call.leaves
        ]
        moved = call.with_values(
            [v.to(leaf.value) for v, leaf in zip(values, call.leaves, strict=True)]
        )
        change = flatten(moved.forward().backward(grads)) - plain
        largest = max(largest, float(change.norm() / plain.norm()))
    return largest > own.relative / 30


def is_square(value: Tensor) -> bool:
    """Tell whether a tensor is of square matrices of more than one element."""
    return value.dim() >= 2 and value.shape[-1] == value.shape[-2] > 1


def is_symmetric(value: Tensor) -> bool:
    """Tell whether a tensor consists of symmetric matrices, neither diagonal nor constant."""
    if not is_square(value) or not torch.allclose(value, value.mH, rtol=1e-6, atol=0):
        return False
    diagonal = value.diagonal(dim1=-2, dim2=-1).diag_embed()
    return not torch.equal(value, diagonal) and not bool((value == value.reshape(-1)[0]).all())


def structure_of(value: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return what makes a matrix of such a kind as a tensor is: symmetric, or one triangle.

    Backward may rely on it. None where it is neither, or as well a diagonal.
    """
    if is_symmetric(value):
        return lambda other: (other + other.mH) / 2
    if not is_square(value):
        return None
    lower, upper = torch.equal(value, value.tril()), torch.equal(value, value.triu())
    if lower == upper:
        return None
    return torch.tril if lower else torch.triu


def is_right_if_symmetric(call: Call, own: Mismatch, *, seed: int) -> bool:
    """Tell whether an input stands for a symmetric matrix, and the gradient is right for those.

    Decompositions read one triangle of it and return the gradient of the whole.
    """
    if not is_symmetric(call.leaves[own.leaf].value):
        whole = mirror(call, own.leaf)
        if whole is None:
            return False
        call = whole
    value = call.leaves[own.leaf].value
    run = call.forward()
    v = draw_direction(value, seed + 3)
    v = {own.leaf: (v + v.mH) / 2}
    part = parts_of(slope_along(call, run, v, [own.output]), run, [own.output])[0]
    return judge(run, own.output, v, part, seed=seed, eps=spacing_of(call, run)) is None


def mirror(call: Call, leaf: int) -> Call | None:
    """Return the call with the symmetric matrix of which forward reads one triangle.

    None where forward reads both, neither, or takes the triangle by an operation of its own, which
    backward has to undo.
    """
    value = call.leaves[leaf].value
    if not is_square(value) or TAKEN & names_in_forward(call):
        return None
    values = [each.value for each in call.leaves]
    read: list[Call] = []
    for triangle in (value.tril(), value.triu()):
        values[leaf] = (
            triangle + triangle.mH - torch.diag_embed(triangle.diagonal(dim1=-2, dim2=-1)).conj()
        )
        one = call.with_values(list(values))
        if torch.equal(flatten(one.forward().outputs), flatten(call.forward().outputs)):
            read.append(one)
    return read[0] if len(read) == 1 else None
