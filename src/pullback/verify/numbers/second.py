"""Second derivatives: the derivative of backward compared with how backward really changes.

Backward is a function of the inputs and of the gradients that arrive. Along one direction of all of
them, differences give the slope of its results; `create_graph=True` has to give the same. This says
nothing about whether backward is right, so a wrong one is not reported twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.verify.call import Call, Run
from pullback.verify.composition.refusal import is_refusal
from pullback.verify.numbers.gradient import is_symmetric, mirror
from pullback.verify.numbers.iterated import is_met, iterates
from pullback.verify.numbers.judged import ERRORS, draw_weights, eps_of
from pullback.verify.numbers.numeric import (
    Curve,
    Slope,
    differentiate_curve,
    dot,
    draw_direction,
    flatten,
)
from pullback.verify.probe import NotApplicable
from pullback.verify.remembered import remembered


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A gradient whose derivative is wrong.

    Attributes:
        leaf: whose gradient.
        analytic: along the direction, by differentiating backward.
        numeric: the same by differences.
        allowed: the two may differ by this.
        cut: the gradient has no graph at all.
    """

    leaf: int
    analytic: float
    numeric: float
    allowed: float
    cut: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Second:
    """Backward, differentiated once more.

    Attributes:
        call: in float64 where the target computes in it.
        way: the direction: one for each leaf, None if it is not wanted, then one for each output's
            gradient.
        weights: of the elements of each gradient, zero where differences are inconclusive.
        lost: where the two disagree.
        judged: the leaves whose gradients could be compared.
        error: what differentiating backward raised.
    """

    call: Call
    way: tuple[Tensor | None, ...]
    weights: dict[int, Tensor]
    lost: tuple[Lost, ...]
    judged: tuple[int, ...] = ()
    error: Exception | None = None


@remembered
def compare_second(call: Call) -> Second:
    """Compare the second derivatives of a call; made once for each call.

    Raises:
        NotApplicable: there is nothing to compare.
    """
    if call.target.kind in ("module", "callable"):
        raise NotApplicable("its backward is PyTorch's; the Functions in it are checked")
    work = call.double or call
    run = work.forward()
    if not run.differentiable:
        raise NotApplicable("no output has a gradient")
    grads = draw_grads(run)
    way = draw_directions(work, grads)
    try:
        first = run.backward(grads, create_graph=True)
        # Before the costly part. A node that raises but is not on a path to the inputs is not run.
        if refuses(first):
            raise NotApplicable("backward is @once_differentiable, or is not differentiable again")
        differentiate_sums(
            run, grads, first, {i: ones(g) for i, g in present_gradients(first).items()}
        )
    except NotApplicable:
        raise
    except Exception as error:
        if is_refusal(error):
            raise NotApplicable("backward refuses to be differentiated") from error
        return Second(call=work, way=way, weights={}, lost=(), error=error)
    found = slopes_along(work, grads, way)
    weights = {i: draw_weights(part, i) for i, part in found.items()}
    weights = {i: w for i, w in weights.items() if w is not None}
    if not weights:
        raise NotApplicable("differences say nothing: backward is not smooth here")
    again = differentiate_sums(run, grads, first, weights)
    cut = set(weights) - set(present_gradients(first))
    lost = tuple(
        own
        for own in find_disagreements(work, again, way, weights, found, cut=cut)
        if own.cut
        or not iterates(work)
        or not is_met(curve_of(work, grads, way, [own.leaf]), weights[own.leaf], own.analytic)
    )
    return Second(call=work, way=way, weights=weights, lost=lost, judged=tuple(weights))


def refuses(first: Sequence[Tensor | None]) -> bool:
    """Tell whether a graph has a node that only raises: that of @once_differentiable."""
    waiting = [g.grad_fn for g in first if g is not None and g.grad_fn is not None]
    seen: set[object] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ in ("Error", "DelayedError", "NotImplemented"):
            return True
        waiting += [following for following, _ in node.next_functions]
    return False


def draw_grads(run: Run) -> tuple[Tensor | None, ...]:
    """Return Gaussian gradients that require one themselves."""
    return tuple(
        None if grad is None else grad.requires_grad_(grad.is_floating_point() or grad.is_complex())
        for grad in run.random_grads()
    )


