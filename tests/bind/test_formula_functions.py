"""Every function of formulas × dtype × layout × special value, with two derivatives.

A test looks at a group of functions, which are one operator, and names those that are wrong.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from math import isfinite, nan

import pytest
import torch
from formulas import (
    BY_NAME,
    DTYPES,
    EVERY,
    FINE,
    KINK,
    RANDOM,
    TESTS,
    Function,
    exact,
    grouped,
    near,
    points,
    ulp,
)
from torch import Tensor

import pullback as pb
from pullback.define.math import differentiate, statements
from pullback.define.math.functions import TABLE, find_function
from pullback.define.math.node import Node, in_order, number, read
from tests.telling import telling

pytestmark = pytest.mark.compiler
GROUPS = grouped()
PLACE = {
    function.name: (g, k) for g, group in enumerate(GROUPS) for k, function in enumerate(group)
}
Derivatives = tuple[Tensor | None, ...]
each_group = pytest.mark.parametrize(
    "group", GROUPS, ids=lambda group: f"{group[0].name} to {group[-1].name}"
)
# A second derivative is derived by the rules that the first ones hold, and compiles longest.
each_order = pytest.mark.parametrize(
    "order", telling({str(order): order for order in range(3)}, ["0", "1"])
)
# Derivatives are the same formulas in every dtype, and float's functions have tests of their own:
# tests/kernels/test_vector_math.py.
each_dtype = pytest.mark.parametrize(
    "dtype", telling({str(dtype)[6:]: dtype for dtype in DTYPES}, ["float64"])
)


def wrong(group: tuple[Function, ...], look: Callable[[Function], Iterator[str]]) -> str:
    """Return what is wrong with each function of a group, under its name; empty if nothing is."""
    found = {function.name: list(look(function)) for function in group}
    return "\n".join("\n    ".join([name, *rows]) for name, rows in found.items() if rows)


def line_of(group: tuple[Function, ...], name: str) -> str:
    """One operator of some functions, each with tensors of its own."""
    tensors, rows = list[str](), list[str]()
    for k, function in enumerate(group):
        names = {letter: f"{letter}{k}" for letter in "xyw"[: function.inputs]}
        tensors += names.values()
        rows.append(f"r{k} = {function.text.format(**names)}")
    inputs = ", ".join(f"{tensor}[...]" for tensor in tensors)
    outputs = ", ".join(f"r{k}[...]" for k in range(len(group)))
    return f"pbformulas::{name}({inputs}) -> ({outputs}) = {'; '.join(rows)}"


@functools.cache
def operator(group: int, accuracy: str) -> pb.Operator:
    return pb.operator(line_of(GROUPS[group], f"g{group}_{accuracy}"), accuracy=accuracy)  # pyright: ignore


def derivatives(
    run: Callable[..., Tensor | tuple[Tensor, ...]], inputs: tuple[Tensor, ...], order: int
) -> tuple[Derivatives, ...]:
    """Values, first and second derivatives; the second ones add up those by each tensor."""
    leaves = tuple(tensor.clone().requires_grad_(order > 0) for tensor in inputs)
    given = run(*leaves)
    values = given if isinstance(given, tuple) else (given,)
    found: list[Derivatives] = [tuple(value.detach() for value in values)]
    present: list[Tensor] = list(values)
    for step in range(order):
        usable = [value for value in present if value.requires_grad]
        if not usable:
            gradients: Derivatives = (None,) * len(leaves)
        else:
            ones = [torch.ones_like(value) for value in usable]
            gradients = torch.autograd.grad(
                usable, leaves, ones, create_graph=step + 1 < order, allow_unused=True
            )
        present = [gradient for gradient in gradients if gradient is not None]
        found.append(tuple(None if g is None else g.detach() for g in gradients))
    return tuple(found)


@functools.cache
def found(
    group: int, dtype: torch.dtype, order: int, accuracy: str = "4ulp"
) -> tuple[Derivatives, ...]:
    functions = GROUPS[group]
    inputs = [tensor for f in functions for tensor in points(dtype, f.inputs)]
    return derivatives(operator(group, accuracy), tuple(inputs), order)


@functools.cache
def wanted(name: str, dtype: torch.dtype, of: torch.dtype) -> tuple[Derivatives, ...]:
    """PyTorch's own, computed in a dtype at the points of another one."""
    function = BY_NAME[name]
    inputs = tuple(tensor.to(dtype) for tensor in points(of, function.inputs))
    return derivatives(function.torch, inputs, function.orders)


