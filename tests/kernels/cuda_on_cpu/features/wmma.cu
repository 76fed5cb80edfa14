/// Products of small matrices by a warp: nvcuda::wmma, in all its types and shapes.
#include "check.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <type_traits>

namespace mma = nvcuda::wmma;

template <class T>
using stored = std::conditional_t<std::is_same_v<T, mma::precision::tf32>, float, T>;

template <class T>
__host__ __device__ double value(T x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else {
    return double(x);
  }
}
template <class T>
T made(int x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half(float(x));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16(float(x));
  } else {
    return T(x);
  }
}

/// d = a (b b') + 2 c, of tiles that lie in larger matrices; `steps` tiles along k.
template <class T, class Out, int m, int n, int k, class LayoutA, class LayoutB>
__global__ void multiply(Out* d, const stored<T>* a, const stored<T>* b, const Out* c, int steps,
                         int stride_a, int stride_b, int stride_c, mma::layout_t layout) {
  mma::fragment<mma::matrix_a, m, n, k, T, LayoutA> left;
  mma::fragment<mma::matrix_b, m, n, k, T, LayoutB> right;
  mma::fragment<mma::accumulator, m, n, k, Out> sum, first;
  mma::load_matrix_sync(first, c, stride_c, layout);
  mma::fill_fragment(sum, Out(0));
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = first.x[i] + first.x[i];
  for (int step = 0; step < steps; ++step) {
    mma::load_matrix_sync(left, a + step * k * (std::is_same_v<LayoutA, mma::row_major> ? 1 : stride_a), stride_a);
    mma::load_matrix_sync(right, b + step * k * (std::is_same_v<LayoutB, mma::row_major> ? stride_b : 1), stride_b);
    if constexpr (std::is_same_v<T, mma::precision::tf32>) {
      for (auto& x : left.x) x = mma::__float_to_tf32(x);
    }
    mma::mma_sync(sum, left, right, sum);
  }
  // All warps of the block make the same tile; the first one keeps it.
  __shared__ Out tile[m * n];
  if (threadIdx.x / 32 == 0) mma::store_matrix_sync(tile, sum, n, mma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < m * n; i += blockDim.x) {
    const int row = i / n, column = i % n;
    d[layout == mma::mem_row_major ? row * stride_c + column : column * stride_c + row] = tile[i];
  }
}

template <class T, class Out, int m, int n, int k, class LayoutA, class LayoutB>
void test_layouts(mma::layout_t layout) {
  constexpr bool rows_a = std::is_same_v<LayoutA, mma::row_major>, rows_b = std::is_same_v<LayoutB, mma::row_major>;
  constexpr int steps = 2, stride = 80;
  stored<T> *a = make<stored<T>>(stride * stride), *b = make<stored<T>>(stride * stride);
  Out *c = make<Out>(stride * stride), *d = make<Out>(stride * stride);
  for (int i = 0; i < stride * stride; ++i) {
    a[i] = made<stored<T>>(i * 7 % 5), b[i] = made<stored<T>>(i * 11 % 4), c[i] = made<Out>(i % 3);
  }
  multiply<T, Out, m, n, k, LayoutA, LayoutB><<<1, 64>>>(d, a, b, c, steps, stride, stride, stride, layout);
  FINISH();
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      const int at = layout == mma::mem_row_major ? i * stride + j : j * stride + i;
      double expected = 2 * value(c[at]);
      for (int l = 0; l < steps * k; ++l)
        expected += value(a[rows_a ? i * stride + l : l * stride + i]) * value(b[rows_b ? l * stride + j : j * stride + l]);
      EXPECT(value(d[at]) == expected);
    }
  cudaFree(a), cudaFree(b), cudaFree(c), cudaFree(d);
}

template <class T, class Out, int m, int n, int k>
void test() {
  test_layouts<T, Out, m, n, k, mma::row_major, mma::col_major>(mma::mem_row_major);
  test_layouts<T, Out, m, n, k, mma::col_major, mma::row_major>(mma::mem_col_major);
}

/// Two halves make a float: what is exact in the sum would not be in half.
__global__ void sums(float* y, int* whole) {
  mma::fragment<mma::matrix_a, 16, 16, 16, __half, mma::row_major> a;
  mma::fragment<mma::matrix_b, 16, 16, 16, __half, mma::row_major> b;
  mma::fragment<mma::accumulator, 16, 16, 16, float> sum;
  mma::fill_fragment(a, __float2half(255.f));
  mma::fill_fragment(b, __float2half(257.f));
  mma::fill_fragment(sum, 1.f);
  mma::mma_sync(sum, a, b, sum);
  mma::store_matrix_sync(y, sum, 16, mma::mem_row_major);
  mma::fragment<mma::matrix_a, 16, 16, 16, signed char, mma::row_major> p;
  mma::fragment<mma::matrix_b, 16, 16, 16, signed char, mma::col_major> q;
  mma::fragment<mma::accumulator, 16, 16, 16, int> large;
  mma::fill_fragment(p, 100);
  mma::fill_fragment(q, 100);
  mma::fill_fragment(large, 0x7fffffff - 5);
  mma::mma_sync(large, p, q, large, true);
  mma::store_matrix_sync(whole, large, 16, mma::mem_row_major);
}

void test_sums() {
  float* y = make<float>(256);
  int* whole = make<int>(256);
  sums<<<1, 32>>>(y, whole);
  FINISH();
  for (int i = 0; i < 256; ++i) EXPECT(y[i] == 16 * 255 * 257 + 1 && whole[i] == 0x7fffffff);
  cudaFree(y), cudaFree(whole);
}

int main() {
  test<__half, float, 16, 16, 16>();
  test<__half, float, 32, 8, 16>();
  test<__half, float, 8, 32, 16>();
  test<__half, __half, 16, 16, 16>();
  test<__nv_bfloat16, float, 16, 16, 16>();
  test<__nv_bfloat16, float, 32, 8, 16>();
  test<__nv_bfloat16, float, 8, 32, 16>();
  test<mma::precision::tf32, float, 16, 16, 8>();
  test<signed char, int, 16, 16, 16>();
  test<unsigned char, int, 32, 8, 16>();
  test<signed char, int, 8, 32, 16>();
  test<double, double, 8, 8, 4>();
  test_sums();
  std::puts("ok");
  return 0;
}
