/// What the lanes of a warp do together.
#include "check.cuh"

constexpr unsigned full = 0xffffffffu;

template <class T>
__global__ void shuffles(T* out, int width) {
  const int t = threadIdx.x;
  const T mine = T(t + 1);
  out[t] = __shfl_sync(full, mine, 5, width);
  out[64 + t] = __shfl_up_sync(full, mine, 3, width);
  out[128 + t] = __shfl_down_sync(full, mine, 3, width);
  out[192 + t] = __shfl_xor_sync(full, mine, 6, width);
  out[256 + t] = __shfl_sync(full, mine, t * 7 + 3, width);
  out[320 + t] = __shfl_xor_sync(full, mine, 12, width);
}

template <class T>
void test_shuffles() {
  for (const int width : {32, 16, 8}) {
    T* out = make<T>(384);
    shuffles<<<1, 64>>>(out, width);
    FINISH();
    for (int t = 0; t < 64; ++t) {
      const int base = t - t % width, at = t % width;
      EXPECT(out[t] == T(base + 5 + 1));
      EXPECT(out[64 + t] == T(at < 3 ? t + 1 : t - 3 + 1));
      EXPECT(out[128 + t] == T(at + 3 >= width ? t + 1 : t + 3 + 1));
      EXPECT(out[192 + t] == T((t ^ 6) + 1));
      EXPECT(out[256 + t] == T(base + (t * 7 + 3) % width + 1));
      // Earlier segments may be read, later ones not.
      EXPECT(out[320 + t] == T(((t ^ 12) >= base + width ? t : t ^ 12) + 1));
    }
    cudaFree(out);
  }
}

__device__ float sum_of_warp(float v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(full, v, step);
  return v;
}

__global__ void sums_of_rows(float* out, const float* x, int rows, int columns) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps leave
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += 32) sum += x[row * columns + i];
  sum = sum_of_warp(sum);
  if (threadIdx.x == 0) out[row] = sum;
}

void test_a_warp_a_row() {
  const int rows = 37, columns = 77;
  float *x = make<float>(rows * columns), *out = make<float>(rows);
  for (int i = 0; i < rows * columns; ++i) x[i] = float(i % 13);
  sums_of_rows<<<(rows + 7) / 8, dim3(32, 8)>>>(out, x, rows, columns);
  FINISH();
  for (int row = 0; row < rows; ++row) {
    float sum = 0;
    for (int i = 0; i < columns; ++i) sum += x[row * columns + i];
    EXPECT(out[row] == sum);
  }
  cudaFree(x);
  cudaFree(out);
}

__global__ void votes(unsigned* out) {
  const int t = threadIdx.x;
  unsigned* const mine = out + 8 * t;
  mine[0] = __ballot_sync(full, t % 3 == 0);
  mine[1] = __any_sync(full, t == 40);
  mine[2] = __all_sync(full, t < 32);
  if (t % 32 < 10) {
    mine[3] = __ballot_sync(0x3ff, t % 2);
    mine[4] = __activemask();
  } else {
    mine[3] = __ballot_sync(~0x3ffu, t % 2);
    __syncwarp(~0x3ffu);
  }
  __syncwarp();
}

void test_votes() {
  unsigned* out = make<unsigned>(8 * 64);
  votes<<<1, 64>>>(out);
  FINISH();
  for (int t = 0; t < 64; ++t) {
    unsigned thirds = 0;
    for (int lane = 0; lane < 32; ++lane) thirds |= unsigned((t / 32 * 32 + lane) % 3 == 0) << lane;
    EXPECT(out[8 * t] == thirds);
    EXPECT((out[8 * t + 1] != 0) == (t >= 32));
    EXPECT((out[8 * t + 2] != 0) == (t < 32));
    EXPECT(out[8 * t + 3] == (0xaaaaaaaau & (t % 32 < 10 ? 0x3ffu : ~0x3ffu)));
    // Which lanes are active together the machine may choose; this one is among them.
    if (t % 32 < 10) EXPECT((out[8 * t + 4] >> t % 32 & 1) && (out[8 * t + 4] & ~0x3ffu) == 0);
  }
  cudaFree(out);
}

__global__ void matches(unsigned* out) {
  const int t = threadIdx.x;
  int same = 7, other = 7;
  out[6 * t] = __match_any_sync(full, t % 5);
  out[6 * t + 1] = __match_any_sync(full, (unsigned long long)(t / 8) << 40);
  out[6 * t + 2] = __match_all_sync(full, 1.5f, &same);
  out[6 * t + 3] = __match_all_sync(full, t, &other);
  out[6 * t + 4] = unsigned(same);
  out[6 * t + 5] = unsigned(other);
}

void test_matches() {
  unsigned* out = make<unsigned>(6 * 32);
  matches<<<1, 32>>>(out);
  FINISH();
  for (int t = 0; t < 32; ++t) {
    unsigned fifths = 0;
    for (int lane = t % 5; lane < 32; lane += 5) fifths |= 1u << lane;
    EXPECT(out[6 * t] == fifths);
    EXPECT(out[6 * t + 1] == 0xffu << t / 8 * 8);
    EXPECT(out[6 * t + 2] == full && out[6 * t + 4] != 0);
    EXPECT(out[6 * t + 3] == 0 && out[6 * t + 5] == 0);
  }
  cudaFree(out);
}