def result(
    function: Function, dtype: torch.dtype, order: int, accuracy: str = "4ulp"
) -> Derivatives:
    """What the operator gave for one function: its value, or the gradient of each tensor."""
    group, place = PLACE[function.name]
    outputs = found(group, dtype, order, accuracy)[order]
    if order == 0:
        return (outputs[place],)
    before = sum(f.inputs for f in GROUPS[group][:place])
    return outputs[before : before + function.inputs]


def zeros(value: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if value is None else value


# --- values


@functools.cache
def nodes(name: str) -> tuple[tuple[Node, ...], ...]:
    """The expressions of a function's value, its derivatives, and theirs, row by row."""
    function = BY_NAME[name]
    letters = "xyw"[: function.inputs]
    names = {letter: read(letter, ()) for letter in letters}
    text = function.text.format(**{letter: letter for letter in letters})
    levels: list[tuple[Node, ...]] = [tuple(statements.nodes_of(text, names, ("y",), name))]
    for _ in range(3 if function.inputs == 1 else 2):
        rows = [differentiate.vjp([(node, number(1.0))], letters) for node in levels[-1]]
        levels.append(tuple(node or number(0.0) for row in rows for node in row))
    return tuple(levels)


EXACT = (
    *("neg", "abs", "where", "real", "maximum", "minimum", "fmax", "fmin", "relu", "sign"),
    *("floor", "ceil", "round", "trunc", "stop", "copysign", "clamp", "fmod", "remainder"),
)
ARITHMETIC = ("add", "sub", "mul", "div", "sqrt")
# These add parts that cancel near their zeros, in every library.
CANCELS = ("logit", "lgamma", "digamma", "polygamma", "logaddexp", "logaddexp2")


def roundings(node: Node, accuracy: int = 4) -> float:
    """How many units in the last place an expression loses at most, before conditioning."""
    total = 0.0
    for part in in_order([node]):
        if part.args and part.type == "real" and part.op not in EXACT:
            powers = int(part.data).bit_length() if isinstance(part.data, int) else 0
            total += powers or (0.5 if part.op in ARITHMETIC else accuracy)
    return total


def is_plain(name: str) -> bool:
    """Whether a function is one call, whose error is the library's alone."""
    (node,) = nodes(name)[0]
    return node.op not in CANCELS and all(not arg.args or arg.op == "real" for arg in node.args)


@functools.cache
def parts(name: str, dtype: torch.dtype, order: int) -> Tensor:
    """The expressions' values from mpmath, NaN where they are not asked for."""
    function = BY_NAME[name]
    rows = list(zip(*(t.tolist() for t in points(dtype, function.inputs)), strict=True))
    many = len(rows) - RANDOM
    asked = [
        all(v and isfinite(v) for v in row) and (k < many or k % 2) for k, row in enumerate(rows)
    ]
    letters = "xyw"[: function.inputs]
    found = [
        [
            exact(node, dict(zip(letters, row, strict=True))) if ask else nan
            for ask, row in zip(asked, rows, strict=True)
        ]
        for node in nodes(name)[order]
    ]
    return torch.tensor(found, dtype=torch.float64)


def exactly(function: Function, dtype: torch.dtype, order: int) -> Tensor:
    """What `result` should be, a row for each tensor."""
    values = parts(function.name, dtype, order)
    if order == 2:
        values = values.reshape(function.inputs, function.inputs, -1).sum(0)
    return values


def scales(function: Function, dtype: torch.dtype, order: int) -> Tensor:
    """What the roundings of a formula are relative to, a row for each tensor.

    Its parts before they cancel, and what becomes of an argument that is off by a unit.
    """
    size = parts(function.name, dtype, order).abs().nan_to_num(0, 0, 0)
    inputs = torch.stack(points(dtype, function.inputs)).double().abs().nan_to_num(0, 0, 0)
    if order == 2 and function.inputs > 1:
        # A derivative of a quotient takes two parts of the size of quotient / argument apart.
        first = parts(function.name, dtype, 1).abs().nan_to_num(0, 0, 0)
        size = size.reshape(function.inputs, function.inputs, -1).sum(0)
        size = size + (first / inputs.clamp(min=1e-4)).sum(0)
    else:
        slopes = parts(function.name, dtype, order + 1).reshape(len(size), function.inputs, -1)
        size = size + (slopes.abs().nan_to_num(0, 0, 0) * inputs).sum(1)
    if function.divides:
        size = size + inputs.clamp(min=1e-18) ** -order
    if order >= function.absolute:
        size = size + (inputs.clamp(min=1) if order else inputs.clamp(max=1))
    return size


def allowed(function: Function, dtype: torch.dtype, order: int, accuracy: int = 4) -> Tensor:
    """By how much values may be off, a row for each tensor.

    A plain function has its bound, others that of each part; then twice PyTorch's error nearby.
    """
    expected = exactly(function, dtype, order)
    half = dtype in (torch.float16, torch.bfloat16)
    if order == 0 and is_plain(function.name):
        return ulp(expected, dtype) * (1 if half else accuracy)
    counts = [roundings(node, accuracy) + half for node in nodes(function.name)[order]]
    unit = ulp(scales(function, dtype, order), dtype)
    own = torch.stack([zeros(v, expected[0]) for v in wanted(function.name, dtype, dtype)[order]])
    errors = ((own.double() - expected).abs() / unit).nan_to_num(0, 0, 0)
    usually = near(errors[0, -RANDOM:]) if function.inputs == 1 else errors.quantile(0.95)
    errors[:, -RANDOM:] = errors[:, -RANDOM:].maximum(usually)
    return unit * (max(counts) + function.inputs + 2 * errors)


@pytest.mark.ci(3)
@each_order
@each_dtype
@each_group
def test_values_are_as_near_as_the_function_allows(
    group: tuple[Function, ...], dtype: torch.dtype, order: int
) -> None:
    assert not wrong(group, lambda function: far_off(function, dtype, order))


def far_off(function: Function, dtype: torch.dtype, order: int) -> Iterator[str]:
    """Yield where a value is further from the exact one than it may be."""
    if order > function.orders:  # a derivative that is zero
        return
    values, bounds = exactly(function, dtype, order), allowed(function, dtype, order)
    (inside,) = wanted(function.name, dtype, dtype)[0]
    assert inside is not None
    for k, expected in enumerate(values):
        own = zeros(wanted(function.name, dtype, dtype)[order][k], expected)
        value = zeros(result(function, dtype, order)[k], own).double()
        measured = ~inside.isnan() & expected.isfinite() & own.isfinite()
        measured &= expected.abs() <= torch.finfo(dtype).max
        errors = (value - expected).abs()
        bad = measured & ~(errors <= bounds[k])
        for place in bad.nonzero().flatten().tolist()[:8]:
            at = [tensor[place].item() for tensor in points(dtype, function.inputs)]
            error = (errors[place] / ulp(expected, dtype)[place]).item()
            yield (
                f"at {at}: {value[place].item()} is off by {error:.3g} ulp; exact"
                f" {expected[place].item()}, PyTorch's {own[place].item()}"
            )


@each_order
@each_group
def test_values_and_derivatives_are_those_of_pytorch(
    group: tuple[Function, ...], order: int
) -> None:
    """Roughly, but independently, kinks as well: the exact values are those of our derivatives."""
    assert not wrong(group, lambda function: unlike_pytorch(function, order))


def unlike_pytorch(function: Function, order: int) -> Iterator[str]:
    """Yield where a value in float64 is not PyTorch's."""
    if order > function.orders:
        return
    inputs = torch.stack(points(torch.float64, function.inputs))
    usual = ((inputs.abs() < 1e5) & ((inputs == 0) | (inputs.abs() > 1e-7))).all(0)
    if function.pattern.get(order) == KINK:
        usual &= (inputs != 0).all(0)
    (inside,) = wanted(function.name, torch.float64, torch.float64)[0]
    assert inside is not None
    for k, own in enumerate(wanted(function.name, torch.float64, torch.float64)[order]):
        theirs = zeros(own, inputs[0])
        value = zeros(result(function, torch.float64, order)[k], theirs)
        there = usual & ~inside.isnan() & theirs.isfinite() & value.isfinite()
        differ = there & ~value.isclose(theirs, rtol=1e-6, atol=1e-6)
        for place in differ.nonzero().flatten().tolist()[:8]:
            at = inputs[:, place].tolist()
            yield f"at {at}: {value[place].item()}, PyTorch {theirs[place].item()}"


# --- NaN, infinities, zeros


def pattern(value: Tensor) -> Tensor:
    """What kind of number each is: 0 ordinary, 1 and 2 zeros, 3 and 4 infinities, 5 NaN."""
    value = value.double()
    negative = value.signbit().long()
    kinds = torch.zeros_like(negative)
    kinds = torch.where(value == 0, 1 + negative, kinds)
    kinds = torch.where(value.isinf(), 3 + negative, kinds)
    return torch.where(value.isnan(), 5, kinds)


@each_order
@each_dtype
@each_group
def test_nan_and_infinities_and_zeros_stand_where_pytorch_has_them(
    group: tuple[Function, ...], dtype: torch.dtype, order: int
) -> None:
    """What has an exact value is left to the test above: there a 0 may be less than it could be.

    Nor is a NaN asked for where PyTorch's own derivative is one by overflow, inf - inf or 0 * inf.
    """
    assert not wrong(group, lambda function: of_another_kind(function, dtype, order))


def of_another_kind(function: Function, dtype: torch.dtype, order: int) -> Iterator[str]:
    """Yield where a value is of another kind of numbers than PyTorch's."""
    if order > function.orders or order in function.pattern:
        return
    known = exactly(function, dtype, order).isfinite()
    known[:, -RANDOM:] = True
    inputs = points(dtype, function.inputs)
    (inside,) = wanted(function.name, dtype, dtype)[0]
    assert inside is not None
    for k, gradient in enumerate(wanted(function.name, dtype, dtype)[order]):
        own = zeros(gradient, inputs[0])
        value = zeros(result(function, dtype, order)[k], inputs[0])
        first, second = pattern(value), pattern(own)
        if order:  # the sign of a zero gradient is an accident of the order of products
            first, second = (torch.where(p == 2, 1, p) for p in (first, second))
        differ = (first != second) & ~(known[k] & (first < 3))
        if order:
            differ &= ~own.isnan() & ~inside.isnan()
        for place in differ.nonzero().flatten().tolist()[:8]:
            at = [tensor[place].item() for tensor in inputs]
            yield f"at {at}: {value[place].item()}, PyTorch {own[place].item()}"


def test_gradients_of_a_power_at_its_corners_are_pytorchs() -> None:
    """Where a factor of the derivative is infinite or none, and the other is 0."""
    values = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.5], dtype=torch.float64)
    corners = [t.flatten().requires_grad_() for t in torch.meshgrid(values, values, indexing="ij")]
    power = pb.operator("pbf::corners(x[...], y[...]) -> z[...] = x**y")
    found, wanted = (torch.autograd.grad(f(*corners).sum(), corners) for f in (power, torch.pow))
    torch.testing.assert_close(found, wanted)


