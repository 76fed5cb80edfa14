"""Formulas' functions, on every lane: as exact as promised, and PyTorch's at the extremes."""

from __future__ import annotations

import ctypes
import itertools
import math
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from vector_library import (
    ALL_LIBRARIES,
    BINARY,
    COMPARISONS,
    FLOATING,
    INLINED,
    LIBRARIES,
    LOGICAL,
    POLYGAMMA,
    PREDICATES,
    STORAGE,
    STORED,
    UNARY,
    WHOLE_BINARY,
    WHOLE_UNARY,
    Library,
    symbol,
)
from vector_reference import EXACT, exact, in_torch
from vector_samples import (
    DOUBLE,
    SINGLE,
    arity,
    domain,
    every_pair,
    in_ulps,
    integers,
    largest_error,
    promise,
    special,
    stored,
    values,
)

from tests.gathered import for_each
from tests.telling import telling

pytestmark = pytest.mark.compiler


def libraries(some: list[Library]) -> pytest.MarkDecorator:
    """Return a test's parameter; what is not compiled as a user's formulas are is thorough."""
    rows = {str(library): library for library in some}
    usual = [name for name, library in rows.items() if library in LIBRARIES[::2]]
    return pytest.mark.parametrize("library", telling(rows, usual))


each_library = libraries(ALL_LIBRARIES)
each_storage = libraries(STORAGE)
# Of what no accuracy is promised, float and double are enough.
each_dtype = libraries(LIBRARIES[::2])
each_function = for_each("function", [*UNARY, *POLYGAMMA, *BINARY])
each_single = libraries([one for one in ALL_LIBRARIES if one.compute is SINGLE])
each_double = libraries([one for one in ALL_LIBRARIES if one.compute is DOUBLE])


@each_single
@each_function
def test_float_is_as_exact_as_promised(library: Library, function: str, seed: int) -> None:
    # Nine times as many, and less than PyTorch shares among threads: those wait for each other.
    x = domain(library, function, values(SINGLE, 3_600))
    check_float(library, function, x)


@each_single
@for_each("function", INLINED)
def test_floats_of_every_size_are_as_exact_as_promised(
    library: Library, function: str, seed: int
) -> None:
    step = 2**17 + 1  # so that the last bits change, too
    first = torch.randint(step, ())
    check_float(
        library, function, (first + torch.arange(0, 2**32, step)).to(torch.int32).view(SINGLE)
    )


def check_float(library: Library, function: str, x: Tensor) -> None:
    arguments = [x, x.roll(1)][: arity(function)]
    got = library.real(function, *arguments)
    exactly = [argument.to(DOUBLE) for argument in arguments]
    expected = in_torch(function)(*exactly)
    scale = expected.abs()
    if function.startswith("logaddexp"):  # of terms that cancel
        scale = torch.stack([scale, *(argument.abs() for argument in exactly)]).amax(0)
    if function == "lgamma":  # its zeros below 0 are where two logarithms cancel
        scale = torch.where(x < 0, scale.clamp(min=1), scale)
    if function == "gelu":  # Φ itself is denormal
        scale = scale.clamp(min=1e-36)
    error = largest_error(got, expected, scale.nan_to_num(1, 1))
    if function == "floor_divide":  # PyTorch's own rounds in float
        error = torch.where(got == in_torch(function)(*arguments), 0, error)
    worst = int(error.argmax())
    shown = [float(argument[worst]) for argument in arguments]
    assert error[worst] <= promise(library, function), (shown, got[worst], expected[worst])


@libraries([one for one in ALL_LIBRARIES if one.compute is SINGLE and one.ulp == 4])
def test_gelus_derivative_is_as_exact_as_the_larger_of_its_terms(
    library: Library, seed: int
) -> None:
    x = values(SINGLE, 20_000)
    wide = x.to(DOUBLE)
    area = torch.special.erfc(wide * -math.sqrt(0.5)) / 2
    rise = wide * torch.exp(-(wide**2) / 2) / math.sqrt(2 * math.pi)
    rise = torch.where(wide.isinf(), 0.0, rise)
    scale = torch.maximum(area, rise.abs()).clamp(min=1e-36).nan_to_num(1)
    error = largest_error(library.real("gelu_slope", x), area + rise, scale)
    assert error.max() <= 4, x[error.argmax()]


@cache
def exact_values(function: str, seed: int) -> list[tuple[tuple[float, ...], tuple[Any, Any]]]:
    """Return arguments and what the function is there."""
    torch.manual_seed(seed)
    library = LIBRARIES[2]
    x = domain(library, function, values(DOUBLE, 25))
    arguments = [x.tolist(), x.roll(1).tolist()][: arity(function)]
    found = [(point, exact(function, *point)) for point in zip(*arguments, strict=True)]
    largest = torch.finfo(DOUBLE).max
    return [(point, value) for point, value in found if value and abs(value[0]) <= largest]


