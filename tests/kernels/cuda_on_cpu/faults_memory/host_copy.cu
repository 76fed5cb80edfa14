// The host has less room than it copies.
__global__ void fill(int* out) { out[threadIdx.x] = threadIdx.x; }

int main() {
#ifdef REPAIRED
  const int room = 32;
#else
  const int room = 30;
#endif
  int* there = static_cast<int*>(malloc(room * sizeof(int)));
  int* out;
  cudaMalloc(&out, 32 * sizeof(int));
  fill<<<1, 32>>>(out);
  cudaMemcpy(there, out, 32 * sizeof(int), cudaMemcpyDeviceToHost);  // FAULT
  cudaFree(out);
  free(there);
  return 0;
}
