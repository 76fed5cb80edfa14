/// cub's functions for a block and for a warp.
#include "check.cuh"

#include <cub/block/block_shuffle.cuh>
#include <cub/cub.cuh>

#include <algorithm>
#include <numeric>
#include <vector>

constexpr int threads = 128, items = 3, count = threads * items;

struct Largest {
  __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};
struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const { return a + b; }
};
struct NotSame {
  __device__ bool operator()(int a, int b) const { return a != b; }
};
struct Less {
  __device__ bool operator()(int a, int b) const { return a < b; }
};
struct Minus {
  __device__ int operator()(int a, int b) const { return a - b; }
};

template <cub::BlockReduceAlgorithm algorithm>
__global__ void reduce(const int* in, int* out) {
  using Reduce = cub::BlockReduce<int, threads, algorithm>;
  __shared__ typename Reduce::TempStorage storage;
  int mine[items];
  cub::LoadDirectBlocked(threadIdx.x, in, mine);
  const int sum = Reduce(storage).Sum(mine);
  __syncthreads();
  const int largest = Reduce(storage).Reduce(mine[0], Largest());
  __syncthreads();
  const int some = Reduce(storage).Sum(mine[0], 40);
  if (threadIdx.x == 0) out[0] = sum, out[1] = largest, out[2] = some;
}

/// Adds up over the blocks' tiles, as cub's documents show it.
struct Running {
  int total;
  __device__ int operator()(int aggregate) {
    const int before = total;
    total += aggregate;
    return before;
  }
};

__global__ void scan(const int* in, int* inclusive, int* exclusive, int* running, int* largest,
                     int* total) {
  using Scan = cub::BlockScan<int, threads>;
  __shared__ typename Scan::TempStorage storage;
  int mine[items], out[items];
  cub::LoadDirectBlocked(threadIdx.x, in, mine);
  int aggregate;
  Scan(storage).InclusiveSum(mine, out);
  cub::StoreDirectBlocked(threadIdx.x, inclusive, out);
  __syncthreads();
  Scan(storage).ExclusiveSum(mine, out, aggregate);
  cub::StoreDirectBlocked(threadIdx.x, exclusive, out);
  __syncthreads();
  Running prefix{0};
  for (int tile = 0; tile < 2; ++tile) {
    int item = in[tile * threads + threadIdx.x];
    Scan(storage).ExclusiveSum(item, item, prefix);
    running[tile * threads + threadIdx.x] = item;
    __syncthreads();
  }
  int best;
  Scan(storage).ExclusiveScan(mine[0], best, -5, Largest());
  largest[threadIdx.x] = best;
  __syncthreads();
  int one;
  Scan(storage).InclusiveScan(mine[0], one, Largest(), aggregate);
  if (threadIdx.x == 7) total[0] = aggregate, total[1] = one;
}

template <cub::BlockLoadAlgorithm loads, cub::BlockStoreAlgorithm stores>
__global__ void move(const int* in, int* out, int valid) {
  using Load = cub::BlockLoad<int, threads, items, loads>;
  using Store = cub::BlockStore<int, threads, items, stores>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
  } storage;
  int mine[items];
  Load(storage.load).Load(in, mine, valid, -1);
  __syncthreads();
  for (int i = 0; i < items; ++i) mine[i] += 1;
  Store(storage.store).Store(out, mine, valid);
}

__global__ void exchange(int* out) {
  using Exchange = cub::BlockExchange<int, threads, items>;
  __shared__ typename Exchange::TempStorage storage;
  int mine[items];
  for (int i = 0; i < items; ++i) mine[i] = threadIdx.x + i * threads;
  Exchange(storage).StripedToBlocked(mine, mine);
  bool good = true;
  for (int i = 0; i < items; ++i)
    good = good && mine[i] == static_cast<int>(threadIdx.x) * items + i;
  __syncthreads();
  Exchange(storage).BlockedToStriped(mine, mine);
  for (int i = 0; i < items; ++i)
    good = good && mine[i] == static_cast<int>(threadIdx.x) + i * threads;
  __syncthreads();
  int ranks[items];
  for (int i = 0; i < items; ++i) ranks[i] = count - 1 - mine[i];
  Exchange(storage).ScatterToBlocked(mine, ranks);
  for (int i = 0; i < items; ++i)
    good = good && mine[i] == count - 1 - (static_cast<int>(threadIdx.x) * items + i);
  out[threadIdx.x] = good;
}

