/// nvcuda::wmma: products of small matrices that a warp holds together, as tensor cores compute
/// them.
///
/// Each lane holds a few elements of a matrix, in a layout that code should not rely on. (For 16x16
/// it is that of GPUs since Ampere, because some code does.) The last lane to arrive computes a
/// product, once: in float for half, bfloat16 and tf32, as a GPU sums.
#pragma once

#include <type_traits>

#include "blas.h"
#include "include/cuda_runtime.h"
#include "sync.h"
#include "warp.h"

namespace nvcuda::wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

}  // namespace nvcuda::wmma

namespace cuda_on_cpu::wmma {

namespace cuda = ::nvcuda::wmma;

/// The shapes m x n x k that exist for a type.
template <class T>
constexpr bool is_shape(int m, int n, int k) {
  const bool of_16 = k == 16 && m * n == 256 && (m == 8 || m == 16 || m == 32);
  if (__is_same(T, cuda::precision::tf32)) return m == 16 && n == 16 && k == 8;
  if (__is_same(T, double)) return m == 8 && n == 8 && k == 4;
  if (__is_same(T, float) || __is_same(T, int)) return false;
  return of_16;
}

/// The stored form of a type, and the type in which its products are summed.
template <class T>
struct Kept {
  using Type = T;
};
template <>
struct Kept<cuda::precision::tf32> {
  using Type = float;
};
template <class T>
using kept = typename Kept<T>::Type;

template <class T>
auto number(const kept<T>& x) {
  if constexpr (__is_same(T, cuda::precision::tf32)) {
    // Tensor cores do not look at the other bits.
    unsigned bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits &= 0xffffe000u;
    float cut;
    __builtin_memcpy(&cut, &bits, sizeof cut);
    return cut;
  } else if constexpr (sizeof(T) == 1) {
    return int(x);
  } else {
    return blas::number(x);
  }
}

struct Place2 {
  int row, column;
};

/// Which element of the matrix is a lane's i-th. Fragments of half have room for more elements than
/// there are; then each is there twice.
template <int rows, int columns>
constexpr Place2 place_of(int lane, int i) {
  if (rows == 16 && columns == 16) {
    i %= 8;
    return {lane / 4 + i / 2 % 2 * 8, lane % 4 * 2 + i % 2 + i / 4 * 8};
  }
  const int at = i % (rows * columns / 32) * 32 + lane;
  return {at / columns, at % columns};
}

template <class T, int rows_, int columns_, int size>
struct alignas(8) Fragment {
  enum { num_elements = size, num_storage_elements = size };
  using element_type = T;
  using storage_element_type = kept<T>;
  storage_element_type x[size];

  static constexpr int cuda_on_cpu_rows = rows_, cuda_on_cpu_columns = columns_;
};

inline int lane() { return int(thread_rank() & 31); }

/// Visits the elements that this lane holds, with their places in memory. Inline, like its callers,
/// so that the checks know the author's line.
template <class F, class Do>
[[gnu::always_inline]] inline void each(F& fragment, unsigned stride, bool by_rows, Do what) {
  for (int i = 0; i < F::num_elements; ++i) {
    const Place2 at = place_of<F::cuda_on_cpu_rows, F::cuda_on_cpu_columns>(lane(), i);
    what(fragment.x[i],
         by_rows ? size_t(at.row) * stride + at.column : size_t(at.column) * stride + at.row);
  }
}

/// A lane's part of a product; `run` computes it, for all.
struct Joint {
  void (*run)(Joint* const* lanes);
  void* d;
  const void *a, *b, *c;
};

/// A whole matrix, from what the lanes hold of it.
template <class F, class Number>
[[gnu::no_sanitize("thread")]] void gather(Number* to, Joint* const* lanes,
                                           const void* Joint::* which) {
  for (int lane = 0; lane < 32; ++lane) {
    const auto& fragment = *static_cast<const F*>(lanes[lane]->*which);
    for (int i = 0; i < F::num_elements; ++i) {
      const Place2 at = place_of<F::cuda_on_cpu_rows, F::cuda_on_cpu_columns>(lane, i);
      to[at.row * F::cuda_on_cpu_columns + at.column] =
          number<typename F::element_type>(fragment.x[i]);
    }
  }
}

template <class D, class A, class B, class C, bool saturates>
[[gnu::no_sanitize("thread")]] void multiply(Joint* const* lanes) {
  constexpr int m = D::cuda_on_cpu_rows, n = D::cuda_on_cpu_columns, k = A::cuda_on_cpu_columns;
  using Number = decltype(number<typename A::element_type>(A().x[0]));
  using Wide = std::conditional_t<saturates, long long, Number>;
  Number a[m * k], b[k * n];
  decltype(number<typename C::element_type>(C().x[0])) c[m * n];
  gather<A>(a, lanes, &Joint::a);
  gather<B>(b, lanes, &Joint::b);
  gather<C>(c, lanes, &Joint::c);
  Wide sums[m * n];
  for (int i = 0; i < m * n; ++i) sums[i] = Wide(c[i]);
  for (int i = 0; i < m; ++i)
    for (int l = 0; l < k; ++l)
      for (int j = 0; j < n; ++j) sums[i * n + j] += Wide(a[i * k + l]) * Wide(b[l * n + j]);
  for (int lane = 0; lane < 32; ++lane) {
    auto& d = *static_cast<D*>(lanes[lane]->d);
    for (int i = 0; i < D::num_elements; ++i) {
      const Place2 at = place_of<m, n>(lane, i);
      Wide sum = sums[at.row * n + at.column];
      if constexpr (saturates) {
        if (sum > 0x7fffffff) sum = 0x7fffffff;
        if (sum < -0x7fffffffll - 1) sum = -0x7fffffffll - 1;
      }
      d.x[i] = blas::stored<typename D::element_type>(blas::sum_of<typename D::element_type>(sum));
    }
  }
}

}  // namespace cuda_on_cpu::wmma

