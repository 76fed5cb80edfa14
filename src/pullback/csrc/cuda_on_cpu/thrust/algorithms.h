/// thrust's algorithms on one range and on several: those of the C++ library, in the call.
#pragma once

#include <algorithm>
#include <numeric>

#include "iterators.h"

namespace thrust {

// Names and parameters are the C++ library's.
#define CUDA_ON_CPU_FROM_STD(name)                                                                 \
  template <class It, class... A,                                                                  \
            class = std::enable_if_t<!std::is_base_of_v<execution_policy_base, std::decay_t<It>>>> \
  auto name(It first, A... arguments) {                                                            \
    return std::name(first, arguments...);                                                         \
  }                                                                                                \
  CUDA_ON_CPU_POLICY(name)
CUDA_ON_CPU_FROM_STD(fill)
CUDA_ON_CPU_FROM_STD(fill_n)
CUDA_ON_CPU_FROM_STD(generate)
CUDA_ON_CPU_FROM_STD(copy)
CUDA_ON_CPU_FROM_STD(copy_n)
CUDA_ON_CPU_FROM_STD(swap_ranges)
CUDA_ON_CPU_FROM_STD(reverse)
CUDA_ON_CPU_FROM_STD(reverse_copy)
CUDA_ON_CPU_FROM_STD(count)
CUDA_ON_CPU_FROM_STD(count_if)
CUDA_ON_CPU_FROM_STD(find)
CUDA_ON_CPU_FROM_STD(find_if)
CUDA_ON_CPU_FROM_STD(find_if_not)
CUDA_ON_CPU_FROM_STD(all_of)
CUDA_ON_CPU_FROM_STD(any_of)
CUDA_ON_CPU_FROM_STD(none_of)
CUDA_ON_CPU_FROM_STD(equal)
CUDA_ON_CPU_FROM_STD(mismatch)
CUDA_ON_CPU_FROM_STD(min_element)
CUDA_ON_CPU_FROM_STD(max_element)
CUDA_ON_CPU_FROM_STD(minmax_element)
CUDA_ON_CPU_FROM_STD(is_sorted)
CUDA_ON_CPU_FROM_STD(is_sorted_until)
CUDA_ON_CPU_FROM_STD(equal_range)
CUDA_ON_CPU_FROM_STD(merge)
CUDA_ON_CPU_FROM_STD(set_union)
CUDA_ON_CPU_FROM_STD(set_intersection)
CUDA_ON_CPU_FROM_STD(set_difference)
CUDA_ON_CPU_FROM_STD(replace)
CUDA_ON_CPU_FROM_STD(replace_if)
CUDA_ON_CPU_FROM_STD(unique_copy)
CUDA_ON_CPU_FROM_STD(adjacent_difference)
CUDA_ON_CPU_FROM_STD(partition_copy)
#undef CUDA_ON_CPU_FROM_STD

template <class It, class F>
It for_each(It first, It last, F f) {
  for (; first != last; ++first) f(*first);
  return last;
}
template <class It, class N, class F>
It for_each_n(It first, N count, F f) {
  for (N i = 0; i < count; ++i, ++first) f(*first);
  return first;
}
template <class It, class F>
void tabulate(It first, It last, F f) {
  for (ptrdiff_t i = 0; first != last; ++first, ++i) *first = f(i);
}
template <class It, class T = iterator_value_t<It>>
void sequence(It first, It last, T value = T(0), T step = T(1)) {
  for (; first != last; ++first, value = static_cast<T>(value + step)) *first = value;
}

template <class In, class Out, class F>
Out transform(In first, In last, Out out, F f) {
  for (; first != last; ++first, ++out) *out = f(*first);
  return out;
}
template <class A, class B, class Out, class F>
Out transform(A first, A last, B second, Out out, F f) {
  for (; first != last; ++first, ++second, ++out) *out = f(*first, *second);
  return out;
}
template <class In, class Out, class F, class P>
Out transform_if(In first, In last, Out out, F f, P predicate) {
  for (; first != last; ++first, ++out) {
    if (predicate(*first)) *out = f(*first);
  }
  return out;
}
template <class In, class Stencil, class Out, class F, class P>
Out transform_if(In first, In last, Stencil stencil, Out out, F f, P predicate) {
  for (; first != last; ++first, ++stencil, ++out) {
    if (predicate(*stencil)) *out = f(*first);
  }
  return out;
}

template <class Map, class In, class Out>
Out gather(Map first, Map last, In in, Out out) {
  for (; first != last; ++first, ++out) *out = in[*first];
  return out;
}
template <class In, class Map, class Out>
void scatter(In first, In last, Map map, Out out) {
  for (; first != last; ++first, ++map) out[*map] = *first;
}
template <class In, class Map, class Stencil, class Out>
void scatter_if(In first, In last, Map map, Stencil stencil, Out out) {
  for (; first != last; ++first, ++map, ++stencil) {
    if (*stencil) out[*map] = *first;
  }
}

// Keeps some items, and returns their end. The flags of a stencil decide, or a predicate of these.
template <class In, class Out, class P>
Out copy_if(In first, In last, Out out, P predicate) {
  for (; first != last; ++first) {
    if (predicate(*first)) *out = *first, ++out;
  }
  return out;
}
template <class In, class Stencil, class Out, class P>
Out copy_if(In first, In last, Stencil stencil, Out out, P predicate) {
  for (; first != last; ++first, ++stencil) {
    if (predicate(*stencil)) *out = *first, ++out;
  }
  return out;
}
template <class It, class P>
It remove_if(It first, It last, P predicate) {
  return thrust::copy_if(first, last, first, [&](const auto& x) { return !predicate(x); });
}
template <class It, class Stencil, class P>
It remove_if(It first, It last, Stencil stencil, P predicate) {
  return thrust::copy_if(first, last, stencil, first, [&](const auto& x) { return !predicate(x); });
}
template <class It, class T>
It remove(It first, It last, const T& value) {
  return thrust::remove_if(first, last, [&](const auto& x) { return x == value; });
}
template <class In, class Out, class P>
Out remove_copy_if(In first, In last, Out out, P predicate) {
  return thrust::copy_if(first, last, out, [&](const auto& x) { return !predicate(x); });
}
template <class It, class Same = std::equal_to<>>
It unique(It first, It last, Same same = {}) {
  if (first == last) return last;
  It kept = first;
  iterator_value_t<It> before = *first;
  for (++first; first != last; ++first) {
    const iterator_value_t<It> item = *first;
    if (!same(before, item)) *++kept = item;
    before = item;
  }
  return ++kept;
}
template <class Keys, class Values, class Same = std::equal_to<>>
std::pair<Keys, Values> unique_by_key(Keys first, Keys last, Values values, Same same = {}) {
  if (first == last) return {first, values};
  Keys kept = first;
  Values kept_value = values;
  for (++first, ++values; first != last; ++first, ++values) {
    if (same(*kept, *first)) continue;
    *++kept = *first;
    *++kept_value = *values;
  }
  return {++kept, ++kept_value};
}
template <class It, class P>
It stable_partition(It first, It last, P predicate) {
  std::vector<iterator_value_t<It>> others;
  It kept = first;
  for (; first != last; ++first) {
    const iterator_value_t<It> item = *first;
    if (predicate(item)) *kept = item, ++kept;
    else others.push_back(item);
  }
  std::copy(others.begin(), others.end(), kept);
  return kept;
}
template <class It, class P>
It partition(It first, It last, P predicate) {
  return thrust::stable_partition(first, last, predicate);
}

// Of one value, or of each in a range, to a third.
#define CUDA_ON_CPU_BOUND(name)                                                          \
  template <class It, class T, class Less = std::less<>,                                 \
            class = decltype(std::declval<Less>()(*std::declval<It>(), std::declval<T>()))> \
  It name(It first, It last, const T& value, Less less = {}) {                           \
    return std::name(first, last, value, less);                                          \
  }                                                                                      \
  template <class It, class In, class Out, class Less = std::less<>,                     \
            class = decltype(*std::declval<In>())>                                       \
  Out name(It first, It last, In values, In values_end, Out out, Less less = {}) {       \
    for (; values != values_end; ++values, ++out) {                                      \
      *out = std::name(first, last, *values, less) - first;                              \
    }                                                                                    \
    return out;                                                                          \
  }                                                                                      \
  CUDA_ON_CPU_POLICY(name)
CUDA_ON_CPU_BOUND(lower_bound)
CUDA_ON_CPU_BOUND(upper_bound)
#undef CUDA_ON_CPU_BOUND
template <class It, class T>
bool binary_search(It first, It last, const T& value) {
  return std::binary_search(first, last, value);
}

CUDA_ON_CPU_POLICY(for_each)
CUDA_ON_CPU_POLICY(for_each_n)
CUDA_ON_CPU_POLICY(tabulate)
CUDA_ON_CPU_POLICY(sequence)
CUDA_ON_CPU_POLICY(transform)
CUDA_ON_CPU_POLICY(transform_if)
CUDA_ON_CPU_POLICY(gather)
CUDA_ON_CPU_POLICY(scatter)
CUDA_ON_CPU_POLICY(scatter_if)
CUDA_ON_CPU_POLICY(copy_if)
CUDA_ON_CPU_POLICY(remove_if)
CUDA_ON_CPU_POLICY(remove)
CUDA_ON_CPU_POLICY(remove_copy_if)
CUDA_ON_CPU_POLICY(unique)
CUDA_ON_CPU_POLICY(unique_by_key)
CUDA_ON_CPU_POLICY(stable_partition)
CUDA_ON_CPU_POLICY(partition)
CUDA_ON_CPU_POLICY(binary_search)

}  // namespace thrust