__global__ void sort(const float* in, float* keys_out, int* values_out, unsigned* by_bits,
                     int* merged) {
  using Sort = cub::BlockRadixSort<float, threads, items, int>;
  using Bits = cub::BlockRadixSort<unsigned, threads, 1>;
  using Merge = cub::BlockMergeSort<int, threads, items>;
  __shared__ union {
    typename Sort::TempStorage sort;
    typename Bits::TempStorage bits;
    typename Merge::TempStorage merge;
  } storage;
  float keys[items];
  int values[items];
  for (int i = 0; i < items; ++i) values[i] = threadIdx.x * items + i, keys[i] = in[values[i]];
  Sort(storage.sort).SortDescending(keys, values);
  cub::StoreDirectBlocked(threadIdx.x, keys_out, keys);
  cub::StoreDirectBlocked(threadIdx.x, values_out, values);
  __syncthreads();
  unsigned key[1] = {(threadIdx.x * 37u) % 128u << 4 | (threadIdx.x & 15u)};
  Bits(storage.bits).Sort(key, 4, 12);
  by_bits[threadIdx.x] = key[0] >> 4;
  __syncthreads();
  for (int i = 0; i < items; ++i) values[i] = (values[i] * 31) % count;
  Merge(storage.merge).Sort(values, Less());
  cub::StoreDirectBlocked(threadIdx.x, merged, values);
}

__global__ void flags(const int* in, int* heads, int* tails, int* differences, unsigned* histogram,
                      int* rotated) {
  using Discontinuity = cub::BlockDiscontinuity<int, threads>;
  using Difference = cub::BlockAdjacentDifference<int, threads>;
  using Histogram = cub::BlockHistogram<unsigned char, threads, items, 16, cub::BLOCK_HISTO_ATOMIC>;
  using Shuffle = cub::BlockShuffle<int, threads>;
  __shared__ union {
    typename Discontinuity::TempStorage discontinuity;
    typename Difference::TempStorage difference;
    typename Histogram::TempStorage histogram;
    typename Shuffle::TempStorage shuffle;
  } storage;
  __shared__ unsigned bins[16];
  int mine[items], head[items], tail[items];
  cub::LoadDirectBlocked(threadIdx.x, in, mine);
  Discontinuity(storage.discontinuity).FlagHeads(head, mine, NotSame());
  __syncthreads();
  Discontinuity(storage.discontinuity).FlagTails(tail, mine, NotSame());
  cub::StoreDirectBlocked(threadIdx.x, heads, head);
  cub::StoreDirectBlocked(threadIdx.x, tails, tail);
  __syncthreads();
  Difference(storage.difference).SubtractLeft(mine, head, Minus());
  cub::StoreDirectBlocked(threadIdx.x, differences, head);
  __syncthreads();
  unsigned char bytes[items];
  for (int i = 0; i < items; ++i) bytes[i] = static_cast<unsigned char>(mine[i] & 15);
  Histogram(storage.histogram).Histogram(bytes, bins);
  __syncthreads();
  if (threadIdx.x < 16) histogram[threadIdx.x] = bins[threadIdx.x];
  int turned;
  Shuffle(storage.shuffle).Rotate(static_cast<int>(threadIdx.x), turned, 5);
  rotated[threadIdx.x] = turned;
}

