// expect: PB221 lines 10: put __syncthreads() after the line, for every round of the loop
#include <cuda_runtime.h>

__global__ void sum(const float* x, float* y) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int k = 128; k > 0; k /= 2) {
    if (t < k) s[t] += s[t + k];
#ifdef REPAIRED
    __syncthreads();
#endif
  }
#ifdef REPAIRED
  if (t == 0) y[0] = s[0];
#endif
}

int main() {
  float *x, *y, host[256];
  for (int i = 0; i < 256; ++i) host[i] = i;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, sizeof(float));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  sum<<<1, 256>>>(x, y);
  return cudaDeviceSynchronize();
}
