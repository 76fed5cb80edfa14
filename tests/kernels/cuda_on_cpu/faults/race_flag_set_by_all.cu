// expect: PB221 lines 12, 16: put __syncthreads() between the two lines
#include <cuda_runtime.h>

/// Many threads set one flag to the same value: no fault. That all then read it at once is one.
__global__ void any(const float* x, float* y) {
  __shared__ bool found;
  if (threadIdx.x == 0) found = false;
  __syncthreads();
  const float value = x[threadIdx.x];
  // What is set here ...
  if (value > 3)
    found = true;
#ifdef REPAIRED
  __syncthreads();
#endif
  y[threadIdx.x] = found ? value : 0;
}

int main() {
  float *x, *y, host[64];
  for (int i = 0; i < 64; ++i) host[i] = i % 8;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  any<<<1, 64>>>(x, y);
  return cudaDeviceSynchronize();
}