template <int size>
__global__ void warps(const float* in, float* sums, float* scans, int* ok) {
  using Reduce = cub::WarpReduce<float, size>;
  using Scan = cub::WarpScan<float, size>;
  __shared__ typename Reduce::TempStorage reduce[threads / size];
  __shared__ typename Scan::TempStorage scan[threads / size];
  const int warp = threadIdx.x / size, lane = threadIdx.x % size;
  const float mine = in[threadIdx.x];
  const float sum = Reduce(reduce[warp]).Sum(mine);
  if (lane == 0) sums[warp] = sum;
  float before, aggregate;
  Scan(scan[warp]).ExclusiveSum(mine, before, aggregate);
  scans[threadIdx.x] = before;
  float upto;
  __syncwarp();
  Scan(scan[warp]).InclusiveScan(mine, upto, Plus());
  __syncwarp();
  const float segment = Reduce(reduce[warp]).HeadSegmentedSum(1.0f, lane % 4 == 0);
  ok[threadIdx.x] = upto == before + mine && (lane % 4 != 0 || segment == (size < 4 ? size : 4));
}

void test_reduce_and_scan() {
  int* in = make<int>(count);
  int* out = make<int>(count);
  for (int i = 0; i < count; ++i) in[i] = (i * 7) % 23;
  const int sum = std::accumulate(in, in + count, 0);
  int largest = 0, some = 0;
  for (int i = 0; i < threads; ++i)
    largest = std::max(largest, in[i * items]), some += i < 40 ? in[i * items] : 0;
  for (int algorithm = 0; algorithm < 3; ++algorithm) {
    if (algorithm == 0) reduce<cub::BLOCK_REDUCE_RAKING><<<1, threads>>>(in, out);
    if (algorithm == 1) reduce<cub::BLOCK_REDUCE_WARP_REDUCTIONS><<<1, threads>>>(in, out);
    if (algorithm == 2) reduce<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY><<<1, threads>>>(in, out);
    FINISH();
    EXPECT(out[0] == sum && out[1] == largest && out[2] == some);
  }
  int *inclusive = make<int>(count), *exclusive = make<int>(count), *running = make<int>(count);
  int *best = make<int>(threads), *total = make<int>(2);
  scan<<<1, threads>>>(in, inclusive, exclusive, running, best, total);
  FINISH();
  int before = 0, greatest = -5;
  for (int i = 0; i < count; before += in[i], ++i) {
    EXPECT(exclusive[i] == before && inclusive[i] == before + in[i]);
    EXPECT(i >= 2 * threads || running[i] == before);
  }
  for (int i = 0; i < threads; ++i) {
    EXPECT(best[i] == greatest);
    greatest = std::max(greatest, in[i * items]);
  }
  EXPECT(total[0] == greatest);
  for (int* p : {in, out, inclusive, exclusive, running, best, total}) cudaFree(p);
}

void test_moves() {
  int *in = make<int>(count), *out = make<int>(count);
  std::iota(in, in + count, 10);
  for (int way = 0; way < 3; ++way) {
    const int valid = way == 0 ? count : 200;
    cudaMemset(out, 0, count * sizeof(int));
    if (way == 0)
      move<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_TRANSPOSE><<<1, threads>>>(in, out, valid);
    if (way == 1)
      move<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>
          <<<1, threads>>>(in, out, valid);
    if (way == 2)
      move<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED><<<1, threads>>>(in, out, valid);
    FINISH();
    for (int i = 0; i < count; ++i) EXPECT(out[i] == (i < valid ? in[i] + 1 : 0));
  }
  exchange<<<1, threads>>>(out);
  FINISH();
  for (int i = 0; i < threads; ++i) EXPECT(out[i] == 1);
  cudaFree(in), cudaFree(out);
}

