// A static array is too small for the block; through a pointer, so its size is out of sight.
__device__ void put(float* where, int i) {
  where[i] = i;  // FAULT
}

__global__ void reverse(float* out) {
#ifdef REPAIRED
  __shared__ float s[64];
#else
  __shared__ float s[63];
#endif
  put(s, threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];
}

int main() {
  float* out;
  cudaMalloc(&out, 64 * sizeof(float));
  reverse<<<1, 64>>>(out);
  cudaFree(out);
  return 0;
}
