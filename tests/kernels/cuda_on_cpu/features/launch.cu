/// Launches: shapes, arguments, order of blocks, limits.
#include "check.cuh"

__global__ void where(uint3* seen, dim3* sizes) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  seen[2 * i] = threadIdx;
  seen[2 * i + 1] = blockIdx;
  if (i == 0) sizes[0] = blockDim, sizes[1] = gridDim;
}

void test_indices(dim3 grid, dim3 block) {
  const size_t threads = size_t(block.x) * block.y * block.z, blocks = size_t(grid.x) * grid.y * grid.z;
  uint3* seen = make<uint3>(2 * threads * blocks);
  dim3* sizes = make<dim3>(2);
  where<<<grid, block>>>(seen, sizes);
  FINISH();
  size_t i = 0;
  for (unsigned bz = 0; bz < grid.z; ++bz)
    for (unsigned by = 0; by < grid.y; ++by)
      for (unsigned bx = 0; bx < grid.x; ++bx)
        for (unsigned z = 0; z < block.z; ++z)
          for (unsigned y = 0; y < block.y; ++y)
            for (unsigned x = 0; x < block.x; ++x, ++i) {
              const uint3 t = seen[2 * i], b = seen[2 * i + 1];
              EXPECT(t.x == x && t.y == y && t.z == z);
              EXPECT(b.x == bx && b.y == by && b.z == bz);
            }
  EXPECT(sizes[0].x == block.x && sizes[0].y == block.y && sizes[0].z == block.z);
  EXPECT(sizes[1].x == grid.x && sizes[1].y == grid.y && sizes[1].z == grid.z);
  cudaFree(seen);
  cudaFree(sizes);
}

__device__ unsigned index_of_grid() { return blockIdx.x * blockDim.x + threadIdx.x; }

struct Parameters {
  int offset;
  double factor[4];
};

template <class T>
__global__ void scale(T* y, const T* x, size_t n, Parameters parameters, int shift) {
  const size_t i = index_of_grid();
  if (i >= n) return;
  // A parameter is the thread's own: what it writes to it no other sees.
  parameters.offset += shift;
  shift = -1;
  y[i] = T(x[i] * parameters.factor[i % 4] + parameters.offset);
}

template <class T>
void test_elements(size_t n, int block) {
  T *x = make<T>(n), *y = make<T>(n);
  for (size_t i = 0; i < n; ++i) x[i] = T(i % 100);
  const Parameters parameters{3, {1, 2, 3, 4}};
  scale<<<(n + block - 1) / block, block>>>(y, x, n, parameters, 4);
  FINISH();
  for (size_t i = 0; i < n; ++i) EXPECT(y[i] == T(T(i % 100) * parameters.factor[i % 4] + 7));
  cudaFree(x);
  cudaFree(y);
}

__global__ void strided(float* y, const float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = 2 * x[i];
}

void test_stride() {
  const int n = 10007;
  float *x = make<float>(n), *y = make<float>(n);
  for (int i = 0; i < n; ++i) x[i] = float(i);
  strided<<<dim3(7), dim3(33), 0, 0>>>(y, x, n);
  FINISH();
  for (int i = 0; i < n; ++i) EXPECT(y[i] == 2 * float(i));
  cudaFree(x);
  cudaFree(y);
}

template <bool neighbour>
__global__ void shift(int* y, const int* x, int n) {
  const int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i + 1 < n) y[i] = neighbour ? x[i + 1] : x[i];
}

void test_several_launches_see_each_other() {
  const int n = 1000;
  int *x = make<int>(n), *y = make<int>(n);
  for (int i = 0; i < n; ++i) x[i] = i;
  for (int turn = 0; turn < 10; ++turn) {
    shift<true><<<4, 256>>>(y, x, n);
    shift<false><<<4, 256>>>(x, y, n);
  }
  FINISH();
  for (int i = 0; i < n - 11; ++i) EXPECT(x[i] == i + 10);
  cudaFree(x);
  cudaFree(y);
}

__global__ void touch(int* flag) { *flag = 1; }

void test_limits() {
  int* flag = make<int>(1);
  const auto refused = [&](dim3 grid, dim3 block, size_t shared, cudaError_t error) {
    touch<<<grid, block, shared>>>(flag);
    const cudaError_t found = cudaGetLastError();
    EXPECT(error == cudaErrorInvalidConfiguration ? refuses_shape(found) : found == error);
    EXPECT(cudaGetLastError() == cudaSuccess);
    cudaDeviceSynchronize();
    EXPECT(*flag == 0);
  };
  refused(0, 32, 0, cudaErrorInvalidConfiguration);
  refused(1, 0, 0, cudaErrorInvalidConfiguration);
  refused(1, 1025, 0, cudaErrorInvalidConfiguration);
  refused(1, dim3(32, 32, 2), 0, cudaErrorInvalidConfiguration);
  refused(1, dim3(1, 1, 65), 0, cudaErrorInvalidConfiguration);
  refused(dim3(1, 65536), 1, 0, cudaErrorInvalidConfiguration);
  refused(dim3(1, 1, 65536), 1, 0, cudaErrorInvalidConfiguration);
  refused(1, 32, 1 << 20, cudaErrorInvalidValue);
  touch<<<1, dim3(32, 32), 48 << 10>>>(flag);
  FINISH();
  EXPECT(*flag == 1);
  cudaFree(flag);
}

int main() {
  test_indices(1, 1);
  test_indices(5, 33);
  test_indices(dim3(3, 2, 4), dim3(5, 3, 2));
  test_indices(dim3(2, 2), dim3(8, 8, 16));
  for (const int block : {32, 100, 256, 1024}) {
    test_elements<float>(100003, block);
    test_elements<double>(1000, block);
    test_elements<int>(4096, block);
    test_elements<unsigned char>(777, block);
  }
  test_stride();
  test_several_launches_see_each_other();
  test_limits();
  std::puts("ok");
  return 0;
}
