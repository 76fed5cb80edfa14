"""Whether random numbers are drawn, whatever seeds them: in the order of a tensor's memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pullback.verify.call import Call
from pullback.verify.probe import NotApplicable
from pullback.verify.remembered import remembered


class Drawing(TorchDispatchMode):
    """Notes whether an operation draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


@remembered
def require_undrawn(call: Call) -> None:
    """Refuse a question about strides where `rand_like` and its kind draw along them.

    Raises:
        NotApplicable: forward or backward draws random numbers, if always the same ones.
    """
    run = call.forward()
    grads = run.random_grads()
    with Drawing() as mode:
        call.forward()
        run.backward(grads)
    if mode.seen:
        raise NotApplicable("random numbers are drawn in the order of the strides")
