/// Barriers of a block.
#include "check.cuh"

__global__ void reduce(const float* x, float* out, int n) {
  __shared__ float s[1024];
  const int t = threadIdx.x;
  float sum = 0;
  for (int i = t; i < n; i += blockDim.x) sum += x[i];
  s[t] = sum;
  __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k /= 2) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}

void test_reduce(int blocks, int size) {
  const int n = 5000;
  float *x = make<float>(n), *out = make<float>(blocks);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] = float(i % 17);
  reduce<<<blocks, size>>>(x, out, n);
  FINISH();
  for (int i = 0; i < blocks; ++i) EXPECT(out[i] == float(sum));
  cudaFree(x);
  cudaFree(out);
}

__global__ void rounds(int* out, int count) {
  __shared__ int s[256];
  const int t = threadIdx.x, n = blockDim.x;
  s[t] = t;
  __syncthreads();
  for (int i = 0; i < count; ++i) {
    const int next = s[(t + 1) % n];
    __syncthreads();
    s[t] = next;
    __syncthreads();
  }
  out[blockIdx.x * n + t] = s[t];
}

void test_rotation(int size) {
  const int blocks = 6, count = 50;
  int* out = make<int>(blocks * size);
  rounds<<<blocks, size>>>(out, count);
  FINISH();
  for (int i = 0; i < blocks * size; ++i) EXPECT(out[i] == (i % size + count) % size);
  cudaFree(out);
}

__global__ void predicates(int* out) {
  const int t = threadIdx.x;
  const int count = __syncthreads_count(t % 3 == 0);
  const int all = __syncthreads_and(t < 1000), not_all = __syncthreads_and(t < 50);
  const int any = __syncthreads_or(t == 77), none = __syncthreads_or(t < 0);
  out[t] = count * 16 + (all != 0) * 8 + (not_all != 0) * 4 + (any != 0) * 2 + (none != 0);
}

void test_predicates() {
  int* out = make<int>(100);
  predicates<<<1, 100>>>(out);
  FINISH();
  for (int i = 0; i < 100; ++i) EXPECT(out[i] == 34 * 16 + 8 + 2);
  cudaFree(out);
}

__global__ void some_leave(int* out, int stay) {
  __shared__ int total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  if (int(threadIdx.x) >= stay) return;
  atomicAdd(&total, 1);
  __syncthreads();
  out[threadIdx.x] = total;
}

void test_exited_threads_are_not_waited_for() {
  int* out = make<int>(128);
  some_leave<<<1, 128>>>(out, 40);
  FINISH();
  for (int i = 0; i < 128; ++i) EXPECT(out[i] == (i < 40 ? 40 : 0));
  cudaFree(out);
}

__global__ void one_waits(int* out) {
  // The barrier is the first wait of any thread, and comes after others have run to their ends.
  if (threadIdx.x < 10) return;
  __syncthreads();
  atomicAdd(out, 1);
}

void test_first_threads_exit() {
  int* out = make<int>(1);
  one_waits<<<3, 70>>>(out);
  FINISH();
  EXPECT(*out == 180);
  cudaFree(out);
}


__global__ void in_functions(int* out) {
  __shared__ int s[65];
  const int t = threadIdx.x;
  s[t] = 1;
  if (t == 0) s[64] = 0;
  __syncthreads();
  if (t % 2 == 0 && t < 64) {
    const int other = s[t + 1];
    out[t] = other;
  }
  __syncthreads();
  out[t] += threadIdx.x * 1000 + blockDim.x;  // the index variables are the thread's after a wait
}

void test_index_after_wait() {
  int* out = make<int>(64);
  in_functions<<<1, dim3(64)>>>(out);
  FINISH();
  for (int i = 0; i < 64; ++i) EXPECT(out[i] == i * 1000 + 64 + (i % 2 == 0));
  cudaFree(out);
}

int main() {
  for (const int size : {1, 2, 32, 64, 128, 1024}) test_reduce(5, size);
  for (const int size : {1, 31, 32, 33, 100, 256}) test_rotation(size);
  test_predicates();
  test_exited_threads_are_not_waited_for();
  test_first_threads_exit();
  test_index_after_wait();
  std::puts("ok");
  return 0;
}
