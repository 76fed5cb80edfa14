"""The ways of PyTorch that the matrix crosses its rows with, each with what may raise there.

A way compares what it makes of an operator with what PyTorch makes of the row's reference.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rows import ROWS, Row
from torch import Tensor, func
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

# A function of a row's tensors alone, and the tensors.
Function = Callable[..., tuple[Tensor, ...]]
Tensors = tuple[Tensor, ...]
Use = Callable[[Function, Tensors], Any]


@dataclass(frozen=True)
class Refusal:
    """What is raised where something cannot be done, and the footnote that says what to do."""

    pattern: str
    says: str
    instead: str


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of using an operator.

    Attributes:
        name: as in the table of the docs.
        check: uses the operator of a row and compares; takes the seed of the test.
        refusal: what it raises for a row, None where it works.
        only: the rows that it is tested with, where a way takes long.
    """

    name: str
    check: Callable[[Row, int], None]
    refusal: Callable[[Row], Refusal | None] = lambda row: None
    only: tuple[Row, ...] = ROWS


# --- comparing


def same(found: Any, expected: Any, **tolerances: Any) -> None:
    """Compare two trees of tensors."""
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **tolerances)


def on_tensors(arguments: tuple[Any, ...], call: Callable[..., Any]) -> tuple[Function, Tensors]:
    """Return a function of the tensors among some arguments, and them."""
    places = [i for i, value in enumerate(arguments) if isinstance(value, Tensor)]

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = list(arguments)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        outputs = call(*given)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return function, tuple(arguments[i] for i in places)


def total(function: Function) -> Callable[..., Tensor]:
    """Return a scalar function in which every output counts differently, and not linearly."""

    def loss(*tensors: Tensor) -> Tensor:
        parts = [(i + 1) * (output**2).sum() for i, output in enumerate(function(*tensors))]
        return torch.stack(parts).sum()

    return loss


def leaves_of(tensors: Tensors) -> list[Tensor]:
    return [t.detach().clone().requires_grad_() for t in tensors]


def numbers(tensors: Tensors) -> tuple[int, ...]:
    return tuple(range(len(tensors)))


def gradients(function: Function, tensors: Tensors) -> Any:
    leaves = leaves_of(tensors)
    return torch.autograd.grad(total(function)(*leaves), leaves)


def both(use: Use, plain: Use | None = None, *, first: bool = False) -> Callable[[Row, int], None]:
    """Return a check: `use` of the operator makes what `plain` makes of the reference.

    Args:
        use: what is done with the operator.
        plain: what is done with the reference; the same, if it is left out.
        first: whether the first example will do, because a way takes long.
    """

    def check(row: Row, seed: int) -> None:
        for example in range(1 if first else len(row.examples)):
            arguments = row.arguments(seed, example)
            found = use(*on_tensors(arguments, row.operator))
            same(found, (plain or use)(*on_tensors(arguments, row.reference)))

    return check


# --- eager and torch.func


def values(function: Function, tensors: Tensors) -> Any:
    with torch.no_grad():
        first = function(*tensors)
    with torch.inference_mode():
        second = function(*tensors)
    return [first, [value.clone() for value in second]]


def each_alone(function: Function, tensors: Tensors) -> Any:
    """Return the gradients of each output alone by all inputs, and of all by each alone."""
    found = [gradients(function, tensors)]
    for k in range(len(function(*tensors))):
        leaves = leaves_of(tensors)
        found.append(torch.autograd.grad(function(*leaves)[k].sum(), leaves))
    for k in range(len(tensors)):
        some = [t.clone().requires_grad_(i == k) for i, t in enumerate(tensors)]
        found.append(torch.autograd.grad(total(function)(*some), some[k]))
    return found


def double_backward(function: Function, tensors: Tensors) -> Any:
    leaves = leaves_of(tensors)
    first = torch.autograd.grad(total(function)(*leaves), leaves, create_graph=True)
    return torch.autograd.grad(torch.stack([(g**2).sum() for g in first]).sum(), leaves)


def forward_mode(function: Function, tensors: Tensors) -> Any:
    with forward_ad.dual_level():
        outputs = function(*(forward_ad.make_dual(t, t.sin()) for t in tensors))
        tangents = [forward_ad.unpack_dual(o).tangent for o in outputs]
    assert all(tangent is not None for tangent in tangents)
    return tangents


def func_grad(function: Function, tensors: Tensors) -> Any:
    return func.grad(total(function), numbers(tensors))(*tensors)


def func_vjp(function: Function, tensors: Tensors) -> Any:
    outputs, pull = func.vjp(function, *tensors)[:2]
    return outputs, pull(tuple(output.cos() for output in outputs))


def func_jvp(function: Function, tensors: Tensors) -> Any:
    return func.jvp(function, tensors, tuple(t.sin() for t in tensors))


