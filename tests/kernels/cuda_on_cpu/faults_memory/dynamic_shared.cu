// The launch asks for fewer bytes than the kernel uses.
__global__ void copy(double* out) {
  extern __shared__ double s[];
  s[threadIdx.x] = threadIdx.x;  // FAULT
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x ^ 1];
}

int main() {
  double* out;
  cudaMalloc(&out, 64 * sizeof(double));
#ifdef REPAIRED
  copy<<<1, 64, 64 * sizeof(double)>>>(out);
#else
  copy<<<1, 64, 64 * sizeof(float)>>>(out);
#endif
  cudaFree(out);
  return 0;
}
