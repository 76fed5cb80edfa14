// expect: PB221 lines 7, 9: blocks run in no order: do the second part in a launch of its own
#include <cuda_runtime.h>

/// The second step needs what other blocks have done in the first.
__global__ void two_steps(const float* x, float* middle, float* y, int n, int step) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (step != 2) middle[i] = x[i] + 1;
  __syncthreads();
  if (step != 1) y[i] = middle[(i + 1) % n];
}

int main() {
  float *x, *middle, *y;
  const size_t bytes = 256 * sizeof(float);
  cudaMalloc(&x, bytes);
  cudaMalloc(&middle, bytes);
  cudaMalloc(&y, bytes);
  cudaMemset(x, 1, bytes);
#ifdef REPAIRED
  two_steps<<<4, 64>>>(x, middle, y, 256, 1);
  two_steps<<<4, 64>>>(x, middle, y, 256, 2);
#else
  two_steps<<<4, 64>>>(x, middle, y, 256, 0);
#endif
  return cudaDeviceSynchronize();
}
