/// Reductions and scans, whole and by key.
#pragma once

#include "../cub/device/scan.h"
#include "algorithms.h"

namespace thrust {

template <class It, class T, class Op = std::plus<>>
T reduce(It first, It last, T initial, Op op = {}) {
  const auto count = static_cast<size_t>(last - first);
  return count ? static_cast<T>(op(initial, ::cuda_on_cpu::reduce_range<T>(first, 0, count, op)))
               : initial;
}
template <class It>
iterator_value_t<It> reduce(It first, It last) {
  return thrust::reduce(first, last, iterator_value_t<It>{});
}
template <class It, class F, class T, class Op>
T transform_reduce(It first, It last, F f, T initial, Op op) {
  return thrust::reduce(make_transform_iterator(first, f), make_transform_iterator(last, f),
                        initial, op);
}
template <class A, class B, class T, class Sum = std::plus<>, class Product = std::multiplies<>>
T inner_product(A first, A last, B second, T initial, Sum sum = {}, Product product = {}) {
  for (; first != last; ++first, ++second) initial = sum(initial, product(*first, *second));
  return initial;
}
template <class Keys, class Values, class KeysOut, class ValuesOut, class Same = std::equal_to<>,
          class Op = std::plus<>>
std::pair<KeysOut, ValuesOut> reduce_by_key(Keys first, Keys last, Values values, KeysOut keys_out,
                                            ValuesOut values_out, Same same = {}, Op op = {}) {
  while (first != last) {
    const iterator_value_t<Keys> key = *first;
    iterator_value_t<Values> sum = *values;
    for (++first, ++values; first != last && same(key, *first); ++first, ++values)
      sum = op(sum, *values);
    *keys_out = key, ++keys_out;
    *values_out = sum, ++values_out;
  }
  return {keys_out, values_out};
}

template <class In, class Out, class Op = std::plus<>>
Out inclusive_scan(In first, In last, Out out, Op op = {}) {
  const auto count = last - first;
  ::cuda_on_cpu::scan_runs<true, iterator_value_t<In>>(first, out, static_cast<size_t>(count), op,
                                                       nullptr, [](size_t) { return true; });
  return out + count;
}
template <class In, class Out, class T, class Op = std::plus<>>
Out exclusive_scan(In first, In last, Out out, T initial, Op op = {}) {
  const auto count = last - first;
  ::cuda_on_cpu::scan_runs<false, T>(first, out, static_cast<size_t>(count), op, &initial,
                                     [](size_t) { return true; });
  return out + count;
}
template <class In, class Out>
Out exclusive_scan(In first, In last, Out out) {
  return thrust::exclusive_scan(first, last, out, iterator_value_t<In>{});
}
template <class In, class Out, class F, class Op>
Out transform_inclusive_scan(In first, In last, Out out, F f, Op op) {
  return thrust::inclusive_scan(make_transform_iterator(first, f), make_transform_iterator(last, f),
                                out, op);
}
template <class In, class Out, class F, class T, class Op>
Out transform_exclusive_scan(In first, In last, Out out, F f, T initial, Op op) {
  return thrust::exclusive_scan(make_transform_iterator(first, f), make_transform_iterator(last, f),
                                out, initial, op);
}
template <class Keys, class In, class Out, class Same = std::equal_to<>, class Op = std::plus<>>
Out inclusive_scan_by_key(Keys first, Keys last, In in, Out out, Same same = {}, Op op = {}) {
  const auto count = last - first;
  ::cuda_on_cpu::scan_runs<true, iterator_value_t<In>>(
      in, out, static_cast<size_t>(count), op, nullptr, [=](size_t i) {
        return same(first[static_cast<ptrdiff_t>(i) - 1], first[static_cast<ptrdiff_t>(i)]);
      });
  return out + count;
}
template <class Keys, class In, class Out, class T, class Same = std::equal_to<>,
          class Op = std::plus<>>
Out exclusive_scan_by_key(Keys first, Keys last, In in, Out out, T initial, Same same = {},
                          Op op = {}) {
  const auto count = last - first;
  ::cuda_on_cpu::scan_runs<false, T>(
      in, out, static_cast<size_t>(count), op, &initial, [=](size_t i) {
        return same(first[static_cast<ptrdiff_t>(i) - 1], first[static_cast<ptrdiff_t>(i)]);
      });
  return out + count;
}
template <class Keys, class In, class Out>
Out exclusive_scan_by_key(Keys first, Keys last, In in, Out out) {
  return thrust::exclusive_scan_by_key(first, last, in, out, iterator_value_t<In>{});
}
CUDA_ON_CPU_POLICY(reduce)
CUDA_ON_CPU_POLICY(transform_reduce)
CUDA_ON_CPU_POLICY(inner_product)
CUDA_ON_CPU_POLICY(reduce_by_key)
CUDA_ON_CPU_POLICY(inclusive_scan)
CUDA_ON_CPU_POLICY(exclusive_scan)
CUDA_ON_CPU_POLICY(transform_inclusive_scan)
CUDA_ON_CPU_POLICY(transform_exclusive_scan)
CUDA_ON_CPU_POLICY(inclusive_scan_by_key)
CUDA_ON_CPU_POLICY(exclusive_scan_by_key)

}  // namespace thrust
