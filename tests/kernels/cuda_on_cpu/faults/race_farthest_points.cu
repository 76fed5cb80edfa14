// expect: PB221 lines 18, 24: put __syncthreads() at the end of the loop as well
#include <cuda_runtime.h>

/// Farthest point sampling: each round picks the point farthest from those picked before.
__global__ void sample(const float* x, float* distance, int n, int rounds, int* picked) {
  __shared__ float best[64];
  __shared__ int index[64];
  const int t = threadIdx.x;
  int old = 0;
  for (int round = 0; round < rounds; ++round) {
    float most = -1;
    int at = 0;
    for (int i = t; i < n; i += 64) {
      distance[i] = fminf(distance[i], fabsf(x[i] - x[old]));
      if (distance[i] > most) most = distance[at = i];
    }
    best[t] = most;
    index[t] = at;
    __syncthreads();
    for (int k = 32; k > 0; k /= 2) {
      if (t < k && best[t + k] > best[t]) best[t] = best[t + k], index[t] = index[t + k];
      __syncthreads();
    }
    old = index[0];
    if (t == 0) picked[round] = best[0] > 0 ? old : -1;
#ifdef REPAIRED
    __syncthreads();
#endif
  }
}

int main() {
  float *x, *distance, host[256];
  int* picked;
  for (int i = 0; i < 256; ++i) host[i] = float(i * 37 % 101);
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&distance, sizeof host);
  cudaMalloc(&picked, 8 * sizeof(int));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  for (float& each : host) each = 1e10f;
  cudaMemcpy(distance, host, sizeof host, cudaMemcpyHostToDevice);
  sample<<<1, 64>>>(x, distance, 256, 8, picked);
  return cudaDeviceSynchronize();
}
