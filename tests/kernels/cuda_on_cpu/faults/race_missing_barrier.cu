// expect: PB221 lines 8, 12: put __syncthreads() between the two lines
#include <cuda_runtime.h>

/// Reverses what a block has.
__global__ void reverse(const float* x, float* y) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = x[t];
#ifdef REPAIRED
  __syncthreads();
#endif
  y[t] = s[255 - t];
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 256 * sizeof(float));
  cudaMalloc(&y, 256 * sizeof(float));
  cudaMemset(x, 1, 256 * sizeof(float));
  reverse<<<1, 256>>>(x, y);
  return cudaDeviceSynchronize();
}