def hessian(function: Function, tensors: Tensors) -> Any:
    return func.hessian(total(function), numbers(tensors))(*tensors)


def batches(tensors: Tensors, dims: tuple[int | None, ...], size: int = 3) -> Tensors:
    """Return tensors with a batch dimension where `dims` says; the elements differ."""
    return tuple(
        t if dim is None else torch.stack([t + 0.25 * k for k in range(size)], dim)
        for t, dim in zip(tensors, dims, strict=True)
    )


def vmap(function: Function, tensors: Tensors) -> Any:
    """Return what vmap makes of every combination of `in_dims`."""
    choices = [(None, *range(t.dim() + 1), -1) for t in tensors]
    every = [dims for dims in itertools.product(*choices) if any(d is not None for d in dims)]
    return [func.vmap(function, in_dims=dims)(*batches(tensors, dims)) for dims in every]


def vmap_grad(function: Function, tensors: Tensors) -> Any:
    gradient = func.grad(total(function), numbers(tensors))
    count = len(tensors)
    every = {(0,) * count, (-1,) * count, (0, *(None,) * (count - 1)), (*(None,) * (count - 1), 0)}
    return [
        func.vmap(gradient, in_dims=dims)(*batches(tensors, dims))
        for dims in sorted(every, key=str)
    ]


def grads_batched(function: Function, tensors: Tensors) -> Any:
    leaves = leaves_of(tensors)
    output = function(*leaves)[0]
    eye = torch.eye(output.numel(), dtype=output.dtype).view(-1, *output.shape)
    return torch.autograd.grad(output, leaves, eye, is_grads_batched=True)


def reverse_over_reverse(function: Function, tensors: Tensors) -> Any:
    gradient = func.grad(total(function), numbers(tensors))
    return func.jacrev(gradient, numbers(tensors))(*tensors)


def forward_over_forward(function: Function, tensors: Tensors) -> Any:
    def pushed(*ts: Tensor) -> Any:
        return func.jvp(function, ts, tuple(t.cos() for t in ts))[1]

    return func.jvp(pushed, tensors, tuple(t.sin() for t in tensors))


def reverse_over_forward(function: Function, tensors: Tensors) -> Any:
    def pushed(*ts: Tensor) -> Any:
        pushed = func.jvp(function, ts, tuple(t.cos() for t in ts))[1]
        return torch.stack([(i + 1) * (p**2).sum() for i, p in enumerate(pushed)]).sum()

    return func.grad(pushed, numbers(tensors))(*tensors)


def vmap_vmap(function: Function, tensors: Tensors) -> Any:
    count = len(tensors)
    twice = batches(batches(tensors, (0,) * count, size=2), (1,) * count)
    return func.vmap(func.vmap(function), in_dims=1)(*twice)


def grad_of_vmap(function: Function, tensors: Tensors) -> Any:
    rows = batches(tensors, (0,) * len(tensors))
    return func.grad(total(func.vmap(function)), numbers(tensors))(*rows)


def backward_through_func(function: Function, tensors: Tensors) -> Any:
    """Return the gradients of what torch.func makes, by PyTorch's own autograd around it."""
    leaves = leaves_of(tensors)
    mapped = func.vmap(function)(*(torch.stack([t, t + 1]) for t in leaves))
    loss = torch.stack([(i + 1) * (m**2).sum() for i, m in enumerate(mapped)]).sum()
    return torch.autograd.grad(loss, leaves)


def penalty_of_func(function: Function, tensors: Tensors) -> Any:
    leaves = leaves_of(tensors)
    first = func.grad(total(function), numbers(tensors))(*leaves)
    return torch.autograd.grad(torch.stack([(g**2).sum() for g in first]).sum(), leaves)


def linearize(function: Function, tensors: Tensors) -> Any:
    with warnings.catch_warnings():
        # PyTorch's own, about the constants of the graph that it makes.
        warnings.filterwarnings("ignore", "Attempted to insert a get_attr Node")
        outputs, push = func.linearize(function, *tensors)
        return outputs, push(*(t.cos() for t in tensors)), push(*(t.sin() for t in tensors))


def gradcheck(row: Row, seed: int) -> None:
    """PyTorch's own check against differences, batched gradients included."""
    for example in range(len(row.examples)):
        function, tensors = on_tensors(row.arguments(seed, example), row.operator)
        leaves = leaves_of(tensors)
        torch.autograd.gradcheck(
            function,
            leaves,
            check_batched_grad=True,
            check_forward_ad=once(row) is None,
            check_batched_forward_grad=once(row) is None and foreign(row) is None,
        )


