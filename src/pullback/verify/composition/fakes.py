"""Compares a registered operator's fake kernel with the real one, at several sizes and layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from pullback.verify.call import Call, tensors_in
from pullback.verify.invariance.layouts import transposed
from pullback.verify.invariance.sizes import axes_of, edges_of, resize

# How many groups of axes are tried at another size.
GROUPS = 4


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What a fake kernel has to know about an output."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    stride: tuple[int, ...]
    device: torch.device

    @staticmethod
    def of(tensor: Tensor) -> Meta:
        """Return it for a tensor."""
        return Meta(
            shape=tuple(tensor.shape),
            dtype=tensor.dtype,
            stride=tuple(tensor.stride()) if tensor.layout is torch.strided else (),
            device=tensor.device,
        )

    def unlike(self, other: Meta) -> str | None:
        """Return the first property that differs; strides only where they address elements."""
        for word in ("device", "dtype"):
            if getattr(self, word) != getattr(other, word):
                return word
        if any(isinstance(n, torch.SymInt) for n in other.shape):
            # A size that depends on values.
            return None if len(self.shape) == len(other.shape) else "shape"
        if self.shape != other.shape:
            return "shape"
        if 0 in self.shape:
            return None
        used = [k for k, n in enumerate(self.shape) if n > 1]
        if self.stride and [self.stride[k] for k in used] != [other.stride[k] for k in used]:
            return "stride"
        return None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One call of both kernels.

    Attributes:
        when: how its inputs differ from the given ones: "" for none.
        call: with these inputs.
        real: the outputs of the real kernel.
        fake: of the fake one; None if it raised.
        error: what it raised.
    """

    when: str
    call: Call
    real: tuple[Meta, ...]
    fake: tuple[Meta, ...] | None = None
    error: Exception | None = None

    @property
    def unlike(self) -> tuple[int, str] | None:
        """The first output that differs, and in what; -1 for their number."""
        if self.fake is None:
            return None
        if len(self.fake) != len(self.real):
            return -1, "number"
        for index, (fake, real) in enumerate(zip(self.fake, self.real, strict=True)):
            if word := real.unlike(fake):
                return index, word
        return None


class IdleMode(TorchDispatchMode):
    """A mode that does nothing: without a mode, an operator may take a shorter path."""

    def __torch_dispatch__(  # noqa: ANN204
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: Any = None,  # noqa: ANN401
    ):
        """Call the operator."""
        del types
        return func(*args, **(kwargs or {}))


def compare_calls(call: Call) -> Iterator[Compared]:
    """Yield the given call, then other sizes, then other strides.

    What the real kernel refuses is left out.
    """
    for when, own in (("", call), *vary_sizes(call), *vary_strides(call)):
        try:
            with torch.no_grad(), IdleMode():
                given = [copy_of(leaf.value) for leaf in own.leaves]
                real = tuple(Meta.of(t) for t in tensors_in(own.on(given)))
        except Exception:
            continue
        try:
            fake = tuple(Meta.of(t) for t in run_fake(own))
        except Exception as error:
            yield Compared(when=when, call=own, real=real, error=error)
            continue
        yield Compared(when=when, call=own, real=real, fake=fake)


def run_fake(call: Call) -> Sequence[Tensor]:
    """Return the fake outputs."""
    try:
        return run_in_mode(call, FakeTensorMode())
    except DynamicOutputShapeException:
        # Sizes that depend on values need symbols, whose import takes a while.
        from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: PLC0415

        return run_in_mode(call, FakeTensorMode(shape_env=ShapeEnv()))


def run_in_mode(call: Call, mode: FakeTensorMode) -> Sequence[Tensor]:
    """Return the outputs in a mode; the inputs' sizes are numbers."""
    make: Any = mode.from_tensor
    given = [make(copy_of(leaf.value), static_shapes=True) for leaf in call.leaves]
    with torch.no_grad(), mode:
        return tensors_in(call.on(given))


def copy_of(value: Tensor) -> Tensor:
    """Return a copy with the same strides."""
    return value.detach().clone(memory_format=torch.preserve_format)


def vary_sizes(call: Call) -> Iterator[tuple[str, Call]]:
    """Yield the call at other sizes: one group of equal axes at a time."""
    for count, axes in enumerate([*axes_of(call), *edges_of(call)]):
        if count == GROUPS:
            return
        for size in (axes.size + 1, 2 * axes.size + 1):
            for other in resize(call, axes, size):
                shapes = ", ".join(
                    f"{leaf.name} {tuple(leaf.value.shape)}" for leaf in other.leaves
                )
                yield f"with {shapes}", other


def vary_strides(call: Call) -> Iterator[tuple[str, Call]]:
    """Yield the call with transposed inputs."""
    if any(leaf.value.ndim > 1 for leaf in call.leaves):
        yield (
            "with transposed inputs",
            call.with_values(
                [transposed(v) if (v := leaf.value).ndim > 1 else v for leaf in call.leaves]
            ),
        )


def is_implicit(call: Call) -> bool:
    """Tell whether an operator is made of others, so that fake tensors run through it."""
    assert call.target.overload is not None
    name = call.target.overload.name()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, "CompositeImplicitAutograd")
