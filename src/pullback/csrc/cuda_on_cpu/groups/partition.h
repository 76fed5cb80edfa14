/// Groups divided into smaller ones.
#pragma once

#include "lanes.h"

namespace cooperative_groups {

/// Tiles of `N` threads of a block or of a larger tile.
template <unsigned N, class Parent>
thread_block_tile<N, Parent> tiled_partition(const Parent& parent) {
  const unsigned size = parent.size();
  return {parent.thread_rank() / N, (size + N - 1) / N};
}
/// The same with a size known only at run time; at most a warp.
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
  if (size == 0 || size > 32 || (size & (size - 1)) != 0) {
    ::cuda_on_cpu::stop("cuda-unsupported [PB228]",
                        "tiled_partition into groups of %u threads\n"
                        "    help: a size of 1, 2, 4, 8, 16 or 32",
                        size);
  }
  unsigned lanes = parent.mask_ ? parent.mask_ : ~0U;
  const unsigned lane = ::cuda_on_cpu::thread_rank() & 31;
  if (!parent.mask_ || __popc(parent.mask_) == 32) {
    return thread_group(static_cast<unsigned>(((1ULL << size) - 1) << lane / size * size));
  }
  // In a group with gaps each tile takes the next `size` lanes.
  for (unsigned skip = parent.thread_rank() / size * size; skip; --skip) lanes &= lanes - 1;
  unsigned tile = 0;
  for (unsigned i = 0; i < size && lanes; ++i, lanes &= lanes - 1) tile |= lanes & -lanes;
  return thread_group(tile);
}
inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned size) {
  unsigned lanes = parent.lanes();
  const unsigned index = parent.thread_rank() / size;
  for (unsigned skip = index * size; skip; --skip) lanes &= lanes - 1;
  unsigned tile = 0;
  for (unsigned i = 0; i < size && lanes; ++i, lanes &= lanes - 1) tile |= lanes & -lanes;
  return coalesced_group(tile, index, (parent.size() + size - 1) / size);
}
template <unsigned N>
coalesced_group tiled_partition(const coalesced_group& parent) {
  return tiled_partition(parent, N);
}

/// The lanes of a group that have the same label; groups count up with their first lanes.
template <class Group, class Label>
coalesced_group labeled_partition(const Group& group, Label label, CUDA_ON_CPU_PLACE) {
  const unsigned mine = __match_any_sync(group.lanes(), label, CUDA_ON_CPU_PASS);
  const unsigned lane = ::cuda_on_cpu::thread_rank() & 31;
  const int leads = (mine & -mine) >> lane & 1;
  const unsigned leaders = __ballot_sync(group.lanes(), leads, CUDA_ON_CPU_PASS);
  const unsigned before = leaders & ((mine & -mine) - 1);
  return coalesced_group(mine, static_cast<unsigned>(__popc(before)),
                         static_cast<unsigned>(__popc(leaders)));
}
template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate, CUDA_ON_CPU_PLACE) {
  const unsigned yes = __ballot_sync(group.lanes(), predicate, CUDA_ON_CPU_PASS);
  return coalesced_group(predicate ? yes : group.lanes() & ~yes, predicate ? 0 : 1, 2);
}

}  // namespace cooperative_groups
