// expect: PB221 lines 9, 13: put __syncwarp() between the two lines
#include <cuda_runtime.h>

/// Each warp transposes its own part: no barrier of the block is needed.
__global__ void exchange(const float* x, float* y) {
  __shared__ float s[4][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int i = threadIdx.x;
  s[warp][lane] = x[i];
#ifdef REPAIRED
  __syncwarp();
#endif
  y[i] = s[warp][lane ^ 16];
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 128 * sizeof(float));
  cudaMalloc(&y, 128 * sizeof(float));
  cudaMemset(x, 1, 128 * sizeof(float));
  exchange<<<1, 128>>>(x, y);
  return cudaDeviceSynchronize();
}
