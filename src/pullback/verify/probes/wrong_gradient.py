"""Backward does not return the derivative of forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.causes import Cause, cause_of, samples
from pullback.verify.numbers.causes.heatmap import draw_heat_map
from pullback.verify.numbers.causes.sample import Sample
from pullback.verify.numbers.gradient import DirectionalComparison, Mismatch, compare_gradients
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.tracing.operations import names_in_forward

# Each cause that is named costs a Jacobian; a module may have a hundred parameters.
MOST = 6
HELP = "compare backward with the chain rule of forward, line by line"
ROUNDING = frozenset({"round", "floor", "ceil", "trunc", "sign", "fake_quantize"})


class WrongGradient(Probe):
    """Backward is the transposed derivative of forward, applied to the gradient that arrives.

    ## Why
    A network still trains with a wrong gradient, only worse. The gradient is compared with finite
    differences of forward along random directions, in float64 where the target takes it; the
    tolerance follows from the noise of forward, so a very small derivative is checked as well as a
    large one. Then causes are tried on a small sample: sign, factor, order, wrong operand, missing
    sum and others.

    ## Fails
    ```python
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return -grad * x.cos()


    inputs = (torch.randn(3, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SineRight(Sine):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x.cos()
    ```

    ## Cannot see
    Errors only at other values, sizes, options or dtypes, which other probes look at; and elements
    at which forward has a kink or a jump. Declare a gradient that differs on purpose:
    `straight_through=True`, `reversal=True`, `surrogate=True`; `tangent_space=True` for elements of
    a Lie group, whose gradient is that of a tangent vector, followed by zeros.
    """

    code = "PB553"
    name = "wrong-gradient"
    help = HELP
    about = frozenset({"numbers"})
    explains = frozenset({"numbers", "values", "second", "tangent"})
    intentions = frozenset({"straight_through", "reversal", "surrogate", "tangent_space"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare every wanted input with every output, and name the cause of what disagrees."""
        found = compare_gradients(call)
        if not found.mismatches:
            require_judged(call, found)
            return
        backward = call.target.parts.get("backward")
        where = Text(backward).returns() if backward else None
        for own in group_mismatches(call, found.mismatches[:MOST]):
            yield self.finding(call, own, where)

    def finding(self, call: Call, own: Explained, where: SourcePlace | None) -> Finding:
        """Return a finding for one cause."""
        first = own.mismatches[0]
        name = call.leaves[first.leaf].name
        several = len({m.output for m in own.mismatches}) > 1 or first.output > 0
        on = f" for output {first.output}" if several else ""
        text = own.cause.text if own.cause else describe_unknown(first, name, on)
        others = sorted({call.leaves[m.leaf].name for m in own.mismatches} - {name})
        return self.breach(
            f"{call.target.name}: {text}",
            where=where,
            help=(own.cause.help if own.cause else HELP) + rounding_hint(call, own),
            also_of=", ".join(f"`{other}`" for other in others) or None,
            along_a_random_direction=f"backward {first.analytic:.6g}, differences "
            f"{first.numeric:.6g} (may be off by {first.allowed:.1g})",
            where_it_differs=draw_heat_map(own.sample.pair)
            if own.sample and not own.cause
            else None,
        )


@dataclass
class Explained:
    """Mismatches of one cause."""

    cause: Cause | None
    sample: Sample | None
    mismatches: list[Mismatch]


def rounding_hint(call: Call, own: Explained) -> str:
    """Say how a quantiser declares its gradient, where the cause does not say so already.

    Its scale and its zero point have straight-through gradients as well, of any form.
    """
    if own.cause and "straight_through" in own.cause.help:
        return ""
    if not names_in_forward(call) & ROUNDING:
        return ""
    return "; forward rounds: a straight-through estimator is declared: straight_through=True"


def group_mismatches(call: Call, mismatches: Sequence[Mismatch]) -> list[Explained]:
    """Put mismatches of the same kind of cause together."""
    found: list[Explained] = []
    for mismatch in mismatches:
        small = list(samples(call, mismatch.leaf, mismatch.output))
        cause = cause_of(small)
        like = [own for own in found if cause and own.cause and own.cause.name == cause.name]
        same = [own for own in found if own.mismatches[0].leaf == mismatch.leaf]
        if like:
            like[0].mismatches.append(mismatch)
        elif same and cause is None:
            # Another output for an input that is known to be wrong.
            same[0].mismatches.append(mismatch)
        else:
            found.append(Explained(cause, small[0] if small else None, [mismatch]))
    return found


def describe_unknown(mismatch: Mismatch, name: str, on: str) -> str:
    """Say that a gradient is wrong for an unknown cause."""
    if mismatch.relative < 1e-2:
        return (
            f"the gradient of `{name}`{on} is off by {mismatch.relative:.1g} of its size: an "
            "approximation, a rounded constant, or an epsilon that forward has and backward has not"
        )
    return f"the gradient of `{name}`{on} is wrong; no known cause fits"


def require_judged(call: Call, found: DirectionalComparison) -> None:
    """Say why nothing could be compared, if that is so."""
    if not found.agreed and found.unjudged:
        first = found.unjudged[0]
        raise NotApplicable(
            f"not judged here: {first.reason} (input {call.leaves[first.leaf].name})"
        )
    if not found.agreed:
        raise NotApplicable("no output has a gradient for any input")
