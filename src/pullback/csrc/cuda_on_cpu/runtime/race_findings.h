/// The races of one launch, and the text that reports them.
#pragma once

#include <stddef.h>

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../types.h"
#include "race_access.h"

namespace cuda_on_cpu::race {

/// The smallest group that contains both threads of a race, in increasing order.
enum class Within { warp, block, grid };

/// A race between two places in the code, with one example: the first of those farthest apart.
struct Race {
  Access then, now;
  uintptr_t address;
  unsigned bytes;
  std::string memory;  // as the report calls it
  Within within;
  bool both_write;        // so did some of the pairs
  bool several_elements;  // the pairs are at more than one address

  void add(const Race& other);
};

/// A read of shared memory that no thread of the block had written.
struct Unwritten {
  Access read;
  std::string memory;
};

/// A stretch of memory that has a name.
struct Name {
  uintptr_t low;
  size_t bytes;
  std::string name;
};

/// A line at which the threads of a block wait for each other.
struct Barrier {
  const char* file;
  int line;
};

/// The text of a finding of one kind: rows as "    key: value".
struct Report {
  const char* rule = nullptr;  // null: nothing was found
  std::string text;
};

class Findings {
 public:
  void launch_begins(const char* kernel, const char* file, int line, uint3 grid, uint3 block);
  void block_begins(uint64_t block);

  void add(const Access& then, const Access& now, uintptr_t cell, bool shared);
  void add_unwritten(const Access& read, uintptr_t address, size_t bytes);
  /// Notes that plain reads here precede an atomic on the same address, see race.h.
  void add_hint(uint64_t pc) { hints_.insert(pc); }
  /// Notes that there are fences or atomics, which may order blocks.
  void add_announcement() { announcements_ = true; }

  /// Notes a barrier at this line, so that a report does not advise one there.
  void add_barrier(const char* file, int line);

  void name_shared(uintptr_t low, size_t bytes, const char* name);
  void name_argument(uintptr_t low, size_t bytes, const char* name);

  bool announces() const { return announcements_; }
  const std::vector<Barrier>& barriers() const { return barriers_; }
  /// `forgot`: the detector ran out of memory for accesses.
  Report report(bool forgot) const;

 private:
  friend class Writer;

  std::string name_of(uintptr_t address, size_t bytes, bool shared) const;
  bool counts(const Race& race) const;

  std::string kernel_, launched_at_;
  uint3 grid_{}, block_{};
  std::vector<uint64_t> blocks_;                         // their indices, in the order they ran
  std::map<std::pair<uint64_t, uint64_t>, Race> races_;  // by the code of both
  std::map<uint64_t, Unwritten> unwritten_;
  std::unordered_set<uint64_t> hints_;
  std::vector<Name> shared_, arguments_;
  std::vector<Barrier> barriers_;
  bool announcements_ = false;
};

}  // namespace cuda_on_cpu::race
