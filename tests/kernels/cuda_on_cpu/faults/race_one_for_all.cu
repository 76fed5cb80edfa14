// expect: PB221 lines 7, 11: put __syncthreads() between the two lines
#include <cuda_runtime.h>

/// One thread computes what all need.
__global__ void scale(const float* x, float* y, int n) {
  __shared__ float factor;
  if (threadIdx.x == 0) factor = 1.0f / n;
#ifdef REPAIRED
  __syncthreads();
#endif
  y[threadIdx.x] = factor * x[threadIdx.x];
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 128 * sizeof(float));
  cudaMalloc(&y, 128 * sizeof(float));
  cudaMemset(x, 0, 128 * sizeof(float));
  scale<<<1, 128>>>(x, y, 128);
  return cudaDeviceSynchronize();
}
