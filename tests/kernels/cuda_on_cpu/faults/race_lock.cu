// expect: PB221 lines 9: several threads update one element: use atomicAdd() or a kin, or an element for each; if a lock guards it, put __threadfence() before its release
#include <cuda_runtime.h>

/// One thread of each block adds to a sum, under a lock.
__global__ void add(int* lock, double* sum) {
  if (threadIdx.x != 0) return;
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *sum = *sum * 0.5 + blockIdx.x;
#ifdef REPAIRED
  __threadfence();
#endif
  atomicExch(lock, 0);
}

int main() {
  int* lock;
  double* sum;
  cudaMalloc(&lock, sizeof(int));
  cudaMalloc(&sum, sizeof(double));
  cudaMemset(lock, 0, sizeof(int));
  cudaMemset(sum, 0, sizeof(double));
  add<<<8, 32>>>(lock, sum);
  return cudaDeviceSynchronize();
}
