"""Sizes: solved from shapes, refused with the shapes shown, computed for outputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import lines, shapes_for
from torch import Tensor

from pullback.define.dimension import Batch
from pullback.define.line import Line
from pullback.define.parse import parse
from pullback.define.shape import Sizes, output_shapes, solve
from pullback.diagnostic import PullbackError

LINEAR = "demo::linear(input[n, i], weight[o, i], bias[o]?) -> output[n, o]"
CORRELATE = "demo::correlate(x[h, w], k[p, q]) -> y[h - p + 1, w - q + 1]"
ADD2 = "demo::add2(a[...], b[...]) -> c[...]"

Shapes = dict[str, tuple[int, ...] | None]
small_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def refusal(text: str, shapes: Shapes, **scalars: int) -> tuple[str, str]:
    """Return the code and the message with which the shapes are refused."""
    line = parse(text)
    with pytest.raises(PullbackError) as caught:
        output_shapes(line, solve(line, shapes), scalars)
    assert caught.value.finding.help is None
    return caught.value.finding.code, caught.value.finding.message


def test_shapes_give_names_their_sizes() -> None:
    line = parse(LINEAR)
    sizes = solve(line, {"input": (2, 3), "weight": (5, 3), "bias": (5,)})
    assert sizes == Sizes({"n": 2, "i": 3, "o": 5}, ())
    assert output_shapes(line, sizes) == [(2, 5)]


def test_dimensions_around_the_batch_stay_around_it() -> None:
    line = parse("demo::f(x[n, ..., 3, m], y[..., m]) -> (z[m, ..., n], w[2, 2])")
    sizes = solve(line, {"x": (7, 4, 1, 3, 5), "y": (6, 5)})
    assert sizes == Sizes({"n": 7, "m": 5}, (4, 6))
    assert output_shapes(line, sizes) == [(5, 4, 6, 7), (2, 2)]


def test_a_dimension_of_absent_tensors_alone_has_no_size() -> None:
    line = parse("demo::f(x[n], bias[o]?) -> y[n]")
    assert solve(line, {"x": (2,), "bias": None}) == Sizes({"n": 2}, ())


def test_a_size_is_the_least_or_the_greatest_of_others() -> None:
    line = parse("demo::svd(a[n, m], k: int = 2) -> (u[n, min(n, m)], s[max(n - 3, m, k)])")
    assert str(line).endswith("-> (u[n, min(n, m)], s[max(max(n - 3, m), k)])")
    for n, m in ((3, 5), (5, 3), (9, 4), (1, 1)):
        assert output_shapes(line, solve(line, {"a": (n, m)})) == [
            (n, min(n, m)),
            (max(n - 3, m, 2),),
        ]


def test_int_scalars_take_part_and_have_defaults() -> None:
    line = parse("demo::pad(x[n], k: int, by: int = 2, eps: float = 0.5) -> y[n + k * by]")
    sizes = solve(line, {"x": (5,)})
    assert output_shapes(line, sizes, {"k": 3}) == [(11,)]
    assert output_shapes(line, sizes, {"k": 3, "by": 0}) == [(5,)]


def test_a_division_rounds_down() -> None:
    line = parse("demo::f(x[n], k: int) -> (y[n // k + 10], z[n % k + 10])")
    assert output_shapes(line, solve(line, {"x": (7,)}), {"k": -2}) == [(6,), (9,)]


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
        (
            LINEAR,
            {"input": (5,), "weight": (4, 5), "bias": None},
            "demo::linear: 'input' has 1 dimension (5), the line says input[n, i]",
        ),
        (
            "demo::f(x[..., n]: int64?) -> y[...]",
            {"x": ()},
            "demo::f: 'x' has 0 dimensions (), the line says x[..., n]",
        ),
        (
            "demo::f(x[]) -> y[]",
            {"x": (2, 3)},
            "demo::f: 'x' has 2 dimensions (2, 3), the line says x[]",
        ),
    ],
)
def test_a_wrong_rank_is_refused(text: str, shapes: Shapes, message: str) -> None:
    assert refusal(text, shapes) == ("PB111", message)


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
        (
            LINEAR,
            {"input": (2, 3), "weight": (5, 4), "bias": (9, 9)},
            "demo::linear: dimension 'i' is 3 in 'input' (2, 3) but 4 in 'weight' (5, 4)",
        ),
        (
            "demo::f(x[n, 3]) -> y[n]",
            {"x": (2, 4)},
            "demo::f: dimension 1 of 'x' (2, 4) is 4, the line says x[n, 3]",
        ),
        (
            "demo::f(x[n, ..., 3]) -> y[n]",
            {"x": (2, 1, 1, 4)},
            "demo::f: dimension 3 of 'x' (2, 1, 1, 4) is 4, the line says x[n, ..., 3]",
        ),
        (
            "demo::trace(a[n, n]) -> y[]",
            {"a": (2, 3)},
            "demo::trace: dimension 'n' is 2 in 'a' (2, 3) but 3 in 'a' (2, 3)",
        ),
    ],
)
def test_a_wrong_size_is_refused(text: str, shapes: Shapes, message: str) -> None:
    assert refusal(text, shapes) == ("PB112", message)


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
        (
            ADD2,
            {"a": (4,), "b": (3,)},
            "demo::add2: the '...' of 'b' (3) does not broadcast with (4)",
        ),
        (
            "demo::f(a[...], b[..., n], c[n, ...]) -> y[...]",
            {"a": (4, 1), "b": (3, 7), "c": (7, 2, 2)},
            "demo::f: the '...' of 'c' (2, 2) does not broadcast with (4, 3)",
        ),
    ],
)
def test_batches_that_do_not_broadcast_are_refused(text: str, shapes: Shapes, message: str) -> None:
    assert refusal(text, shapes) == ("PB113", message)


@pytest.mark.parametrize(
    ("text", "shapes", "scalars", "message"),
    [
        (
            CORRELATE,
            {"x": (3, 9), "k": (6, 1)},
            {},
            "demo::correlate: dimension 0 of 'y' would be -2: h - p + 1 with h = 3, p = 6",
        ),
        (
            "demo::f(x[..., n]) -> y[..., 1 - n - n]",
            {"x": (4, 4, 2)},
            {},
            "demo::f: dimension 2 of 'y' would be -3: 1 - n - n with n = 2",
        ),
        (
            "demo::f(k: int) -> y[k]",
            {},
            {"k": -1},
            "demo::f: dimension 0 of 'y' would be -1: k with k = -1",
        ),
        ("demo::f() -> y[3 - 5]", {}, {}, "demo::f: dimension 0 of 'y' would be -2: 3 - 5"),
        (
            "demo::f(x[n], k: int) -> y[n, n // k]",
            {"x": (3,)},
            {"k": 0},
            "demo::f: dimension 1 of 'y' divides by zero: n // k with n = 3, k = 0",
        ),
        (
            "demo::f(x[n]) -> y[5 % n]",
            {"x": (0,)},
            {},
            "demo::f: dimension 0 of 'y' divides by zero: 5 % n with n = 0",
        ),
    ],
)
def test_an_output_without_a_size_is_refused(
    text: str, shapes: Shapes, scalars: dict[str, int], message: str
) -> None:
    assert refusal(text, shapes, **scalars) == ("PB114", message)


def test_an_output_of_an_absent_dimension_is_refused() -> None:
    assert refusal("demo::f(x[n], bias[o]?) -> y[n + o]", {"x": (2,), "bias": None}) == (
        "PB115",
        "demo::f: dimension 'o' of 'y' is not known when 'bias' is None",
    )


def test_a_dimension_that_only_a_formula_names_has_no_size() -> None:
    assert refusal("demo::f(x[n]) -> y[m] = x[m]", {"x": (2,)}) == (
        "PB106",
        "demo::f: dimension 'm' of 'y' is not known from the inputs",
    )


def test_rank_is_checked_before_sizes_and_sizes_before_the_batch() -> None:
    text = "demo::f(a[n, ...], b[n, ..., 2]) -> y[...]"
    assert refusal(text, {"a": (1, 4), "b": (3,)})[0] == "PB111"
    assert refusal(text, {"a": (1, 4), "b": (3, 5, 2)})[0] == "PB112"
    assert refusal(text, {"a": (1, 4), "b": (1, 5, 2)})[0] == "PB113"


@given(batches=st.tuples(small_shapes, small_shapes, small_shapes))
def test_batches_broadcast_as_in_numpy(batches: tuple[tuple[int, ...], ...]) -> None:
    line = parse("demo::f(a[...], b[..., n], c[n, ...]) -> y[n, ..., n]")
    a, b, c = batches
    shapes = {"a": a, "b": (*b, 5), "c": (5, *c)}
    try:
        expected = np.broadcast_shapes(a, b, c)
    except ValueError:
        with pytest.raises(PullbackError, match="does not broadcast"):
            solve(line, shapes)
    else:
        sizes = solve(line, shapes)
        assert sizes.batch == expected
        assert output_shapes(line, sizes) == [(5, *expected, 5)]


def positions(line: Line, shapes: Shapes) -> dict[str, int]:
    """Return the sizes of the names, read straight from the shapes."""
    found: dict[str, int] = {}
    for tensor in line.tensors:
        if shape := shapes[tensor.name]:
            found |= {str(dim): size for dim, size in zip(tensor.before, shape, strict=False)}
            after = zip(reversed(tensor.after), reversed(shape), strict=False)
            found |= {str(dim): size for dim, size in after}
    return {name: size for name, size in found.items() if name in line.dimensions}


def python_says(
    line: Line, values: dict[str, int], batch: tuple[int, ...]
) -> list[tuple[int, ...]] | None:
    """Return the outputs' shapes with Python as the judge; None where there are none."""
    texts = [
        "".join(f"{'*batch' if dim == Batch() else dim}, " for dim in y.dims) for y in line.outputs
    ]
    scope = {**values, "batch": batch, "__builtins__": {"min": min, "max": max}}
    try:
        shapes = [eval(f"({text})", scope) for text in texts]
    except (NameError, ZeroDivisionError):
        return None
    return None if any(size < 0 for shape in shapes for size in shape) else shapes


