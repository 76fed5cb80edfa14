// A buffer is freed before the kernel that reads it.
__global__ void twice(float* out, const float* in) {
  out[threadIdx.x] = 2 * in[threadIdx.x];  // FAULT
}

int main() {
  float *in, *out;
  cudaMalloc(&in, 32 * sizeof(float));
  cudaMalloc(&out, 32 * sizeof(float));
  cudaMemset(in, 0, 32 * sizeof(float));
#ifndef REPAIRED
  cudaFree(in);
#endif
  twice<<<1, 32>>>(out, in);
#ifdef REPAIRED
  cudaFree(in);
#endif
  cudaFree(out);
  return 0;
}
