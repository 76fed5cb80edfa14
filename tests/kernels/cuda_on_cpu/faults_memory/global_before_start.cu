// The first thread looks at its left neighbour.
__global__ void difference(float* out, const float* in) {
  int i = threadIdx.x;
#ifdef REPAIRED
  out[i] = in[i] - (i > 0 ? in[i - 1] : 0);
#else
  out[i] = in[i] - in[i - 1];  // FAULT
#endif
}

int main() {
  float *in, *out;
  cudaMalloc(&in, 64 * sizeof(float));
  cudaMalloc(&out, 64 * sizeof(float));
  cudaMemset(in, 0, 64 * sizeof(float));
  difference<<<1, 64>>>(out, in);
  cudaFree(in);
  cudaFree(out);
  return 0;
}
