"""Backward on batched gradients: `is_grads_batched`, or `vmap` over `torch.autograd.grad`.

They reach the Function's own node, and no operator with a batching rule is below that. This file
also tests whether PyTorch's own rule works, which runs forward and backward on a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import _VF, Tensor, func
from torch._functorch.pyfunctorch import (
    VmapInterpreter,
    retrieve_current_functorch_interpreter,
    temporarily_clear_interpreter_stack,
)
from torch._functorch.vmap import unwrap_batched, wrap_batched
from torch.utils import _pytree as pytree

from pullback.bind.batching import loop_over_batch, stack_columns
from pullback.bind.concrete import make_stand_in
from pullback.bind.example.trial import seed_generators
from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.trial import ALLOWED, differ
from pullback.bind.levels import is_legacy, is_smooth, unwrap
from pullback.bind.memo import Memo, key_of_argument

transforms_active = torch._C._are_functorch_transforms_active

Backward = Callable[..., list[Any]]


def is_batched(grads: Sequence[Tensor | None]) -> bool:
    """Return whether gradients may be batched."""
    if transforms_active():
        return True
    for grad in grads:  # noqa: SIM110  (a generator costs as much as the rest; asked in every backward)
        if grad is not None and is_legacy(grad):
            return True
    return False


def run_batched(
    backward: Backward, grads: Sequence[Tensor | None], known: Memo[object, bool]
) -> list[Any]:
    """Run backward on the batch; or for each element, if that differs, as with NumPy.

    Args:
        backward: takes gradients.
        grads: these, which may be batched.
        known: for each kind of call whether it may be run at once; this one's is added.
    """
    each = choose_loop(grads)
    if each is None:
        return backward(*grads)
    kind = (each, *map(key_of_argument, grads))
    if known.get(kind) is False:
        return each(backward, grads)
    try:
        whole = backward(*grads)
    except RuntimeError:
        return each(backward, grads)
    if kind in known:
        return whole
    # The author's code may have caught what PyTorch raises for a batch, and gone on without.
    rows = each(backward, grads)
    known[kind] = is_same(whole, rows)
    return rows


def is_same(whole: Sequence[Any], rows: Sequence[Any]) -> bool:
    """Return whether the batch gave the same as the elements one by one."""
    if [w is None for w in whole] != [r is None for r in rows]:
        return False
    pairs = [(w, r) for w, r in zip(whole, rows, strict=True) if w is not None]
    with torch.no_grad():
        found = [unbatch(w - r) for w, r in pairs]
    right = [unbatch(r) for _, r in pairs]
    return not differ(found, [torch.zeros_like(f) for f in found], ALLOWED, beside=right)


def unbatch(tensor: Tensor) -> Tensor:
    """Return a batched tensor as one plain tensor."""
    if is_legacy(tensor):
        tensor = _VF._remove_batch_dim(tensor, legacy_level(), 0, 0)  # pyright: ignore[reportArgumentType]
    return unwrap(tensor)


def legacy_level() -> int:
    """Return the number of nested batches of the older API."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return level


def runs_on_batch(adopted: Adopted, arguments: Sequence[Any]) -> bool:
    """Return whether forward and backward run on a batch of two, of values like these."""
    places = [i for i, value in enumerate(arguments) if is_smooth(value)]

    def run(*tensors: Tensor) -> Any:  # noqa: ANN401
        given = [make_stand_in(value) for value in arguments]
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        return adopted.function.apply(*given)

    def pulled(*tensors: Tensor) -> Any:  # noqa: ANN401
        outputs, pull = func.vjp(run, *tensors)[:2]
        return pull(pytree.tree_map(torch.ones_like, outputs))

    with temporarily_clear_interpreter_stack(), seed_generators(0):
        pairs = [torch.stack([make_stand_in(arguments[place])] * 2) for place in places]
        try:
            func.vmap(pulled, randomness="different")(*pairs)
        except Exception:  # a batch has no boolean masks and no `item()`: any error is possible
            return False
    return True


def choose_loop(grads: Sequence[Tensor | None]) -> Callable[..., list[Any]] | None:
    """Return the function that runs backward for each element, None if nothing is batched."""
    if any(grad is not None and is_legacy(grad) for grad in grads):
        return run_each_legacy
    if transforms_active():
        return (
            run_each
            if isinstance(retrieve_current_functorch_interpreter(), VmapInterpreter)
            else None
        )
    return None


def run_each(backward: Backward, grads: Sequence[Tensor | None]) -> list[Any]:
    """Run backward for each element of gradients that `torch.vmap` batched."""
    top = retrieve_current_functorch_interpreter()
    assert isinstance(top, VmapInterpreter)
    level, size = top.level(), top.batch_size()
    plain, dims = unwrap_batched(tuple(grads), level)
    with top.lower():
        rows = loop_over_batch(lambda *g: run_batched(backward, g, Memo()), size, dims, plain)
        columns = stack_columns(rows, size)
    return list(wrap_batched(tuple(columns), tuple(c if c is None else 0 for c in columns), level))


def run_each_legacy(backward: Backward, grads: Sequence[Tensor | None]) -> list[Any]:
    """Run backward for each element of gradients that `is_grads_batched` batched."""
    level = legacy_level()
    dims = [0 if grad is not None and is_legacy(grad) else None for grad in grads]
    plain: list[Any] = [
        grad if dim is None else _VF._remove_batch_dim(grad, level, 0, 0)  # pyright: ignore[reportArgumentType]
        for grad, dim in zip(grads, dims, strict=True)
    ]
    size = next(grad.shape[0] for grad, dim in zip(plain, dims, strict=True) if dim is not None)
    torch._C._vmapmode_decrement_nesting()  # in a batch PyTorch refuses `backward()`
    try:
        rows = loop_over_batch(lambda *g: run_batched(backward, g, Memo()), size, dims, plain)
    finally:
        torch._C._vmapmode_increment_nesting()
    return [
        None if column is None else _VF._add_batch_dim(column, 0, level)
        for column in stack_columns(rows, size)
    ]
