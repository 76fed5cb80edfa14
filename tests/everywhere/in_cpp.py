"""Rows of the matrix whose kernels are C++."""

from __future__ import annotations

from torch import Tensor

import pullback as pb
from pullback.define.operator import Autocast
from pullback.define.source import Source

CODE = """
#include <cmath>

template <class T> void product(T* c, const T* a, const T* b, long n) {
  for (long i = 0; i < n; ++i) c[i] = a[i] * b[i];
}
template <class T> void exponential(T* y, const T* x, long n) {
  for (long i = 0; i < n; ++i) y[i] = T(std::exp(double(x[i])));
}
template <class T> void sin_cos(T* s, T* c, const T* x, long n) {
  for (long i = 0; i < n; ++i) {
    s[i] = T(std::sin(double(x[i])));
    c[i] = T(std::cos(double(x[i])));
  }
}
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
void linear_backward(T* gx, T* gw, T* gb, const T* g, const T* x, const T* w, long n, long i,
                     long o) {
  for (long j = 0; gx && j < n * i; ++j) gx[j] = 0;
  for (long j = 0; gw && j < o * i; ++j) gw[j] = 0;
  for (long c = 0; gb && c < o; ++c) gb[c] = 0;
  for (long r = 0; r < n; ++r)
    for (long c = 0; c < o; ++c) {
      if (gb) gb[c] += g[r * o + c];
      for (long k = 0; k < i; ++k) {
        if (gx) gx[r * i + k] += g[r * o + c] * w[c * i + k];
        if (gw) gw[c * i + k] += g[r * o + c] * x[r * i + k];
      }
    }
}
"""
# float16 is what autocast casts to: g++ before 13 has no arithmetic in bfloat16.
DTYPES = ["float32", "float64", "float16"]


def kernel(call: str) -> Source:
    return pb.source(CODE, call=call, dtypes=DTYPES)


def product(name: str, autocast: Autocast) -> pb.Operator:
    """With expressions that call the operator itself."""
    own = f"everywhere::{name}"
    return pb.operator(
        f"{own}(a[...], b[...]) -> c[...]",
        cpu=kernel("product(c, a, b, numel(c))"),
        backward={"a": f"{own}(grad, b)", "b": f"{own}(grad, a)"},
        autocast=autocast,
    )


def linear(name: str, autocast: Autocast) -> pb.Operator:
    """With an optional input, and a native backward that has no derivative itself."""
    pb.operator(
        f"everywhere::{name}_backward(grad[n, o], x[n, i], weight[o, i])"
        " -> (grad_x[n, i], grad_weight[o, i], grad_bias[o])",
        cpu=kernel("linear_backward(grad_x, grad_weight, grad_bias, grad, x, weight, n, i, o)"),
    )
    return pb.operator(
        f"everywhere::{name}(x[n, i], weight[o, i], bias[o]?) -> y[n, o]",
        cpu=kernel("linear(y, x, weight, bias, n, i, o)"),
        backward=f"everywhere::{name}_backward",
        autocast=autocast,
    )


def exp(name: str, autocast: Autocast) -> pb.Operator:
    """With a derivative that reads the output."""
    return pb.operator(
        f"everywhere::{name}(x[...]) -> y[...]",
        cpu=kernel("exponential(y, x, numel(x))"),
        backward={"x": "aten::mul.Tensor(grad, y)"},
        autocast=autocast,
    )


def sin_cos_backward(grad_s: Tensor, grad_c: Tensor, s: Tensor, c: Tensor) -> Tensor:
    return grad_s * c - grad_c * s


def sin_cos(name: str, autocast: Autocast) -> pb.Operator:
    """With two outputs, both of them saved, and a Python function for the derivative."""
    return pb.operator(
        f"everywhere::{name}(x[...]) -> (s[...], c[...])",
        cpu=kernel("sin_cos(s, c, x, numel(x))"),
        backward=sin_cos_backward,
        autocast=autocast,
    )
