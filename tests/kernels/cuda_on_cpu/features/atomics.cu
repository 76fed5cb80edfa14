/// Atomic operations, and threads that wait by them.
#include "check.cuh"

// What CUDA does not have, its users define by these names.
using ::atomicExch;
using ::atomicMax;
using ::atomicMin;

__device__ float atomicMax(float* address, float value) {
  int *const bits = reinterpret_cast<int*>(address), old = *bits;
  for (int seen; __int_as_float(old) < value && (seen = atomicCAS(bits, old, __float_as_int(value))) != old;) old = seen;
  return __int_as_float(old);
}
__device__ float atomicMin(float* address, float value) { return -atomicMax(address + 1, -value); }

__global__ void own(float* x) {
  const float i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicMax(&x[0], i);
  atomicMin(&x[1], i);
  atomicAdd(&x[3], i);
}

void test_own_functions() {
  float* x = make<float>(4);
  own<<<4, 64>>>(x);
  FINISH();
  EXPECT(x[0] == 255 && x[2] == 0 && x[3] == 255 * 128);
  cudaFree(x);
}

template <class T>
__global__ void arithmetic(T* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&x[0], T(2));
  atomicMin(&x[2], T(i));
  atomicMax(&x[3], T(i));
  if (i == 5) x[5] = atomicExch(&x[4], T(9));
}

template <class T>
void test_arithmetic() {
  T* x = make<T>(8);
  x[2] = T(100), x[3] = T(1), x[4] = T(4);
  arithmetic<<<4, 64>>>(x);
  FINISH();
  EXPECT(x[0] == T(512));
  EXPECT(x[2] == T(0) && x[3] == T(255));
  EXPECT(x[4] == T(9) && x[5] == T(4));
  cudaFree(x);
}

template <class T>
__global__ void bits(T* x) {
  const int i = threadIdx.x;
  atomicAnd(&x[0], ~(T(1) << i));
  atomicOr(&x[1], T(1) << i);
  atomicXor(&x[2], T(1) << (i % 8));
  const T seen = atomicCAS(&x[3], T(0), T(i + 1));
  if (seen == T(0)) x[4] = T(i + 1);
}

template <class T>
void test_bits() {
  T* x = make<T>(5);
  x[0] = T(~T(0)), x[2] = T(3);
  bits<<<1, 31>>>(x);
  FINISH();
  EXPECT(x[0] == T(~((T(1) << 31) - 1)));
  EXPECT(x[1] == T((T(1) << 31) - 1));
  EXPECT(x[2] == T(3 ^ 0x80));  // 31 lanes: bit 7 is turned three times, the others four
  EXPECT(x[3] != T(0) && x[3] == x[4]);
  cudaFree(x);
}

__global__ void of_unsigned(unsigned* x, int* difference, unsigned short* small) {
  atomicSub(difference, 3);
  atomicInc(&x[0], 9);
  atomicDec(&x[1], 9);
  const unsigned ticket = atomicAdd(&x[2], 1u);
  x[8 + ticket] = 1;
  for (;;) {
    const unsigned short old = *(volatile unsigned short*)small;
    if (atomicCAS(small, old, (unsigned short)(old + 1)) == old) break;
  }
}

void test_of_unsigned() {
  unsigned* x = make<unsigned>(8 + 96);
  int* difference = make<int>(1);
  unsigned short* small = make<unsigned short>(2);
  of_unsigned<<<3, 32>>>(x, difference, small);
  FINISH();
  EXPECT(x[0] == 96 % 10);
  EXPECT(x[1] == 4);  // 0, 9, 8, ...
  EXPECT(x[2] == 96 && *difference == -288 && *small == 96);
  for (int i = 0; i < 96; ++i) EXPECT(x[8 + i] == 1);
}

__global__ void in_shared(int* out, const int* x, int n) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd_block(&bins[x[i]], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

void test_histogram() {
  const int n = 10000;
  int *x = make<int>(n), *out = make<int>(16), expected[16] = {};
  for (int i = 0; i < n; ++i) ++expected[x[i] = i * i % 16];
  in_shared<<<8, 100>>>(out, x, n);
  FINISH();
  for (int i = 0; i < 16; ++i) EXPECT(out[i] == expected[i]);
}

__global__ void locked(int* lock, int* count) {
  // The form that works on GPUs before lanes of a warp could part as well.
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *(volatile int*)count = *(volatile int*)count + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

void test_spin_lock() {
  int *lock = make<int>(1), *count = make<int>(1);
  locked<<<20, 64>>>(lock, count);
  FINISH();
  EXPECT(*count == 1280);
}

__global__ void chain(int* turn, int* out) {
  // Each block waits for the one before it, which a GPU has started earlier.
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(&turn[0], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    while (atomicAdd(&turn[1], 0) != ticket) {
    }
    out[ticket] = ticket ? out[ticket - 1] + ticket : 0;
    __threadfence();
    atomicAdd(&turn[1], 1);
  }
}

void test_blocks_wait_for_earlier_ones() {
  int *turn = make<int>(2), *out = make<int>(40);
  chain<<<40, 32>>>(turn, out);
  FINISH();
  for (int i = 0; i < 40; ++i) EXPECT(out[i] == i * (i + 1) / 2);
}

__global__ void last_block(const float* x, float* partial, float* out, unsigned* arrived) {
  __shared__ bool last;
  atomicAdd(&partial[blockIdx.x], x[blockIdx.x * blockDim.x + threadIdx.x]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  __threadfence();
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += *(volatile float*)&partial[i];
  *out = sum;
}

void test_last_block() {
  float *x = make<float>(32 * 64), *partial = make<float>(32), *out = make<float>(1);
  unsigned* arrived = make<unsigned>(1);
  float sum = 0;
  for (int i = 0; i < 32 * 64; ++i) sum += x[i] = float(i % 7);
  for (int turn = 1; turn <= 2; ++turn) {
    last_block<<<32, 64>>>(x, partial, out, arrived);
    FINISH();
    EXPECT(*out == float(turn) * sum);
    EXPECT(*arrived == 0);
  }
}

__global__ void flag_in_block(int* out) {
  __shared__ int flag, value;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    while (atomicAdd(&flag, 0) == 0) {
    }
    __threadfence_block();
    *out = value;
  } else if (threadIdx.x == 40) {
    value = 42;
    __threadfence_block();
    atomicExch(&flag, 1);
  }
}

void test_a_thread_waits_for_another_of_its_block() {
  int* out = make<int>(1);
  flag_in_block<<<1, 64>>>(out);
  FINISH();
  EXPECT(*out == 42);
}

int main() {
  test_arithmetic<int>();
  test_arithmetic<unsigned>();
  test_arithmetic<unsigned long long>();
  test_bits<unsigned>();
  test_bits<unsigned long long>();
  test_of_unsigned();
  test_own_functions();
  test_histogram();
  test_spin_lock();
  test_blocks_wait_for_earlier_ones();
  test_last_block();
  test_a_thread_waits_for_another_of_its_block();
  std::puts("ok");
  return 0;
}
