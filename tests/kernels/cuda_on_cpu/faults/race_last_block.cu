// expect: PB221 lines 11, 21: put __threadfence() after the write and before the atomic that announces it
#include <cuda_runtime.h>

__device__ unsigned int arrived = 0;

/// Each block sums its part; the one that finishes last sums the parts.
__global__ void sum(const float* x, float* parts, float* y) {
  __shared__ bool last;
  float part = 0;
  for (int i = 0; threadIdx.x == 0 && i < 32; ++i) part += x[blockIdx.x * 32 + i];
  if (threadIdx.x == 0) parts[blockIdx.x] = part;
  if (threadIdx.x == 0) {
#ifdef REPAIRED
    __threadfence();
#endif
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float all = 0;
    for (int i = 0; i < gridDim.x; ++i) all += parts[i];
    y[0] = all;
  }
}

int main() {
  float *x, *parts, *y, host[256];
  for (int i = 0; i < 256; ++i) host[i] = i;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&parts, 8 * sizeof(float));
  cudaMalloc(&y, sizeof(float));
  cudaMemset(parts, 0, 8 * sizeof(float));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  sum<<<8, 32>>>(x, parts, y);
  return cudaDeviceSynchronize();
}
