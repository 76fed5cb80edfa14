/// thrust: vectors, algorithms with and without a policy, iterators, complex numbers.
#include "check.cuh"

#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/complex.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>

#include <cmath>
#include <numeric>
#include <vector>

struct Odd {
  __host__ __device__ bool operator()(int a) const { return a % 2 != 0; }
};
struct Square {
  __host__ __device__ int operator()(int a) const { return a * a; }
};
struct Axpy {
  float a;
  __host__ __device__ float operator()(float x, float y) const { return a * x + y; }
};
struct SumOfPair {
  template <class Tuple>
  __host__ __device__ int operator()(const Tuple& t) const {
    return thrust::get<0>(t) + thrust::get<1>(t);
  }
};
struct ByFirst {
  template <class A, class B>
  __host__ __device__ bool operator()(const A& a, const B& b) const {
    return thrust::get<0>(a) < thrust::get<0>(b);
  }
};

__global__ void twice(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}

void test_vectors() {
  thrust::host_vector<float> host(10, 1.5f);
  host[3] = 4.0f;
  thrust::device_vector<float> device = host;
  twice<<<1, 32>>>(thrust::raw_pointer_cast(device.data()), 10);
  FINISH();
  host = device;
  EXPECT(host[0] == 3.0f && host[3] == 8.0f && device.size() == 10);
  EXPECT(thrust::raw_pointer_cast(&device[1]) == thrust::raw_pointer_cast(device.data()) + 1);
  device.resize(12), device.push_back(7.0f);
  EXPECT(device.size() == 13 && device[11] == 0.0f && device.back() == 7.0f);
  std::vector<int> plain(5, 2);
  thrust::device_vector<int> from_plain(plain.begin(), plain.end());
  thrust::device_vector<bool> flags(3, true);
  EXPECT(thrust::reduce(from_plain.begin(), from_plain.end()) == 10 && flags[2]);
}

void test_sorts() {
  const int n = 500;
  thrust::device_vector<int> keys(n), values(n);
  for (int i = 0; i < n; ++i) keys[i] = (i * 37) % 101;
  thrust::sequence(values.begin(), values.end());
  thrust::device_vector<int> original = keys, copy = keys;
  thrust::stable_sort_by_key(keys.begin(), keys.end(), values.begin());
  for (int i = 0; i < n; ++i) {
    EXPECT(keys[i] == original[values[i]]);
    EXPECT(i == 0 || keys[i - 1] < keys[i] ||
           (keys[i - 1] == keys[i] && values[i - 1] < values[i]));
  }
  thrust::sort(thrust::device, copy.begin(), copy.end(), thrust::greater<int>());
  EXPECT(copy[0] == 100 && thrust::is_sorted(copy.begin(), copy.end(), thrust::greater<int>()));
  int* raw = make<int>(n);
  for (int i = 0; i < n; ++i) raw[i] = (i * 53) % 97;
  thrust::sort(thrust::cuda::par.on(nullptr), raw, raw + n);
  EXPECT(cudaDeviceSynchronize() == cudaSuccess && raw[0] == 0 && raw[n - 1] == 96);
  thrust::device_ptr<int> begin(raw);
  const auto end = thrust::unique(begin, begin + n);
  EXPECT(end - begin == 97 && *(begin + 5) == 5);
  const auto first = thrust::make_zip_iterator(thrust::make_tuple(keys.begin(), values.begin()));
  thrust::sort(first, first + n, ByFirst());
  EXPECT(keys[0] == 0 && keys[n - 1] == 100);
  cudaFree(raw);
}

void test_reductions_and_scans() {
  thrust::device_vector<int> x(100), out(100), keys(100);
  thrust::sequence(x.begin(), x.end(), 1);
  EXPECT(thrust::reduce(x.begin(), x.end()) == 5050);
  EXPECT(thrust::reduce(thrust::device, x.begin(), x.end(), -1, thrust::maximum<int>()) == 100);
  EXPECT(thrust::transform_reduce(x.begin(), x.end(), Square(), 0, thrust::plus<int>()) == 338350);
  EXPECT(thrust::inner_product(x.begin(), x.end(), x.begin(), 0) == 338350);
  EXPECT(thrust::count_if(x.begin(), x.end(), Odd()) == 50 &&
         thrust::count(x.begin(), x.end(), 7) == 1);
  EXPECT(thrust::max_element(x.begin(), x.end()) - x.begin() == 99 &&
         *thrust::min_element(x.begin(), x.end()) == 1);
  thrust::inclusive_scan(x.begin(), x.end(), out.begin());
  EXPECT(out[0] == 1 && out[99] == 5050);
  thrust::exclusive_scan(thrust::device, x.begin(), x.end(), out.begin());
  EXPECT(out[0] == 0 && out[99] == 4950);
  thrust::exclusive_scan(x.begin(), x.end(), x.begin(), 10);  // in place
  EXPECT(x[0] == 10 && x[1] == 11 && x[99] == 4960);
  for (int i = 0; i < 100; ++i) keys[i] = i / 10;
  thrust::fill(x.begin(), x.end(), 2);
  thrust::inclusive_scan_by_key(keys.begin(), keys.end(), x.begin(), out.begin());
  EXPECT(out[9] == 20 && out[10] == 2);
  thrust::exclusive_scan_by_key(keys.begin(), keys.end(), x.begin(), out.begin());
  EXPECT(out[9] == 18 && out[10] == 0);
  const auto ends = thrust::reduce_by_key(keys.begin(), keys.end(), x.begin(),
                                          thrust::make_discard_iterator(), out.begin());
  EXPECT(ends.second - out.begin() == 10 && out[3] == 20);
  thrust::adjacent_difference(keys.begin(), keys.end(), out.begin());
  EXPECT(out[10] == 1 && out[11] == 0);
}