@each_double
@for_each("function", EXACT)
def test_double_is_as_exact_as_promised(library: Library, function: str, seed: int) -> None:
    known = exact_values(function, seed)
    assert len(known) > 20
    columns = [
        torch.tensor(column, dtype=DOUBLE)
        for column in zip(*(point for point, _ in known), strict=True)
    ]
    for got, (point, (value, scale)) in zip(library.real(function, *columns), known, strict=True):
        assert in_ulps(float(got), value, scale) <= promise(library, function), (point, got)


@for_each("function", EXACT)
def test_scalars_are_as_exact_as_vectors(function: str, seed: int) -> None:
    library = LIBRARIES[2]
    for point, (value, scale) in exact_values(function, seed)[:60]:
        got = library.scalar(function, *point)
        # glibc's own functions are within 2 ulps.
        assert in_ulps(got, value, scale) <= max(2, promise(library, function)), point


@for_each("function", [one for one in [*UNARY, *POLYGAMMA, *BINARY] if one not in EXACT])
def test_scalars_are_the_same_as_vectors_where_nothing_is_rounded(function: str) -> None:
    library = LIBRARIES[2]
    arguments = every_pair(special(DOUBLE), arity(function))
    vector = library.real(function, *arguments)
    scalars = [
        library.scalar(function, *point)
        for point in zip(*(argument.tolist() for argument in arguments), strict=True)
    ]
    scalar = torch.tensor(scalars, dtype=DOUBLE)
    assert torch.equal(vector.isnan(), scalar.isnan())
    known = ~vector.isnan()
    assert torch.equal(vector[known].view(torch.int64), scalar[known].view(torch.int64))


@for_each("function", [*WHOLE_UNARY, *WHOLE_BINARY, *COMPARISONS])
def test_whole_scalars_are_the_same_as_vectors(function: str) -> None:
    library = LIBRARIES[2]
    arguments = every_pair(integers(), 1 if function in WHOLE_UNARY else 2)
    if function in COMPARISONS:
        vector = library.truth(f"whole_{function}", *arguments).long()
    else:
        vector = library.whole(function, *arguments)
    points = zip(*(argument.tolist() for argument in arguments), strict=True)
    assert vector.tolist() == [library.whole_scalar(function, *point) for point in points]


@each_library
@each_function
def test_extremes_are_those_of_pytorch(library: Library, function: str) -> None:
    x = special(library.compute)
    info = torch.finfo(library.compute)
    if function in POLYGAMMA:
        # Below 0 PyTorch's has no poles, or does not end; tested on its own.
        x = x[~(x < 0) & x.isfinite()]
    if function == "digamma":
        # PyTorch's has only half its digits beside the pole.
        x = x[x != info.eps / 2 - 1]
    arguments = every_pair(x, arity(function))
    got, expected = library.real(function, *arguments), in_torch(function)(*arguments)
    # PyTorch's log1p and tan may lose the smallest number, its sigmoid all denormal ones.
    largest = torch.stack([argument.abs() for argument in arguments]).amax(0)
    agree = (got == expected) | ((got - expected).abs() <= 1e-5 * expected.abs() + info.tiny)
    zero = (got == 0) | (expected == 0)
    agree &= ~zero | (got.signbit() == expected.signbit())
    agree |= got.isnan() & expected.isnan()
    if function.startswith("logaddexp"):  # terms that cancel
        agree |= (got - expected).abs() <= 2 * info.eps * largest
    if function in ("tan", "log1p", "xlog1py"):
        agree |= (arguments[-1] != 0) & (arguments[-1].abs() < info.tiny)
    wrong = [
        ([float(argument[i]) for argument in arguments], float(got[i]), float(expected[i]))
        for i in torch.nonzero(~agree).flatten().tolist()
    ]
    assert wrong == []


@each_library
def test_sine_and_cosine_never_pass_one(library: Library) -> None:
    """`sqrt(1 - sin(x)**2)` is no NaN, and cos(0) is 1."""
    quarters = math.pi / 2 * torch.arange(-3_000, 3_000, dtype=DOUBLE)
    beside = torch.linspace(-1e-3, 1e-3, 41, dtype=DOUBLE)
    x = (quarters[:, None] + beside).flatten().to(library.compute)
    for function in ("sin", "cos"):
        assert library.real(function, x).abs().max() <= 1
    assert (library.real("cos", torch.zeros(5, dtype=library.compute)) == 1).all()


