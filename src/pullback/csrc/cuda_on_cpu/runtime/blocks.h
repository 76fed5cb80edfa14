/// The blocks of a launch that have not begun; they are handed out in order, each once.
#pragma once

#include "options.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace cuda_on_cpu {

/// Blocks from `next` to before `end`, by their places in the order of the launch.
struct Range {
  uint64_t next = 0, end = 0;
  bool is_empty() const { return next >= end; }
};

class Blocks {
 public:
  Blocks(uint64_t count, Order order);

  /// Takes the next few blocks; none are left if the range is empty.
  Range take();
  /// Takes the block of the lowest index: running blocks may wait for it.
  Range take_lowest();
  /// Gives back blocks that were taken and have not begun.
  void give_back(Range range);
  bool is_empty();

  /// The index of the block at a place of the order, and the place of an index.
  uint64_t index_at(uint64_t place) const;
  uint64_t place_of(uint64_t index) const;

  const uint64_t count;

 private:
  bool has_begun(uint64_t place) const { return place < next_ || early_.count(place); }
  void skip_early();

  const Order order_;
  uint64_t at_once_;                  // blocks that a worker takes
  uint64_t stride_ = 1, offset_ = 0;  // the random order: (place * stride + offset) % count
  uint64_t back_ = 1;                 // stride * back % count == 1
  std::mutex mutex_;
  uint64_t next_ = 0;            // places below it were taken
  uint64_t lowest_ = 0;          // indices below it were taken
  std::set<uint64_t> early_;     // places that were taken although they are not below `next_`
  std::vector<Range> returned_;  // sorted; the lowest last
};

}  // namespace cuda_on_cpu
