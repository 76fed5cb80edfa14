// expect: PB223 lines 11: write it first
#include <cuda_runtime.h>

/// The last tile is not full, and its rest is summed as well.
__global__ void sum(const float* x, float* y, int n) {
  __shared__ float tile[64];
  const int i = threadIdx.x;
  if (i < n) tile[i] = x[i];
  __syncthreads();
#ifndef REPAIRED
  if (i == 0) for (int k = 0; k < 64; ++k) y[0] += tile[k];
#else
  if (i == 0) for (int k = 0; k < n; ++k) y[0] += tile[k];
#endif
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 64 * sizeof(float));
  cudaMalloc(&y, sizeof(float));
  cudaMemset(x, 0, 64 * sizeof(float));
  cudaMemset(y, 0, sizeof(float));
  sum<<<1, 64>>>(x, y, 50);
  return cudaDeviceSynchronize();
}
