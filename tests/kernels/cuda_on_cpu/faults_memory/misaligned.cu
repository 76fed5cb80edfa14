// Four floats at once need an address that is a multiple of 16.
__global__ void load(float4* out, const float* in) {
#ifdef REPAIRED
  const float* from = in + 4 * threadIdx.x;
#else
  const float* from = in + 4 * threadIdx.x + 1;
#endif
  out[threadIdx.x] = *reinterpret_cast<const float4*>(from);  // FAULT
}

int main() {
  float *in, *out;
  cudaMalloc(&in, 132 * sizeof(float));
  cudaMalloc(&out, 128 * sizeof(float));
  cudaMemset(in, 0, 132 * sizeof(float));
  load<<<1, 32>>>(reinterpret_cast<float4*>(out), in);
  cudaFree(in);
  cudaFree(out);
  return 0;
}
