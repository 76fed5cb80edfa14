// The first block writes the array before it adds it up, and the others do not.
__global__ void total(float* out) {
  __shared__ float s[64];
#ifdef REPAIRED
  s[threadIdx.x] = 1;
#else
  if (blockIdx.x == 0) s[threadIdx.x] = 1;
#endif
  __syncthreads();
  if (threadIdx.x < 32) out[32 * blockIdx.x + threadIdx.x] = s[2 * threadIdx.x];  // FAULT
}

int main() {
  float* out;
  cudaMalloc(&out, 3 * 32 * sizeof(float));
  total<<<3, 64>>>(out);
  cudaFree(out);
  return 0;
}
