// expect: PB221 lines 10, 16: put __syncthreads() between the two lines
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

__global__ void product(const signed char* x, int* y) {
  __shared__ signed char tile[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    tile[i] = x[i];
#ifdef REPAIRED
  __syncthreads();
#endif
  wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::row_major> b;
  wmma::load_matrix_sync(a, tile, 16);
  wmma::fill_fragment(b, 1);
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
  wmma::fill_fragment(sum, 0);
  wmma::mma_sync(sum, a, b, sum);
  wmma::store_matrix_sync(y + threadIdx.x / 32 * 256, sum, 16, wmma::mem_row_major);
}

int main() {
  signed char* x;
  int* y;
  cudaMalloc(&x, 256);
  cudaMalloc(&y, 2 * 256 * sizeof(int));
  cudaMemset(x, 1, 256);
  product<<<1, 64>>>(x, y);
  return cudaDeviceSynchronize();
}
