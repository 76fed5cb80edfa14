"""The functions of a formula on a GPU, by their C++ for the host: PyTorch's rules, and accurate."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from pullback.bind.dense import elements
from pullback.define.math.functions import TABLE
from pullback.kernels.loops import pointwise_cuda
from tests.kernels.launches import HAVE, on_host
from tests.telling import examples

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif("c++" not in HAVE, reason="no C++ compiler here"),
]

mp: Any = mpmath.mp
DTYPES = {"float": torch.float32, "double": torch.float64}
POWERS = (-3, -2, -1, 0, 1, 2, 3, 4, 7)
ORDERS = (0, 1, 2, 3, 6)
WHOLE_TOO = "add sub mul neg pow remainder floor_divide fmod abs sign maximum minimum clamp relu"
CODE = {name: row for name, row in TABLE.items() if not row.defined}


def expressions() -> dict[str, tuple[str, str, str]]:
    """Return, by the name of a C function, its operands' types, its result's and the code."""
    found: dict[str, tuple[str, str, str]] = {}
    for name, row in CODE.items():
        if name in ("powi", "polygamma", "whole", "real", "where"):
            continue
        operands = dict(zip(row.parameters, "abc", strict=False))
        result = "bool" if row.kind in ("test", "logic") else "Real"
        kind = "bool" if row.kind == "logic" else "Real"
        found[name] = (kind, result, row.code.format(**operands))
        if name in WHOLE_TOO.split():
            found[f"whole_{name}"] = ("Whole", "Whole", row.code.format(**operands))
    found |= {f"powi_{n}".replace("-", "m"): ("Real", "Real", f"powi<{n}>(a)") for n in POWERS}
    found |= {f"polygamma_{n}": ("Real", "Real", f"polygamma({n}, a)") for n in ORDERS}
    found["whole_powi_5"] = ("Whole", "Whole", "powi<5>(a)")
    found["whole_lt"] = ("Whole", "bool", "lt(a, b)")
    found["whole_real"] = ("Whole", "Real", "real(a)")
    found["whole_truth"] = ("Whole", "bool", "truth(a)")
    found["bool_whole"] = ("bool", "Whole", "whole(a)")
    found["bool_real"] = ("bool", "Real", "real(a)")
    found["where"] = ("Real", "Real", "where(truth(a), b, c)")
    return found


@functools.cache
def functions(compute: str) -> ctypes.CDLL:
    rows = "".join(
        f"ROW({name}, {kind}, {result}, {code})\n"
        for name, (kind, result, code) in expressions().items()
    )
    text = f"""#define PULLBACK_COMPUTE {compute}
#include "{pointwise_cuda.FOLDER}/formula.cuh"
#define ROW(name, In, Out, ...) extern "C" __attribute__((visibility("default"))) \\
  void f_##name(const void* x, const void* y, const void* z, void* to, int64_t n) {{ \\
    using namespace pullback::formula; \\
    for (int64_t k = 0; k < n; ++k) {{ \\
      [[maybe_unused]] const In a = static_cast<const In*>(x)[k]; \\
      [[maybe_unused]] const In b = static_cast<const In*>(y)[k]; \\
      [[maybe_unused]] const In c = static_cast<const In*>(z)[k]; \\
      static_cast<Out*>(to)[k] = __VA_ARGS__; }} }}
