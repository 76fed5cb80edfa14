"""torch.func around a call: vmap compared with a loop, its gradients with ordinary ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.verify.call import Call, tensors_in
from pullback.verify.probe import NotApplicable

InDims = tuple[int | None, ...]
# Up to this many inputs, every combination of batched and unbatched ones is tried.
ALL_COMBINATIONS = 3


def supports_transforms(call: Call) -> bool:
    """Tell whether torch.func takes the target: a Function has to have `setup_context`."""
    return call.target.kind != "function" or "setup" in call.target.parts


def supports_vmap(call: Call) -> bool:
    """Tell whether the author offers vmap."""
    target = call.target
    if target.kind == "function":
        own = bool(getattr(target.given, "generate_vmap_rule", False))
        return supports_transforms(call) and (own or "vmap" in target.parts)
    return target.kind == "operator" or (target.kind == "library" and "vmap" in target.parts)


def outputs_of(call: Call, seed: int | None = None) -> Callable[..., tuple[Tensor, ...]]:
    """Return the target as a function of its leaves."""

    def function(*given: Tensor) -> tuple[Tensor, ...]:
        return tensors_in(call.on(given, seed=seed))

    return function


def gradients_of(call: Call) -> Callable[..., tuple[Tensor, ...]]:
    """Return the gradients of the wanted leaves as a function of the leaves, by torch.func."""
    run = call.forward()
    grads = [g for g in run.random_grads() if g is not None]
    differentiable = run.differentiable

    def gradients(*given: Tensor) -> tuple[Tensor, ...]:
        def of_wanted(*wanted: Tensor) -> tuple[Tensor, ...]:
            values = list(given)
            for index, value in zip(call.wanted, wanted, strict=True):
                values[index] = value
            outputs = tensors_in(call.on(values))
            return tuple(outputs[i] for i in differentiable)

        made: Any = torch.func.vjp(of_wanted, *(given[i] for i in call.wanted))
        return made[1](tuple(grads))

    return gradients


def in_dims_of(call: Call) -> Iterator[InDims]:
    """Yield which inputs are batched, and where: all and some of them, first and last."""
    count = len(call.leaves)
    if count <= ALL_COMBINATIONS:
        yield from (d for d in itertools.product((0, None), repeat=count) if is_any_batched(d))
    else:
        yield (0,) * count
        for one in range(count):
            yield tuple(0 if i == one else None for i in range(count))
            yield tuple(None if i == one else 0 for i in range(count))
    yield tuple(leaf.value.dim() for leaf in call.leaves)
    if count > 1:
        yield (call.leaves[0].value.dim(), *(0 for _ in call.leaves[1:]))


def is_any_batched(dims: InDims) -> bool:
    """Tell whether any input is batched."""
    return any(d is not None for d in dims)


def batch_size(call: Call) -> int:
    """Return a batch size equal to that of an axis, so that a wrong axis fits and gives numbers."""
    sizes = [n for leaf in call.leaves for n in leaf.value.shape if 2 <= n <= 8]
    return min(sizes, default=3)


def make_batch(call: Call, dims: InDims) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Return the leaves with a batch in these dimensions, and the same one by one."""
    size = batch_size(call)
    given: list[Tensor] = []
    singles: list[list[Tensor]] = [[] for _ in range(size)]
    for leaf, dim in zip(call.leaves, dims, strict=True):
        value = leaf.value.detach()
        # Near the given values: others may be outside forward's domain.
        own = [value * (1 - k / 16) if value.is_floating_point() else value for k in range(size)]
        own = [v.to(value.dtype) for v in own]
        given.append(value.clone() if dim is None else torch.stack(own, dim))
        for k, single in enumerate(singles):
            single.append(value if dim is None else own[k])
    return given, singles


def run_loop(
    function: Callable[..., Sequence[Tensor]], singles: Sequence[Sequence[Tensor]]
) -> list[Tensor]:
    """Return the stacked results of a loop.

    Raises:
        NotApplicable: they are not of one shape, or the ordinary call raises for one.
    """
    try:
        rows = [function(*(t.clone() for t in single)) for single in singles]
        return [torch.stack([t.detach() for t in column]) for column in zip(*rows, strict=True)]
    except Exception as error:
        raise NotApplicable("a loop over the batch raises") from error
