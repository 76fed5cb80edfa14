// expect: PB221 lines 9, 17: put __syncthreads() at the end of the loop as well
#include <cuda_runtime.h>

/// Sum of a block by shuffles, used twice: the second call writes what the first may still read.
__device__ float block_sum(float value) {
  __shared__ float parts[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int k = 16; k > 0; k /= 2) value += __shfl_xor_sync(0xffffffff, value, k);
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  float sum = 0;
#ifdef REPAIRED
  for (int i = 0; i < blockDim.x / 32; ++i) sum += parts[i];
  __syncthreads();
#else
  for (int i = 0; i < blockDim.x / 32; ++i) {
    sum += parts[i];
  }
#endif
  return sum;
}

__global__ void variance(const float* x, float* y) {
  const float value = x[threadIdx.x];
  const float mean = block_sum(value) / blockDim.x;
  const float square = block_sum((value - mean) * (value - mean)) / blockDim.x;
  if (threadIdx.x == 0) y[0] = square;
}

int main() {
  float *x, *y, host[128];
  for (int i = 0; i < 128; ++i) host[i] = i * i % 17;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, sizeof(float));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  variance<<<1, 128>>>(x, y);
  return cudaDeviceSynchronize();
}