@given(st.data())
def test_fitting_shapes_are_solved_and_outputs_follow_python(data: st.DataObject) -> None:
    line = data.draw(lines(formula=False))
    shapes = data.draw(shapes_for(line))
    scalars = {s.name: data.draw(st.integers(-3, 9)) for s in line.scalars if s.type == "int"}
    sizes = solve(line, shapes)
    assert sizes.dims == positions(line, shapes)
    expected = python_says(line, {**sizes.dims, **scalars}, sizes.batch)
    if expected is None:
        with pytest.raises(PullbackError) as caught:
            output_shapes(line, sizes, scalars)
        assert caught.value.finding.code in ("PB114", "PB115")
    else:
        assert output_shapes(line, sizes, scalars) == expected


class Correlate(torch.nn.Module):
    """Allocates what the line says."""

    def forward(self, x: Tensor, k: Tensor) -> Tensor:
        line = parse("demo::f(x[..., h, w], k[..., p, w]) -> y[..., h - p + 1, 5 * w // 2 % 7]")
        sizes = solve(line, {"x": x.shape, "k": k.shape})
        return x.new_ones(output_shapes(line, sizes)[0])


def test_symbolic_sizes_stay_symbolic() -> None:
    dynamic = torch.export.Dim.DYNAMIC
    x, k = torch.ones(3, 9, 4), torch.ones(2, 1, 6, 4)
    program = torch.export.export(
        Correlate(),
        (x, k),
        dynamic_shapes=({0: dynamic, 1: dynamic, 2: dynamic}, {0: dynamic, 2: dynamic, 3: dynamic}),
    )
    y = program.module()(torch.ones(5, 20, 5), torch.ones(7, 1, 8, 5))
    assert y.shape == (7, 5, 13, 5)


class Nonzero(torch.nn.Module):
    """Has a size that depends on data."""

    def forward(self, x: Tensor) -> Tensor:
        line = parse("demo::f(at[..., d], same[..., d]) -> y[..., d]")
        at = x.nonzero()
        return x.new_ones(output_shapes(line, solve(line, {"at": at.shape, "same": at.shape}))[0])


def test_sizes_that_depend_on_data_are_not_asked_for() -> None:
    program = torch.export.export(Nonzero(), (torch.ones(3),))
    assert program.module()(torch.tensor([0.0, 2.0, 3.0])).shape == (2, 1)


def test_a_list_fits_its_dimensions_one_by_one() -> None:
    line = parse("demo::f(xs[n, d]*, w[d], any[*]) -> y[n]")
    sizes = solve(line, {"xs": [(2, 3), (2, 3)], "w": (3,), "any": (1, 2, 3)})
    assert sizes == Sizes({"n": 2, "d": 3}, ())
    with pytest.raises(PullbackError, match=r"'d' is 3 in 'xs\[0\]' \(2, 3\) but 4 in 'xs\[1\]'"):
        solve(line, {"xs": [(2, 3), (2, 4)], "w": (3,), "any": ()})
