"""Backward draws from the global generator."""

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import require_own
from pullback.verify.probe import Probe
from pullback.verify.probes.random_backward import DRAWS
from pullback.verify.randomness import seed_everything
from pullback.verify.source import Text

# PyTorch's, NumPy's and Python's, in this order.
States = Callable[[], Sequence[bytes]]


class GeneratorAdvanced(Probe):
    """Backward leaves the global random state as it is.

    ## Why
    The next random numbers are different from those without this backward: two runs that differ in
    what they differentiate no longer see the same data, masks or noise.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            torch.rand(3)
            return grad * 2


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleQuietly(Double):
        @staticmethod
        def backward(ctx, grad):
            return grad * 2
    ```

    ## Cannot see
    Generators of other devices, and those of other libraries.
    """

    code = "PB652"
    name = "generator-advanced"
    level = "advice"
    about = frozenset({"random"})
    help = "draw in forward, or from a torch.Generator of your own"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the generators before and after backward; look for a seed in forward."""
        require_own(call)
        run = call.forward()
        seen: list[tuple[object, object]] = []
        grads = run.random_grads()

        def states() -> tuple[bytes, bytes, bytes]:
            numpy = repr(np.random.get_state(legacy=False)).encode()
            python = repr(random.getstate()).encode()
            return torch.get_rng_state().numpy().tobytes(), numpy, python

        with seed_everything(5):
            before = states()
            pairs = [(o, g) for o, g in zip(run.outputs, grads, strict=True) if g is not None]
            if pairs:
                torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
            seen.append((before, states()))
        text = Text(call.target.parts["backward"]) if "backward" in call.target.parts else None
        if any(old != new for old, new in seen):
            yield self.breach(
                f"{call.target.name}: backward advances the global random generator: what is drawn "
                f"after it is another number",
                where=text.calls(*DRAWS) if text else None,
            )
        yield from self.reseeded(call, states)

    def reseeded(self, call: Call, states: States) -> Iterator[Finding]:
        """Say that forward seeds a generator: the old state has no effect on the one afterwards."""
        with torch.no_grad():
            after = [self.state_after(call, seed, states) for seed in (1, 2)]
        if any(one == other for one, other in zip(*after, strict=True)):
            own = call.target.parts.get("forward")
            yield self.breach(
                f"{call.target.name}: forward seeds the global random generator: all that is drawn "
                f"after it is the same each time",
                where=Text(own).calls("manual_seed", "seed", "set_rng_state") if own else None,
                help="use a torch.Generator of your own, or torch.random.fork_rng()",
            )

    def state_after(self, call: Call, seed: int, states: States) -> Sequence[bytes]:
        """Return the states of the generators after forward."""
        arguments, keywords, parameters = call.filled([leaf.value.clone() for leaf in call.leaves])
        with seed_everything(seed):
            if not parameters:
                call.target.call(*arguments, **keywords)
            return states()