void test_sorts() {
  float *in = make<float>(count), *keys = make<float>(count);
  int *values = make<int>(count), *merged = make<int>(count);
  unsigned* by_bits = make<unsigned>(threads);
  for (int i = 0; i < count; ++i) in[i] = static_cast<float>((i * 53) % 101 - 50);
  sort<<<1, threads>>>(in, keys, values, by_bits, merged);
  FINISH();
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return in[a] > in[b]; });
  for (int i = 0; i < count; ++i)
    EXPECT(values[i] == order[i] && keys[i] == in[order[i]] && merged[i] == i);
  for (unsigned i = 0; i < threads; ++i) EXPECT(by_bits[i] == i);
  cudaFree(in), cudaFree(keys), cudaFree(values), cudaFree(merged), cudaFree(by_bits);
}

void test_flags() {
  int *in = make<int>(count), *heads = make<int>(count), *tails = make<int>(count);
  int *differences = make<int>(count), *rotated = make<int>(threads);
  unsigned* histogram = make<unsigned>(16);
  for (int i = 0; i < count; ++i) in[i] = i / 5 * 3;
  flags<<<1, threads>>>(in, heads, tails, differences, histogram, rotated);
  FINISH();
  unsigned bins[16] = {};
  for (int i = 0; i < count; ++i) {
    ++bins[in[i] & 15];
    EXPECT(heads[i] == (i == 0 || in[i] != in[i - 1]));
    EXPECT(tails[i] == (i == count - 1 || in[i] != in[i + 1]));
    EXPECT(differences[i] == (i == 0 ? in[0] : in[i] - in[i - 1]));
  }
  for (int i = 0; i < 16; ++i) EXPECT(histogram[i] == bins[i]);
  for (int i = 0; i < threads; ++i) EXPECT(rotated[i] == (i + 5) % threads);
  for (int* p : {in, heads, tails, differences, rotated}) cudaFree(p);
  cudaFree(histogram);
}

__global__ void search(const int* sorted, int n, int* lower, int* upper, int2* path) {
  const int i = threadIdx.x;
  lower[i] = cub::LowerBound(sorted, n, i);
  upper[i] = cub::UpperBound(sorted, n, i);
  cub::MergePathSearch(i, sorted, sorted + 30, 30, n - 30, path[i]);
}

void test_searches() {
  const int n = 100;
  int *sorted = make<int>(n), *lower = make<int>(threads), *upper = make<int>(threads);
  int2* path = make<int2>(threads);
  for (int i = 0; i < n; ++i) sorted[i] = i / 3 * 3;
  search<<<1, n>>>(sorted, n, lower, upper, path);
  FINISH();
  for (int i = 0; i < n; ++i) {
    EXPECT(lower[i] == std::lower_bound(sorted, sorted + n, i) - sorted);
    EXPECT(upper[i] == std::upper_bound(sorted, sorted + n, i) - sorted);
    EXPECT(path[i].x == std::min(i, 30));
    EXPECT(path[i].y == std::max(i - 30, 0));
  }
  for (int* p : {sorted, lower, upper}) cudaFree(p);
  cudaFree(path);
}

template <int size>
void test_warps() {
  float *in = make<float>(threads), *sums = make<float>(threads), *scans = make<float>(threads);
  int* ok = make<int>(threads);
  for (int i = 0; i < threads; ++i) in[i] = static_cast<float>(i % 11);
  warps<size><<<1, threads>>>(in, sums, scans, ok);
  FINISH();
  for (int warp = 0; warp < threads / size; ++warp) {
    EXPECT(sums[warp] == std::accumulate(in + warp * size, in + (warp + 1) * size, 0.0f));
    for (int lane = 0; lane < size; ++lane) {
      EXPECT(scans[warp * size + lane] ==
             std::accumulate(in + warp * size, in + warp * size + lane, 0.0f));
      EXPECT(ok[warp * size + lane] == 1);
    }
  }
  cudaFree(in), cudaFree(sums), cudaFree(scans), cudaFree(ok);
}

int main() {
  test_reduce_and_scan();
  test_moves();
  test_sorts();
  test_flags();
  test_searches();
  test_warps<32>();
  test_warps<16>();
  test_warps<8>();
  std::puts("ok");
  return 0;
}