@each_library
@pytest.mark.parametrize(
    ("n", "x", "expected"),
    [
        (0, -1.0, math.nan),
        (0, -math.inf, math.nan),
        (1, -3.0, math.inf),
        (2, -3.0, -math.inf),
        (1, -math.inf, math.nan),
        (1, math.inf, 0.0),
        (2, math.inf, -0.0),
        (1, math.nan, math.nan),
        (2, -1000.5, 0.0),
    ],
)
def test_polygamma_has_poles_and_limits(
    library: Library, n: int, x: float, expected: float
) -> None:
    column = torch.full((5,), x, dtype=library.compute)
    wanted = torch.full((5,), expected, dtype=library.compute)
    got = library.real(f"polygamma{n}", column)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5, equal_nan=True)


@each_dtype
def test_what_is_negated_changes_its_sign_also_where_it_is_zero(library: Library) -> None:
    x = special(library.compute)
    assert torch.equal(library.real("minus", x).signbit(), ~x.signbit())


@each_dtype
@for_each("function", [*PREDICATES, *COMPARISONS])
def test_comparisons_are_those_of_pytorch(library: Library, function: str) -> None:
    x = special(library.compute)
    if function in COMPARISONS:
        pairs = every_pair(x, 2)
        expected = getattr(torch, function)(*pairs)
        assert torch.equal(library.truth(function, *pairs), expected)
        whole = integers()
        pairs = every_pair(whole, 2)
        expected = getattr(torch, function)(*pairs)
        assert torch.equal(library.truth(f"whole_{function}", *pairs), expected)
        return
    expected = x != 0 if function == "truth" else getattr(torch, function)(x)
    assert torch.equal(library.truth(function, x), expected)


@each_dtype
def test_truths_are_combined_and_converted(library: Library) -> None:
    a, b = every_pair(torch.tensor([False, True]), 2)
    for function in LOGICAL:
        assert torch.equal(library.truth(function, a, b), getattr(torch, function)(a, b))
    assert torch.equal(library.truth("logical_not", a), ~a)
    whole = integers()
    assert torch.equal(library.truth("of_whole", whole), whole != 0)
    real = torch.empty(len(whole), dtype=library.compute)
    assert torch.equal(library.loop("real_of_whole", real, whole), whole.to(library.compute))
    real = torch.empty(4, dtype=library.compute)
    assert torch.equal(library.loop("real_of_truth", real, a), a.to(library.compute))
    assert torch.equal(library.loop("whole_of_truth", whole[:4], a), a.long())


@each_dtype
def test_where_chooses_bits_so_that_no_nan_leaks(library: Library) -> None:
    x = special(library.compute)
    nan = torch.full_like(x, math.nan)
    takes = torch.arange(len(x)) % 2 == 0
    got = library.loop("real_where", torch.empty_like(x), takes, x, nan)
    assert torch.equal(got[takes].isnan(), x[takes].isnan())
    assert torch.equal(got[takes].signbit(), x[takes].signbit())
    assert got[~takes].isnan().all()
    whole = integers()
    takes = torch.arange(len(whole)) % 3 == 0
    got = library.loop("whole_where", torch.empty_like(whole), takes, whole, -whole)
    assert torch.equal(got, torch.where(takes, whole, -whole))
    got = library.loop("truth_where", torch.empty_like(takes), takes, ~takes, takes)
    assert not got.any()


@each_dtype
@for_each("function", WHOLE_BINARY)
def test_whole_numbers_are_pytorchs_where_it_has_an_answer(library: Library, function: str) -> None:
    whole = integers()
    a, b = every_pair(whole, 2)
    if function in ("remainder", "fmod", "floor_divide"):
        by_zero = b == 0
        assert not library.whole(function, a[by_zero], b[by_zero]).any()
        # PyTorch's stops the process at INT64_MIN / -1.
        overflows = (a == -(2**63)) & (b == -1)
        expected = a if function == "floor_divide" else torch.zeros_like(a)
        got = library.whole(function, a[overflows], b[overflows])
        assert torch.equal(got, expected[overflows])
        a, b = a[~by_zero & ~overflows], b[~by_zero & ~overflows]
    assert torch.equal(library.whole(function, a, b), getattr(torch, function)(a, b))


@each_dtype
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("abs", torch.abs),
        ("sign", torch.sign),
        ("relu", torch.relu),
        ("powi<0>", torch.ones_like),
        ("powi<3>", lambda x: x * x * x),
        ("powi<5>", lambda x: x * x * x * x * x),
    ],
)
def test_whole_numbers_wrap_around(library: Library, function: str, expected: Any) -> None:
    whole = integers()
    assert torch.equal(library.whole(function, whole), expected(whole))


