// expect: PB221 lines 11: several threads update one element: use atomicAdd() or a kin, or an element for each
#include <cuda_runtime.h>

__global__ void histogram(const int* x, float* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int bin = x[i] % 8;
#ifdef REPAIRED
  atomicAdd(&bins[bin], 1.0f);
#else
  bins[bin] += 1.0f;
#endif
}

int main() {
  int *x, host[500];
  float* bins;
  for (int i = 0; i < 500; ++i) host[i] = i * i;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&bins, 8 * sizeof(float));
  cudaMemset(bins, 0, 8 * sizeof(float));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  histogram<<<4, 128>>>(x, bins, 500);
  return cudaDeviceSynchronize();
}
