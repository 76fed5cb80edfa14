// What looks like a race, and is none: correct programs live by it. No check may report any of it.
#include "check.cuh"

/// The programming guide's atomicAdd() of doubles: it begins with a plain read.
__device__ double add_double(double* address, double value) {
  unsigned long long* const bits = reinterpret_cast<unsigned long long*>(address);
  unsigned long long old = *bits, assumed;
  do {
    assumed = old;
    old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
  } while (assumed != old);
  return __longlong_as_double(old);
}

/// Only who may win tries; and all who set the flag set it to the same.
__global__ void largest(const int* x, int* most, int* found, double* sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (x[i] > *most) atomicMax(most, x[i]);
  if (x[i] > 5) *found = 1;
  add_double(sum, x[i]);
}

/// The last block sums what all wrote, its last warp in step as of old, with __syncwarp().
__global__ void sum_by_last_block(const int* x, volatile int* parts, unsigned* arrived, int* y) {
  __shared__ int s[64];
  __shared__ bool last;
  const int t = threadIdx.x;
  s[t] = x[blockIdx.x * 64 + t];
  for (int k = 32; k > 0; k /= 2) {
    __syncthreads();
    if (t < k) s[t] += s[t + k];
  }
  if (t == 0) {
    parts[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  s[t] = t < gridDim.x ? parts[t] : 0;
  __syncthreads();
  if (t < 32) {
    volatile int* v = s;
    int mine = v[t] + v[t + 32];
    for (int k = 16; k > 0; k /= 2) {
      __syncwarp();
      v[t] = mine;
      __syncwarp();
      mine += v[(t + k) % 64 < 32 ? t + k : t];
    }
    if (t == 0) *y = mine;
  }
}

/// Each block waits for the one before it, at a flag; blocks are numbered as they begin.
__global__ void scan_with_look_back(const int* x, int* y, unsigned* ticket, volatile int* total,
                                    volatile int* ready) {
  __shared__ int block, before;
  if (threadIdx.x == 0) block = atomicAdd(ticket, 1);
  __syncthreads();
  int sum = 0;
  for (int i = 0; i <= threadIdx.x; ++i) sum += x[block * 32 + i];
  if (threadIdx.x == 31) {
    if (block > 0) {
      while (ready[block - 1] == 0) {
      }
      __threadfence();
    }
    before = block > 0 ? total[block - 1] : 0;
    total[block] = before + sum;
    __threadfence();
    ready[block] = 1;
  }
  __syncthreads();
  y[block * 32 + threadIdx.x] = before + sum;
}

/// All threads write the same start value; then each adds to its own part of a byte array.
__global__ void bytes(unsigned char* out, int* same) {
  __shared__ unsigned char s[64];
  __shared__ int start;
  start = 7;
  s[threadIdx.x] = threadIdx.x;
  s[threadIdx.x] += start;
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];
  *same = start;
}

/// A lock, one thread of each block at a time.
__global__ void locked(int* lock, int* sum) {
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *sum = *sum + 1;
    __threadfence();
    atomicExch(lock, 0);
  }
}

/// Warps that hand over to each other through shared memory, in a barrier of their own making.
__global__ void warps_in_turn(int* out) {
  __shared__ int turn, value;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) turn = 0, value = 1;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    while (atomicAdd(&turn, 0) != warp) {
    }
    value = value * 3 + warp;
    __threadfence_block();
    atomicAdd(&turn, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) *out = value;
}

struct Padded {
  char c;
  double d;
};
/// Structs with padding are copied as a whole, in shared memory and out of it.
__global__ void padded(Padded* out) {
  __shared__ Padded s[32];
  s[threadIdx.x].c = threadIdx.x;
  s[threadIdx.x].d = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[31 - threadIdx.x];
}

int main() {
  const int n = 256;
  int *x = make<int>(n), *y = make<int>(n), *number = make<int>(16), *flags = make<int>(32);
  int all = 0;
  for (int i = 0; i < n; ++i) all += x[i] = i % 11;

  double* sum = make<double>(1);
  largest<<<4, 64>>>(x, number, number + 1, sum);
  FINISH();
  EXPECT(number[0] == 10 && number[1] == 1 && *sum == all);

  unsigned* counts = make<unsigned>(2);
  sum_by_last_block<<<4, 64>>>(x, flags, counts, number);
  FINISH();
  EXPECT(number[0] == all);

  scan_with_look_back<<<8, 32>>>(x, y, counts + 1, flags + 8, flags + 16);
  FINISH();
  EXPECT(y[0] == x[0] && y[n - 1] == all);

  unsigned char* out = make<unsigned char>(64);
  bytes<<<1, 64>>>(out, number);
  FINISH();
  EXPECT(out[0] == 70 && number[0] == 7);

  locked<<<8, 32>>>(number + 2, number + 3);
  FINISH();
  EXPECT(number[3] == 8);

  warps_in_turn<<<1, 128>>>(number);
  FINISH();
  EXPECT(number[0] == ((3 * 3 + 1) * 3 + 2) * 3 + 3);

  Padded* structs = make<Padded>(32);
  padded<<<1, 32>>>(structs);
  FINISH();
  EXPECT(structs[1].d == 30);
  std::puts("ok");
  return 0;
}