# --- layouts

LAYOUTS: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "transposed": ((7, 11), lambda v: v.t().contiguous().t()),
    "sliced": ((5, 9), lambda v: torch.stack([v, v + 1], -1)[..., 0]),
    "every other row": ((6, 17), lambda v: torch.stack([v, v + 1], 1).flatten(0, 1)[::2]),
    "expanded": ((1, 33), lambda v: v.expand(3, 33)),
    "0-dim": ((), lambda v: v),
    "one element": ((1, 1), lambda v: v),
    "empty": ((3, 0), lambda v: v),
    **{f"{n} elements": ((n,), lambda v: v.clone()) for n in (2, 3, 5, 7, 8, 9, 15, 16, 17, 31)},
    "in three dimensions": ((2, 3, 4), lambda v: v.permute(2, 0, 1).contiguous().permute(1, 2, 0)),
}


# The vector libraries take the longer way for all elements of a vector if one of them is large.
NEIGHBOURS = ("sin", "cos", "tan", "sinc")


@functools.cache
def laid(group: int, dtype: torch.dtype, layout: str) -> tuple[Derivatives, ...]:
    shape, lay = LAYOUTS[layout]
    count = math.prod(shape)
    # From the end: special values are taken along, and each layout begins elsewhere.
    inputs = [
        lay(tensor[-RANDOM - 20 :][:count].reshape(shape)).detach()
        for function in GROUPS[group]
        for tensor in points(dtype, function.inputs)
    ]
    leaves = [tensor.requires_grad_() for tensor in inputs]
    values = operator(group, "4ulp")(*leaves)
    values = values if isinstance(values, tuple) else (values,)
    usable = [value for value in values if value.requires_grad]
    ones = [torch.ones_like(value) for value in usable]
    gradients = torch.autograd.grad(usable, leaves, ones, allow_unused=True)
    return tuple(value.detach() for value in values), gradients


