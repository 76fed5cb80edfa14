"""Compares forward and backward along random directions, with a tolerance for each difference.

Forward is differentiated along a random direction v of one input; the derivative s of each output
element comes with its error. Backward then gets a random gradient u that is 0 where s is unknown
(kinks, jumps, infinities), and ⟨u, s⟩ is compared with ⟨backward(u), v⟩.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pullback.verify.call import Call, Run
from pullback.verify.numbers.numeric import (
    DOUBLE,
    LARGE,
    Curve,
    Slope,
    differentiate_curve,
    draw_direction,
    flatten,
)
from pullback.verify.randomness import make_generator

# By chance an error is ten standard errors once in some 10⁴ times; mismatches are confirmed.
SAFETY = 10.0
# Spacings above this one are those of half precision.
COARSE = 2.0**-12


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """Backward and differences disagree.

    Attributes:
        leaf: the input, by its place in `call.leaves`.
        output: the output.
        analytic: ⟨backward(u), v⟩; NaN if the gradient has a NaN although forward is smooth.
        numeric: ⟨u, s⟩.
        allowed: by how much they may differ.
        size: of the derivative as a whole: the norm of the terms of ⟨u, s⟩.
        missing: no gradient arrived at the input at all.
    """

    leaf: int
    output: int
    analytic: float
    numeric: float
    allowed: float
    size: float
    missing: bool = False

    @property
    def relative(self) -> float:
        """Their difference relative to the derivative's size; 1 for a NaN."""
        if math.isnan(self.analytic):
            return math.inf
        scale = max(self.size, abs(self.numeric), abs(self.analytic))
        return abs(self.analytic - self.numeric) / scale if scale else 0.0


@dataclass(frozen=True, kw_only=True)
class Unjudged:
    """What cannot be compared, and why."""

    leaf: int
    output: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class DirectionalComparison:
    """All inputs and outputs of a call.

    Attributes:
        mismatches: the pairs that disagree.
        unjudged: the pairs for which differences are inconclusive.
        agreed: how many pairs of an input and an output agree.
    """

    mismatches: list[Mismatch] = field(default_factory=list[Mismatch])
    unjudged: list[Unjudged] = field(default_factory=list[Unjudged])
    agreed: int = 0


def compare_once(call: Call, leaves: Sequence[int], *, seed: int) -> DirectionalComparison:
    """Compare for one direction of each leaf.

    In a large call all leaves are moved at once, and one by one only if that shows a mismatch.
    """
    run = call.forward()
    size = sum(own.value.numel() for own in call.leaves) + sum(o.numel() for o in run.outputs)
    if size > LARGE and len(leaves) > 1:
        together = compare_along(call, run, leaves, seed=seed)
        if not together.mismatches:
            return replace(together, agreed=together.agreed * len(leaves))
    found = [compare_along(call, run, [leaf], seed=seed) for leaf in leaves]
    return DirectionalComparison(
        mismatches=[m for own in found for m in own.mismatches],
        unjudged=[u for own in found for u in own.unjudged],
        agreed=sum(own.agreed for own in found),
    )


def compare_along(
    call: Call, run: Run, leaves: Sequence[int], *, seed: int
) -> DirectionalComparison:
    """Compare for one direction of some leaves together; they are reported as the first one."""
    outputs = run.differentiable
    v = {leaf: draw_direction(call.leaves[leaf].value, seed + 31 * leaf) for leaf in leaves}
    own = slope_along(call, run, v)
    eps = spacing_of(call, run)
    # Each from a graph of its own: a second backward that fails is another fault.
    results = [
        judge(call.forward(), output, v, part, seed=seed, eps=eps)
        for output, part in zip(outputs, parts_of(own, run, outputs), strict=True)
    ]
    return DirectionalComparison(
        mismatches=[r for r in results if isinstance(r, Mismatch)],
        unjudged=[r for r in results if isinstance(r, Unjudged)],
        agreed=results.count(None),
    )


def spacing_of(call: Call, run: Run) -> float:
    """Return the spacing of the coarsest of the dtypes that take part, and of float64 at least."""
    dtypes = {call.leaves[i].value.dtype for i in call.wanted}
    dtypes |= {run.outputs[i].dtype for i in run.differentiable}
    return max([DOUBLE, *(torch.finfo(dtype).eps for dtype in dtypes)])


def slope_along(
    call: Call, run: Run, v: Mapping[int, Tensor], outputs: Sequence[int] | None = None
) -> Slope:
    """Return the derivative of the outputs along directions of some leaves, as one vector."""
    return differentiate_curve(curve_of(call, run, v, outputs), eps=spacing_of(call, run))


def curve_of(
    call: Call, run: Run, v: Mapping[int, Tensor], outputs: Sequence[int] | None = None
) -> Curve:
    """Return the outputs along directions of some leaves; NaN where forward refuses."""
    chosen = run.differentiable if outputs is None else outputs
    values = [own.value for own in call.leaves]
    shapes = [run.outputs[i].shape for i in chosen]
    unknown = torch.full_like(flatten([run.outputs[i] for i in chosen]), math.nan)
    starts = {leaf: values[leaf] for leaf in v}

    def curve(t: float) -> Tensor:
        for leaf, start in starts.items():
            values[leaf] = (start.to(v[leaf]) + t * v[leaf]).to(start)
        try:
            found = call.values(values)
        except Exception:  # outside forward's domain
            return unknown
        if len(found) <= max(chosen) or [found[i].shape for i in chosen] != shapes:
            return unknown
        return flatten([found[i] for i in chosen])

    return curve


