/// Libraries that code for GPUs includes: libcu++, cub's less usual parts, cuBLAS.
#include "check.cuh"

#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_raking_layout.cuh>
#include <cuda/cmath>
#include <cuda/functional>
#include <cuda/std/array>
#include <cuda/std/cmath>
#include <cuda/std/limits>
#include <cuda/std/numeric>
#include <cuda/std/tuple>
#ifdef CUDA_ON_CPU  // elsewhere the program would have to be linked to it
#include <cublas_v2.h>
#include <cublasLt.h>
#endif

template <class T>
__global__ void integers(T* y) {
  y[0] = cuda::ceil_div(T(7), T(2));
  y[1] = cuda::ceil_div(7u, 7);
  cuda::std::array<T, 3> some{1, 2, 3};
  y[2] = cuda::std::accumulate(some.begin(), some.end(), T(0));
  y[3] = cuda::std::get<1>(cuda::std::make_tuple(1, T(5)));
  y[4] = cuda::std::numeric_limits<T>::max();
  y[5] = cuda::std::isnan(float(threadIdx.x)) ? 1 : 9;
}

template <class T>
void test_integers() {
  T* y = make<T>(6);
  integers<<<1, 1>>>(y);
  FINISH();
  EXPECT(y[0] == 4 && y[1] == 1 && y[2] == 6 && y[3] == 5 && y[5] == 9);
  EXPECT(y[4] == cuda::std::numeric_limits<T>::max());
  static_assert(cuda::ceil_div(2147483647, 2) == 1073741824);
  cudaFree(y);
}

/// Each thread of one warp sums its segment; the sums of segments are summed by the first.
template <int threads>
__global__ void raked(const int* x, int* y) {
  using Layout = cub::BlockRakingLayout<int, threads>;
  __shared__ typename Layout::TempStorage storage;
  __shared__ int parts[32];
  *Layout::PlacementPtr(storage, threadIdx.x) = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < Layout::RAKING_THREADS) {
    const int* segment = Layout::RakingPtr(storage, threadIdx.x);
    int sum = 0;
    for (int i = 0; i < Layout::SEGMENT_LENGTH; ++i)
      if (Layout::UNGUARDED || threadIdx.x * Layout::SEGMENT_LENGTH + i < threads) sum += segment[i];
    parts[threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    *y = 0;
    for (int i = 0; i < Layout::RAKING_THREADS; ++i) *y += parts[i];
  }
}

template <int threads>
void test_raked() {
  int *x = make<int>(threads), *y = make<int>(1), sum = 0;
  for (int i = 0; i < threads; ++i) sum += x[i] = i * i % 17;
  raked<threads><<<1, threads>>>(x, y);
  FINISH();
  EXPECT(*y == sum);
  cudaFree(x), cudaFree(y);
}

__global__ void ranked(const unsigned* x, int* y) {
  using Rank = cub::BlockRadixRank<64, 4, false>;
  __shared__ typename Rank::TempStorage storage;
  unsigned keys[2] = {x[2 * threadIdx.x], x[2 * threadIdx.x + 1]};
  int ranks[2];
  Rank(storage).RankKeys(keys, ranks, cub::BFEDigitExtractor<unsigned>(2, 4));
  y[2 * threadIdx.x] = ranks[0], y[2 * threadIdx.x + 1] = ranks[1];
}

void test_ranked() {
  unsigned* x = make<unsigned>(128);
  int* y = make<int>(128);
  for (int i = 0; i < 128; ++i) x[i] = (i * 2654435761u) >> 20;
  ranked<<<1, 64>>>(x, y);
  FINISH();
  for (int i = 0; i < 128; ++i) {
    int rank = 0;
    for (int j = 0; j < 128; ++j) {
      const unsigned mine = x[i] >> 2 & 15, other = x[j] >> 2 & 15;
      rank += other < mine || (other == mine && j < i);
    }
    EXPECT(y[i] == rank);
  }
  cudaFree(x), cudaFree(y);
}

