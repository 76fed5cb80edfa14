// What kernels cost on the CPU: prints "name value" lines, which benchmarks/cuda.py reads.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <vector>

constexpr int tile = 16;

__global__ void nothing() {}

__global__ void add(float* c, const float* a, const float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void add_in_strides(float* c, const float* a, const float* b, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}

__global__ void meet(int times, int* out) {
  for (int i = 0; i < times; ++i) __syncthreads();
  if (threadIdx.x == 0) *out = times;
}

__global__ void shuffle(int times, int* out) {
  int v = threadIdx.x;
  for (int i = 0; i < times; ++i) v = __shfl_xor_sync(0xffffffffu, v, 1);
  out[threadIdx.x] = v;
}

__global__ void matmul(const float* A, const float* B, float* C, int n) {
  __shared__ float a[tile][tile], b[tile][tile];
  int row = blockIdx.y * tile + threadIdx.y, column = blockIdx.x * tile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n; t += tile) {
    a[threadIdx.y][threadIdx.x] = A[row * n + t + threadIdx.x];
    b[threadIdx.y][threadIdx.x] = B[(t + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < tile; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
    __syncthreads();
  }
  C[row * n + column] = sum;
}

__attribute__((noinline)) void plain_add(float* c, const float* a, const float* b, int n) {
  for (int i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Call>
double best(Call call) {
  double least = 1e9;
  for (int turn = 0; turn < 15; ++turn) {
    const double start = now();
    call();
    least = std::min(least, now() - start);
  }
  return least;
}

int main() {
  const int n = 1 << 22;
  std::vector<float> a(n, 1.f), b(n, 2.f), c(n);
  std::vector<int> out(1024);
  const auto grid = (n + 255) / 256;
  printf("plain %g\n", n / best([&] { plain_add(c.data(), a.data(), b.data(), n); }));
  printf("add %g\n", n / best([&] { add<<<grid, 256>>>(c.data(), a.data(), b.data(), n); }));
  printf("strides %g\n", n / best([&] { add_in_strides<<<grid, 256>>>(c.data(), a.data(), b.data(), n); }));
  const int times = 2000;
  for (int block : {32, 256, 1024}) {
    printf("barrier_%d %g\n", block, best([&] { meet<<<1, block>>>(times, out.data()); }) / times / block);
    printf("shuffle_%d %g\n", block, best([&] { shuffle<<<1, block>>>(times, out.data()); }) / times / block);
  }
  const int m = 512;
  const dim3 blocks(m / tile, m / tile), threads(tile, tile);
  printf("matmul %g\n", 2.0 * m * m * m / best([&] { matmul<<<blocks, threads>>>(a.data(), b.data(), c.data(), m); }));
  printf("launch %g\n", best([&] { for (int i = 0; i < 1000; ++i) nothing<<<1, 32>>>(); }) / 1000);
}
