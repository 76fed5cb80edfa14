"""Libraries of formulas' functions: every function of csrc/formula, called through its loop."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import pullback
from pullback.bind.loops.compiled import FLAGS
from pullback.kernels.compile import compile, open_library
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags
from pullback.kernels.toolchain import find

CSRC = Path(pullback.__file__).parent / "csrc"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")
LIB = Path(torch.__file__).parent / "lib"

# fmt: off
UNARY = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv",
    "lgamma", "digamma", "sqrt", "rsqrt", "reciprocal", "abs", "floor", "ceil", "round",
    "trunc", "frac", "sign", "sigmoid", "softplus", "log_sigmoid", "tanh_softplus", "gelu",
    "relu", "sinc", "sigmoid_alone", "sigmoid_of_minus", "expm1_beside_exp",
    "powi<3>", "powi<-2>", "powi<0>",
]
# fmt: on
# What exponential.h and trigonometric.h have.
INLINED = [
    *("exp", "expm1", "sigmoid", "softplus", "log_sigmoid", "tanh_softplus", "erfc", "gelu"),
    *("log", "tanh", "sigmoid_alone", "sigmoid_of_minus", "expm1_beside_exp", "sin", "cos", "atan"),
]
POLYGAMMA = tuple(f"polygamma{n}" for n in range(5))
# fmt: off
BINARY = [
    "pow", "atan2", "hypot", "copysign", "maximum", "minimum", "fmax", "fmin", "logaddexp",
    "logaddexp2", "xlogy", "xlog1py", "remainder", "fmod", "floor_divide",
]
# fmt: on
PREDICATES = ["isnan", "isinf", "isfinite", "signbit", "truth"]
COMPARISONS = ["lt", "le", "gt", "ge", "eq", "ne"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]
WHOLE_UNARY = ["abs", "sign", "relu", "powi<0>", "powi<3>", "powi<5>"]
WHOLE_BINARY = ["maximum", "minimum", "remainder", "fmod", "floor_divide", "pow"]
STORED = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "Half",
    torch.bfloat16: "Bfloat16",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.int16: "int16_t",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
}
FLOATING = tuple(dtype for dtype in STORED if dtype.is_floating_point)


@dataclass(frozen=True)
class Width:
    """The registers that a library is compiled for."""

    name: str
    flags: tuple[str, ...] = ()


NATIVE = Width("native")


@dataclass(frozen=True)
class Library:
    """What a formula computes in, and how exactly."""

    compute: torch.dtype
    ulp: int
    width: Width = NATIVE

    def __str__(self) -> str:
        return f"{STORED[self.compute]}-{self.ulp}ulp-{self.width.name}"

    @property
    def has_storage(self) -> bool:
        """Whether it copies. It would do so alike for any accuracy."""
        return self.ulp == 4 or self.width is not NATIVE

    @property
    def handle(self) -> ctypes.CDLL:
        return _handle(self)

    @property
    def lanes(self) -> int:
        return self.handle.vector_lanes()

    def call(self, name: str, operands: list[Tensor], strides: list[int], n: int) -> None:
        """Run a loop; `strides` are in elements."""
        sizes = [operand.element_size() for operand in operands]
        self.handle[name](
            (ctypes.c_void_p * len(operands))(*[operand.data_ptr() for operand in operands]),
            (ctypes.c_int64 * len(operands))(
                *[stride * size for stride, size in zip(strides, sizes, strict=True)]
            ),
            ctypes.c_int64(n),
        )

    def loop(self, name: str, out: Tensor, *inputs: Tensor) -> Tensor:
        """Run a loop over one-dimensional tensors of any stride."""
        operands = [out, *inputs]
        self.call(name, operands, [operand.stride(0) for operand in operands], len(out))
        return out

    def real(self, function: str, *x: Tensor) -> Tensor:
        return self.loop(symbol("real", function), torch.empty_like(x[0]), *x)

    def truth(self, function: str, *x: Tensor) -> Tensor:
        return self.loop(symbol("truth", function), torch.empty(len(x[0]), dtype=torch.bool), *x)

    def whole(self, function: str, *x: Tensor) -> Tensor:
        return self.loop(symbol("whole", function), torch.empty_like(x[0]), *x)

    def scalar(self, function: str, *x: float) -> float:
        called = self.handle[symbol("scalar", function)]
        called.restype, called.argtypes = ctypes.c_double, [ctypes.c_double] * len(x)
        return called(*x)

    def whole_scalar(self, function: str, *x: int) -> int:
        called = self.handle[symbol("whole_scalar", function)]
        called.restype, called.argtypes = ctypes.c_int64, [ctypes.c_int64] * len(x)
        return called(*x)


def symbol(kind: str, function: str) -> str:
    plain = function.replace("-", "minus").translate(str.maketrans("<>", "__"))
    return f"{kind}_{plain}"


LIBRARIES = [Library(dtype, ulp) for dtype in (torch.float32, torch.float64) for ulp in (4, 1)]
# Narrower registers have other library functions, and another path for half.
NARROW = [
    Library(torch.float32, 4, Width("avx2", ("-mno-avx512f",))),
    Library(torch.float64, 1, Width("sse", ("-mno-avx", "-mno-f16c"))),
]
ALL_LIBRARIES = LIBRARIES + (NARROW if platform.machine() == "x86_64" else [])
STORAGE = [library for library in ALL_LIBRARIES if library.has_storage]


@cache
def _handle(library: Library) -> ctypes.CDLL:
    compiler = find("c++")
    copies = (TranslationUnit("storage.cpp", storage(library)),) if library.has_storage else ()
    plan = BuildPlan(
        name=f"vector-math-{library}",
        compiler=compiler,
        units=(TranslationUnit("functions.cpp", text(library)), *copies),
        sources=(),
        flags=(*kernel_flags(compiler), *FLAGS, *library.width.flags, *WARNINGS),
        link=(f"-L{LIB}", "-ltorch_cpu", "-lmvec", "-lm", f"-Wl,-rpath,{LIB}"),
        abi="test",
    )
    return open_library(compile(plan))


def head(library: Library) -> str:
    return f"""\
