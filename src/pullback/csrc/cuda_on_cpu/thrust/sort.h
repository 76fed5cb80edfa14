/// Sorts. All are stable, and sort copies, so that iterators over tuples can be sorted too.
#pragma once

#include "algorithms.h"

namespace thrust {

template <class It, class Less = std::less<>>
void stable_sort(It first, It last, Less less = {}) {
  if constexpr (std::is_pointer_v<It>) {
    std::stable_sort(first, last, less);
  } else {
    std::vector<iterator_value_t<It>> items;
    for (It at = first; at != last; ++at) items.push_back(*at);
    std::stable_sort(items.begin(), items.end(), less);
    for (const auto& item : items) *first = item, ++first;
  }
}
template <class Keys, class Values, class Less = std::less<>>
void stable_sort_by_key(Keys first, Keys last, Values values, Less less = {}) {
  std::vector<std::pair<iterator_value_t<Keys>, iterator_value_t<Values>>> items;
  for (ptrdiff_t i = 0; i < last - first; ++i) items.emplace_back(first[i], values[i]);
  std::stable_sort(items.begin(), items.end(),
                   [&](const auto& a, const auto& b) { return less(a.first, b.first); });
  for (size_t i = 0; i < items.size(); ++i) {
    const auto at = static_cast<ptrdiff_t>(i);
    first[at] = items[i].first;
    values[at] = items[i].second;
  }
}
template <class It, class Less = std::less<>,
          class = typename std::iterator_traits<It>::iterator_category>
void sort(It first, It last, Less less = {}) {
  thrust::stable_sort(first, last, less);
}
template <class Keys, class Values, class Less = std::less<>,
          class = typename std::iterator_traits<Keys>::iterator_category>
void sort_by_key(Keys first, Keys last, Values values, Less less = {}) {
  thrust::stable_sort_by_key(first, last, values, less);
}
CUDA_ON_CPU_POLICY(stable_sort)
CUDA_ON_CPU_POLICY(stable_sort_by_key)
CUDA_ON_CPU_POLICY(sort)
CUDA_ON_CPU_POLICY(sort_by_key)

}  // namespace thrust
