"""Tests a Function's backward once for each kind of call: is it the same when PyTorch watches it?

The derivative of backward comes from a run that PyTorch watches. But an author's code may catch
what autograd raises inside a transform, and go on without. Linearity is tested here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from pullback.bind import linear
from pullback.bind.disconnected import as_list
from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.context import Context, State, replace_tensors
from pullback.bind.functions.residuals import Pull
from pullback.bind.levels import copy_requiring_grad
from pullback.bind.linear import ALLOWED, Run, Tensors, attempt, differ, run_seeded
from pullback.bind.memo import Memo, key_of_argument
from pullback.diagnostic import Rule


class BackwardTrial:
    """What is known about one Function's backward, by the kind of call."""

    def __init__(self, adopted: Adopted) -> None:
        self.adopted = adopted
        self.known: Memo[object, bool] = Memo()

    def require_linear(self, kind: object, run: Run, outputs: Sequence[Tensor | None]) -> None:
        """Stop if backward is not linear in the gradients of these outputs.

        Args:
            kind: of the call.
            run: backward, which takes gradients.
            outputs: of the call, None for one that has no gradient.
        """
        if ("linear", kind) in self.known:
            return
        name = self.adopted.function.__name__
        with _disable_current_modes():  # a tracer would record it as part of the program
            size = linear.require_linear(self.adopted.backward_of, name, run, outputs)
        if size:  # zeros prove nothing
            self.known["linear", kind] = True

    def require_same(
        self, kind: object, watched: Callable[[], Tensors], plain: Callable[[], Tensors], rule: Rule
    ) -> None:
        """Stop if backward gives something else while PyTorch watches it.

        Args:
            kind: of the call.
            watched: runs it so that it can be differentiated.
            plain: runs it as it is.
            rule: of the error.
        """
        if (rule.code, kind) in self.known:
            return
        with _disable_current_modes():
            seen, right = run_seeded(watched), run_seeded(plain)
            other = differ(seen, right, ALLOWED, beside=right)
        if other:
            raise rule.error(
                f"{self.adopted.backward_of} gives other gradients where PyTorch has to look into "
                "it, so it cannot be differentiated: it computes a gradient itself and goes on "
                "where that raises, or asks whether a tensor requires one",
                help="compute in PyTorch on the tensors themselves; for forward mode, give a jvp",
            )
        self.known[rule.code, kind] = True

    def is_watchable(self, ctx: Context, plain: Context, grads: Sequence[Tensor | None]) -> bool:
        """Return whether backward gives the same on tensors that are connected to the inputs.

        Args:
            ctx: with such tensors.
            plain: the `ctx` that PyTorch itself would give.
            grads: the gradients that arrive.
        """
        tensors = [*ctx.saved_tensors, *grads]
        watched = (tensor is not None and tensor.requires_grad for tensor in tensors)
        kind = ("watchable", *map(key_of_argument, tensors), *watched, *scalars_in(vars(ctx)))
        if kind not in self.known:
            seen = attempt(lambda given: self.alone(ctx, given), grads)
            with torch.no_grad():
                right = attempt(lambda given: self.alone(plain, given), grads)
            same = seen is not None and right is not None and agree(seen, right)
            self.known[kind] = same
        return self.known[kind]

    def alone(self, ctx: Context, grads: Sequence[Tensor | None]) -> list[Any]:
        """Run backward on copies, so that no gradient reaches what the tensors depend on."""
        own = [None if grad is None else copy_tensor(grad) for grad in grads]
        return as_list(self.adopted.pull(replace_tensors(ctx, copy_tensor), *own))


def copy_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor of the same values; it is a leaf, and requires a gradient, if that one is."""
    if not tensor.requires_grad:
        return tensor.detach()
    own = copy_requiring_grad(tensor)
    return own if tensor.is_leaf else own.view_as(own)


def agree(found: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether a backward gave the right gradients, None where it has none."""
    pairs = [p for p in zip(found, right, strict=False) if p != (None, None)]
    if any(not isinstance(t, Tensor) for pair in pairs for t in pair):
        return False
    if len(found) != len(right) or any(a.shape != b.shape for a, b in pairs):
        return False
    found, right = [a for a, _ in pairs], [b for _, b in pairs]
    return not differ(found, right, ALLOWED, beside=right)


def kind_of(state: State, pull: Pull) -> object:
    """Return everything that backward may branch on without reading a tensor's values."""
    return (*map(key_of_argument, pull.flat()), *pull.needs, *scalars_in(state.attributes))


def scalars_in(attributes: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return those of a ctx's attributes that are numbers, strings or None."""
    return [(k, v) for k, v in attributes.items() if v is None or isinstance(v, int | float | str)]
