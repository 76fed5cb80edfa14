// expect: PB221 lines 11, 15: put __syncthreads() between the two lines
#include <cuda_runtime.h>

/// Prefix sums by doubling, in place: what is read must be read before anyone writes.
__global__ void scan(int* x) {
  extern __shared__ int s[];
  const int t = threadIdx.x;
  s[t] = x[t];
  for (int k = 1; k < blockDim.x; k *= 2) {
    __syncthreads();
    const int before = t >= k ? s[t - k] : 0;
#ifdef REPAIRED
    __syncthreads();
#endif
    s[t] += before;
  }
  x[t] = s[t];
}

int main() {
  int *x, host[128];
  for (int i = 0; i < 128; ++i) host[i] = i + 1;
  cudaMalloc(&x, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  scan<<<1, 128, sizeof host>>>(x);
  return cudaDeviceSynchronize();
}