def parts_of(own: Slope, run: Run, outputs: Sequence[int]) -> list[Slope]:
    """Cut the derivative of all outputs into that of each."""
    sizes = [flatten([run.outputs[i]]).numel() for i in outputs]
    cut = [t.split(sizes) for t in (own.value, own.error, own.kink, own.finite)]
    return [
        Slope(value=value, error=error, kink=kink, finite=finite)
        for value, error, kink, finite in zip(*cut, strict=True)
    ]


def is_judged(own: Slope) -> Tensor:
    """Tell which elements of an output have a derivative exact enough to compare."""
    known = own.error.isfinite()
    if not known.any():
        return known
    size = own.value[known].square().mean().sqrt()
    return own.error <= torch.maximum(16 * own.error[known].median(), 1e-3 * size)


def judge(  # noqa: PLR0911, PLR0913  (what a comparison is made of)
    run: Run, output: int, v: Mapping[int, Tensor], own: Slope, *, seed: int, eps: float
) -> Mismatch | Unjudged | None:
    """Compare one output along directions of some inputs; None if they agree."""
    leaf = min(v)
    if not own.value.numel():
        return None
    chosen = is_judged(own)
    unjudged = Unjudged(leaf=leaf, output=output, reason=reason_of(own))
    if not chosen.any():
        return unjudged
    grad = gradient_of(run.outputs[output], own, chosen, seed=seed + output, eps=eps)
    try:
        gradients = backward_of(run, output, grad)
    except Exception as error:
        return replace(unjudged, reason=f"backward raises {type(error).__name__}")
    found = measure_mismatch(run, output, v, own, chosen, grad, gradients, eps)
    if math.isnan(found.analytic):
        return found if own.finite.all() and is_bounded(own) else unjudged
    difference = abs(found.analytic - found.numeric)
    # An output that is constant except for rounding, and a gradient that is only rounding.
    sent = float((flatten([run.outputs[output]]) * flatten([grad]))[chosen].norm())
    if difference <= found.allowed < 1e-3 * sent:
        return None
    if difference and found.allowed > 0.5 * max(
        abs(found.analytic), abs(found.numeric), found.size
    ):
        return unjudged
    return found if difference > found.allowed else None


def measure_mismatch(  # noqa: PLR0913, PLR0917  (what a comparison is made of)
    run: Run,
    output: int,
    v: Mapping[int, Tensor],
    own: Slope,
    chosen: Tensor,
    grad: Tensor,
    gradients: Sequence[Tensor | None],
    eps: float,
) -> Mismatch:
    """Return both inner products, and by how much they may differ."""
    terms = torch.cat([torch.zeros(1).double(), *(product_terms(gradients[i], v[i]) for i in v)])
    u = flatten([grad])[chosen]
    value, error = own.value[chosen] * u, own.error[chosen] * u
    rounding = 2 * eps * float(terms.norm() + value.norm())
    return Mismatch(
        leaf=min(v),
        output=output,
        analytic=float(terms.sum()) if terms.isfinite().all() else math.nan,
        numeric=float(value.sum()),
        allowed=SAFETY * (float(error.norm()) + rounding) + float(bias_of(own, chosen, u, eps)),
        size=float(value.norm()),
        missing=all(gradients[i] is None for i in v),
    )


def product_terms(gradient: Tensor | None, v: Tensor) -> Tensor:
    """Return the terms of the inner product of a gradient and a direction."""
    return torch.zeros(0).double() if gradient is None else flatten([gradient]) * flatten([v])


def gradient_of(output: Tensor, own: Slope, chosen: Tensor, *, seed: int, eps: float) -> Tensor:
    """Return a Gaussian gradient for an output: exactly 0 where its elements are not chosen.

    In half precision no sum of random signs rises above the noise: there all terms are positive.
    """
    generator = make_generator(seed + 7919)
    drawn = torch.randn(chosen.numel(), dtype=torch.float64, generator=generator) * chosen
    if eps > COARSE:
        drawn = drawn.abs() * own.value.sign()
    if output.is_complex():
        return torch.view_as_complex(drawn.reshape(*output.shape, 2)).to(output)
    return drawn.reshape(output.shape).to(output)


def bias_of(own: Slope, chosen: Tensor, u: Tensor, eps: float) -> Tensor:
    """Return by how much a sum of terms made positive may be too large."""
    if eps <= COARSE:
        return torch.zeros(())
    error, value = own.error[chosen], own.value[chosen].abs()
    return (u.abs() * torch.minimum(error, error.square() / value.clamp_min(1e-300))).sum()


def backward_of(run: Run, output: int, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Send a gradient for one output; if backward wants all, zeros for the others."""
    alone = [grad if i == output else None for i in range(len(run.outputs))]
    try:
        return run.backward(alone)
    except Exception:
        every = [
            grad if i == output else torch.zeros_like(own) for i, own in enumerate(run.outputs)
        ]
        return run.backward(every)


def is_bounded(own: Slope) -> bool:
    """Tell whether derivatives exist everywhere, if only one-sided ones."""
    return bool((own.error.isfinite() | own.kink).all())


def reason_of(own: Slope) -> str:
    """Say why nothing can be compared."""
    if not own.finite.all():
        return "the outputs are not finite around this input"
    if own.kink.any():
        return f"a kink at {int(own.kink.sum())} of {own.kink.numel()} output elements"
    return "forward is too noisy or too rough around this input"
