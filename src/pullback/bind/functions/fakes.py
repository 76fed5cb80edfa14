"""The fake kernels of a Function's operators, which a tracer runs to learn the shapes.

That of forward also finds out what forward will save, by running it on its own fake tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

from pullback.bind import kernel
from pullback.bind.concrete import size_hint
from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.context import Context
from pullback.bind.functions.saved import tensors_in
from pullback.define.operator import Definition

Evaluate = Callable[..., tuple[Context, list[Any], tuple[Tensor, ...]]]
CPU = torch.device("cpu")


class FakeTrace(threading.local):
    """What forward's fake kernel saw last: the inputs and outputs that forward saves."""

    uses: set[tuple[str, int]] | None = None


@dataclass(frozen=True, eq=False)
class Fakes:
    """The fake kernels of one Function's operators.

    Attributes:
        adopted: the Function.
        definition: of its operator.
        known: describes the outputs of a call.
        evaluate: runs forward; see `Hidden.evaluate`.
        traced: what forward's fake kernel saw last.
    """

    adopted: Adopted
    definition: Definition
    known: Callable[[Sequence[object]], kernel.Outputs]
    evaluate: Evaluate
    traced: FakeTrace = field(default_factory=FakeTrace)

    def forward(self, *given: Any) -> Any:  # noqa: ANN401
        """Return empty outputs, and no intermediates while tracing."""
        *arguments, needs, _ = given
        made = self.empty(arguments)
        self.traced.uses = self.uses(arguments, needs)
        number = torch.empty((), dtype=torch.int64, device=CPU)
        return (*made, [], number, [torch.empty((1,), dtype=torch.int64, device=CPU)])

    def uses(self, arguments: Sequence[Any], needs: Sequence[bool]) -> set[tuple[str, int]] | None:
        """Return which inputs and outputs forward saves; None if fake tensors do not tell."""
        # Outside the tracer, so that forward's questions do not become guards of the program.
        with _disable_current_modes(), FakeTensorMode():
            try:
                apart = [new_like(value) for value in arguments]
                ctx, flat, outputs = self.evaluate(apart, needs, clone=True)
            except Exception:  # NumPy, a value that is asked for: whatever its author's code does
                return None
        own = [*ctx.to_save, *ctx.saved_for_forward, *(tensors_in(vars(ctx)))]
        dense = (t for t in own if t is not None and t.layout == torch.strided)
        saved = {StorageWeakRef(t.untyped_storage()) for t in dense}
        known = [("argument", i, t) for i, t in enumerate(flat) if isinstance(t, Tensor)]
        known += [("output", i, t) for i, t in enumerate(outputs)]
        return {(of, i) for of, i, t in known if StorageWeakRef(t.untyped_storage()) in saved}

    def empty(self, arguments: Sequence[Any]) -> list[Tensor]:
        """Return empty outputs; if the line does not give a shape, forward is run to find it."""
        outputs = self.known(arguments)
        shapes = list(outputs.shapes)
        if any(output.has_any_shape for output in self.adopted.line.outputs):
            count = len(self.adopted.flat(arguments)[0])
            _, _, made = self.evaluate(arguments, [False] * count, clone=True)
            shapes = [tuple(output.shape) for output in made]
        pairs = zip(shapes, outputs.dtypes, strict=True)
        return [torch.empty(size, dtype=d, device=outputs.device) for size, d in pairs]

    def fake(self, *given: Any) -> Any:  # noqa: ANN401
        """Return empty outputs of the operator itself."""
        line = self.adopted.line
        arguments = kernel.fill_defaults(self.definition, given, None)
        named = dict(zip((p.name for p in line.parameters), arguments, strict=True))
        pairs = zip(line.outputs, self.empty(arguments), strict=True)
        return kernel.unwrap_single([named.get(o.name, value) for o, value in pairs])

    def backward(self, *given: Any) -> list[Tensor]:  # noqa: ANN401
        """Return empty gradients of the shapes of the inputs."""
        inputs, needs = given[1], given[6]
        return [
            torch.empty(value.shape, dtype=value.dtype, device=value.device)
            for value, need in zip(inputs, needs, strict=True)
            if need and value is not None
        ]


def new_like(value: Any) -> Any:  # noqa: ANN401
    """Return a tensor like a traced one, with the sizes with which its trace began."""
    if isinstance(value, list | tuple):
        return [new_like(each) for each in value]
    if not isinstance(value, Tensor):
        return size_hint(value)
    size, stride = ([size_hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
    return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