@each_dtype
@each_group
def test_a_value_does_not_depend_on_the_layout(
    group: tuple[Function, ...], dtype: torch.dtype
) -> None:
    assert not wrong(group, lambda function: unlike_in_a_layout(function, dtype))


def unlike_in_a_layout(function: Function, dtype: torch.dtype) -> Iterator[str]:
    """Yield the layouts in which a value or a gradient is another one."""
    group, place = PLACE[function.name]
    before = sum(f.inputs for f in GROUPS[group][:place])
    for layout, (shape, _) in LAYOUTS.items():
        values, gradients = laid(group, dtype, layout)
        found = (values[place], *gradients[before : before + function.inputs])
        flat = (*result(function, dtype, 0), *result(function, dtype, 1))
        for laid_out, whole in zip(found, flat, strict=True):
            assert (laid_out is None) == (whole is None)
            if laid_out is not None and whole is not None:
                expected = whole[-RANDOM - 20 :][: math.prod(shape)].reshape(shape)
                expected = expected.expand(laid_out.shape)
                near_by = (laid_out - expected).abs() <= 8 * ulp(expected, dtype)
                same = (laid_out == expected) | (laid_out.isnan() & expected.isnan())
                same |= near_by & (function.name in NEIGHBOURS)
                if not same.all():
                    yield layout


