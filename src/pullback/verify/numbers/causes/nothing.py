"""No gradient where there is one, or one where there is none."""

from __future__ import annotations

from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample


class NoGradient(Hypothesis):
    """Backward returns None or zeros."""

    order = 10

    def explain(self, sample: Sample) -> Cause | None:
        """Look for a Jacobian that is 0."""
        pair = sample.pair
        if pair.analytic.any() or not pair.numeric.any():
            return None
        gradient = sample.run.backward(sample.run.random_grads())[sample.leaf]
        name, several = sample.name, len(sample.run.differentiable) > 1
        if gradient is not None and gradient.any():
            return Cause(
                name="output ignored",
                text=f"the gradient that arrives for output {sample.output} is ignored: "
                f"nothing of it reaches `{name}`",
                help=f"add the part of output {sample.output} to the gradient of `{name}`",
            )
        given = "None" if gradient is None else "zeros"
        on = f"output {sample.output}" if several else "the output"
        own = sample.call.target.kind in ("callable", "module")
        if gradient is None and own:
            return Cause(
                name="no gradient",
                text=f"no gradient (None) reaches `{name}`, but {on} depends on `{name}`",
                help=f"look for what cuts the graph between `{name}` and the output: detach, .data,"
                " no_grad, numpy, a tensor in a list, or an operator without a derivative",
            )
        return Cause(
            name="no gradient",
            text=f"backward returns {given} for `{name}`, but {on} depends on `{name}`",
            help=f"return the gradient of `{name}`; if none is meant, call "
            f"ctx.mark_non_differentiable or detach `{name}` before the call",
        )


class StandsStill(Hypothesis):
    """Forward does not change with the input, but there is a gradient."""

    order = 11

    def explain(self, sample: Sample) -> Cause | None:
        """Look for a Jacobian of differences that is 0."""
        pair = sample.pair
        if pair.numeric.any() or not pair.analytic.any():
            return None
        return Cause(
            name="no dependence",
            text=f"backward returns a gradient for `{sample.name}`, but output {sample.output} does"
            " not change with it (a step, a rounding, or no use of it)",
            help="return None or zeros; a straight-through estimator is declared: "
            "straight_through=True",
        )
