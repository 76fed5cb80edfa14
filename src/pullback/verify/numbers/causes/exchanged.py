"""The gradient belongs to another input."""

from __future__ import annotations

from dataclasses import replace

from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample


class Exchanged(Hypothesis):
    """The gradient returned for one input is right for another one of its shape."""

    order = 15

    def explain(self, sample: Sample) -> Cause | None:
        """Compare with the Jacobians of the other inputs."""
        pair, own = sample.pair, sample.call.leaves[sample.leaf]
        for index, other in enumerate(sample.call.leaves):
            alike = other.value.shape == own.value.shape and other.value.dtype == own.value.dtype
            if index == sample.leaf or not alike:
                continue
            right = sample.of(index)
            if right.numeric.any() and pair.same(pair.analytic, right.numeric):
                return Cause(
                    name="exchanged",
                    text=f"backward returns for `{own.name}` the gradient of `{other.name}`: "
                    "the order of the gradients is exchanged",
                    help="return one gradient for each argument of forward, in the same order",
                    key=(index,),
                )
            if right.numeric.any() and pair.same(pair.analytic, pair.numeric + right.numeric):
                return Cause(
                    name="added",
                    text=f"the gradient of `{own.name}` contains that of `{other.name}` as well",
                    help=f"return the two apart; a buffer may be shared by `{own.name}` and "
                    f"`{other.name}`",
                    key=(index,),
                )
        return explain_exchanged_outputs(sample)


def explain_exchanged_outputs(sample: Sample) -> Cause | None:
    """Compare with the Jacobians of the other outputs."""
    own = sample.run.outputs[sample.output]
    for index in sample.run.differentiable:
        if index == sample.output or sample.run.outputs[index].shape != own.shape:
            continue
        right = replace(sample, output=index).pair
        if right.numeric.any() and sample.pair.same(sample.pair.analytic, right.numeric):
            return Cause(
                name="exchanged outputs",
                text=f"the gradient that arrives for output {sample.output} is used as if it were "
                f"that of output {index}: the gradients of the outputs are exchanged",
                help="backward gets one gradient for each output of forward, in the same order",
                key=(index,),
            )
    return None
