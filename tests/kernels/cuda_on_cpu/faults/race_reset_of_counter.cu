// expect: PB221 lines 8, 12: write with an atomic too (atomicExch), or put __syncthreads() between the two
#include <cuda_runtime.h>

/// Counts what is positive in each block.
__global__ void count(const float* x, int* counts) {
  __shared__ int found;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) found = 0;
#ifdef REPAIRED
  __syncthreads();
#endif
  if (x[i] > 0) atomicAdd(&found, 1);
  __syncthreads();
  if (threadIdx.x == 0) counts[blockIdx.x] = found;
}

int main() {
  float *x, host[128];
  int* counts;
  for (int i = 0; i < 128; ++i) host[i] = i % 3 - 1;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&counts, 2 * sizeof(int));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  count<<<2, 64>>>(x, counts);
  return cudaDeviceSynchronize();
}
