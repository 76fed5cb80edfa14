"""Gradients and inputs of other strides: equal values have to give equal numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.verify.agreement import describe_differing, find_first_differing
from pullback.verify.call import Call, can_require_grad
from pullback.verify.invariance.answer import (
    Answer,
    compute_answer,
    grad_name,
    gradients_differ,
    is_alike,
    steady_answer,
)
from pullback.verify.invariance.layouts import Layout, as_read_in_order, layouts_of, plain
from pullback.verify.invariance.noise import is_noise
from pullback.verify.remembered import remembered
from pullback.verify.tracing.operations import require_undrawn


@dataclass(frozen=True, kw_only=True)
class LayoutTrial:
    """One layout whose results differ from those of ordinary memory.

    Attributes:
        layout: of which tensor.
        tensor: its name: "grad", "x".
        error: what was raised.
        of: "the gradient of `x`" or "output 0", which is wrong.
        wrong: the elements that are wrong.
        in_order: whether it gives what a reader that ignores the strides gets.
    """

    layout: Layout
    tensor: str
    error: Exception | None = None
    of: str = ""
    wrong: str = ""
    in_order: bool = False


@remembered
def try_grads(call: Call) -> list[LayoutTrial]:
    """Send gradients of other strides; return those that fail or give other results.

    Raises:
        NotApplicable: nothing can be learned from a difference.
    """
    require_undrawn(call)
    return list(try_all_grads(call))


def try_all_grads(call: Call) -> Iterator[LayoutTrial]:
    """Yield the layouts of gradients that fail, and their output."""
    base = steady_answer(call)
    chosen = [i for i, grad in enumerate(base.grads) if grad is not None]
    names: dict[str, None] = {}
    for index in chosen:
        names |= dict.fromkeys(layout.name for layout in layouts_of(ordinary_grad(base, index)))
    for name in names:
        if try_grad(call, base, name, chosen) is None:
            continue
        for index in chosen:
            if (found := confirm_trial(try_grad, call, base, name, [index])) is not None:
                yield found


def try_grad(call: Call, base: Answer, name: str, outputs: list[int]) -> LayoutTrial | None:
    """Lay out the gradients of some outputs; None if that makes no difference."""
    ordinary, special = list(base.grads), list(base.grads)
    used: Layout | None = None
    for index in outputs:
        own = ordinary_grad(base, index)
        for layout in layouts_of(own):
            if layout.name == name:
                ordinary[index], special[index] = layout.values(own), layout.make(own)
                used = layout
    if used is None:
        return None
    tensor = grad_name(call, outputs[0])
    try:
        right = compute_answer(call, ordinary)
    except Exception:  # not a question of strides
        return None
    try:
        found = compute_answer(call, special)
    except Exception as error:
        return LayoutTrial(layout=used, tensor=tensor, error=error)
    if (wrong := gradients_differ(found, right)) is None:
        return None
    leaf, where = wrong
    return LayoutTrial(
        layout=used,
        tensor=tensor,
        of=f"the gradient of `{call.leaves[leaf].name}`",
        wrong=describe_differing(where, found.gradients[leaf], right.gradients[leaf]),
        in_order=reads_in_order(call, special, found),
    )


def reads_in_order(call: Call, grads: list[Tensor | None], found: Answer) -> bool:
    """Tell whether gradients are read as if their elements were contiguous."""
    read = [None if grad is None else as_read_in_order(grad) for grad in grads]
    if [grad is None for grad in read] != [grad is None for grad in grads]:
        return False
    return gradients_differ(compute_answer(call, read), found) is None


def ordinary_grad(base: Answer, output: int) -> Tensor:
    """Return the ordinary gradient for an output."""
    grad = base.grads[output]
    assert grad is not None
    return grad


@remembered
def try_inputs(call: Call) -> list[LayoutTrial]:
    """Give inputs of other strides; return those with other results, or that fail in backward.

    A forward may raise, to refuse a layout.

    Raises:
        NotApplicable: nothing can be learned from a difference.
    """
    require_undrawn(call)
    return list(try_all_inputs(call))


def try_all_inputs(call: Call) -> Iterator[LayoutTrial]:
    """Yield the layouts of inputs that fail, and the input."""
    leaves = [i for i, leaf in enumerate(call.leaves) if not leaf.parameter]
    names: dict[str, None] = {}
    for index in leaves:
        names |= dict.fromkeys(layout.name for layout in layouts_of(call.leaves[index].value))
    base = steady_answer(call)
    for name in names:
        alone = [
            found for i in leaves if (found := confirm_trial(try_input, call, base, name, [i]))
        ]
        yield from alone
        if not alone and len(leaves) > 1:
            together = confirm_trial(try_input, call, base, name, leaves)
            if together is not None:
                yield together


Ask = Callable[[Call, Answer, str, list[int]], LayoutTrial | None]


def confirm_trial(
    ask: Ask, call: Call, base: Answer, name: str, chosen: list[int]
) -> LayoutTrial | None:
    """Make a trial; a difference that vanishes in float64 is rounding and not due to strides."""
    found = ask(call, base, name, chosen)
    if found is None or found.error is not None or found.in_order or call.double is None:
        return found
    return found if ask(call.double, steady_answer(call.double), name, chosen) else None


def try_input(call: Call, base: Answer, name: str, leaves: list[int]) -> LayoutTrial | None:
    """Lay out some inputs; None if that makes no difference, or is refused."""
    layouts: dict[int, Layout] = {}
    for index in leaves:
        for layout in layouts_of(call.leaves[index].value):
            if layout.name == name:
                layouts[index] = layout
    if not layouts:
        return None
    makes = [layouts[i].make if i in layouts else torch.clone for i in range(len(call.leaves))]
    values = [layouts[i].values if i in layouts else torch.clone for i in range(len(call.leaves))]
    layout = next(iter(layouts.values()))
    tensor = "`, `".join(call.leaves[i].name for i in layouts)
    try:
        right = base if layout.values is plain else compute_answer(call, base.grads, prepare=values)
        call.forward(prepare=makes)
    except Exception:  # refused, or not a question of strides
        return None
    try:
        found = compute_answer(call, base.grads, prepare=makes)
    except Exception as error:
        return LayoutTrial(layout=layout, tensor=tensor, error=error)
    trial = compare_layouts(call, layout, tensor, found, right)
    return None if trial is None or is_noise(call, base, values, found, right) else trial


def compare_layouts(
    call: Call, layout: Layout, tensor: str, found: Answer, right: Answer
) -> LayoutTrial | None:
    """Compare the results for two layouts of the same values."""
    shapes = [[output.shape for output in own.outputs] for own in (found, right)]
    if shapes[0] != shapes[1]:
        return LayoutTrial(
            layout=layout,
            tensor=tensor,
            of="the outputs",
            wrong=f"shapes {[*map(tuple, shapes[0])]} for {[*map(tuple, shapes[1])]}",
        )
    if is_alike(found, right):
        return None
    # An index may point to another one of equal values.
    chosen = [i for i, own in enumerate(right.outputs) if can_require_grad(own)]
    outputs = [[own.outputs[i] for i in chosen] for own in (found, right)]
    if (wrong := find_first_differing(outputs[0], outputs[1])) is not None:
        number, where = wrong
        of = f"output {chosen[number]}"
        text = describe_differing(where, outputs[0][number], outputs[1][number])
        return LayoutTrial(layout=layout, tensor=tensor, of=of, wrong=text)
    if (wrong := gradients_differ(found, right)) is not None:
        leaf, where = wrong
        of = f"the gradient of `{call.leaves[leaf].name}`"
        text = describe_differing(where, found.gradients[leaf], right.gradients[leaf])
        return LayoutTrial(layout=layout, tensor=tensor, of=of, wrong=text)
    return None