#ifdef CUDA_ON_CPU
/// Element (i, j) of a matrix by columns, or of its transpose.
template <class T>
double at(const T* a, bool turned, int stride, int i, int j) {
  return double(float(turned ? a[j + i * stride] : a[i + j * stride]));
}

template <class T, class Multiply>
void test_product(Multiply multiply, double alpha, double beta) {
  const int m = 5, n = 4, k = 3, stride = 7;
  T *a = make<T>(stride * stride), *b = make<T>(stride * stride), *c = make<T>(stride * stride);
  for (const bool turn_a : {false, true})
    for (const bool turn_b : {false, true}) {
      double expected[m][n];
      for (int i = 0; i < stride * stride; ++i) a[i] = T(float(i % 5 - 2)), b[i] = T(float(i % 7 - 3)), c[i] = T(1.f);
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          expected[i][j] = beta;
          for (int l = 0; l < k; ++l) expected[i][j] += alpha * at(a, turn_a, stride, i, l) * at(b, turn_b, stride, l, j);
        }
      const auto of = [](bool turn) { return turn ? CUBLAS_OP_T : CUBLAS_OP_N; };
      EXPECT(multiply(of(turn_a), of(turn_b), m, n, k, a, b, c, stride) == CUBLAS_STATUS_SUCCESS);
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) EXPECT(at(c, false, stride, i, j) == expected[i][j]);
      EXPECT(float(c[m]) == 1);  // below the product
    }
  cudaFree(a), cudaFree(b), cudaFree(c);
}

void test_cublas() {
  cublasHandle_t handle = nullptr;
  cublasLtHandle_t light = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT(cublasCreate_v2(&handle) == CUBLAS_STATUS_SUCCESS && handle);
  EXPECT(cublasLtCreate(&light) == CUBLAS_STATUS_SUCCESS && light);
  EXPECT(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cublasGetStream(handle, &stream) == CUBLAS_STATUS_SUCCESS);
  const float two = 2, none = 0, three = 3;
  const double two_of_double = 2, three_of_double = 3;
  test_product<float>([&](auto p, auto q, int m, int n, int k, auto* a, auto* b, auto* c, int s) {
    return cublasSgemm(handle, p, q, m, n, k, &two, a, s, b, s, &three, c, s);
  }, 2, 3);
  test_product<double>([&](auto p, auto q, int m, int n, int k, auto* a, auto* b, auto* c, int s) {
    return cublasDgemmStridedBatched(handle, p, q, m, n, k, &two_of_double, a, s, 9, b, s, 9,
                                     &three_of_double, c, s, 9, 1);
  }, 2, 3);
  test_product<__half>([&](auto p, auto q, int m, int n, int k, auto* a, auto* b, auto* c, int s) {
    return cublasGemmEx(handle, p, q, m, n, k, &two, a, CUDA_R_16F, s, b, CUDA_R_16F, s, &none, c,
                        CUDA_R_16F, s, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
  }, 2, 0);
  float a[6] = {1, 2, 3, 4, 5, 6}, x[3] = {1, 0, -1}, y[2] = {7, 7}, dot;
  EXPECT(cublasSgemv(handle, CUBLAS_OP_N, 2, 3, &two, a, 2, x, 1, &none, y, 1) == CUBLAS_STATUS_SUCCESS);
  EXPECT(y[0] == 2 * (1 - 5) && y[1] == 2 * (2 - 6));
  EXPECT(cublasSdot(handle, 3, a, 2, x, 1, &dot) == CUBLAS_STATUS_SUCCESS && dot == 1 - 5);
  EXPECT(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}
#endif

int main() {
  test_integers<int>();
  test_integers<unsigned long long>();
  test_raked<32>();
  test_raked<96>();
  test_raked<128>();
  test_raked<200>();
  test_ranked();
#ifdef CUDA_ON_CPU
  test_cublas();
#endif
  std::puts("ok");
  return 0;
}
