// expect: PB221 lines 17: put __syncwarp() after the line, for every round of the loop
#include <cuda_runtime.h>

/// As it was written before Volta: a warp was thought to go in step, `volatile` to be enough.
__global__ void sum(const float* x, float* y) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  if (t < 32) {
    volatile float* v = s;
    for (int k = 32; k > 0; k /= 2) {
#ifdef REPAIRED
      const float other = v[t + k];
      __syncwarp();
#else
      v[t] += v[t + k];
      continue;
      const float other = 0;
#endif
      v[t] += other;
      __syncwarp();
    }
  }
  if (t == 0) y[0] = s[0];
}

int main() {
  float *x, *y, host[64];
  for (int i = 0; i < 64; ++i) host[i] = i + 1;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, sizeof(float));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  sum<<<1, 64>>>(x, y);
  return cudaDeviceSynchronize();
}
