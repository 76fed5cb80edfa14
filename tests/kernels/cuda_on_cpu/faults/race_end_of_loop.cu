// expect: PB221 lines 9, 11: put __syncthreads() at the end of the loop as well
#include <cuda_runtime.h>

/// Each tile is used by all threads; the next one comes while some still read this one.
__global__ void multiply(const float* matrix, const float* x, float* y, int n) {
  __shared__ float tile[64];
  float sum = 0;
  for (int k = 0; k < n; k += 64) {
    tile[threadIdx.x] = x[k + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 64; ++i) sum += matrix[threadIdx.x * n + k + i] * tile[i];
#ifdef REPAIRED
    __syncthreads();
#endif
  }
  y[threadIdx.x] = sum;
}

int main() {
  const int n = 256;
  float *matrix, *x, *y, host[n];
  for (int i = 0; i < n; ++i) host[i] = i;
  cudaMalloc(&matrix, 64 * n * sizeof(float));
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, 64 * sizeof(float));
  cudaMemset(matrix, 0, 64 * n * sizeof(float));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  multiply<<<1, 64>>>(matrix, x, y, n);
  return cudaDeviceSynchronize();
}