# --- accuracy


# What is made of several functions of one ulp each, where PyTorch's is made at once.
COMPOSED = {"erfinv": 3.0, "softplus": 1.5, "fifth": 3.0}


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", FINE, ids=lambda dtype: str(dtype)[6:])
@each_group
def test_accuracy_of_1_ulp_is_that_of_pytorch(
    group: tuple[Function, ...], dtype: torch.dtype
) -> None:
    assert not wrong(group, lambda function: further_than_pytorch(function, dtype))


def further_than_pytorch(function: Function, dtype: torch.dtype) -> Iterator[str]:
    """Yield by how much a value is further from the exact one than PyTorch's is."""
    if not is_plain(function.name):
        return
    (expected,) = exactly(function, dtype, 0)
    (own,), (value,) = wanted(function.name, dtype, dtype)[0], result(function, dtype, 0, "1ulp")
    assert own is not None
    assert value is not None
    units = [(v.double() - expected).abs() / ulp(expected, dtype) for v in (value, own)]
    there = units[1].isfinite() & units[0].isfinite()
    for tensor in points(dtype, function.inputs):  # log1p of a denormal is 0, as PyTorch's is
        there &= tensor.abs() >= torch.finfo(dtype).smallest_normal
    most = max(COMPOSED.get(function.name, 1.0), 1.2 * units[1][there].max().item())
    if units[0][there].max() > most:
        yield f"{units[0][there].max().item():.3g} ulp; allowed {most:.3g}"


def test_every_function_of_the_table_is_tested_here() -> None:
    asked = {function.row for function in EVERY} | {text.partition("(")[0] for text in TESTS}
    assert {name for name in TABLE if find_function(name) is not None} <= asked | {"real"}
