"""What csrc/runtime/module.cpp exports."""

from collections.abc import Callable

from torch import Tensor

class Caller:
    """A callable that goes from Python straight to PyTorch's dispatcher."""

    def find(self, name: str, /) -> None: ...

def define(definition: tuple[object, ...], /) -> None: ...
def accelerate(cls: type[Caller], /) -> None: ...
def saved(grad_fn: object, /) -> list[tuple[str, Tensor]] | None: ...
