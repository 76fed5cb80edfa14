"""An output that depends on the inputs and is marked non-differentiable."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call, can_require_grad
from pullback.verify.nodes import leaves_in_containers
from pullback.verify.numbers.dependence import Dependence, dependences
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.trace import NodeTrace, Told, watch_calls


class OutputCut(Probe):
    """An output that depends smoothly on an input passes its gradient on.

    ## Why
    `mark_non_differentiable` silently cuts the gradient of an output. It is for indices, masks and
    counts.

    ## Fails
    ```python
    class SinCos(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            sin, cos = x.sin(), x.cos()
            ctx.mark_non_differentiable(cos)
            return sin, cos

        @staticmethod
        def backward(ctx, grad, _):
            (x,) = ctx.saved_tensors
            return grad * x.cos()


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SinCosBoth(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin(), x.cos()

        @staticmethod
        def backward(ctx, sin, cos):
            (x,) = ctx.saved_tensors
            return sin * x.cos() - cos * x.sin()
    ```

    ## Cannot see
    The intention: a statistic that is only logged can be cut on purpose. Declare that with
    `pb.check(..., cut_output=True)`.
    """

    code = "PB511"
    name = "output-cut"
    needs = "forward"
    about = frozenset({"numbers"})
    intentions = frozenset({"cut_output"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Differentiate the outputs that require no gradient."""
        if call.target.kind in ("module", "callable"):
            raise NotApplicable("a function of tensors may detach what it returns")
        nodes: list[NodeTrace] = []
        with watch_calls(nodes):
            run = call.forward()
        if call.target.kind != "function" and not marks(nodes):
            raise NotApplicable("no output is marked non-differentiable")
        cut = [
            index
            for index, output in enumerate(run.outputs)
            if can_require_grad(output) and not output.requires_grad
        ]
        hidden = leaves_in_containers(call) if call.target.kind == "function" else {}
        visible = [leaf for leaf in call.wanted if leaf not in hidden]
        found: dict[int, Dependence] = {}
        for leaf in visible if cut else []:
            for one in dependences(call, leaf, cut):
                found.setdefault(one.output, one)
        for output, one in sorted(found.items()):
            name = call.leaves[one.leaf].name
            yield self.breach(
                f"{call.target.name}: output {output} depends on {name} but is marked "
                f"non-differentiable: its gradient is silently cut",
                where=line_of(call, nodes),
                help="take it out of ctx.mark_non_differentiable, and add its part to backward",
                shown_by=f"an element of output {output} changes by {one.value:.3g} (± "
                f"{one.error:.1g}) per unit of {name}",
            )


def marks(nodes: list[NodeTrace]) -> list[Told]:
    """Return the calls of mark_non_differentiable."""
    return [one for n in nodes for one in n.told if one.method == "mark_non_differentiable"]


def line_of(call: Call, nodes: list[NodeTrace]) -> SourcePlace | None:
    """Return the line that marks it."""
    if told := marks(nodes):
        return told[0].place
    parts = call.target.parts
    texts = [Text(parts[part]) for part in ("setup", "forward") if part in parts]
    return next((place for text in texts if (place := text.calls("mark_non_differentiable"))), None)
