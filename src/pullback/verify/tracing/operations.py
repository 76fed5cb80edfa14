"""Which of PyTorch's operations a piece of code calls."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pullback.verify.call import Call
from pullback.verify.probe import NotApplicable
from pullback.verify.remembered import remembered


class Operations(TorchDispatchMode):
    """Records the operations that are called; composite ones are decomposed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch._ops.OpOverload] = set()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        self.seen.add(func)
        return func(*args, **(kwargs or {}))

    @property
    def names(self) -> set[str]:
        """Their names, without the `_` of in-place ones: "add"."""
        return {own.overloadpacket.__name__.rstrip("_") for own in self.seen}


@remembered
def names_in_forward(call: Call) -> set[str]:
    """Return the names of the operations that forward calls."""
    with Operations() as mode:
        call.values([leaf.value for leaf in call.leaves])
    return mode.names


@remembered
def require_undrawn(call: Call) -> None:
    """Refuse a question about strides if `rand_like` or the like draws along them.

    Raises:
        NotApplicable: forward or backward draws random numbers, even if always the same ones.
    """
    run = call.forward()
    grads = run.random_grads()
    with Operations() as mode:
        call.forward()
        run.backward(grads)
    if any(torch.Tag.nondeterministic_seeded in own.tags for own in mode.seen):
        raise NotApplicable("random numbers are drawn in the order of the strides")
