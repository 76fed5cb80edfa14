"""A gradient of another shape than its input's."""

from collections.abc import Iterator

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import SPOILT, argument_names, backward_text, name_of, nodes_of_target
from pullback.verify.probe import Probe
from pullback.verify.trace import NodeTrace, Trace, trace
from pullback.verify.tracing.reduction import (
    Directional,
    engines_axes,
    iter_permutations,
    known_directional,
    right_axes,
)


class GradientShape(Probe):
    """A gradient has the shape of its input.

    ## Why
    Autograd silently sums a gradient that is too large down to the input's shape, from the left. On
    square shapes that is not the axis that was broadcast.

    ## Fails
    ```python
    class Rows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, b):
            ctx.save_for_backward(x, b)
            return x * b[:, None]

        @staticmethod
        def backward(ctx, grad):
            x, b = ctx.saved_tensors
            return grad * b[:, None], grad * x


    inputs = (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class RowsSummed(Rows):
        @staticmethod
        def backward(ctx, grad):
            x, b = ctx.saved_tensors
            return grad * b[:, None], (grad * x).sum(1)
    ```

    ## Cannot see
    A gradient of the right shape with wrong numbers. If the engine sums the right axes of a
    gradient, that is not a fault.
    """

    code = "PB503"
    name = "gradient-shape"
    needs = "forward"
    about = frozenset({"backward"})
    explains = SPOILT

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the shape of what backward returned with the input's, before the engine does."""
        found = trace(call)
        for node in nodes_of_target(call, found):
            if not node.gave or node.errors[-1] is not None:
                continue
            if exchanged := self.exchanged(call, node):
                yield exchanged
                return
            for index, gradient in enumerate(node.gave[-1][: len(node.arguments)]):
                own = node.arguments[index]
                if isinstance(gradient, Tensor) and isinstance(own, Tensor):
                    yield from self.judged(call, found, node, index, gradient)

    def exchanged(self, call: Call, node: NodeTrace) -> Finding | None:
        """Say that two gradients are exchanged."""
        gave = node.gave[-1]
        pairs = [
            (i, gradient, own)
            for i, (gradient, own) in enumerate(zip(gave, node.arguments, strict=False))
            if isinstance(gradient, Tensor) and isinstance(own, Tensor)
        ]
        if len(pairs) < 2 or all(gradient.shape == own.shape for _, gradient, own in pairs):
            return None
        shapes = [gradient.shape for _, gradient, _ in pairs]
        if sorted(shapes) != sorted(own.shape for _, _, own in pairs):
            return None
        names = argument_names(node)
        moved = {
            names[i]: next((names[j] for j, _, o in pairs if o.shape == gradient.shape), "?")
            for i, gradient, own in pairs
            if gradient.shape != own.shape
        }
        listed = ", ".join(f"in the place of {a} the one of {b}" for a, b in moved.items())
        return self.breach(
            f"{name_of(call, node)}: the gradients are returned in the wrong order: {listed}",
            where=backward_text(node).returns(),
            help=f"return them in the order of forward's arguments: {', '.join(names)}",
            shapes=", ".join(str(tuple(shape)) for shape in shapes),
            inputs=", ".join(f"{names[i]} {tuple(own.shape)}" for i, _, own in pairs),
        )

    def judged(
        self, call: Call, found: Trace, node: NodeTrace, index: int, gradient: Tensor
    ) -> Iterator[Finding]:
        """Say what is wrong with one gradient."""
        own: Tensor = node.arguments[index]
        if gradient.shape == own.shape or gradient.layout != torch.strided:
            return
        axes = engines_axes(gradient.shape, own.shape)
        known = derivative(call, found, node, own)
        if axes is not None:
            summed = gradient.sum_to_size(own.shape) if gradient.dim() else gradient
            if known is None or known.fits(summed):
                return
        name = argument_names(node)[index]
        message, cure = explain_shape(name, gradient, own, axes, known)
        yield self.breach(
            f"{name_of(call, node)}: {message}",
            where=backward_text(node).returns(),
            help=cure,
            returned=str(tuple(gradient.shape)),
            input=f"{name} {tuple(own.shape)}",
            engine="raises" if axes is None else f"sums axis {format_axes(axes)}, without a word",
        )


def explain_shape(
    name: str, gradient: Tensor, own: Tensor, axes: list[int] | None, known: Directional | None
) -> tuple[str, str]:
    """Return what is wrong with the shape of a gradient, and the cure."""
    shapes = (
        f"the gradient for {name} has shape {tuple(gradient.shape)}, {name} has {tuple(own.shape)}"
    )
    right = right_axes(known, gradient, own.shape)
    if right:
        cure = f"sum over axis {format_axes(right)} before returning: .sum({right})"
        if axes is None:
            return (
                f"{shapes}: it is not summed over axis {format_axes(right)}, which was broadcast",
                cure,
            )
        return (
            f"{shapes}. The engine sums axis {format_axes(axes)}; the right axis is "
            f"{format_axes(right)}",
            cure,
        )
    if axes is None:
        orders = list(iter_permutations(gradient, own.shape))
        if orders:
            cure = f"transpose it to {name}'s shape before returning: .t(), .mT or .permute(...)"
            return f"{shapes}: it is returned transposed (its axes are in another order)", cure
        return f"{shapes}, and cannot be summed to it", f"return a gradient of {name}'s shape"
    extra = gradient.dim() - own.dim()
    factor = known.factor(gradient.sum_to_size(own.shape)) if known else None
    off = f", so the result is {factor:.3g} x too large" if factor else ", and the result is wrong"
    if extra > 0:
        sizes = " x ".join(str(size) for size in gradient.shape[:extra])
        return (
            f"{shapes}: an extra leading axis of {sizes}. The engine sums it{off}",
            f"return a gradient of {name}'s shape",
        )
    return (
        f"{shapes}. The engine sums axis {format_axes(axes)}{off}",
        f"sum it to {name}'s shape yourself",
    )


def format_axes(axes: list[int]) -> str:
    """Print axes: "0", "0 and 2"."""
    return " and ".join(str(axis) for axis in axes) or "none"


def derivative(call: Call, found: Trace, node: NodeTrace, own: Tensor) -> Directional | None:
    """Return the numeric derivative for an input, if it is one of the call's."""
    run = found.run
    if run is None or call.target.kind in ("module", "callable") or not node.copies:
        return None
    leaf = next((i for i, given in enumerate(run.given) if given is own), None)
    return None if leaf is None else known_directional(call, run, leaf, run.random_grads())