#define PULLBACK_COMPUTE {STORED[library.compute]}
#define PULLBACK_ULP {library.ulp}
#include "{CSRC}/kernel_abi.h"
#include "{CSRC}/formula/formula.h"
using namespace pullback::formula;
#define EXPORT extern "C" __attribute__((visibility("default")))
#define LOOP char **data, const int64_t *strides, int64_t n
"""


# One loop for each shape of function: a loop for each function would take a minute to compile.
SHAPES = """\
template <class To, class... From> struct Called {
  To (*function)(From...);
  [[gnu::always_inline]] void operator()(const From... x, To& y) const { y = function(x...); }
};
template <class V> struct Memory { using Type = Compute; };
template <> struct Memory<Whole> { using Type = int64_t; };
template <> struct Memory<Truth> { using Type = bool; };
template <class To, class... From>
[[gnu::noinline]] void each(To (*function)(From...), LOOP) {
  using Types = Stored<Outputs<typename Memory<To>::Type>, Inputs<typename Memory<From>::Type...>>;
  run(Called<To, From...>{function}, Types{}, data, strides, n);
}
"""


# What memory limits, and then passes the caches by.
CHEAP = """\
struct Cheap {
  static constexpr bool cheap = true;
  [[gnu::always_inline]] void operator()(const Real x, Real& y) const { y = x + x; }
  [[gnu::always_inline]] void operator()(Real x, Real& y, Real& z) const { y = x + x, z = -x; }
};
using One = Stored<Outputs<Compute>, Inputs<Compute>>;
using Two = Stored<Outputs<Compute, Compute>, Inputs<Compute>>;
EXPORT void cheap1(LOOP) { run(Cheap(), One(), data, strides, n); }
EXPORT void cheap2(LOOP) { run(Cheap(), Two(), data, strides, n); }
#if defined(__x86_64__)
EXPORT int64_t processor_cache() { return last_cache(); }
#endif
"""


def text(library: Library) -> str:
    parts = [head(library), SHAPES, "EXPORT int vector_lanes() { return lanes; }\n"]
    parts += _function("real", "gelu_slope", "Real", ["Real"])
    for function in UNARY:
        parts += _function("real", function, "Real", ["Real"])
        parts += _scalar(function, f"{function}(a)", 1)
    for function in POLYGAMMA:
        call = f"polygamma(int64_t({function[-1]}), a)"
        parts += _function("real", function, "Real", ["Real"], call)
        parts += _scalar(function, call, 1)
    for function in BINARY:
        parts += _function("real", function, "Real", ["Real", "Real"])
        parts += _scalar(function, f"{function}(a, b)", 2)
    for function in PREDICATES:
        parts += _function("truth", function, "Truth", ["Real"])
    for function in COMPARISONS:
        parts += _function("truth", function, "Truth", ["Real", "Real"])
        parts += _function(
            "truth", f"whole_{function}", "Truth", ["Whole"] * 2, f"{function}(a, b)"
        )
    for function in LOGICAL:
        parts += _function("truth", function, "Truth", ["Truth", "Truth"])
    parts += _function("truth", "logical_not", "Truth", ["Truth"])
    parts += _function("truth", "of_whole", "Truth", ["Whole"], "truth(a)")
    parts += _function("real", "of_whole", "Real", ["Whole"], "real(a)")
    parts += _function("real", "of_truth", "Real", ["Truth"], "real(a)")
    parts += _function("whole", "of_truth", "Whole", ["Truth"], "whole(a)")
    parts += _function("real", "minus", "Real", ["Real"], "-a")
    for kind, vector in {"real": "Real", "whole": "Whole", "truth": "Truth"}.items():
        parts += _function(kind, "where", vector, ["Truth", vector, vector], "where(a, b, c)")
    for function in WHOLE_UNARY:
        parts += _function("whole", function, "Whole", ["Whole"])
        parts += _whole_scalar(function, 1)
    for function in WHOLE_BINARY:
        parts += _function("whole", function, "Whole", ["Whole", "Whole"])
        parts += _whole_scalar(function, 2)
    for function in COMPARISONS:
        parts += _whole_scalar(function, 2)
    return "".join(parts)


def _function(
    kind: str, function: str, to: str, arguments: list[str], call: str | None = None
) -> list[str]:
    name, letters = symbol(kind, function), "abc"[: len(arguments)]
    declared = ", ".join(
        f"{vector} {letter}" for vector, letter in zip(arguments, letters, strict=True)
    )
    body = call or f"{function}({', '.join(letters)})"
    return [
        f"static {to} of_{name}({declared}) {{ return {body}; }}\n",
        f"EXPORT void {name}(LOOP) {{ each(of_{name}, data, strides, n); }}\n",
    ]


def _scalar(function: str, call: str, count: int) -> list[str]:
    declared = ", ".join(f"double {letter}" for letter in "ab"[:count])
    return [f"EXPORT double {symbol('scalar', function)}({declared}) {{ return {call}; }}\n"]


def _whole_scalar(function: str, count: int) -> list[str]:
    declared = ", ".join(f"int64_t {letter}" for letter in "ab"[:count])
    call = f"{function}({', '.join('ab'[:count])})"
    name = symbol("whole_scalar", function)
    return [f"EXPORT int64_t {name}({declared}) {{ return {call}; }}\n"]


def storage(library: Library) -> str:
    """Copies of every stored type, and every floating one from the type of computing."""
    parts = ["#define PULLBACK_LAST_CACHE (1 << 20)\n", head(library)]
    names = {kind: f"copy_{kind}_{kind}" for kind in STORED.values()}
    pairs = [(kind, kind) for kind in names]
    compute = STORED[library.compute]
    others = [STORED[dtype] for dtype in FLOATING if STORED[dtype] != compute]
    pairs += [(compute, other) for other in others] + [(other, compute) for other in others]
    for to, of in pairs:
        parts.append(
            f"EXPORT void copy_{of}_{to}(LOOP) {{ struct Body {{ [[gnu::always_inline]] void "
            f"operator()(const Value<{of}> x, Value<{to}>& y) const {{ y = x; }} }};\n"
            f"  run(Body(), Stored<Outputs<{to}>, Inputs<{of}>>(), data, strides, n); }}\n"
        )
    for kind in STORED.values():
        parts.append(
            f"EXPORT void some_{kind}(char* to, int64_t to_stride, const char* from, "
            f"int64_t stride, int64_t count, char* all) {{\n"
            f"  const auto value = load_some<{kind}>(from, stride, count);\n"
            f"  store_some<{kind}>(to, to_stride, value, count);\n"
            f"  store_strided<{kind}>(all, sizeof({kind}), value); }}\n"
        )
    parts.append(CHEAP)
    return "".join(parts)
