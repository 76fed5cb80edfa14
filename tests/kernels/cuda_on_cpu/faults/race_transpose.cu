// expect: PB221 lines 8, 12: put __syncthreads() between the two lines
#include <cuda_runtime.h>

__global__ void transpose(const float4* x, float* y, int n) {
  __shared__ float tile[16][17];
  const float4 row = x[threadIdx.y * n / 4 + threadIdx.x / 4];
  const float values[4] = {row.x, row.y, row.z, row.w};
  tile[threadIdx.y][threadIdx.x] = values[threadIdx.x % 4];
#ifdef REPAIRED
  __syncthreads();
#endif
  y[threadIdx.y * n + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 256 * sizeof(float));
  cudaMalloc(&y, 256 * sizeof(float));
  cudaMemset(x, 1, 256 * sizeof(float));
  transpose<<<1, dim3(16, 16)>>>(reinterpret_cast<float4*>(x), y, 16);
  return cudaDeviceSynchronize();
}
