// The last half of the array is added before anyone has written it.
__global__ void total(float* out, int n) {
  __shared__ float s[64];
#ifdef REPAIRED
  s[threadIdx.x] = threadIdx.x < n ? 1 : 0;
#else
  if (threadIdx.x < n) s[threadIdx.x] = 1;
#endif
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];  // FAULT
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = s[0];
}

int main() {
  float* out;
  cudaMalloc(&out, sizeof(float));
  total<<<1, 64>>>(out, 40);
  cudaFree(out);
  return 0;
}
