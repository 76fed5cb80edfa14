/// Collective computations of a tile or coalesced group: reductions and scans.
#pragma once

#include "lanes.h"

namespace cooperative_groups {

#define CUDA_ON_CPU_OPERATION(name, expression)            \
  template <class T = void>                                \
  struct name {                                            \
    T operator()(const T& a, const T& b) const { return expression; } \
  };                                                       \
  template <>                                              \
  struct name<void> {                                      \
    template <class T>                                     \
    T operator()(const T& a, const T& b) const { return expression; } \
  };
CUDA_ON_CPU_OPERATION(plus, a + b)
CUDA_ON_CPU_OPERATION(less, b < a ? b : a)
CUDA_ON_CPU_OPERATION(greater, a < b ? b : a)
// clang-format off: it takes this for a reference
CUDA_ON_CPU_OPERATION(bit_and, a & b)
// clang-format on
CUDA_ON_CPU_OPERATION(bit_or, a | b)
CUDA_ON_CPU_OPERATION(bit_xor, a ^ b)
#undef CUDA_ON_CPU_OPERATION

/// Every thread of the group gets op over all their values.
template <class Group, class T, class Op>
T reduce(const Group& group, T value, Op op, CUDA_ON_CPU_PLACE) {
  const unsigned size = group.size(), rank = group.thread_rank();
  for (unsigned step = 1; step < size; step *= 2) {
    const T other = group.shfl_down(value, step, CUDA_ON_CPU_PASS);
    if (rank + step < size) value = op(value, other);
  }
  return group.shfl(value, 0, CUDA_ON_CPU_PASS);
}

/// Each thread gets op over the values of those up to it.
template <class Group, class T, class Op = plus<T>>
T inclusive_scan(const Group& group, T value, Op op = {}, CUDA_ON_CPU_PLACE) {
  const unsigned size = group.size(), rank = group.thread_rank();
  for (unsigned step = 1; step < size; step *= 2) {
    const T other = group.shfl_up(value, step, CUDA_ON_CPU_PASS);
    if (rank >= step) value = op(other, value);
  }
  return value;
}
/// The same without its own value; the first gets T{}.
template <class Group, class T, class Op = plus<T>>
T exclusive_scan(const Group& group, T value, Op op = {}, CUDA_ON_CPU_PLACE) {
  const T before =
      group.shfl_up(inclusive_scan(group, value, op, CUDA_ON_CPU_PASS), 1, CUDA_ON_CPU_PASS);
  return group.thread_rank() == 0 ? T{} : before;
}

template <class Group, class F, class... A>
void invoke_one(const Group& group, F&& f, A&&... arguments) {
  if (group.thread_rank() == 0) f(static_cast<A&&>(arguments)...);
}

}  // namespace cooperative_groups