namespace pullback::formula {{ {rows} }}
extern "C" __attribute__((visibility("default"))) uint32_t quotient(uint32_t x, uint32_t by) {{
  return pullback::formula::Divisor::of(by).quotient(x);
}}
extern "C" __attribute__((visibility("default"))) uint16_t half(float x) {{
  return pullback::formula::to_half(x);
}}
extern "C" __attribute__((visibility("default"))) uint16_t bfloat16(float x) {{
  return pullback::formula::to_bfloat16(x);
}}
extern "C" __attribute__((visibility("default"))) float from_half(uint16_t x) {{
  return pullback::formula::from_half(x);
}}
"""
    return on_host(f"cuda-functions-{compute}", text)


def call(compute: str, name: str, *operands: Tensor) -> Tensor:
    """Call a function of the header for each element."""
    types = {"Real": DTYPES[compute], "Whole": torch.int64, "bool": torch.bool}
    kind, result, _ = expressions()[name]
    given = [operand.to(types[kind]).contiguous() for operand in operands]
    given += [given[-1]] * (3 - len(given))
    to = torch.empty(given[0].shape, dtype=types[result])
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*given, to)]
    functions(compute)[f"f_{name}"](*pointers, ctypes.c_int64(to.numel()))
    return to


def by_torch(name: str) -> Callable[..., Tensor]:
    if name in elements.OPERATORS:
        return elements.OPERATORS[name]
    if name == "softplus":
        return lambda x: torch.logaddexp(x, torch.zeros_like(x))
    if name == "tanh_softplus":
        return lambda x: torch.logaddexp(x, torch.zeros_like(x)).tanh()
    return elements.torch_function(TABLE[name].torch)


def specials(dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    inf, least = float("inf"), info.tiny * info.eps
    values = [0.0, least, info.tiny, 1e-3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 30.0, info.max, inf]
    return torch.tensor([*values, *(-value for value in values), float("nan")], dtype=dtype)


def differs(got: Tensor, want: Tensor, ulps: float, scale: Tensor | float = 0.0) -> Tensor:
    """Return where a result is not what is wanted; finite ones may be some `ulps` of `scale` off.

    `want` is float64, and may be of more precision than `got`.
    """
    rounded = want.to(got.dtype)
    size = torch.maximum(rounded.abs(), torch.as_tensor(scale).to(got.dtype))
    size = size.clamp(max=torch.finfo(got.dtype).max / 2)  # the spacing at the last would overflow
    unit = torch.as_tensor(np.spacing(size.numpy())).double()
    near = (got.double() - want).abs() <= ulps * unit
    return ~(near | (got == rounded) | (got.isnan() & rounded.isnan()))


REAL = [
    name for name, (kind, result, _) in expressions().items() if (kind, result) == ("Real", "Real")
]
OWN = {"powi", "polygamma", "where", "clamp"}  # tested below
AT_SPECIALS = [name for name in REAL if name.split("_")[0] not in OWN]
# PyTorch's own kernels disagree: gelu(inf) is NaN and relu(-0) is -0 on the CPU, not on a GPU.
ON_A_GPU = {"gelu": ("inf", "inf"), "relu": ("-0.0", "0.0")}
each_compute = pytest.mark.parametrize("compute", ["float", "double"])


def test_every_function_of_the_table_is_there() -> None:
    own = {"powi", "polygamma", "where", "real", "whole"}
    assert {name for name in CODE if name not in own} <= set(expressions())


@pytest.mark.parametrize("name", AT_SPECIALS)
@each_compute
def test_special_values_are_as_in_pytorch(name: str, compute: str) -> None:
    x = specials(DTYPES[compute])
    operands = (x,) if len(TABLE[name].parameters) == 1 else tuple(torch.cartesian_prod(x, x).T)
    got = call(compute, name, *operands)
    want = by_torch(name)(*operands)
    wrong = differs(got, want.double(), 64.0, 1.0)
    # -0 is not 0: their reciprocals differ. PyTorch's own gelu gives either, by the processor.
    if name != "gelu":
        wrong |= (got == 0) & (want == 0) & (got.signbit() != want.signbit())
    if name in ON_A_GPU:
        place, value = map(float, ON_A_GPU[name])
        here = (x == place) & (x.signbit() == np.signbit(place))
        assert str(got[here].item()) == str(value)
        wrong &= ~here & (x < torch.finfo(x.dtype).max)
    shown = [tuple(each[wrong].tolist()) for each in (*operands, got, want)]
    assert not wrong.any(), shown


@pytest.mark.parametrize(
    "name", ["lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "isfinite", "signbit"]
)
@each_compute
def test_conditions_are_as_in_pytorch(name: str, compute: str) -> None:
    x = specials(DTYPES[compute])
    operands = (x,) if len(TABLE[name].parameters) == 1 else tuple(torch.cartesian_prod(x, x).T)
    assert torch.equal(call(compute, name, *operands), by_torch(name)(*operands))
    logic = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
    for word in ("logical_and", "logical_or", "logical_xor"):
        assert torch.equal(call(compute, word, *logic), by_torch(word)(*logic))


def test_whole_numbers_are_as_in_pytorch() -> None:
    values = [0, 1, -1, 2, -2, 3, 7, -7, 63, 2**31, 2**62, -(2**62), 2**63 - 1, -(2**63)]
    a, b = torch.cartesian_prod(torch.tensor(values), torch.tensor(values)).T
    for name in ("add", "sub", "mul", "maximum", "minimum"):
        assert torch.equal(call("float", f"whole_{name}", a, b), by_torch(name)(a, b)), name
    for name in ("neg", "abs", "sign", "relu"):
        assert torch.equal(call("float", f"whole_{name}", a), by_torch(name)(a)), name
    # What stops PyTorch, or the processor.
    safe = (b != 0) & ~((a == -(2**63)) & (b == -1))
    for name in ("remainder", "fmod", "floor_divide"):
        got = call("float", f"whole_{name}", a, b)
        assert torch.equal(got[safe], by_torch(name)(a[safe], b[safe])), name
        assert not got[b == 0].any()
    exponents = b.clamp(0, 63)
    assert torch.equal(call("float", "whole_pow", a, exponents), torch.pow(a, exponents))
    assert call("float", "whole_pow", a, -exponents - 1).abs().max() == 1
    assert torch.equal(call("float", "whole_powi_5", a), a**5)
    assert torch.equal(call("double", "whole_real", a), a.double())
    assert torch.equal(call("float", "where", a, a, b), torch.where(a != 0, a, b).float())


IN_MPMATH = (
    *("exp", "expm1", "log", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "atan2", "hypot"),
    "digamma",
)
EXACT: dict[str, Callable[..., Any]] = {
    **{name: getattr(mp, name) for name in IN_MPMATH},
    "exp2": lambda x: mp.power(2, x),
    "log2": lambda x: mp.log(x, 2),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "tanh_softplus": lambda x: mp.tanh(mp.log1p(mp.exp(x))),
    "logit": lambda x: mp.log(x / (1 - x)),
    "log_sigmoid": lambda x: -mp.log1p(mp.exp(-x)),
    "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    "sinc": lambda x: mp.sin(mp.pi * x) / (mp.pi * x),
    "pow": mp.power,
    "logaddexp": lambda x, y: mp.log(mp.exp(x) + mp.exp(y)),
    "logaddexp2": lambda x, y: mp.log(mp.power(2, x) + mp.power(2, y), 2),
    "xlogy": lambda x, y: x * mp.log(y),
    "xlog1py": lambda x, y: x * mp.log1p(y),
    **{f"polygamma_{n}": functools.partial(mp.polygamma, n) for n in ORDERS},
    **{f"powi_{n}".replace("-", "m"): lambda x, n=n: mp.power(x, n) for n in POWERS},
}
# A function: 4 ulp. A recurrence of ten steps or a sum of some twenty terms: one for each. Two
# polynomials of eight terms: likewise; the host's erfinv alone, since CUDA has its own.
ULPS = {"erfinv": 16.0, "digamma": 20.0, **{f"polygamma_{n}": 20.0 for n in ORDERS}}


def exact(name: str, operands: Sequence[Tensor]) -> Tensor:
    """Return a function's values to the last bit, NaN where they are not real."""
    found: list[float] = []
    with mpmath.workprec(300):
        for row in zip(*(operand.tolist() for operand in operands), strict=True):
            try:
                value = EXACT[name](*map(mp.mpf, row))
                found.append(float("nan") if isinstance(value, mp.mpc) else float(value))
            except (ValueError, ZeroDivisionError):
                found.append(float("nan"))
    return torch.tensor(found, dtype=torch.float64)


