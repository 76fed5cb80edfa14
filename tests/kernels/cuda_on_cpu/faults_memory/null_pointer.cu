// A buffer that was never allocated.
__global__ void put(int* out) {
  out[threadIdx.x] = 1;  // FAULT
}

int main() {
  int* out = nullptr;
#ifdef REPAIRED
  cudaMalloc(&out, 32 * sizeof(int));
#endif
  put<<<1, 32>>>(out);
  cudaFree(out);
  return 0;
}
