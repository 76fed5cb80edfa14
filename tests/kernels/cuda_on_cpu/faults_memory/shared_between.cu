// Past the end of one array, where on a GPU the next one begins.
__global__ void two(int* out, int reach) {
  __shared__ int a[32];
  __shared__ int b[32];
  a[threadIdx.x] = 1;
  b[threadIdx.x] = 2;
  __syncthreads();
  int* p = a;
  out[threadIdx.x] = p[threadIdx.x + reach] + b[threadIdx.x];  // FAULT
}

int main() {
  int* out;
  cudaMalloc(&out, 32 * sizeof(int));
#ifdef REPAIRED
  two<<<1, 32>>>(out, 0);
#else
  two<<<1, 32>>>(out, 1);
#endif
  cudaFree(out);
  return 0;
}