namespace nvcuda::wmma {

template <class Use, int m, int n, int k, class T, class Layout = void>
class fragment;

template <int m, int n, int k, class T, class Layout>
class fragment<matrix_a, m, n, k, T, Layout>
    : public ::cuda_on_cpu::wmma::Fragment<T, m, k, __is_same(T, __half) ? 16 : m * k / 32> {
  static_assert(
      ::cuda_on_cpu::wmma::is_shape<T>(m, n, k),
      "there is no such fragment: see the CUDA C++ Programming Guide, \"Element Types and "
      "Matrix Sizes\"; 4-bit and 1-bit ones do not run on the CPU");
};
template <int m, int n, int k, class T, class Layout>
class fragment<matrix_b, m, n, k, T, Layout>
    : public ::cuda_on_cpu::wmma::Fragment<T, k, n, __is_same(T, __half) ? 16 : k * n / 32> {
  static_assert(::cuda_on_cpu::wmma::is_shape<T>(m, n, k), "there is no such fragment");
};
template <int m, int n, int k, class T>
class fragment<accumulator, m, n, k, T>
    : public ::cuda_on_cpu::wmma::Fragment<T, m, n, m * n / 32> {};

template <class T, int rows, int columns, int size>
inline void fill_fragment(::cuda_on_cpu::wmma::Fragment<T, rows, columns, size>& fragment,
                          const std::type_identity_t<::cuda_on_cpu::wmma::kept<T>>& value) {
  for (auto& x : fragment.x) x = value;
}

template <class Use, int m, int n, int k, class T, class Layout>
[[gnu::always_inline]] inline void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& a,
                                                    const ::cuda_on_cpu::wmma::kept<T>* from,
                                                    unsigned stride, CUDA_ON_CPU_PLACE) {
  __syncwarp(~0u, cuda_on_cpu_file, cuda_on_cpu_line);
  ::cuda_on_cpu::wmma::each(a, stride, __is_same(Layout, row_major),
                            [=](auto& x, size_t at)
                                __attribute__((always_inline)) { x = from[at]; });
}
template <int m, int n, int k, class T>
[[gnu::always_inline]] inline void load_matrix_sync(fragment<accumulator, m, n, k, T>& c,
                                                    const T* from, unsigned stride, layout_t layout,
                                                    CUDA_ON_CPU_PLACE) {
  __syncwarp(~0u, cuda_on_cpu_file, cuda_on_cpu_line);
  ::cuda_on_cpu::wmma::each(c, stride, layout == mem_row_major,
                            [=](auto& x, size_t at)
                                __attribute__((always_inline)) { x = from[at]; });
}
template <int m, int n, int k, class T>
[[gnu::always_inline]] inline void store_matrix_sync(T* to,
                                                     const fragment<accumulator, m, n, k, T>& d,
                                                     unsigned stride, layout_t layout,
                                                     CUDA_ON_CPU_PLACE) {
  __syncwarp(~0u, cuda_on_cpu_file, cuda_on_cpu_line);
  ::cuda_on_cpu::wmma::each(d, stride, layout == mem_row_major,
                            [=](auto& x, size_t at) __attribute__((always_inline)) { to[at] = x; });
}

/// d = a b + c. `saturates`: integer sums stop at the limits of int.
template <int m, int n, int k, class T, class LayoutA, class LayoutB, class Out, class In>
inline void mma_sync(fragment<accumulator, m, n, k, Out>& d,
                     const fragment<matrix_a, m, n, k, T, LayoutA>& a,
                     const fragment<matrix_b, m, n, k, T, LayoutB>& b,
                     const fragment<accumulator, m, n, k, In>& c, bool saturates = false,
                     CUDA_ON_CPU_PLACE) {
  using namespace ::cuda_on_cpu;
  using D = fragment<accumulator, m, n, k, Out>;
  using A = fragment<matrix_a, m, n, k, T, LayoutA>;
  using B = fragment<matrix_b, m, n, k, T, LayoutB>;
  using C = fragment<accumulator, m, n, k, In>;
  constexpr bool whole = __is_same(Out, int);
  ::cuda_on_cpu::wmma::Joint mine{::cuda_on_cpu::wmma::multiply<D, A, B, C, false>, &d, &a, &b, &c};
  if constexpr (whole) {
    if (saturates) mine.run = ::cuda_on_cpu::wmma::multiply<D, A, B, C, true>;
  }
  meet(Meeting::joint, "mma_sync", ~0u, to_bits(&mine), 0, CUDA_ON_CPU_HERE);
}

/// Rounds to the 10 bits of tf32's fraction, ties away from zero.
inline float __float_to_tf32(float x) {
  unsigned bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
  bits &= 0xffffe000u;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace nvcuda::wmma
