/// One access to memory, as the race detector stores it: only 16 bytes, since there are many.
#pragma once

#include <cstdint>

namespace cuda_on_cpu::race {

enum Kind : unsigned {
  is_read = 0,
  is_write = 1,
  is_atomic = 2,
  is_volatile = 4,
  /// A write that left the value as it was. It can only race with writes of other values.
  is_silent = 8,
};

struct Access {
  uint64_t pc : 48, thread : 10, kind : 6;
  /// `block` counts the blocks in the order they ran; `bytes`, a bit for each of eight bytes, is 0
  /// where there is no access; `clock` is the thread's, see race_clocks.h.
  uint64_t block : 24, bytes : 8, clock : 32;

  bool changes() const { return (kind & (is_write | is_silent)) == is_write; }
  bool by_same_thread(const Access& other) const {
    return block == other.block && thread == other.thread;
  }
  bool in_same_warp(const Access& other) const {
    return block == other.block && thread / 32 == other.thread / 32;
  }
};
static_assert(sizeof(Access) == 16);

constexpr uint64_t most_blocks = 1 << 24;

}  // namespace cuda_on_cpu::race
