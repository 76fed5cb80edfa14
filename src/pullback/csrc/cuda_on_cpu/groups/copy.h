/// memcpy_async: the threads of a group copy at once, each its share.
#pragma once

#include <string.h>

#include "block.h"

namespace cuda {
/// A hint: a size that is a multiple of `alignment`.
template <size_t alignment>
struct aligned_size_t {
  size_t value;
  explicit constexpr aligned_size_t(size_t size) : value(size) {}
  constexpr operator size_t() const { return value; }
};
}  // namespace cuda

namespace cooperative_groups {

template <class Group>
void memcpy_async(const Group& group, void* to, const void* from, size_t bytes) {
  constexpr size_t share = 16;
  for (size_t at = group.thread_rank() * share; at < bytes; at += group.size() * share) {
    const size_t left = bytes - at;
    memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at,
           left < share ? left : share);
  }
}
/// Copies the smaller of two numbers of elements.
template <class Group, class To, class From>
void memcpy_async(const Group& group, To* to, size_t to_count, const From* from,
                  size_t from_count) {
  static_assert(sizeof(To) == sizeof(From), "memcpy_async copies elements of one size");
  memcpy_async(group, static_cast<void*>(to), static_cast<const void*>(from),
               sizeof(To) * (to_count < from_count ? to_count : from_count));
}
template <class Group>
void wait(const Group& group, CUDA_ON_CPU_PLACE) {
  group.sync(CUDA_ON_CPU_PASS);
}
template <unsigned stages, class Group>
void wait_prior(const Group& group, CUDA_ON_CPU_PLACE) {
  group.sync(CUDA_ON_CPU_PASS);
}

}  // namespace cooperative_groups