void test_selections() {
  thrust::device_vector<int> x(20), out(20), map(20), flags(20);
  thrust::sequence(x.begin(), x.end());
  const auto end = thrust::copy_if(x.begin(), x.end(), out.begin(), Odd());
  EXPECT(end - out.begin() == 10 && out[9] == 19);
  thrust::transform(x.begin(), x.end(), flags.begin(), Odd());
  EXPECT(thrust::copy_if(x.begin(), x.end(), flags.begin(), out.begin(), Odd()) - out.begin() ==
         10);
  for (int i = 0; i < 20; ++i) map[i] = 19 - i;
  thrust::gather(map.begin(), map.end(), x.begin(), out.begin());
  EXPECT(out[0] == 19 && out[19] == 0);
  thrust::scatter(x.begin(), x.end(), map.begin(), out.begin());
  EXPECT(out[0] == 19 && out[5] == 14);
  thrust::device_vector<int> rest = x;
  rest.erase(thrust::remove_if(rest.begin(), rest.end(), Odd()), rest.end());
  EXPECT(rest.size() == 10 && rest[3] == 6);
  thrust::device_vector<int> bounds(3), wanted(3);
  wanted[0] = 0, wanted[1] = 7, wanted[2] = 100;
  thrust::lower_bound(x.begin(), x.end(), wanted.begin(), wanted.end(), bounds.begin());
  EXPECT(bounds[0] == 0 && bounds[1] == 7 && bounds[2] == 20);
  EXPECT(thrust::upper_bound(x.begin(), x.end(), 7) - x.begin() == 8);
  thrust::device_vector<int> runs(6), values(6);
  for (int i = 0; i < 6; ++i) runs[i] = i / 2, values[i] = i;
  const auto ends = thrust::unique_by_key(runs.begin(), runs.end(), values.begin());
  EXPECT(ends.first - runs.begin() == 3 && values[2] == 4);
}

void test_iterators() {
  thrust::counting_iterator<int> numbers(1);
  EXPECT(thrust::reduce(numbers, numbers + 10) == 55);
  const auto squares = thrust::make_transform_iterator(numbers, Square());
  EXPECT(thrust::reduce(squares, squares + 10) == 385 && squares[3] == 16);
  EXPECT(thrust::reduce(thrust::make_constant_iterator(3), thrust::make_constant_iterator(3) + 5) ==
         15);
  thrust::device_vector<int> x(10), order(3), out(10);
  thrust::sequence(x.begin(), x.end(), 10);
  order[0] = 9, order[1] = 0, order[2] = 4;
  const auto picked = thrust::make_permutation_iterator(x.begin(), order.begin());
  EXPECT(thrust::reduce(picked, picked + 3) == 19 + 10 + 14);
  const auto both = thrust::make_zip_iterator(thrust::make_tuple(x.begin(), numbers));
  thrust::transform(both, both + 10, out.begin(), SumOfPair());
  EXPECT(out[0] == 11 && out[9] == 29);
  thrust::device_vector<float> a(4, 2.0f), b(4, 1.0f);
  thrust::transform(thrust::device, a.begin(), a.end(), b.begin(), b.begin(), Axpy{3.0f});
  EXPECT(b[0] == 7.0f && b[3] == 7.0f);
}

void test_complex() {
  const thrust::complex<float> i(0.0f, 1.0f), z = i * i + 2.0f;
  EXPECT(z.real() == 1.0f && z.imag() == 0.0f &&
         thrust::abs(thrust::complex<double>(3.0, 4.0)) == 5.0);
  EXPECT(std::fabs(thrust::exp(i * 3.14159265f).real() + 1.0f) < 1e-6f &&
         thrust::conj(i).imag() == -1.0f);
}

int main() {
  test_vectors();
  test_sorts();
  test_reductions_and_scans();
  test_selections();
  test_iterators();
  test_complex();
  std::puts("ok");
  return 0;
}