def draw_directions(call: Call, grads: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Return a direction of the wanted leaves and of the gradients that arrive."""
    leaves = [
        symmetric_direction(call, i) if leaf.wanted else None for i, leaf in enumerate(call.leaves)
    ]
    arriving = [
        None if grad is None else draw_direction(grad.detach(), call.seed + 977 + 31 * i)
        for i, grad in enumerate(grads)
    ]
    return (*leaves, *arriving)


def symmetric_direction(call: Call, leaf: int) -> Tensor:
    """Return a direction in which a symmetric matrix stays one: only one triangle may be read."""
    value = call.leaves[leaf].value
    drawn = draw_direction(value, call.seed + 31 * leaf)
    symmetric = is_symmetric(value) or mirror(call, leaf) is not None
    return (drawn + drawn.mH) / 2 if symmetric else drawn


def move_along(
    values: Sequence[Tensor | None], way: Sequence[Tensor | None], t: float
) -> list[Tensor]:
    """Return the values at a point of the line; those without a direction stay."""
    return [
        value.detach() if d is None else (value.detach() + t * d).to(value.dtype)  # type: ignore[union-attr]
        for value, d in zip(values, way, strict=True)
    ]


def gradients_at(
    call: Call, grads: Sequence[Tensor | None], way: Sequence[Tensor | None], t: float
) -> tuple[Tensor | None, ...]:
    """Return the gradients at a point of the line."""
    count = len(call.leaves)
    there = call.with_values(move_along([leaf.value for leaf in call.leaves], way[:count], t))
    arriving = [
        None if grad is None else move_along([grad], [d], t)[0]
        for grad, d in zip(grads, way[count:], strict=True)
    ]
    return there.forward().backward(arriving, retain=False)


def curve_of(
    call: Call, grads: Sequence[Tensor | None], way: Sequence[Tensor | None], leaves: Sequence[int]
) -> Curve:
    """Return the gradients of some leaves along a direction, as one vector."""
    sizes = [flatten([call.leaves[i].value]).numel() for i in leaves]

    def curve(t: float) -> Tensor:
        found = gradients_at(call, grads, way, t)
        return torch.cat(
            [
                torch.zeros(size, dtype=torch.float64) if (g := found[i]) is None else flatten([g])
                for i, size in zip(leaves, sizes, strict=True)
            ]
        )

    return curve


def slopes_along(
    call: Call, grads: Sequence[Tensor | None], way: Sequence[Tensor | None]
) -> dict[int, Slope]:
    """Return the slope of each wanted leaf's gradient along a direction."""
    wanted = call.wanted
    sizes = [flatten([call.leaves[i].value]).numel() for i in wanted]
    whole = differentiate_curve(curve_of(call, grads, way, wanted), eps=eps_of(call))
    parts = [part.split(sizes) for part in (whole.value, whole.error, whole.kink, whole.finite)]
    return {
        leaf: Slope(value=value, error=error, kink=kink, finite=finite)
        for leaf, value, error, kink, finite in zip(wanted, *parts, strict=True)
    }


def present_gradients(first: Sequence[Tensor | None]) -> dict[int, Tensor]:
    """Return the gradients that have a graph, by leaf."""
    return {i: g for i, g in enumerate(first) if g is not None and g.requires_grad}


def ones(gradient: Tensor) -> Tensor:
    """Return weights of one."""
    return torch.ones(flatten([gradient]).numel(), dtype=torch.float64)


def weighted_sum(gradient: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of a gradient's real numbers."""
    parts = torch.view_as_real(gradient) if gradient.is_complex() else gradient
    return (parts.to(torch.float64).reshape(-1) * weights).sum()


def differentiate_sums(
    run: Run,
    grads: Sequence[Tensor | None],
    first: Sequence[Tensor | None],
    weights: dict[int, Tensor],
) -> dict[int, tuple[Tensor | None, ...]]:
    """Return the gradients of each weighted sum for the leaves and the arriving gradients."""
    sources = [*run.leaves, *grads]
    asked = [s for s in sources if s is not None and s.requires_grad]
    found: dict[int, tuple[Tensor | None, ...]] = {}
    for leaf, gradient in present_gradients(first).items():
        if leaf not in weights:
            continue
        loss = weighted_sum(gradient, weights[leaf])
        got = iter(torch.autograd.grad(loss, asked, retain_graph=True, allow_unused=True))
        found[leaf] = tuple(
            next(got) if s is not None and s.requires_grad else None for s in sources
        )
    return found


def find_disagreements(  # noqa: PLR0913  (what is compared, and by what)
    call: Call,
    again: dict[int, tuple[Tensor | None, ...]],
    way: Sequence[Tensor | None],
    weights: dict[int, Tensor],
    found: dict[int, Slope],
    *,
    cut: set[int],
) -> list[Lost]:
    """Return the gradients whose derivatives do not agree with the differences."""
    lost: list[Lost] = []
    for leaf, w in weights.items():
        parts = again.get(leaf, ())
        pairs = [(g, d) for g, d in zip(parts, way, strict=False) if g is not None]
        analytic = sum(dot(g, d) for g, d in pairs)
        value, error = found[leaf].value, found[leaf].error
        used = w != 0
        numeric = float((w * value)[used].sum())
        size = float((w * value).abs()[used].sum()) + sum(
            float((flatten([g]) * flatten([d])).abs().sum()) for g, d in pairs
        )
        allowed = ERRORS * float((w.abs() * error)[used].sum()) + math.sqrt(eps_of(call)) * size
        if abs(analytic - numeric) > allowed or not math.isfinite(analytic):
            lost.append(
                Lost(
                    leaf=leaf,
                    analytic=analytic,
                    numeric=numeric,
                    allowed=allowed,
                    cut=leaf in cut,
                )
            )
    return lost


def describe_wrong_seconds(second: Second) -> dict[str, Any]:
    """Return the evidence on wrong second derivatives: one line for each gradient."""
    evidence: dict[str, Any] = {}
    for lost in second.lost[:3]:
        name = second.call.leaves[lost.leaf].name
        evidence[f"derivative of the gradient of {name}"] = (
            f"{lost.analytic:.6g} by create_graph=True, {lost.numeric:.6g} by differences"
        )
    return evidence