def scale(name: str, x: Tensor) -> Tensor | float:
    if name in ("lgamma", "digamma", "polygamma_0"):
        return 1 + x.abs().log().abs()  # of a difference of logarithms
    if name.startswith("polygamma"):
        n = int(name[-1])
        between = (x - x.round()).abs() ** -(n + 1.0) * math.factorial(n)
        return torch.where(x < 0, between, 0)  # of what is on either side, which may cancel
    if name == "sinc":
        return 4.0  # the sine's argument is rounded: |x| units, over |x|
    # Logarithms of what is rounded near 1.
    return 1.0 if name.startswith("logaddexp") or name == "logit" else 0.0


@pytest.mark.parametrize("name", EXACT)
@each_compute
def test_functions_are_accurate(name: str, compute: str, seed: int) -> None:
    count = examples(20, 60)
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Tensor:
        size = 10 ** (torch.rand(count, generator=generator, dtype=torch.float64) * 12 - 8)
        near = torch.rand(count, generator=generator, dtype=torch.float64) * 20 - 10
        # Far below 0 the gamma function's relatives have nothing but poles.
        sign = 1 if name.startswith(("digamma", "polygamma", "lgamma")) else near.sign()
        return torch.cat([sign * size, near, near / 10]).to(DTYPES[compute])

    two = name in TABLE and len(TABLE[name].parameters) == 2
    operands = (draw(), draw()) if two else (draw(),)
    want, got = exact(name, operands), call(compute, name, *operands)
    wrong = differs(got, want, ULPS.get(name, 4.0), scale(name, operands[0]))
    wrong &= ~want.isnan()  # outside of what a function is defined for
    shown = [each[wrong].tolist() for each in (*operands, got, want)]
    assert not wrong.any(), shown


def test_halves_are_rounded_as_by_pytorch() -> None:
    library = functions("float")
    library.half.argtypes = library.bfloat16.argtypes = [ctypes.c_float]
    library.half.restype = library.bfloat16.restype = ctypes.c_uint16
    library.from_half.restype = ctypes.c_float
    x = torch.cat(
        [
            specials(torch.float32),
            torch.linspace(-70000, 70000, 999),
            10 ** torch.linspace(-9, 5, 999),
        ]
    )
    x = x[~x.isnan()]
    for name, dtype in (("half", torch.float16), ("bfloat16", torch.bfloat16)):
        got = torch.tensor(
            [getattr(library, name)(value) for value in x.tolist()], dtype=torch.int32
        )
        assert torch.equal(got.to(torch.int16).view(dtype), x.to(dtype))
    bits = torch.arange(-32768, 32768, 7).to(torch.int16)
    back = torch.tensor([library.from_half(value & 65535) for value in bits.tolist()])
    assert torch.equal(back.nan_to_num(123), bits.view(torch.float16).float().nan_to_num(123))


def test_the_quotient_of_a_divisor_is_exact(seed: int) -> None:
    draw = np.random.default_rng(seed)
    divisors = [*range(1, 66), 127, 128, 129, 1000, 65537, 2**30, 2**30 + 1, 2**31 - 1]
    for by in divisors:
        for x in (0, 1, by - 1, by, by + 1, 2**31 - 1, *map(int, draw.integers(0, 2**31, 20))):
            assert functions("float").quotient(x, by) == x // by or x >= 2**31
