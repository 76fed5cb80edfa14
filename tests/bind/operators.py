"""The table of operators that the tests of this folder are crossed with.

Each has a kernel of another kind, an independent reference in PyTorch, and examples of arguments.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pullback as pb

NAMESPACE = "pbtest"


@dataclass(frozen=True)
class Floating:
    """An argument of the shared dtype."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Index:
    """An int64 argument with values below `bound`."""

    shape: tuple[int, ...]
    bound: int


# What an example is made of: those two, None, and the values of scalars.
Example = tuple[object, ...]
Outputs = tuple[Tensor, ...]

REAL = (torch.float32, torch.float64)
# g++ before 13 has no arithmetic in bfloat16.
HALF = (torch.float16,)
COMPLEX = (torch.complex64, torch.complex128)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator of the table.

    Attributes:
        name: without the namespace.
        define: registers it and returns it.
        reference: the same in PyTorch, written without looking at the kernel.
        dtypes: those that its kernel takes.
        examples: arguments; the first is the plain one.
        roundings: of one element of an output, for the examples here.
        orders: how many times it can be differentiated, 2 standing for any number.
        batched: whether all its tensors have `...`.
    """

    name: str
    define: Callable[[], pb.Operator]
    reference: Callable[..., Tensor | Outputs]
    dtypes: tuple[torch.dtype, ...]
    examples: tuple[Example, ...]
    roundings: int = 1
    orders: int = 2
    batched: bool = False

    @functools.cached_property
    def operator(self) -> pb.Operator:
        """The operator, compiled at its first use."""
        return self.define()

    def expected(self, *arguments: object, **keywords: object) -> Outputs:
        """What the reference says."""
        return as_tuple(self.reference(*arguments, **keywords))


def as_tuple(value: Any) -> Outputs:
    return value if isinstance(value, tuple) else (value,)


def draw(example: Example, dtype: torch.dtype, seed: int) -> tuple[Any, ...]:
    """Return the arguments of an example."""
    generator = torch.Generator().manual_seed(seed)

    def one(item: object) -> object:
        match item:
            case Floating(shape):
                # Rounded from a wider dtype, since not every dtype can be drawn.
                wide = torch.complex128 if dtype.is_complex else torch.float64
                return torch.randn(shape, dtype=wide, generator=generator).to(dtype)
            case Index(shape, bound):
                return torch.randint(bound, shape, generator=generator)
            case _:
                return item

    return tuple(map(one, example))


def allowed(case: Case, arguments: tuple[Any, ...]) -> float:
    """Return by how much a result may differ from the reference's.

    One rounding costs eps/2 of the sum of the terms' magnitudes, at both.
    """
    floating = [a for a in arguments if isinstance(a, Tensor) and a.dtype != torch.int64]
    eps = torch.finfo(floating[0].dtype).eps
    wide = torch.complex128 if floating[0].is_complex() else torch.float64
    sizes = [
        a.abs().to(wide) if isinstance(a, Tensor) and a.dtype != torch.int64 else a
        for a in arguments
    ]
    largest = max(
        (out.abs().max().item() for out in case.expected(*sizes) if out.numel()), default=0
    )
    return case.roundings * eps * max(largest, eps)


def assert_agrees(case: Case, arguments: tuple[Any, ...], outputs: object) -> None:
    """Compare with the reference: shape, dtype, and values within the roundings."""
    expected = case.expected(*arguments)
    found = as_tuple(outputs)
    assert len(found) == len(expected)
    bound = allowed(case, arguments)
    for output, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(output, wanted, rtol=0, atol=bound, equal_nan=True)


# --- mul: a template, and a derivative that calls it again


def define_mul() -> pb.Operator:
    return pb.operator(
        "pbtest::mul(a[...], b[...]) -> c[...]",
        cpu=pb.source(
            """template <class T> void mul(T* c, const T* a, const T* b, long n) {
                for (long i = 0; i < n; ++i) c[i] = a[i] * b[i];
            }""",
            call="mul(c, a, b, numel(c))",
            dtypes=["float32", "float64", "float16"],
        ),
        backward={"a": "pbtest::mul(grad, b)", "b": "pbtest::mul(grad, a)"},
    )


# --- linear: an optional input, and a native backward that is told which gradients are needed

LINEAR = """
template <class T>
void linear(T* y, const T* x, const T* w, const T* b, long n, long i, long o) {
  for (long r = 0; r < n; ++r)
    for (long c = 0; c < o; ++c) {
      T sum = b ? b[c] : T(0);
      for (long k = 0; k < i; ++k) sum += x[r * i + k] * w[c * i + k];
      y[r * o + c] = sum;
    }
}
template <class T>
void linear_backward(T* gx, T* gw, T* gb, const T* g, const T* x, const T* w,
                     long n, long i, long o) {
  if (gx)
    for (long r = 0; r < n; ++r)
      for (long k = 0; k < i; ++k) {
        T sum = 0;
        for (long c = 0; c < o; ++c) sum += g[r * o + c] * w[c * i + k];
        gx[r * i + k] = sum;
      }
  if (gw)
    for (long c = 0; c < o; ++c)
      for (long k = 0; k < i; ++k) {
        T sum = 0;
        for (long r = 0; r < n; ++r) sum += g[r * o + c] * x[r * i + k];
        gw[c * i + k] = sum;
      }
  if (gb)
    for (long c = 0; c < o; ++c) {
      T sum = 0;
      for (long r = 0; r < n; ++r) sum += g[r * o + c];
      gb[c] = sum;
    }
}
"""


@functools.cache
def linear_backward() -> pb.Operator:
    return pb.operator(
        "pbtest::linear_backward(grad[n, o], input[n, i], weight[o, i])"
        " -> (grad_input[n, i], grad_weight[o, i], grad_bias[o])",
        cpu=pb.source(
            LINEAR,
            call="linear_backward(grad_input, grad_weight, grad_bias, grad, input, weight,"
            " n, i, o)",
        ),
    )


def define_linear() -> pb.Operator:
    linear_backward()
    return pb.operator(
        "pbtest::linear(input[n, i], weight[o, i], bias[o]?) -> output[n, o]",
        cpu=pb.source(LINEAR, call="linear(output, input, weight, bias, n, i, o)"),
        backward="pbtest::linear_backward",
    )


# --- square: a backward by its name, which has a derivative itself


def define_square() -> pb.Operator:
    pb.operator(
        "pbtest::square_backward(grad_y[...], x[...]) -> grad_x[...]",
        cpu=pb.source(
            """template <class T> void pull(T* gx, const T* g, const T* x, long n) {
                for (long i = 0; i < n; ++i) gx[i] = 2 * x[i] * g[i];
            }""",
            call="pull(grad_x, grad_y, x, numel(x))",
            dtypes=["float32", "float64", "float16"],
        ),
        backward={
            "grad_y": "pbtest::square_backward(grad, x)",
            "x": "pbtest::square_backward(grad, grad_y)",
        },
    )
    return pb.operator(
        "pbtest::square(x[...]) -> y[...]",
        cpu=pb.source(
            """template <class T> void square(T* y, const T* x, long n) {
                for (long i = 0; i < n; ++i) y[i] = x[i] * x[i];
            }""",
            call="square(y, x, numel(x))",
            dtypes=["float32", "float64", "float16"],
        ),
        backward="pbtest::square_backward",
    )


# --- cube: two outputs, and a Python backward to which one gradient may come as None


def cube(x: Tensor) -> Outputs:
    return x * x * x, 3 * x * x


def cube_backward(grad_y: Tensor, grad_dx: Tensor | None, x: Tensor, dx: Tensor) -> Tensor:
    gradient = grad_y * dx
    return gradient if grad_dx is None else gradient + grad_dx * 6 * x


def define_cube() -> pb.Operator:
    return pb.operator(
        "pbtest::cube(x[...]) -> (y[...], dx[...])", python=cube, backward=cube_backward
    )


# --- sin: in NumPy, with a derivative of PyTorch's operators


def numpy_sin(x: Tensor) -> np.ndarray[Any, Any]:
    return np.sin(x.numpy())


def define_sin() -> pb.Operator:
    return pb.operator(
        "pbtest::sin(x[...]) -> y[...]",
        python=numpy_sin,
        backward={"x": "aten::mul.Tensor(grad, aten::cos(x))"},
    )


# --- correlate: arithmetic in the output's dimensions


def correlate_backward(grad: Tensor, x: Tensor, k: Tensor) -> Outputs:
    batch, kernel = grad[None, None], k[None, None]
    return (
        torch.nn.functional.conv_transpose2d(batch, kernel)[0, 0],
        torch.nn.functional.conv2d(x[None, None], batch)[0, 0],
    )


def define_correlate() -> pb.Operator:
    return pb.operator(
        "pbtest::correlate(x[h, w], k[p, q]) -> y[h - p + 1, w - q + 1]",
        cpu=pb.source(
            """template <class T>
            void correlate(T* y, const T* x, const T* k, long h, long w, long p, long q) {
              for (long r = 0; r < h - p + 1; ++r)
                for (long c = 0; c < w - q + 1; ++c) {
                  T sum = 0;
                  for (long i = 0; i < p; ++i)
                    for (long j = 0; j < q; ++j) sum += x[(r + i) * w + c + j] * k[i * q + j];
                  y[r * (w - q + 1) + c] = sum;
                }
            }""",
            call="correlate(y, x, k, h, w, p, q)",
        ),
        backward=correlate_backward,
    )


def correlate_reference(x: Tensor, k: Tensor) -> Tensor:
    (h, w), (p, q) = x.shape, k.shape
    total = x.new_zeros(h - p + 1, w - q + 1)
    for i, j in itertools.product(range(p), range(q)):
        total = total + x[i : h - p + 1 + i, j : w - q + 1 + j] * k[i, j]
    return total


# --- matvec: batch dimensions before others


def define_matvec() -> pb.Operator:
    return pb.operator(
        "pbtest::matvec(a[..., n, m], x[..., m]) -> y[..., n]",
        cpu=pb.source(
            """template <class T>
            void matvec(T* y, const T* a, const T* x, long batch, long n, long m) {
              for (long s = 0; s < batch; ++s)
                for (long r = 0; r < n; ++r) {
                  T sum = 0;
                  for (long c = 0; c < m; ++c) sum += a[(s * n + r) * m + c] * x[s * m + c];
                  y[s * n + r] = sum;
                }
            }""",
            call="matvec(y, a, x, batch, n, m)",
        ),
        backward={
            "a": "aten::mul.Tensor(aten::unsqueeze(grad, -1), aten::unsqueeze(x, -2))",
            "x": "pbtest::matvec(aten::transpose.int(a, -2, -1), grad)",
        },
    )


# --- gather: an index, and a kernel that raises


def gather_backward(grad: Tensor, x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, index, grad)


def define_gather() -> pb.Operator:
    return pb.operator(
        "pbtest::gather(x[n], index[m]: int64) -> y[m]",
        cpu=pb.source(
            """#include <stdexcept>
            #include <string>
            template <class T> void gather(T* y, const T* x, const int64_t* index, long n, long m) {
              for (long i = 0; i < m; ++i) {
                if (index[i] < 0 || index[i] >= n)
                  throw std::out_of_range("index " + std::to_string(index[i]));
                y[i] = x[index[i]];
              }
            }""",
            call="gather(y, x, index, n, m)",
        ),
        backward=gather_backward,
    )


# --- affine: every type of scalar, with defaults


def affine_backward(grad: Tensor, scale: int, negate: bool, mode: str) -> Tensor:
    return grad * (scale * (-1 if negate else 1) * (2 if mode == "double" else 1))


def define_affine() -> pb.Operator:
    return pb.operator(
        "pbtest::affine(x[...], scale: int = 2, shift: float = 0.5, negate: bool = False,"
        ' mode: str = "plain") -> y[...]',
        cpu=pb.source(
            """#include <cstring>
            #include <stdexcept>
            template <class T>
            void affine(T* y, const T* x, int64_t scale, double shift, bool negate,
                        const char* mode, long n) {
              const bool twice = std::strcmp(mode, "double") == 0;
              if (!twice && std::strcmp(mode, "plain")) throw std::invalid_argument("mode");
              for (long i = 0; i < n; ++i) {
                const T value = (twice ? 2 : 1) * (T(scale) * x[i]) + T(shift);
                y[i] = negate ? -value : value;
              }
            }""",
            call="affine(y, x, scale, shift, negate, mode, numel(x))",
        ),
        backward=affine_backward,
    )


def affine_reference(
    x: Tensor, scale: int = 2, shift: float = 0.5, negate: bool = False, mode: str = "plain"
) -> Tensor:
    value = (2 if mode == "double" else 1) * (scale * x) + float(shift)
    return -value if negate else value


# --- rowsum: a kernel that reads strides


def rowsum_backward(grad: Tensor, x: Tensor) -> Tensor:
    return grad[:, None].expand_as(x)


def define_rowsum() -> pb.Operator:
    return pb.operator(
        "pbtest::rowsum(x[n, m]) -> y[n]",
        cpu=pb.source(
            """template <class T>
            void rowsum(T* y, const T* x, long n, long m, long row, long column) {
              for (long r = 0; r < n; ++r) {
                T sum = 0;
                for (long c = 0; c < m; ++c) sum += x[r * row + c * column];
                y[r] = sum;
              }
            }""",
            call="rowsum(y, x, n, m, stride(x, 0), stride(x, -1))",
            strided=True,
        ),
        backward=rowsum_backward,
    )


# --- conj_mul: complex, where a gradient is the conjugate of a derivative


def define_conj_mul() -> pb.Operator:
    return pb.operator(
        "pbtest::conj_mul(a[...], b[...]) -> c[...]",
        cpu=pb.source(
            """#include <complex>
            template <class R>
            void conj_mul(std::complex<R>* c, const std::complex<R>* a, const std::complex<R>* b,
                          long n) {
              for (long i = 0; i < n; ++i) c[i] = a[i] * std::conj(b[i]);
            }""",
            call="conj_mul(c, a, b, numel(c))",
        ),
        backward={"a": "aten::mul.Tensor(grad, b)", "b": "pbtest::conj_mul(a, grad)"},
    )


# --- half: a plain function of one dtype


def define_half() -> pb.Operator:
    return pb.operator(
        "pbtest::half(x[...]) -> y[...]",
        cpu=pb.source(
            """void halve(_Float16* y, const _Float16* x, int n) {
                for (int i = 0; i < n; ++i) y[i] = x[i] / 2;
            }""",
            call="halve(y, x, numel(y))",
        ),
        backward={"x": "pbtest::half(grad)"},
    )


F = Floating
ELEMENTWISE: tuple[Example, ...] = (
    (F((3, 4)),),
    (F(()),),
    (F((0,)),),
    (F((2, 0, 3)),),
    (F((2, 3, 4, 2)),),
)
PAIRS: tuple[Example, ...] = (
    (F((3, 4)), F((3, 4))),
    (F((4,)), F((3, 4))),
    (F((3, 1)), F((1, 4))),
    (F(()), F((2, 3))),
    (F(()), F(())),
    (F((2, 1, 3)), F((4, 1))),
    (F((0,)), F((3, 1))),
    (F((2, 3, 4, 2)), F((2, 3, 4, 2))),
)

TABLE = (
    Case(
        name="mul",
        define=define_mul,
        reference=torch.mul,
        dtypes=REAL + HALF,
        examples=PAIRS,
        batched=True,
    ),
    Case(
        name="linear",
        define=define_linear,
        reference=torch.nn.functional.linear,
        dtypes=REAL,
        examples=(
            (F((5, 3)), F((2, 3)), F((2,))),
            (F((5, 3)), F((2, 3)), None),
            (F((5, 3)), F((2, 3))),
            (F((0, 3)), F((2, 3)), F((2,))),
            (F((5, 0)), F((2, 0)), F((2,))),
            (F((5, 3)), F((0, 3)), F((0,))),
            (F((1, 1)), F((1, 1)), F((1,))),
        ),
        roundings=8,
        orders=1,
    ),
    Case(
        name="square",
        define=define_square,
        reference=torch.square,
        dtypes=REAL + HALF,
        examples=ELEMENTWISE,
        batched=True,
    ),
    Case(
        name="cube",
        define=define_cube,
        reference=lambda x: (torch.pow(x, 3), 3 * torch.square(x)),
        dtypes=REAL,
        examples=ELEMENTWISE,
        roundings=4,
        batched=True,
    ),
    Case(
        name="sin",
        define=define_sin,
        reference=torch.sin,
        dtypes=REAL,
        examples=ELEMENTWISE,
        # Each library is within one unit in the last place of the sine.
        roundings=2,
        batched=True,
    ),
    Case(
        name="correlate",
        define=define_correlate,
        reference=correlate_reference,
        dtypes=REAL,
        examples=(
            (F((5, 6)), F((2, 3))),
            (F((3, 3)), F((3, 3))),
            (F((3, 4)), F((1, 1))),
        ),
        roundings=18,
    ),
    Case(
        name="matvec",
        define=define_matvec,
        reference=lambda a, x: (a * x.unsqueeze(-2)).sum(-1),
        dtypes=REAL,
        examples=(
            (F((2, 3)), F((3,))),
            (F((4, 2, 3)), F((3,))),
            (F((2, 3)), F((4, 3))),
            (F((5, 1, 2, 3)), F((4, 3))),
            (F((0, 2, 3)), F((3,))),
            (F((4, 2, 0)), F((4, 0))),
        ),
        roundings=6,
        batched=True,
    ),
    Case(
        name="gather",
        define=define_gather,
        reference=lambda x, index: x[index],
        dtypes=REAL,
        examples=((F((5,)), Index((7,), 5)), (F((5,)), Index((0,), 5)), (F((1,)), Index((3,), 1))),
    ),
    Case(
        name="affine",
        define=define_affine,
        reference=affine_reference,
        dtypes=REAL,
        examples=(
            (F((3, 4)),),
            (F((3, 4)), 3),
            (F((3, 4)), -3, 1.5),
            (F((3, 4)), 3, 2.0, True),
            (F((0,)), 3, 2.0, True, "double"),
            (F(()), 3, 2.0, False, "double"),
        ),
        roundings=4,
        batched=True,
    ),
    Case(
        name="rowsum",
        define=define_rowsum,
        reference=lambda x: x.sum(1),
        dtypes=REAL,
        examples=((F((3, 4)),), (F((0, 4)),), (F((3, 0)),), (F((1, 1)),)),
        roundings=8,
    ),
    Case(
        name="conj_mul",
        define=define_conj_mul,
        reference=lambda a, b: a * b.conj(),
        dtypes=COMPLEX,
        examples=PAIRS,
        roundings=4,
        batched=True,
    ),
    Case(
        name="half",
        define=define_half,
        reference=lambda x: x / 2,
        dtypes=(torch.float16,),
        examples=ELEMENTWISE,
        batched=True,
    ),
)
BY_NAME = {case.name: case for case in TABLE}
# Those that gradcheck can look at: it needs float64 or complex128.
DIFFERENTIABLE = tuple(case for case in TABLE if case.name != "half")


def precise(case: Case) -> torch.dtype:
    """Return the most precise dtype of an operator."""
    return case.dtypes[-1] if case.dtypes[0].is_complex else torch.float64
