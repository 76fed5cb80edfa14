"""An operator and its reference disagree."""

from collections.abc import Iterator
from dataclasses import replace

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.composed import (
    describe_difference,
    describe_tensors,
    ordinary_result,
    result_of,
)
from pullback.verify.composition.lines import line_of
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text


class LineReference(Probe):
    """An operator gives what its `reference=` gives: outputs and gradients.

    ## Why
    Exporters use the reference, and readers believe that it is what the operator computes.

    ## Fails
    ```python
    target = pb.operator(
        "page::cubed(x[...]) -> y[...]",
        python=lambda x: x * x * x,
        backward=lambda grad, x: 3 * grad * x * x,
        reference=lambda x: x**3 + 1,
    )
    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    target = pb.operator(
        "page::cubed_rightly(x[...]) -> y[...]",
        python=lambda x: x * x * x,
        backward=lambda grad, x: 3 * grad * x * x,
        reference=lambda x: x**3,
    )
    ```

    ## Cannot see
    Differences at inputs that were not given.
    """

    code = "PB595"
    name = "reference-differs"
    help = "one of the two is wrong: the gradient's own check says whether the operator is"
    needs = "forward"
    about = frozenset({"numbers"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Call both."""
        line_of(call)
        operator = call.target.operator
        reference = operator and operator.definition.reference
        if reference is None:
            raise NotApplicable("it has no reference")
        wanted = replace(call, target=replace(call.target, call=reference))
        if call.random:
            raise NotApplicable("it is random")
        run, other = call.forward(), wanted.forward()
        names = [f"output {i}" for i in range(len(run.outputs))]
        difference = describe_tensors(run.outputs, other.outputs, names)
        if difference is None and run.differentiable == other.differentiable:
            difference = describe_difference(call, ordinary_result(call), result_of(other))
        if difference is not None:
            yield self.breach(
                f"{call.target.name}: the operator differs from its reference",
                where=Text(reference).place,
                difference=difference,
            )
