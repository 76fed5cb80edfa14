"""What a definition registers with PyTorch, so that another can replace it all at once.

Removing a kernel from the dispatcher while another thread calls it ends in an error there, or in a
crash. So each registered kernel calls that of the current definition, and a redefinition that
registers the same kernels exchanges them all with one assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Key = tuple[str, ...]
Function = Callable[..., Any]


class Differs(Exception):  # noqa: N818  (it is no error: the earlier definition is removed first)
    """A kernel is registered that the earlier definition lacks."""


class Registration(torch.library.Library):
    """PyTorch's registrations of one operator and of those that belong to it.

    Args:
        namespace: of the operators.
        earlier: an earlier definition's. Then kernels are only noted, to be exchanged.
    """

    def __init__(self, namespace: str, earlier: Registration | None = None) -> None:
        super().__init__(namespace, "FRAGMENT")
        self.earlier = earlier
        self.kernels: dict[Key, Function | None] = {}

    def exchange(self) -> bool:
        """Let calls run the noted kernels from now on; return False if their keys differ."""
        assert self.earlier
        if self.kernels.keys() != self.earlier.kernels.keys():
            return False
        self.earlier.kernels = self.kernels
        return True

    def entered(self, key: Key, function: Function | None) -> Function | None:
        """Note a kernel; return the function to register for it, None if there is one already."""
        if self.earlier and key not in self.earlier.kernels:
            raise Differs(key)
        self.kernels[key] = function
        if self.earlier:
            return None

        def current(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            function = self.kernels[key]
            assert function
            return function(*args, **kwargs)

        return current

    def define(self, schema: str, *given: Any, **options: Any) -> Any:  # noqa: ANN401
        """Define an operator."""
        if self.entered(("schema", schema), None):
            return super().define(schema, *given, **options)
        return schema.partition("(")[0]

    def impl(self, op_name: Any, fn: Function, dispatch_key: str = "", **options: Any) -> None:  # noqa: ANN401
        """Register a kernel."""
        if dispatch_key == "Meta":  # PyTorch's own, which calls the fake kernel
            super().impl(op_name, fn, dispatch_key, **options)
        elif current := self.entered(("kernel", str(op_name), dispatch_key), fn):
            super().impl(op_name, current, dispatch_key, **options)

    def _register_fake(
        self,
        op_name: str,
        fn: Function,
        _stacklevel: int = 1,
        **options: Any,  # noqa: ANN401
    ) -> None:
        if current := self.entered(("fake", op_name), fn):
            super()._register_fake(op_name, current, _stacklevel + 1, **options)

    def _register_torch_dispatch_rule(
        self, op_name: str, torch_dispatch_class: type, fn: Function
    ) -> None:
        if self.earlier and self.earlier.kernels is self.kernels:
            # The class was imported after the exchange.
            self.earlier._register_torch_dispatch_rule(op_name, torch_dispatch_class, fn)
        elif current := self.entered(("class", op_name, torch_dispatch_class.__name__), fn):
            super()._register_torch_dispatch_rule(op_name, torch_dispatch_class, current)


_overloads: dict[str, torch._ops.OpOverload] = {}


def overload_of(qualname: str) -> torch._ops.OpOverload:
    """Return PyTorch's Python object for the operator that was just defined: one for each name.

    The dispatcher remembers the first one for good, and tracing finds it there. So after a
    redefinition the first one takes over the attributes of the new one.
    """
    namespace, _, name = qualname.partition("::")
    fresh = getattr(getattr(torch.ops, namespace), name).default
    first = _overloads.setdefault(qualname, fresh)
    if first is not fresh:
        first.__dict__.clear()
        first.__dict__.update(fresh.__dict__)
        fresh._overloadpacket.default = first
    return first