@each_storage
@for_each("dtype", STORED)
def test_every_stored_type_is_copied_in_every_layout(
    library: Library, dtype: torch.dtype, seed: int
) -> None:
    copy = symbol("copy", f"{STORED[dtype]}_{STORED[dtype]}")
    long = 20 * library.lanes
    for n in (*range(1, 2 * library.lanes + 1), long, long + 3):
        source = stored(dtype, 3 * n)
        for steps, step in itertools.product((1, 3), (1, 0, 3, -1, -2)):
            if dtype is torch.float64 and library.compute is SINGLE:
                source = source.float().double()
            out = stored(dtype, steps * n + 8)
            # PyTorch's strides are never negative: the pointer is at the last element.
            start = (n - 1) * -step if step < 0 else 0
            expected = out.clone()
            expected[: steps * n : steps] = source[[start + k * step for k in range(n)]]
            library.call(copy, [out, source[start:]], [steps, step], n)
            assert torch.equal(out, expected), (n, steps, step)


@each_storage
@for_each("dtype", STORED)
def test_some_lanes_are_read_and_written_and_the_rest_repeats_the_last(
    library: Library, dtype: torch.dtype, seed: int
) -> None:
    size, width = dtype.itemsize, library.lanes
    for count in range(1, width + 1):
        source = stored(dtype, 2 * width)
        if dtype is torch.float64 and library.compute is SINGLE:
            source = source.float().double()
        out, everything = stored(dtype, 3 * width), torch.empty(width, dtype=dtype)
        expected = out.clone()
        expected[: 3 * count : 3] = source[: 2 * count : 2]
        library.handle[f"some_{STORED[dtype]}"](
            ctypes.c_void_p(out.data_ptr()),
            ctypes.c_int64(3 * size),
            ctypes.c_void_p(source.data_ptr()),
            ctypes.c_int64(2 * size),
            ctypes.c_int64(count),
            ctypes.c_void_p(everything.data_ptr()),
        )
        assert torch.equal(out, expected)
        assert torch.equal(everything[:count], source[: 2 * count : 2])
        assert (everything[count:] == source[2 * count - 2]).all()


def calls_worth_streaming(library: Library) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Where outputs lie in one large tensor each, beside the boundaries that streaming needs."""
    n = 2**20 // library.compute.itemsize + 3
    x = torch.randn(n, dtype=library.compute)
    for first, second in ((0, 0), (1, 1), (library.lanes - 1, library.lanes - 1), (0, 1)):
        y, z = (torch.zeros(n + 2 * library.lanes, dtype=library.compute) for _ in range(2))
        yield x, y[first:], z[second:]


@each_storage
def test_results_that_pass_the_caches_by_arrive(library: Library, seed: int) -> None:
    for x, y, z in calls_worth_streaming(library):
        n = len(x)
        library.call("cheap1", [y, x], [1, 1], n)
        assert torch.equal(y[:n], x + x)
        assert not y[n:].any()
        y.zero_()
        library.call("cheap2", [y, z, x], [1, 1, 1], n)
        assert torch.equal(y[:n], x + x)
        assert torch.equal(z[:n], -x)
        assert not y[n:].any()
        assert not z[n:].any()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="asks the processor by cpuid")
def test_the_size_of_the_last_cache_is_the_systems() -> None:
    told = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    if not told:
        pytest.skip("the system does not tell")
    library = LIBRARIES[0]
    library.handle.processor_cache.restype = ctypes.c_int64
    assert library.handle.processor_cache() == 1024 * int(told[-1].read_text().rstrip("K\n"))


@each_library
def test_an_output_may_be_an_input(library: Library, seed: int) -> None:
    x = torch.rand(20 * library.lanes + 5, dtype=library.compute)
    for view in (x, x[::2]):
        expected = view.exp()
        library.loop("real_exp", view, view)
        torch.testing.assert_close(view, expected)


@libraries([one for one in ALL_LIBRARIES if one.ulp == 4 or one.width.name == "sse"])
@for_each("other", FLOATING)
@for_each("back", [False, True])
def test_floats_are_rounded_bit_for_bit_as_pytorch_does(
    library: Library, other: torch.dtype, back: bool, seed: int
) -> None:
    of, to = (other, library.compute) if back else (library.compute, other)
    if of is to:
        return
    if of.itemsize == 2:
        x = torch.arange(-(2**15), 2**15).to(torch.int16).view(of)
    else:
        half, quarter = torch.arange(2**16) << 16, torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001])
        ties = (half[:, None] + quarter).flatten().to(torch.int32).view(SINGLE)
        # Between two halves: their last bit is the 13th, not the 16th.
        between = torch.arange(0x3300, 0x47800, 1) << 12
        ties = torch.cat([ties, between.to(torch.int32).view(SINGLE), values(SINGLE, 20_000)])
        x = ties.to(of)
    name = f"copy_{STORED[of]}_{STORED[to]}"
    got, expected = library.loop(name, torch.empty(len(x), dtype=to), x), x.to(to)
    nan = x.isnan()
    assert torch.equal(got.isnan(), nan)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[to.itemsize]
    assert torch.equal(got[~nan].view(bits), expected[~nan].view(bits))
