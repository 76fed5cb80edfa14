/// cub's functions for a whole array, called twice as they ask for it.
#include "check.cuh"

#include <cub/cub.cuh>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

constexpr int count = 1000;

struct Largest {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const { return a > b ? a : b; }
};
struct Odd {
  __host__ __device__ bool operator()(int a) const { return a % 2 != 0; }
};
struct Less {
  __host__ __device__ bool operator()(int a, int b) const { return a < b; }
};

/// Calls f(storage, bytes) for the size, and again with that much memory.
template <class F>
void twice(F f) {
  void* storage = nullptr;
  size_t bytes = 0;
  EXPECT(f(storage, bytes) == cudaSuccess && bytes > 0);
  EXPECT(cudaMalloc(&storage, bytes) == cudaSuccess);
  EXPECT(f(storage, bytes) == cudaSuccess);
  FINISH();
  cudaFree(storage);
}
#define TWICE(...) twice([&](void* storage, size_t& bytes) { return __VA_ARGS__; })

struct Data {
  int *in = make<int>(count), *out = make<int>(count), *more = make<int>(count),
      *few = make<int>(16);
  Data() {
    for (int i = 0; i < count; ++i) in[i] = (i * 37) % 101;
  }
  ~Data() {
    for (int* p : {in, out, more, few}) cudaFree(p);
  }
};

void test_reduce() {
  Data d;
  const int sum = std::accumulate(d.in, d.in + count, 0);
  TWICE(cub::DeviceReduce::Sum(storage, bytes, d.in, d.few, count));
  TWICE(cub::DeviceReduce::Max(storage, bytes, d.in, d.few + 1, count));
  TWICE(cub::DeviceReduce::Min(storage, bytes, d.in, d.few + 2, count));
  TWICE(cub::DeviceReduce::Reduce(storage, bytes, d.in, d.few + 3, count, Largest(), 1000));
  EXPECT(d.few[0] == sum && d.few[1] == 100 && d.few[2] == 0 && d.few[3] == 1000);
  auto* best = make<cub::KeyValuePair<int, int>>(2);
  TWICE(cub::DeviceReduce::ArgMax(storage, bytes, d.in, best, count));
  TWICE(cub::DeviceReduce::ArgMin(storage, bytes, d.in, best + 1, count));
  EXPECT(best[0].value == 100 && best[0].key == std::max_element(d.in, d.in + count) - d.in);
  EXPECT(best[1].value == 0 && best[1].key == 0);
  float* ones = make<float>(2000000);
  for (int i = 0; i < 2000000; ++i) ones[i] = 0.1f;
  float* total = make<float>(1);
  TWICE(cub::DeviceReduce::Sum(storage, bytes, ones, total, 2000000));
  EXPECT(std::fabs(*total - 200000.0f) < 1.0f);  // one after the other, floats would be far off
  int* offsets = make<int>(4);
  offsets[0] = 0, offsets[1] = 10, offsets[2] = 10, offsets[3] = count;
  TWICE(cub::DeviceSegmentedReduce::Sum(storage, bytes, d.in, d.few, 3, offsets, offsets + 1));
  EXPECT(d.few[0] == std::accumulate(d.in, d.in + 10, 0) && d.few[1] == 0 &&
         d.few[0] + d.few[2] == sum);
  for (int i = 0; i < count; ++i) d.out[i] = i / 7;  // keys
  int* largest = make<int>(count);
  TWICE(cub::DeviceReduce::ReduceByKey(storage, bytes, d.out, d.more, d.in, largest, d.few,
                                       Largest(), count));
  EXPECT(d.few[0] == (count + 6) / 7 && d.more[3] == 3 &&
         largest[1] == *std::max_element(d.in + 7, d.in + 14));
  cudaFree(largest);
  cudaFree(best), cudaFree(ones), cudaFree(total), cudaFree(offsets);
}

void test_scan() {
  Data d;
  TWICE(cub::DeviceScan::InclusiveSum(storage, bytes, d.in, d.out, count));
  TWICE(cub::DeviceScan::ExclusiveSum(storage, bytes, d.in, d.more, count));
  for (int i = 0, sum = 0; i < count; ++i) {
    EXPECT(d.more[i] == sum);
    EXPECT(d.out[i] == (sum += d.in[i]));
  }
  TWICE(cub::DeviceScan::ExclusiveScan(storage, bytes, d.in, d.out, Largest(), 50, count));
  TWICE(cub::DeviceScan::InclusiveScan(storage, bytes, d.in, d.more, Largest(), count));
  for (int i = 0, largest = 0; i < count; ++i) {
    EXPECT(d.out[i] == std::max(largest, 50));
    EXPECT(d.more[i] == (largest = std::max(largest, d.in[i])));
  }
  for (int i = 0; i < count; ++i) d.more[i] = i / 10;
  TWICE(cub::DeviceScan::ExclusiveSumByKey(storage, bytes, d.more, d.in, d.out, count));
  EXPECT(d.out[10] == 0 && d.out[12] == d.in[10] + d.in[11]);
}

