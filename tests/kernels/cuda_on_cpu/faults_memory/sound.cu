// Nothing is wrong here: copies of structures with padding, whole blocks, many blocks and threads.
#include <cstdio>
#include <cstring>

struct Pair {
  double value;
  int index;
};

__constant__ float table[16];
__device__ int counter;

__global__ void best(Pair* out, const float* in, int n) {
  __shared__ Pair pairs[128];
  extern __shared__ int more[];
  pairs[threadIdx.x].value = in[(blockIdx.x * blockDim.x + threadIdx.x) % n];
  pairs[threadIdx.x].index = threadIdx.x;
  more[threadIdx.x] = threadIdx.x;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half && pairs[threadIdx.x + half].value > pairs[threadIdx.x].value) {
      pairs[threadIdx.x] = pairs[threadIdx.x + half];
    }
    __syncthreads();
  }
  float v[16];
  memcpy(v, table, sizeof v);
  if (threadIdx.x < 32) {
    float sum = v[threadIdx.x % 16];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (threadIdx.x == 0) atomicAdd(&counter, int(sum) + more[127]);
  }
  if (threadIdx.x == 0) out[blockIdx.x] = pairs[0];
}

int main() {
  const int blocks = 50, n = 1000;
  float host[n], ones[16];
  for (int i = 0; i < n; ++i) host[i] = float(i * 7919 % 1009);
  for (float& one : ones) one = 1;
  float* in;
  Pair* out;
  cudaMalloc(&in, sizeof host);
  cudaMalloc(&out, blocks * sizeof(Pair));
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  cudaMemcpyToSymbol(table, ones, sizeof ones);
  best<<<blocks, 128, 128 * sizeof(int)>>>(out, in, n);
  Pair found[blocks];
  cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost);
  int count;
  cudaMemcpyFromSymbol(&count, counter, sizeof count);
  std::printf("%g %d\n", found[0].value, count);
  cudaFree(in);
  cudaFree(out);
  return 0;
}
