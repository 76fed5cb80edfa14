// expect: PB221 lines 11: blocks run in no order: do the second part in a launch of its own
#include <cuda_runtime.h>

/// Smooths in place: what the neighbours have may be the old value or the new one.
__global__ void smooth(float* x, const float* old, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0 || i >= n - 1) return;
#ifdef REPAIRED
  x[i] = 0.5f * (old[i - 1] + old[i + 1]);
#else
  x[i] = 0.5f * (x[i - 1] + x[i + 1]);
#endif
}

int main() {
  float *x, *old, host[512];
  for (int i = 0; i < 512; ++i) host[i] = i * i;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&old, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  cudaMemcpy(old, host, sizeof host, cudaMemcpyHostToDevice);
  smooth<<<4, 128>>>(x, old, 512);
  return cudaDeviceSynchronize();
}
