/// cuBLAS's products, in plain loops: right, and not fast. Matrices are stored by columns.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cmath>

#include "bfloat16.h"
#include "half.h"

namespace cuda_on_cpu::blas {

/// The type in which products of T are summed.
template <class T>
struct Sum {
  using Type = T;
};
template <>
struct Sum<__half> {
  using Type = float;
};
template <>
struct Sum<__nv_bfloat16> {
  using Type = float;
};
template <>
struct Sum<signed char> {
  using Type = int;
};
template <class T>
using sum_of = typename Sum<T>::Type;

// PyTorch switches the types' own conversions off.
template <class T>
sum_of<T> number(const T& x) {
  if constexpr (__is_same(T, __half)) {
    return __half2float(x);
  } else if constexpr (__is_same(T, __nv_bfloat16)) {
    return __bfloat162float(x);
  } else {
    return x;
  }
}
template <class T>
T stored(sum_of<T> x) {
  if constexpr (__is_same(T, __half)) {
    return __float2half(x);
  } else if constexpr (__is_same(T, __nv_bfloat16)) {
    return __float2bfloat16(x);
  } else {
    return T(x);
  }
}

/// A matrix, or its transpose: element (i, j).
template <class T>
struct Matrix {
  const T* data;
  ptrdiff_t down, right;
  Matrix(const T* data, bool transposed, ptrdiff_t stride)
      : data(data), down(transposed ? stride : 1), right(transposed ? 1 : stride) {}
  sum_of<T> operator()(ptrdiff_t i, ptrdiff_t j) const {
    return number(data[i * down + j * right]);
  }
};

/// c = alpha a b + beta c; `c` is not read where beta is zero.
template <class T, class Out, class S>
void gemm(Matrix<T> a, Matrix<T> b, int m, int n, int k, S alpha, S beta, Out* c,
          ptrdiff_t stride) {
  auto* const column = static_cast<S*>(std::malloc(sizeof(S) * size_t(m > 0 ? m : 1)));
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i) column[i] = S(0);
    if (a.down == 1) {
      for (int l = 0; l < k; ++l) {
        const S factor = S(b(l, j));
        for (int i = 0; i < m; ++i) column[i] += S(a(i, l)) * factor;
      }
    } else {
      for (int i = 0; i < m; ++i)
        for (int l = 0; l < k; ++l) column[i] += S(a(i, l)) * S(b(l, j));
    }
    for (int i = 0; i < m; ++i) {
      Out& to = c[i + j * stride];
      const S before = beta == S(0) ? S(0) : beta * S(number(to));
      to = stored<Out>(static_cast<sum_of<Out>>(alpha * column[i] + before));
    }
  }
  std::free(column);
}

template <class T, class S>
void gemv(Matrix<T> a, int rows, int columns, S alpha, const T* x, int by_x, S beta, T* y,
          int by_y) {
  // With a negative step a vector is read from its end.
  x += by_x < 0 ? ptrdiff_t(1 - columns) * by_x : 0;
  y += by_y < 0 ? ptrdiff_t(1 - rows) * by_y : 0;
  for (int i = 0; i < rows; ++i) {
    S sum = 0;
    for (int j = 0; j < columns; ++j) sum += a(i, j) * x[ptrdiff_t(j) * by_x];
    T& to = y[ptrdiff_t(i) * by_y];
    to = alpha * sum + (beta == S(0) ? S(0) : beta * to);
  }
}

}  // namespace cuda_on_cpu::blas
