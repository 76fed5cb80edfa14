"""What surrounds a call: functorch, forward mode, tracers; and how to go below, or outside."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

# `torch.autograd.grad(is_grads_batched=True)` batches in an older way than `torch.vmap`.
is_legacy = _functorch.is_legacy_batchedtensor

BELOW = torch._C._AutoDispatchBelowAutograd
INCLUDED, EXCLUDED = (
    torch._C._dispatch_tls_local_include_set,
    torch._C._dispatch_tls_local_exclude_set,
)
FORCED = torch._C._ForceDispatchKeyGuard
# The dispatch keys that `BELOW` excludes.
with FORCED(INCLUDED(), EXCLUDED() - EXCLUDED()), BELOW():
    AUTOGRAD = EXCLUDED()


class EagerMode(TorchDispatchMode):
    """A mode that no compiled code enters.

    PyTorch imports its compiler to keep it from tracing a mode, which takes a second or more.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@contextmanager
def allow_recording() -> Generator[None]:
    """Run an author's code inside a kernel as PyTorch runs it outside of one: without a gradient.

    A kernel lies below autograd, where `enable_grad` has no effect. Code that computes a gradient
    itself needs one.
    """
    with FORCED(INCLUDED(), EXCLUDED() - AUTOGRAD), torch.no_grad():
        yield


def is_tracked(flat: Sequence[object]) -> bool:
    """Return whether a derivative is recorded for a call with these values."""
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in flat)


def tangents_of(flat: Sequence[object]) -> list[Tensor | None]:
    """Return the tangent of each value, None where it has none."""
    if forward_ad._current_level < 0:
        return [None] * len(flat)
    return [forward_ad.unpack_dual(t).tangent if isinstance(t, Tensor) else None for t in flat]


def has_tangent(flat: Sequence[object]) -> bool:
    """Return whether a value has a tangent."""
    return any(tangent is not None for tangent in tangents_of(flat))


def take_primal(value: Any) -> Any:  # noqa: ANN401
    """Return a value without its tangent, still differentiable in reverse mode."""
    if isinstance(value, list | tuple):
        return [take_primal(v) for v in value]
    return forward_ad.unpack_dual(value).primal if isinstance(value, Tensor) else value


def materialize_tangent(tangent: Tensor | None, value: object) -> Tensor | None:
    """Return a tangent as jvp takes it: zeros where there is none, None for what is no tensor."""
    if tangent is None and isinstance(value, Tensor) and is_smooth(value):
        return torch.zeros_like(value)
    return tangent


def is_hold() -> bool:
    """Return whether intermediates stay hidden: a tracer could not know their shapes."""
    return torch._C._len_torch_dispatch_stack() > 0


def view_afresh(tensor: Tensor | None) -> Tensor | None:
    """Return a view whose history is a node of its own.

    In `jacrev`, a level of functorch is over when its backward runs: its tensors are unwrapped,
    and only values are left.
    """
    if tensor is None or not is_smooth(tensor):
        return tensor
    value = _functorch.unwrap_if_dead(tensor)
    if tensor.requires_grad and not value.requires_grad:
        return copy_requiring_grad(value)
    return value.view_as(value)


def direct(node: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Return a function that applies a node at the functorch level at which a kernel is called."""
    apply: Callable[..., Any] = super(torch.autograd.Function, node).apply  # pyright: ignore

    def call(*arguments: Any) -> Any:  # noqa: ANN401
        with allow_single_level():
            return apply(*arguments)

    return call


@contextmanager
def lower() -> Generator[None]:
    """Go below this level's autograd; a lower level of functorch records for itself."""
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), BELOW():
        yield


def is_smooth(value: object) -> bool:
    """Return whether a value is a tensor that can have a derivative."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def differentiate(
    results: Sequence[tuple[Tensor, Tensor]], inputs: Sequence[Tensor], *, differentiable: bool
) -> Sequence[Tensor | None]:
    """Return the gradient of each input, given results and the gradients that arrive for them.

    A result without a history adds nothing; an input that no result depends on gets None.
    """
    connected = [(result, grad) for result, grad in results if result.requires_grad]
    if not connected or not inputs:
        return [None] * len(inputs)
    return torch.autograd.grad(
        [result for result, _ in connected],
        inputs,
        [grad for _, grad in connected],
        create_graph=differentiable,
        allow_unused=True,
    )


def unwrap(tensor: Tensor) -> Tensor:
    """Return a tensor without functorch's wrappers, at all levels."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def copy_requiring_grad(tensor: Tensor) -> Tensor:
    """Return a tensor of the same values that requires a gradient."""
    with allow_single_level():
        return tensor.detach().requires_grad_()


@contextmanager
def allow_single_level() -> Generator[None]:
    """Let one level of functorch use autograd's own functions, as functorch itself does."""
    function = _functorch.get_single_level_autograd_function_allowed()
    in_place = _functorch.get_inplace_requires_grad_allowed()
    _functorch.set_single_level_autograd_function_allowed(True)
    _functorch.set_inplace_requires_grad_allowed(True)
    try:
        yield
    finally:
        _functorch.set_single_level_autograd_function_allowed(function)
        _functorch.set_inplace_requires_grad_allowed(in_place)


Result = TypeVar("Result")


def run_isolated(function: Callable[[], Result]) -> Result:
    """Call a function in a thread of its own, away from `vmap`, forward mode, autocast and tracers.

    A loop is compiled, compared and timed in the middle of a user's call, whose state must not
    reach that work: it all belongs to the thread. Autograd is left out too, since the arguments
    may be dual numbers, whose tangents it would compute.
    """

    def run() -> Result:
        with torch.no_grad(), BELOW():
            return function()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run).result()
