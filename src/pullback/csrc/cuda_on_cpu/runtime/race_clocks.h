/// The happens-before relation: clocks of a block's threads, and what fences and atomics pass on.
///
/// Each thread has a clock that advances at every barrier, collective and fence, so an access is
/// dated by its thread and that thread's clock. A thread knows the others of its block up to the
/// last barrier, the lanes of its warp by a vector clock, and the rest by what it has acquired.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "race_access.h"

namespace cuda_on_cpu::race {

/// States that the first `length` releases at one address are known. Sorted by address.
struct Prefix {
  uintptr_t address;
  size_t length;
};
/// Immutable, so that threads may share it; null where nothing was acquired.
using Acquired = std::shared_ptr<const std::vector<Prefix>>;

/// What a thread knew at its last fence, or what several threads that met had fenced.
struct Fenced {
  uint32_t block, barrier;       // everything in this block before the barrier,
  uint32_t first;                // for its threads from the first on
  std::vector<uint32_t> clocks;  // everything up to their clocks,
  Acquired acquired;             // and what they had acquired

  bool covers(const Access& access) const {
    if (access.clock < barrier) return true;
    const uint32_t at = static_cast<uint32_t>(access.thread) - first;
    return at < clocks.size() && access.clock <= clocks[at];
  }
};
using Publishable = std::shared_ptr<const Fenced>;

/// The releases at one address, in the order they were made.
class Releases {
 public:
  void add(const Publishable& fenced);
  size_t count() const { return all_.size(); }
  /// Whether one of the first `length` releases covers the access.
  bool cover(const Access& access, size_t length) const;
  /// What a thread that reads here now acquires, beside these releases themselves.
  const Acquired& acquired() const { return acquired_; }

 private:
  std::vector<Publishable> all_;
  std::unordered_map<uint32_t, std::vector<size_t>> of_block_;
  Acquired acquired_;
};

class Clocks {
 public:
  void launch_begins();
  void block_begins(unsigned threads);

  void barrier();
  void collective(unsigned warp, uint32_t lanes);
  void thread_ends(unsigned thread);
  void fence(unsigned thread);
  /// Publishes at `address` what the thread has fenced.
  void release(unsigned thread, uintptr_t address);
  void acquire(unsigned thread, uintptr_t address);

  uint32_t clock(unsigned thread) const { return threads_[thread].clock; }
  uint32_t block() const { return block_; }
  bool fenced_since_barrier(unsigned thread) const { return threads_[thread].fence >= barrier_; }

  /// Whether the access happened before what the thread, of the running block, does now.
  bool before(const Access& access, unsigned thread) const {
    if (access.block == block_) {
      if (access.clock < barrier_ || access.thread == thread) return true;
      if (access.thread / 32 == thread / 32 &&
          access.clock <= threads_[thread].known[access.thread % 32]) {
        return true;
      }
    }
    return was_acquired(access, acquired_by(thread));
  }

 private:
  struct Thread {
    uint32_t clock = 1;
    uint32_t fence = 0;       // the clock at the last fence
    uint32_t known[32] = {};  // for each lane of its warp, up to which clock it happened before
    bool ended = false;
    Publishable fenced;                 // since the last barrier; null: what the block has fenced
    Acquired acquired;                  // the same
    const Fenced* published = nullptr;  // its last release, and where
    uintptr_t published_at = 0;
  };

  const Publishable& fenced_by(unsigned thread) const {
    return threads_[thread].fenced ? threads_[thread].fenced : fenced_;
  }
  const Acquired& acquired_by(unsigned thread) const {
    return threads_[thread].acquired ? threads_[thread].acquired : acquired_;
  }
  bool was_acquired(const Access& access, const Acquired& acquired) const;
  void share_knowledge(Thread* warp, uint32_t lanes);

  uint32_t block_ = 0, blocks_ = 0, barrier_ = 1;
  std::vector<Thread> threads_;
  Publishable fenced_;
  Acquired acquired_;
  bool news_ = false;  // a thread has fenced or acquired something since the last barrier
  std::unordered_map<uintptr_t, Releases> releases_;
};

}  // namespace cuda_on_cpu::race