def in_place(row: Row, seed: int) -> None:
    """What the derivative reads and is changed before backward is noticed, or does no harm."""
    function, tensors = on_tensors(row.arguments(seed), row.operator)
    reference, _ = on_tensors(row.arguments(seed), row.reference)
    for index in range(len(function(*tensors)) + len(tensors)):
        leaves, plain = leaves_of(tensors), leaves_of(tensors)
        found = changed(function, leaves, index)
        # What PyTorch refuses of its own operators is of no interest: others are saved there.
        expected = changed(reference, plain, index, detour=True)
        if found is not None:
            same(found, expected)


def changed(
    function: Function, leaves: list[Tensor], index: int, *, detour: bool = False
) -> list[Tensor] | None:
    """Return gradients where one input or output is changed after the call; None if refused."""
    copies = [leaf * 1 for leaf in leaves]
    outputs = [o.clone() if detour else o for o in function(*copies)]
    around = [*outputs, *copies]
    if detour and index >= len(outputs):
        total(lambda *ts: tuple(outputs))(*copies).backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]
    around[index].mul_(3)
    loss = torch.stack([(i + 1) * (o**2).sum() for i, o in enumerate(outputs)]).sum()
    try:
        return list(torch.autograd.grad(loss, leaves))
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return None


# --- what cannot be done, and what to do instead

ONCE = {
    "native": Refusal(
        "PB308",
        "PB308: the operator that is its backward has no derivative",
        "give that operator a `backward=`, or `jvp=` for forward mode alone",
    ),
    "numpy": Refusal(
        "PB378|PB309",
        "PB378: a backward in NumPy or with `detach()` is cut off from its gradient",
        "compute in PyTorch in backward, or make an operator of the NumPy part",
    ),
}
LINEARIZE = Refusal(
    "PB376",
    "PB376: `linearize` traces forward mode, and the intermediates are out of a tracer's sight",
    "use `torch.func.jvp`",
)
FUNCTORCH = Refusal(
    r"cannot use C\+\+ torch::autograd::Function with functorch transforms",
    "a `torch::autograd::Function` in C++ refuses `torch.func`",
    "register the operator without it, and give pullback its `backward=`",
)


def foreign(row: Row) -> Refusal | None:
    """Return what `torch.func` raises."""
    return FUNCTORCH if "foreign" in row.limits else None


def once(row: Row) -> Refusal | None:
    """Return what a second derivative raises."""
    return next((ONCE[limit] for limit in ONCE if limit in row.limits), None)


def out_of_sight(row: Row) -> Refusal | None:
    """Return what forward mode raises in a tracer."""
    return LINEARIZE if "intermediate" in row.limits else None


def either(*refusals: Callable[[Row], Refusal | None]) -> Callable[[Row], Refusal | None]:
    """Return the first refusal of a row."""
    return lambda row: next(filter(None, (refusal(row) for refusal in refusals)), None)


EAGER = (
    Way(name="forward", check=both(values)),
    Way(name="backward", check=both(each_alone)),
    Way(name="double backward", check=both(double_backward), refusal=once),
    Way(name="forward mode", check=both(forward_mode), refusal=once),
    Way(name="`func.grad`", check=both(func_grad), refusal=foreign),
    Way(name="`func.vjp`", check=both(func_vjp), refusal=foreign),
    Way(name="`func.jvp`", check=both(func_jvp), refusal=either(foreign, once)),
    Way(
        name="`func.jacrev`",
        check=both(lambda f, ts: func.jacrev(f, numbers(ts))(*ts)),
        refusal=foreign,
    ),
    Way(
        name="`func.jacfwd`",
        check=both(lambda f, ts: func.jacfwd(f, numbers(ts))(*ts)),
        refusal=either(foreign, once),
    ),
    Way(name="`func.hessian`", check=both(hessian), refusal=either(foreign, once)),
    Way(name="`vmap`, every `in_dims`", check=both(vmap)),
    Way(name="`vmap(grad)`", check=both(vmap_grad), refusal=foreign),
    Way(name="`vmap(vmap)`", check=both(vmap_vmap)),
    Way(name="`grad` of `vmap`", check=both(grad_of_vmap), refusal=foreign),
    Way(
        name="reverse over reverse", check=both(reverse_over_reverse), refusal=either(foreign, once)
    ),
    Way(
        name="forward over forward", check=both(forward_over_forward), refusal=either(foreign, once)
    ),
    Way(
        name="reverse over forward", check=both(reverse_over_forward), refusal=either(foreign, once)
    ),
    Way(name="backward through `vmap`", check=both(backward_through_func)),
    Way(name="backward through `grad`", check=both(penalty_of_func), refusal=either(foreign, once)),
    Way(name="`func.linearize`", check=both(linearize), refusal=either(once, out_of_sight)),
    Way(name="`is_grads_batched`", check=both(grads_batched)),
    Way(name="`gradcheck`", check=gradcheck),
    Way(name="inputs and outputs changed in place", check=in_place),
)