void test_sort() {
  Data d;
  std::vector<int> order(count);
  for (int i = 0; i < count; ++i) d.more[i] = i;
  int* values = make<int>(count);
  TWICE(cub::DeviceRadixSort::SortPairs(storage, bytes, d.in, d.out, d.more, values, count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return d.in[a] < d.in[b]; });
  for (int i = 0; i < count; ++i) EXPECT(values[i] == order[i] && d.out[i] == d.in[order[i]]);
  TWICE(cub::DeviceRadixSort::SortKeysDescending(storage, bytes, d.in, d.out, count));
  EXPECT(std::is_sorted(d.out, d.out + count, [](int a, int b) { return a > b; }));
  float *keys = make<float>(6), *sorted = make<float>(6);
  const float mixed[] = {3.5f, -2.0f, 0.0f, -1e30f, INFINITY, 1e-40f};
  std::copy(mixed, mixed + 6, keys);
  cub::DoubleBuffer<float> buffers(keys, sorted);
  TWICE(cub::DeviceRadixSort::SortKeys(storage, bytes, buffers, 6));
  EXPECT(std::is_sorted(buffers.Current(), buffers.Current() + 6) &&
         buffers.Current()[0] == -1e30f);
  for (int i = 0; i < count; ++i) d.in[i] = (i * 37 % 16) * 16 + i % 16;
  TWICE(cub::DeviceRadixSort::SortKeys(storage, bytes, d.in, d.out, count, 4, 8));  // by four bits
  for (int i = 1; i < count; ++i) EXPECT(d.out[i - 1] >> 4 <= d.out[i] >> 4);
  int* offsets = make<int>(3);
  offsets[0] = 0, offsets[1] = 400, offsets[2] = count;
  TWICE(cub::DeviceSegmentedRadixSort::SortKeys(storage, bytes, d.in, d.out, count, 2, offsets,
                                                offsets + 1));
  EXPECT(std::is_sorted(d.out, d.out + 400) && std::is_sorted(d.out + 400, d.out + count));
  TWICE(cub::DeviceMergeSort::SortKeys(storage, bytes, d.in, count, Less()));
  EXPECT(std::is_sorted(d.in, d.in + count));
  cudaFree(values), cudaFree(keys), cudaFree(sorted), cudaFree(offsets);
}

void test_select() {
  Data d;
  TWICE(cub::DeviceSelect::If(storage, bytes, d.in, d.out, d.few, count, Odd()));
  std::vector<int> want;
  std::copy_if(d.in, d.in + count, std::back_inserter(want), Odd());
  EXPECT(d.few[0] == static_cast<int>(want.size()) && std::equal(want.begin(), want.end(), d.out));
  char* flags = make<char>(count);
  for (int i = 0; i < count; ++i) flags[i] = Odd()(d.in[i]);
  TWICE(cub::DeviceSelect::Flagged(storage, bytes, d.in, flags, d.more, d.few + 1, count));
  EXPECT(d.few[1] == d.few[0] && std::equal(want.begin(), want.end(), d.more));
  TWICE(cub::DevicePartition::If(storage, bytes, d.in, d.out, d.few, count, Odd()));
  EXPECT(std::equal(want.begin(), want.end(), d.out) && d.out[count - 1] == 0 &&
         d.out[count - 2] == 74);
  for (int i = 0; i < count; ++i) d.in[i] = i / 9;
  TWICE(cub::DeviceSelect::Unique(storage, bytes, d.in, d.out, d.few, count));
  EXPECT(d.few[0] == 112 && d.out[111] == 111);
  TWICE(cub::DeviceRunLengthEncode::Encode(storage, bytes, d.in, d.out, d.more, d.few, count));
  EXPECT(d.few[0] == 112 && d.more[0] == 9 && d.more[111] == 1 && d.out[5] == 5);
  cudaFree(flags);
}

void test_histogram() {
  Data d;
  d.few[10] = 77;
  TWICE(cub::DeviceHistogram::HistogramEven(storage, bytes, d.in, d.few, 11, 0, 100, count));
  int bins[10] = {};
  for (int i = 0; i < count; ++i) d.in[i] < 100 ? void(++bins[d.in[i] / 10]) : void();
  for (int i = 0; i < 10; ++i) EXPECT(d.few[i] == bins[i]);
  EXPECT(d.few[10] == 77);  // the upper end, 100, is in no bin
  int* levels = make<int>(4);
  levels[0] = 5, levels[1] = 20, levels[2] = 50, levels[3] = 90;
  TWICE(cub::DeviceHistogram::HistogramRange(storage, bytes, d.in, d.few, 4, levels, count));
  EXPECT(d.few[0] == std::count_if(d.in, d.in + count, [](int v) { return v >= 5 && v < 20; }));
  EXPECT(d.few[2] == std::count_if(d.in, d.in + count, [](int v) { return v >= 50 && v < 90; }));
  cudaFree(levels);
}

#if defined(CUDA_ON_CPU)  // newer versions of cub leave these to thrust and to cuda::std
struct Square {
  int operator()(int a) const { return a * a; }
};
void test_iterators() {
  Data d;
  cub::CountingInputIterator<int> numbers(1);
  cub::TransformInputIterator<int, Square, cub::CountingInputIterator<int>> squares(numbers,
                                                                                    Square());
  TWICE(cub::DeviceReduce::Sum(storage, bytes, squares, d.few, 10));
  EXPECT(d.few[0] == 385 && *(numbers + 4) == 5 && squares[2] == 9);
  cub::ConstantInputIterator<int> seven(7);
  TWICE(cub::DeviceReduce::Reduce(storage, bytes, seven, d.few, 10, cub::Sum(), 1));
  EXPECT(d.few[0] == 71 && cub::Max()(3, 4) == 4);
  cub::ArgIndexInputIterator<int*> indexed(d.in);
  EXPECT((*(indexed + 3)).key == 3 && (*(indexed + 3)).value == d.in[3]);
}
#else
void test_iterators() {}
#endif

int main() {
  test_reduce();
  test_scan();
  test_sort();
  test_select();
  test_histogram();
  test_iterators();
  std::puts("ok");
  return 0;
}
