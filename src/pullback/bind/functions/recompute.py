"""The derivative of an intermediate that forward saved: runs forward again under autograd.

PyTorch's own Function forgets how an intermediate depends on the inputs, and a second derivative
silently lacks that part. Running forward again with autograd on recovers it, if forward is written
in PyTorch and gives the same intermediate again; otherwise it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.context import Context, State, TensorPlace, exchange
from pullback.bind.levels import differentiate, is_smooth, unwrap, view_afresh
from pullback.diagnostic import PullbackError, Rule

IntermediateDerivative = Rule("PB376", "intermediate-derivative")
SHIFT = 1e-3  # of the inputs, to see whether an intermediate depends on them at all


def intermediate_derivative(adopted: Adopted, why: str) -> PullbackError:
    """Return the error for a second derivative through an intermediate."""
    return IntermediateDerivative.error(
        f"{adopted.line.qualname}: the second derivative goes through an intermediate that forward "
        f"of {adopted.function.__name__} saved, whose own derivative is not known: {why}",
        help="compute it in backward from the saved inputs, or return it as one more output",
    )


@dataclass(frozen=True)
class Again:
    """A call of forward that can be repeated.

    Attributes:
        adopted: the Function.
        state: what forward left on `ctx`.
        scalars: the flat arguments that are not tensors, in their places.
        lengths: of the lists among the arguments.
    """

    adopted: Adopted
    state: State
    scalars: Sequence[Any]
    lengths: tuple[int, ...]

    def gradients(
        self,
        inputs: Sequence[Tensor | None],
        kept: Sequence[Tensor],
        grads: Sequence[Tensor | None],
    ) -> list[Tensor | None]:
        """Return what the gradients of intermediates add to those of the flat arguments."""
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad():
            flat = self.filled([view_afresh(t) for t in inputs])
            again = self.intermediates(flat)
            pairs = [
                (again[i], grad)
                for i, grad in enumerate(grads)
                if grad is not None and self.depends(i, again[i].requires_grad, kept, again, flat)
            ]
            wanted = [t for t in flat if is_smooth(t) and t.requires_grad]
            found = differentiate(pairs, wanted, differentiable=differentiable)
        each = iter(found)
        return [next(each) if is_smooth(t) and t.requires_grad else None for t in flat]

    def with_tangents(self, duals: Sequence[Any], kept: Sequence[Tensor]) -> list[Tensor]:
        """Return the intermediates with the tangents that follow from the arguments' tangents."""
        flat = self.filled(duals)
        again = self.intermediates(flat)
        found: list[Tensor] = []
        for index, tensor in enumerate(kept):
            tangent = forward_ad.unpack_dual(again[index]).tangent if is_smooth(tensor) else None
            has = tangent is not None
            if is_smooth(tensor) and self.depends(index, has, kept, again, flat):
                tensor = forward_ad.make_dual(tensor, tangent)  # noqa: PLW2901
            found.append(tensor)
        return found

    def filled(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the flat arguments, or stop if a tensor among them was not saved."""
        if self.adopted.line.changed:
            raise intermediate_derivative(self.adopted, "its input is changed in place")
        flat = [s if t is None else t for t, s in zip(tensors, self.scalars, strict=True)]
        if any(value is MISSING for value in flat):
            raise intermediate_derivative(self.adopted, "not all inputs are saved")
        return flat

    def intermediates(self, flat: Sequence[Any]) -> list[Tensor]:
        """Run forward and return its intermediates, from the places that the state names."""
        adopted = self.adopted
        ctx = Context(adopted.as_forward([True] * len(flat), self.lengths))
        try:
            adopted.forward(ctx, adopted.as_forward(flat, self.lengths))
            pairs = list(self.pairs(ctx))
        except (RuntimeError, ValueError, KeyError) as error:
            raise intermediate_derivative(adopted, f"run again, forward raises: {error}") from error
        found = {place.index: tensor for place, tensor in pairs if place.of == "kept"}
        return [found[index] for index in sorted(found)]

    def pairs(self, ctx: Context) -> Iterator[tuple[TensorPlace, Tensor]]:
        """Yield each place of the state with the tensor that is there this time."""
        for place, tensor in zip(self.state.saved, ctx.to_save, strict=True):
            if place is not None and tensor is not None:
                yield place, tensor
        for name, value in self.state.attributes.items():
            places: list[TensorPlace] = []
            tensors: list[Tensor] = []
            exchange(value, TensorPlace, places.append)
            exchange(vars(ctx)[name], Tensor, tensors.append)
            yield from zip(places, tensors, strict=True)

    def depends(
        self,
        index: int,
        connected: bool,
        kept: Sequence[Tensor],
        again: Sequence[Tensor],
        flat: Sequence[Any],
    ) -> bool:
        """Return whether an intermediate depends on the inputs, as PyTorch sees it.

        Stop if it differs from the one that was kept, or depends on them in a way that PyTorch does
        not see. A constant may differ, such as the mask of a dropout.
        """
        if connected:
            if differ(kept[index], again[index]):
                raise intermediate_derivative(self.adopted, "run again, forward gives another one")
            return True
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            before = self.intermediates(flat)[index]
            torch.manual_seed(0)
            moved = [t + SHIFT * (1 + t.abs()) if is_smooth(t) else t for t in flat]
            after = self.intermediates(moved)[index]
        if differ(before, after):
            raise intermediate_derivative(self.adopted, "it is cut off from the inputs")
        return False


MISSING = object()


def scalars_of(flat: Sequence[Any], *, saved: Sequence[bool]) -> list[Any]:
    """Return the flat arguments, with None for saved tensors and `MISSING` for the others."""
    return [
        value if not isinstance(value, Tensor) else None if has else MISSING
        for value, has in zip(flat, saved, strict=True)
    ]


def differ(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors, wrapped by functorch or not, differ in an element."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return True
    with torch.no_grad():
        unequal = (first != second) & ~(first.isnan() & second.isnan())
        return bool(unwrap(unequal).any())
