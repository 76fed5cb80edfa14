"""Forward mode: a target's tangents compared with differences and with its backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pullback.verify.call import Call, tensors_in
from pullback.verify.composition.refusal import is_refusal
from pullback.verify.numbers.judged import draw_weights, eps_of, find_disagreement
from pullback.verify.numbers.numeric import differentiate_curve, dot, draw_direction, flatten
from pullback.verify.numbers.second import move_along
from pullback.verify.probe import NotApplicable
from pullback.verify.remembered import remembered

Tangents = tuple[Tensor | None, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Forward:
    """One direction, and its result in forward mode.

    Attributes:
        call: in float64 where the target computes in it.
        way: the direction, one for each wanted leaf.
        tangents: of the outputs; None is zero.
        error: what forward mode raised.
    """

    call: Call
    way: Tangents
    tangents: Tangents = ()
    error: Exception | None = None


@remembered
def forward_mode(call: Call) -> Forward:
    """Push one direction of all inputs through; made once for each call.

    Raises:
        NotApplicable: the target says that it has no forward mode.
    """
    if call.target.kind in ("module", "callable"):
        raise NotApplicable("its forward mode is PyTorch's; the Functions in it are checked")
    if call.target.kind == "function" and "jvp" not in call.target.parts:
        raise NotApplicable("it has no jvp")
    if call.target.kind == "library":
        raise NotApplicable("torch.library takes no jvp")
    if not call.wanted:
        raise NotApplicable("no input has a gradient")
    work = call.double or call
    way = tuple(
        draw_direction(leaf.value, work.seed + 41 * i).to(leaf.value.dtype) if leaf.wanted else None
        for i, leaf in enumerate(work.leaves)
    )
    try:
        return Forward(call=work, way=way, tangents=compute_tangents(work, way))
    except Exception as error:
        if is_refusal(error):
            raise NotApplicable("it says that it has no forward mode") from error
        return Forward(call=work, way=way, error=error)


def compute_tangents(call: Call, way: Tangents) -> Tangents:
    """Return the tangents of the outputs for tangents of the leaves; None where there is none."""
    with torch.no_grad(), forward_ad.dual_level():
        copies = [leaf.value.detach().clone() for leaf in call.leaves]
        given = [
            copy if d is None else forward_ad.make_dual(copy, d.clone())
            for copy, d in zip(copies, way, strict=True)
        ]
        outputs = tensors_in(call.on(given))
        found = [forward_ad.unpack_dual(output).tangent for output in outputs]
    return tuple(None if t is None else t.detach().clone() for t in found)


@dataclass(frozen=True, kw_only=True)
class Apart:
    """An output whose tangent is wrong.

    Attributes:
        output: its number.
        tangent: a weighted sum of it.
        wanted: the same sum of the right one.
    """

    output: int
    tangent: float
    wanted: float


def compare_with_differences(found: Forward) -> list[Apart]:
    """Return the outputs whose tangents disagree with differences.

    Raises:
        NotApplicable: forward is not smooth here.
    """
    call = found.call
    values = [leaf.value for leaf in call.leaves]
    sizes = [flatten([output]).numel() for output in call.values(values)]

    def curve(t: float) -> Tensor:
        return flatten(call.values(move_along(values, found.way, t)))

    whole = differentiate_curve(curve, eps=eps_of(call))
    parts = zip(*(p.split(sizes) for p in (whole.value, whole.error)), strict=True)
    apart: list[Apart] = []
    judged = False
    with_gradient = call.forward().differentiable
    for index, (value, error) in enumerate(parts):
        if found.tangents[index] is None and index not in with_gradient:
            continue  # it is declared to have no derivative
        own = type(whole)(
            value=value,
            error=error,
            kink=whole.kink.split(sizes)[index],
            finite=whole.finite.split(sizes)[index],
        )
        weights = draw_weights(own, index)
        if weights is None:
            continue
        judged = True
        if numbers := find_disagreement(call, found.tangents[index], own, weights):
            apart.append(Apart(output=index, tangent=numbers[0], wanted=numbers[1]))
    if not judged:
        raise NotApplicable("differences say nothing: forward is not smooth here")
    return apart


def by_backward(found: Forward) -> tuple[float, float, float]:
    """Return <u, J v> and <Jᵀ u, v>, and by how much rounding may make them differ."""
    call = found.call
    run = call.forward()
    grads = run.random_grads()
    gradients = run.backward(grads)
    pairs = [
        *((g, t) for g, t in zip(grads, found.tangents, strict=True) if g is not None),
        *((g, d) for g, d in zip(gradients, found.way, strict=True) if d is not None),
    ]
    size = sum(
        float((flatten([a]) * flatten([b])).abs().sum())
        for a, b in pairs
        if a is not None and b is not None
    )
    forward = sum(dot(g, t) for g, t in zip(grads, found.tangents, strict=True) if g is not None)
    backward = sum(dot(g, d) for g, d in zip(gradients, found.way, strict=True) if d is not None)
    return forward, backward, math.sqrt(eps_of(call)) * size


def only_tangent(way: Tangents, leaf: int) -> Tangents:
    """Return a direction with one leaf's tangent alone."""
    return tuple(d if i == leaf else None for i, d in enumerate(way))


def add_tangents(parts: Sequence[Tangents]) -> Tangents:
    """Return the sum of tangents."""
    found: list[Tensor | None] = list(parts[0])
    for part in parts[1:]:
        for i, t in enumerate(part):
            own = found[i]
            found[i] = t if own is None else own if t is None else own + t
    return tuple(found)
