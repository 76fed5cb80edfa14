// The last thread of the last block is one too far.
__global__ void fill(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef REPAIRED
  if (i < n) out[i] = i;
#else
  if (i <= n) out[i] = i;  // FAULT
#endif
}

int main() {
  float* out;
  cudaMalloc(&out, 100 * sizeof(float));
  fill<<<4, 32>>>(out, 100);
  cudaFree(out);
  return 0;
}
