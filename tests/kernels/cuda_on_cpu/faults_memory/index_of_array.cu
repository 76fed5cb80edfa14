// An index past the end of an array whose size is in its type.
__global__ void pick(int* out, int k) {
  __shared__ int table[2][8];
  table[0][threadIdx.x] = threadIdx.x;
  table[1][threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = table[0][threadIdx.x + k];  // FAULT
}

int main() {
  int* out;
  cudaMalloc(&out, 8 * sizeof(int));
#ifdef REPAIRED
  pick<<<1, 8>>>(out, 0);
#else
  pick<<<1, 8>>>(out, 1);
#endif
  cudaFree(out);
  return 0;
}
