// A thread's own array; the index comes from outside.
__device__ float sum(const float* v, int n) {
  float total = 0;
  for (int i = 0; i < n; ++i) total += v[i];  // FAULT
  return total;
}

__global__ void local(float* out, int n) {
  float v[4] = {1, 2, 3, 4};
  out[threadIdx.x] = sum(v, n);
}

int main() {
  float* out;
  cudaMalloc(&out, 32 * sizeof(float));
#ifdef REPAIRED
  local<<<1, 32>>>(out, 4);
#else
  local<<<1, 32>>>(out, 5);
#endif
  cudaFree(out);
  return 0;
}
