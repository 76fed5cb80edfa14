/// Shared memory, static and dynamic.
#include "check.cuh"

struct alignas(16) Record {
  float value[3];
  int index;
};

__global__ void many_variables(int* out) {
  __shared__ int numbers[64];
  __shared__ Record records[64];
  __shared__ double total;
  __shared__ unsigned char bytes[64];
  const int t = threadIdx.x;
  numbers[t] = t;
  records[t] = {{float(t), float(2 * t), float(3 * t)}, t};
  bytes[t] = (unsigned char)(t);
  if (t == 0) total = 0.5;
  __syncthreads();
  const int other = 63 - t;
  const Record& record = records[other];
  out[blockIdx.x * 64 + t] = numbers[other] + int(record.value[2]) + record.index + bytes[other] + int(2 * total);
}

void test_many_variables() {
  int* out = make<int>(640);
  many_variables<<<10, 64>>>(out);
  FINISH();
  for (int i = 0; i < 640; ++i) EXPECT(out[i] == (63 - i % 64) * 6 + 1);
  cudaFree(out);
}

template <class T, int n>
__global__ void templated(T* out) {
  __shared__ T s[n][n + 1];
  s[threadIdx.y][threadIdx.x] = T(threadIdx.y * n + threadIdx.x);
  __syncthreads();
  out[threadIdx.y * n + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}

template <class T, int n>
void test_transpose() {
  T* out = make<T>(n * n);
  templated<T, n><<<1, dim3(n, n)>>>(out);
  FINISH();
  for (int y = 0; y < n; ++y)
    for (int x = 0; x < n; ++x) EXPECT(out[y * n + x] == T(x * n + y));
  cudaFree(out);
}

__global__ void dynamic(float* out, int n) {
  extern __shared__ float values[];
  int* const numbers = reinterpret_cast<int*>(values + n);
  for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = float(i), numbers[i] = n - i;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[blockIdx.x * n + i] = values[n - 1 - i] + float(numbers[i]);
}

void test_dynamic(int n) {
  float* out = make<float>(3 * n);
  dynamic<<<3, 50, n * (sizeof(float) + sizeof(int))>>>(out, n);
  FINISH();
  for (int i = 0; i < 3 * n; ++i) EXPECT(out[i] == float(n - 1 - i % n + n - i % n));
  cudaFree(out);
}

__global__ void large(int* out, int n) {
  extern __shared__ int numbers[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) numbers[i] = i;
  __syncthreads();
  int sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += numbers[n - 1 - i];
  atomicAdd(out, sum % 1000);
}

void test_more_than_48_kb() {
  const int n = 24 << 10;  // 96 KB
  int* out = make<int>(1);
  EXPECT(cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, n * 4) == cudaSuccess);
  large<<<1, 256, n * 4>>>(out, n);
  FINISH();
  int expected = 0;
  for (int t = 0; t < 256; ++t) {
    int sum = 0;
    for (int i = t; i < n; i += 256) sum += n - 1 - i;
    expected += sum % 1000;
  }
  EXPECT(*out == expected);
  cudaFree(out);
}

__device__ int total_of_block(int value) {
  __shared__ int partial[32];
  const int t = threadIdx.x;
  if (t < 32) partial[t] = 0;
  __syncthreads();
  atomicAdd(&partial[t % 32], value);
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < 32; ++i) sum += partial[i];
  __syncthreads();
  return sum;
}

__global__ void calls_twice(int* out) {
  const int first = total_of_block(threadIdx.x), second = total_of_block(1);
  out[threadIdx.x] = first * 1000 + second;
}

void test_in_a_function() {
  int* out = make<int>(100);
  calls_twice<<<1, 100>>>(out);
  FINISH();
  for (int i = 0; i < 100; ++i) EXPECT(out[i] == 4950 * 1000 + 100);
  cudaFree(out);
}

int main() {
  test_many_variables();
  test_transpose<float, 32>();
  test_transpose<double, 16>();
  test_transpose<int, 8>();
  for (const int n : {1, 50, 1000, 6000}) test_dynamic(n);
  test_more_than_48_kb();
  test_in_a_function();
  std::puts("ok");
  return 0;
}