__global__ void reductions(long long* out) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  const int t = threadIdx.x;
  const unsigned mask = t < 20 ? 0xfffffu : ~0xfffffu;
  long long* const mine = out + 9 * t;
  mine[0] = __reduce_add_sync(mask, t);
  mine[1] = __reduce_add_sync(mask, unsigned(t));
  mine[2] = __reduce_min_sync(mask, t - 25);
  mine[3] = __reduce_max_sync(mask, t - 25);
  mine[4] = __reduce_min_sync(mask, unsigned(t));
  mine[5] = __reduce_max_sync(mask, unsigned(t));
  mine[6] = __reduce_and_sync(mask, unsigned(t | 64));
  mine[7] = __reduce_or_sync(mask, 1u << t);
  mine[8] = __reduce_xor_sync(mask, unsigned(t));
#endif
}

void test_reductions() {
  long long* out = make<long long>(9 * 32);
  reductions<<<1, 32>>>(out);
  FINISH();
  for (int t = 0; t < 32; ++t) {
    const int low = t < 20 ? 0 : 20, high = t < 20 ? 19 : 31;
    int sum = 0, both = 127, all = 0;
    for (int i = low; i <= high; ++i) sum += i, both &= i | 64, all ^= i;
    const long long expected[9] = {sum, sum, low - 25, high - 25, low, high, both,
                                   t < 20 ? 0xfffffll : 0xfff00000ll, all};
    for (int i = 0; i < 9; ++i) EXPECT(out[9 * t + i] == expected[i]);
  }
  cudaFree(out);
}

struct Pair {
  short low, high;
};

__global__ void partial_warp(int* out, int n) {
  const int t = threadIdx.x;
  if (t >= n) return;  // lanes that have exited are not waited for
  int v = t;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(full, v, step);
    if (t % 32 >= step) v += other;
  }
  __syncwarp();
  out[t] = v;
}

void test_exited_lanes() {
  int* out = make<int>(45);
  partial_warp<<<1, 64>>>(out, 45);
  FINISH();
  for (int t = 0, sum = 0; t < 45; ++t) {
    sum = t % 32 ? sum + t : t;
    EXPECT(out[t] == sum);
  }
  cudaFree(out);
}

__global__ void through_shared(int* out) {
  __shared__ int s[64];
  const int t = threadIdx.x;
  s[t] = t;
  __syncwarp();
  int v = s[t ^ 1];
  __syncwarp();
  s[t] = v + 100;
  __syncwarp();
  v = s[t ^ 2];
  __syncthreads();
  out[t] = v;
}

void test_syncwarp_orders_memory() {
  int* out = make<int>(64);
  through_shared<<<1, 64>>>(out);
  FINISH();
  for (int t = 0; t < 64; ++t) EXPECT(out[t] == (t ^ 3) + 100);
  cudaFree(out);
}

#ifndef __NVCC__  // gone from the architectures that nvcc still compiles for
struct Wide {
  double a, b, c;
};

__global__ void any_type(Pair* pairs, Wide* wides, int* legacy) {
  const int t = threadIdx.x;
  pairs[t] = __shfl_xor_sync(full, Pair{short(t), short(-t)}, 1);
  wides[t] = __shfl_sync(full, Wide{t + 0.5, t + 0.25, double(t)}, 31 - t);
  int v = t;
  for (int step = 16; step > 0; step /= 2) v += __shfl_down(v, step);
  legacy[t] = __shfl(v, 0);
  if (t < 4) legacy[32 + t] = __ballot(t % 2) + 16 * (__any(t == 3) != 0) + 32 * (__all(t < 4) != 0);
}

void test_other_types_and_the_forms_without_sync() {
  Pair* pairs = make<Pair>(32);
  Wide* wides = make<Wide>(32);
  int* legacy = make<int>(36);
  any_type<<<1, 32>>>(pairs, wides, legacy);
  FINISH();
  for (int t = 0; t < 32; ++t) {
    EXPECT(pairs[t].low == (t ^ 1) && pairs[t].high == -(t ^ 1));
    EXPECT(wides[t].a == 31 - t + 0.5 && wides[t].b == 31 - t + 0.25 && wides[t].c == 31 - t);
    EXPECT(legacy[t] == 31 * 16);
  }
  for (int t = 0; t < 4; ++t) EXPECT(legacy[32 + t] == 10 + 16 + 32);
}
#else
void test_other_types_and_the_forms_without_sync() {}
#endif

int main() {
  test_shuffles<int>();
  test_shuffles<unsigned>();
  test_shuffles<float>();
  test_shuffles<double>();
  test_shuffles<long long>();
  test_shuffles<unsigned long>();
  test_a_warp_a_row();
  test_votes();
  test_matches();
  test_reductions();
  test_exited_lanes();
  test_syncwarp_orders_memory();
  test_other_types_and_the_forms_without_sync();
  std::puts("ok");
  return 0;
}
